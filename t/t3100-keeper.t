#!/bin/sh
test_description='The keeper: the service beside the broker, started again after a death'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"

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

test_expect_success FLUX 'the service has a process group of its own, in the session of its keeper' '
	with_flux >out <<-EOD &&
	flux ensemble load --isolate idle.yaml && pid=\$(kept pid) &&
	echo \$pid \$(ps -o pgid= -p \$pid) &&
	echo \$(ps -o sess= -p \$pid) \$(ps -o sess= -p \$(ps -o ppid= -p \$pid))
	EOD
	tail -n 2 out | awk "NF != 2 || \$1 != \$2 { exit 1 }"
'

test_expect_success FLUX 'the end of the instance ends the service, in good order' '
	wait_gone "$(cat pid)" &&
	test_must_fail grep -i "panic\|killed\|ensemble.*err" err
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
	flux ensemble wait --timeout 300 busy &&
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
	! flux module load --name other "$keeper" "$python" &&
	! flux module load "$keeper" python=$(command -v false) &&
	! flux module list | grep ensemble-keeper && flux run true
	EOD
	grep "cannot tell which Python" err &&
	grep "unknown argument .colour=red" err &&
	grep "deaths: expected a whole number, not .many." err &&
	grep "expected the name .ensemble-keeper., not .other." err &&
	grep "does not start: .*/no/such" err &&
	grep "does not start: it exited with status 1" err
'

test_expect_success FLUX 'one that dies again and again is given up, which doctor says; supervise begins anew' '
	with_flux >out 2>err <<-EOD &&
	flux module load "$keeper" "$python" deaths=3 pause=0 &&
	kill_service && kill_service && kill -KILL \$(kept pid) &&
	wait_until is_kept state "given up" &&
	! flux ensemble list && ! flux ensemble doctor && flux run true &&
	! flux ensemble load idle.yaml && ! flux ensemble load --isolate idle.yaml &&
	! flux module list | grep "^ensemble " &&
	flux ensemble supervise && flux ensemble list && kept state && kept restarts
	EOD
	grep "ensemble-keeper.crit.*3 deaths within 300 s, it is not started again" err &&
	grep "^keeper  *problem  *not started again any more" out &&
	is 3 "$(grep -c "ERROR: .*died too often .* was killed by SIGKILL: .*flux ensemble supervise" err)" &&
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

test_expect_success FLUX 'a service that does not answer is killed and started again' '
	with_flux >out 2>err <<-EOD &&
	flux module load "$keeper" "$python" silence=5 && flux ensemble load idle.yaml &&
	old=\$(kept pid) && kill -STOP \$old && wait_until is_another \$old &&
	flux ensemble list && kept last_exit
	EOD
	grep "^idle  *running" out &&
	grep "did not answer for 5 s, and was killed by SIGKILL" out
'

test_expect_success FLUX 'commands give up a service that does not answer, and say so, and it goes on when it does' '
	cat >silent.py <<-EOD &&
	import sys
	from flux_ensemble.cli.main import run_command
	from flux_ensemble.cli.session import log_reader, reconnect
	from flux_ensemble.client import connection
	connection.SILENT_SECONDS = 1.0
	connection.FIRST_LOOK = connection.LOOK_INTERVAL = log_reader.LOOK_INTERVAL = 0.5
	connection.LOOK_TIMEOUT = reconnect.LOOK_TIMEOUT = 0.5
	sys.exit(run_command(sys.argv[1:]))
	EOD
	with_flux >out 2>err <<-EOD &&
	flux module load "$keeper" "$python" silence=0 && flux ensemble load idle.yaml &&
	old=\$(kept pid) && kill -STOP \$old &&
	for words in list "status idle" "jobs idle" "log idle" "pause idle"; do
		"$SHARNESS_BUILD_DIRECTORY/python" silent.py \$words; echo "exited with \$?"
	done
	kill -CONT \$old && flux ensemble list && kept pid >pid && echo \$old >>pid && kept restarts
	EOD
	is 5 "$(grep -c "^exited with 1$" out)" &&
	is 5 "$(grep -c "ERROR: the ensemble service has answered nothing for 1 s: it is stopped, or waits" err)" &&
	is 1 "$(uniq pid | wc -l)" &&
	is 0 "$(tail -n 1 out)" && grep "^idle " out
'

test_expect_success FLUX 'commands wait for a service that is started again, not for what the dead one had' '
	cat >lost.py <<-EOD &&
	import os, signal, threading
	from flux_ensemble.client import Client, EnsembleError
	def ask(op, **payload):
	    Client().list() # waits for it
	    pid = Client().keeper()["pid"]
	    os.kill(pid, signal.SIGSTOP)
	    threading.Timer(1, os.kill, (pid, signal.SIGKILL)).start()
	    try:
	        return Client().call(op, **payload)
	    except EnsembleError as error:
	        return error
	print(ask("unload", name="nothing"))
	print(len(ask("list")["ensembles"]), "listed")
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
	grep "the ensemble service went away" out &&
	grep "^1 listed" out
'

test_expect_success FLUX 'the keeper and the service end with a broker that is killed' '
	cat >crash <<-EOD &&
	. ./functions
	flux ensemble load --isolate idle.yaml && kept pid >crash.pid && kill -KILL \$(flux getattr broker.pid)
	EOD
	test_expect_code 137 flux start sh ./crash &&
	wait_gone "$(cat crash.pid)"
'

test_done
