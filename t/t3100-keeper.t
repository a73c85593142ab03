#!/bin/sh
test_description='The keeper: the service beside the broker, started again after a death'
. "$(dirname "$0")/lib/ensemble.sh"

# Shell functions for the initial programs of the instances here.
cat >functions <<-'EOF'
	# A value of what the keeper says of the service.
	kept() {
		flux module stats ensemble-keeper | flux python -c '
	import json, sys
	print(json.load(sys.stdin)[sys.argv[1]])' "$1"
	}

	# Run a command again and again until it succeeds, for up to 30 seconds.
	wait_until() {
		tries=0
		until "$@" >/dev/null 2>&1; do
			tries=$(($tries + 1))
			test $tries -lt 300 || return 1
			sleep 0.1
		done
	}

	is_kept() {
		test "$(kept $1)" = "$2"
	}

	is_gone() {
		! kill -0 "$1"
	}

	# Another process than $1 answers.
	is_another() {
		new=$(kept pid) && test "$new" != None && test "$new" != "$1" && is_kept state running
	}

	as_guest() {
		FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 "$@"
	}

	# Kill the service, and wait until it answers again.
	kill_service() {
		old=$(kept pid) && kill -KILL "$old" && wait_until is_another "$old" && flux ensemble list
	}
EOF

# Run a script as the initial program of an instance; it may call the functions above.
#
# $@ - Options for flux start; the script is standard input.
with_flux() {
	{
		echo ". ./functions"
		cat
	} >script &&
	flux start "$@" sh ./script
}

# The keeper's file, and the Python that it is to use.
keeper=$PROJECT/flux_ensemble/modules/ensemble-keeper.py
python=python=$SHARNESS_BUILD_DIRECTORY/python

cat >idle.yaml <<-EOD
name: idle
finish: never
jobs: [{name: echo, command: echo hello}]
rules: [{trigger: start, action: {name: submit, label: echo}}]
EOD

test_expect_success FLUX 'load --isolate: the service is a process beside the broker, which is said' '
	with_flux >out 2>err <<-EOD &&
	flux ensemble load --isolate idle.yaml && flux ensemble load --isolate --name other idle.yaml &&
	flux module list >modules && flux ensemble status >status && kept pid >pid
	EOD
	is 1 "$(grep -c "^flux-ensemble: the ensemble service is started beside the broker.*ensemble-keeper" err)" &&
	grep "^ensemble-keeper " modules &&
	test_must_fail grep "^ensemble " modules &&
	grep "process (pid $(cat pid))" status
'

test_expect_success FLUX 'the end of the instance ends the service, in good order' '
	wait_gone "$(cat pid)" &&
	test_must_fail grep -i "panic\|killed\|ensemble.*err" err
'

test_expect_success FLUX '[ensemble] service chooses, and a word that there is not is refused' '
	printf "[ensemble]\nservice = \"process\"\n" >process.toml &&
	with_flux --config-path=process.toml >out <<-EOD &&
	flux ensemble load --name a idle.yaml && flux module list && flux dmesg
	EOD
	grep "^ensemble-keeper " out &&
	test_must_fail grep "unknown key" out &&
	printf "[ensemble]\nservice = \"moduel\"\n" >wrong.toml &&
	with_flux --config-path=wrong.toml 2>err <<-EOD &&
	! flux ensemble load idle.yaml
	EOD
	grep "service: expected one of module, process, not .moduel." err
'

test_expect_success FLUX 'where the broker cannot import the service, load and etc/ take the keeper' '
	# A directory that the Python of Flux reads, and the one of a virtual environment does not.
	PYTHONUSERBASE=$PWD/base && export PYTHONUSERBASE &&
	directory=$(flux python -c "import site; print(site.getusersitepackages())") &&
	mkdir -p "$directory" &&
	echo "import sys; sys.modules[\"river\"] = None" >"$directory/usercustomize.py" &&
	with_flux >out 2>err <<-EOD &&
	flux ensemble load idle.yaml && flux module list && flux ensemble doctor
	EOD
	grep "beside the broker.*, because Flux.s own Python cannot import it" err &&
	grep "^ensemble-keeper " out &&
	grep "^keeper  *ok  *a process beside the broker, started again 0 times" out &&
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" with_flux >out 2>err <<-EOD &&
	flux module list && flux ensemble list
	EOD
	unset PYTHONUSERBASE &&
	grep "^ensemble-keeper " out &&
	test_must_fail grep "not loaded" err
'

test_expect_success FLUX 'kill -9 with jobs in flight: the instance lives, nothing is lost, nothing twice' '
	cat >busy.yaml <<-EOD &&
	name: busy
	jobs:
	  - {name: one, command: sleep 0.1, count: 20}
	  - {name: two, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: one}}
	  - {trigger: job-finish, name: one, action: {name: submit, label: two, repetitions: unlimited}}
	EOD
	with_flux >out 2>err <<-EOD &&
	flux ensemble load --isolate busy.yaml &&
	kill_service && kill_service && kill_service &&
	flux ensemble wait --timeout 2m busy &&
	flux ensemble status --json busy >busy.json &&
	kept restarts && kept last_exit && flux jobs -a --no-header | wc -l
	EOD
	tail -n 3 out >tail &&
	printf "%s\n" 3 "was killed by SIGKILL" 40 >expected &&
	test_cmp expected tail &&
	is 20 "$(json ensembles.0.groups.one.success <busy.json)" &&
	is 20 "$(json ensembles.0.groups.two.success <busy.json)" &&
	is 0 "$(json ensembles.0.violations <busy.json)" &&
	grep "the ensemble service was killed by SIGKILL; it is started again" err
'

test_expect_success FLUX 'the verbs of modules: load with arguments, reload, remove' '
	with_flux >out <<-EOD &&
	flux module load "$keeper" "$python" log-level=warning &&
	flux ensemble load --name a idle.yaml && kept state && old=\$(kept pid) &&
	flux module reload "$keeper" "$python" && is_gone \$old && new=\$(kept pid) && kept restarts &&
	! flux module load "$keeper" "$python" &&
	flux ensemble list && flux module remove ensemble-keeper && is_gone \$new &&
	flux dmesg | grep "ensemble.info.*begins epoch"
	EOD
	cat out &&
	grep "^running$" out && grep "^0$" out && grep "^a  *" out &&
	test_must_fail grep "begins epoch 1" out && grep "begins epoch 2" out
'

test_expect_success FLUX 'what cannot start is said, by the load and by the log' '
	with_flux 2>err <<-EOD &&
	! flux module load "$keeper" python=/no/such && ! flux module load "$keeper" &&
	! flux module load "$keeper" colour=red && ! flux module load "$keeper" deaths=many &&
	! flux module load "$keeper" python=$(command -v false) &&
	! flux module list | grep ensemble-keeper && flux run true
	EOD
	grep "cannot tell which Python" err &&
	grep "unknown argument .colour=red" err &&
	grep "deaths: expected a whole number, not .many." err &&
	grep "does not start: .*/no/such" err &&
	grep "does not start: it exited with status 1" err
'

test_expect_success FLUX 'one that dies again and again is given up, which doctor says; supervise begins anew' '
	with_flux >out 2>err <<-EOD &&
	flux module load "$keeper" "$python" deaths=3 pause=0 &&
	kill_service && kill_service && kill -KILL \$(kept pid) &&
	wait_until is_kept state "given up" &&
	! flux ensemble list && ! flux ensemble doctor && flux run true &&
	flux ensemble supervise && flux ensemble list && kept state && kept restarts
	EOD
	grep "ensemble-keeper.crit.*3 deaths within 300 s, it is not started again" err &&
	grep "^keeper  *problem  *not started again any more" out &&
	is "running 0" "$(tail -n 2 out | tr "\n" " " | sed "s/ $//")"
'

test_expect_success FLUX 'kill -9 of the keeper ends the service at once' '
	with_flux -Sbroker.module-nopanic=1 <<-EOD
	flux ensemble load --isolate idle.yaml &&
	pid=\$(kept pid) &&
	kill -KILL \$(ps -o ppid= -p \$pid) && wait_until is_gone \$pid &&
	flux ensemble supervise && flux ensemble list
	EOD
'

test_expect_success FLUX 'a site has it with every instance: etc/ and the configuration' '
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" \
		with_flux --test-size=2 --config-path=process.toml >out 2>err <<-EOD &&
	flux module list && ! flux exec -r 1 flux module list | grep "^ensemble-keeper" &&
	kept pid >pid && kill_service && ! flux modprobe remove job-manager
	EOD
	grep "^ensemble-keeper " out &&
	test_must_fail grep "^ensemble \|panic\|not loaded" out &&
	test_must_fail grep "panic\|not loaded" err &&
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" with_flux --config-path=wrong.toml 2>err <<-EOD &&
	! flux module list | grep "^ensemble"
	EOD
	grep "is not loaded: .ensemble. service: expected module or process, not .moduel." err
'

test_expect_success FLUX 'commands wait for a service that is started again, not for what the dead one had' '
	cat >lost.py <<-EOD &&
	import os, signal, threading
	from flux_ensemble.client import Client, EnsembleError
	pid = Client().keeper()["pid"]
	os.kill(pid, signal.SIGSTOP)
	threading.Timer(1, os.kill, (pid, signal.SIGKILL)).start()
	try:
	    Client().call("list")
	except EnsembleError as error:
	    print(error)
	EOD
	sed "s/^finish: never/finish: idle/" idle.yaml >short.yaml &&
	with_flux >out 2>err <<-EOD &&
	flux ensemble run --isolate short.yaml >run.out &&
	kill -KILL "\$(kept pid)" && flux ensemble list &&
	"$SHARNESS_BUILD_DIRECTORY/python" lost.py
	EOD
	grep "beside the broker" err &&
	grep "^idle  *completed" out &&
	test_must_fail grep "not loaded" err &&
	grep "the ensemble service went away" out
'

test_expect_success FLUX 'supervise replaces the module, whose ensembles go on; twice is as good as once' '
	with_flux >out 2>err <<-EOD &&
	flux ensemble load idle.yaml &&
	! flux module load "$keeper" "$python" && ! flux ensemble load --isolate --name b idle.yaml &&
	! as_guest flux ensemble supervise &&
	flux ensemble supervise && flux ensemble supervise &&
	flux ensemble list && flux module list && kill_service &&
	! as_guest flux module stats ensemble-keeper
	EOD
	cat out &&
	grep "does not start: a service named .ensemble. is registered already" err &&
	grep "ERROR: .*as a module of the broker: .flux ensemble supervise." err &&
	grep "ERROR: guests may not" err &&
	grep "is started beside the broker" out && grep "kept running by the module .* already" out &&
	grep "^idle .*running" out &&
	test_must_fail grep "^ensemble " out
'

test_expect_success FLUX 'the keeper and the service end with a broker that is killed' '
	cat >crash <<-EOD &&
	. ./functions
	flux ensemble load --isolate idle.yaml && kept pid >crash.pid && kill -KILL \$(flux getattr broker.pid)
	EOD
	test_expect_code 137 flux start sh ./crash &&
	wait_gone "$(cat crash.pid)"
'

test_expect_success FLUX 'serve is for something else to start again, as the loop of etc/README.md does' '
	sed -n "/^    until flux ensemble serve/,/^    done/s/^    //p" "$PROJECT/etc/README.md" >loop &&
	grep "until flux ensemble serve" loop &&
	with_flux 2>err <<-EOD &&
	pid() { flux ensemble status --json | flux python -c "
	import json, sys
	print(json.load(sys.stdin)[\"service\"][\"pid\"])"; }
	sh ./loop >loop.log 2>&1 & loop=\$!
	wait_until flux ensemble list && kill -KILL \$(pid) && wait_until flux ensemble list &&
	! flux ensemble supervise &&
	kill -INT \$(pid) && wait \$loop
	EOD
	grep "^flux-ensemble: ERROR: .*flux ensemble serve" err
'

test_done
