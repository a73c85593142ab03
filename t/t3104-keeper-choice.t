#!/bin/sh
test_description='In the broker or beside it: what chooses, and how one replaces the other'
# What the broker starts looks for the Python beside the command.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"

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
	grep "ERROR: .*loaded as a broker module: .flux ensemble supervise." err &&
	grep "ERROR: guests may not" err &&
	grep "is started beside the broker" out && grep "kept running by the module .* already" out &&
	grep "^idle .*running" out &&
	test_must_fail grep "^ensemble " out
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
