#!/bin/sh
test_description='The service starts and ends with the broker: etc/modprobe.d and etc/rc1.d'
# What the broker starts looks for the Python beside the command.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"

# Run a script as the initial program of an instance that finds etc/.
#
# $@ - More options for flux start; the script is standard input.
with_etc() {
	cat >script &&
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" flux start "$@" sh ./script
}

test_expect_success FLUX 'the service is there, on rank 0 alone, and the instance ends well' '
	with_etc --test-size=2 >out 2>err <<-EOD &&
	flux ensemble list &&
	flux module list >rank0 &&
	flux exec -r 1 flux module list >rank1
	EOD
	grep "^ensemble " rank0 &&
	test_must_fail grep "^ensemble " rank1 &&
	test_must_fail grep -i "panic\|not loaded" err
'

test_expect_success FLUX 'an instance with a busy ensemble ends well' '
	cat >busy.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: sleep, command: sleep 600, count: 2}
	rules:
	  - {trigger: start, action: {name: submit, label: sleep}}
	  - {trigger: job-start, action: {name: custom, label: nap}}
	custom: |
	  import time
	  def nap(**kwargs): time.sleep(600)
	EOD
	with_etc <<-EOD
	flux ensemble load busy.yaml &&
	flux python "$SHARNESS_TEST_SRCDIR/lib/wait_entry.py" busy fire 2
	EOD
'

test_expect_success FLUX 'the module can be removed and loaded again by its name' '
	arguments=$("$SHARNESS_BUILD_DIRECTORY/python" -c \
		"from flux_ensemble.bindings import *; print(*module_arguments())") &&
	with_etc <<-EOD
	flux module remove ensemble && flux module load ensemble $arguments && flux ensemble list
	EOD
'

test_expect_success FLUX 'what the module needs is not removed before it' '
	with_etc >out 2>&1 <<-EOD &&
	! flux modprobe remove job-manager
	EOD
	grep "job-manager still in use by .*ensemble" out
'

test_expect_success FLUX 'an instance that cannot load it starts without it and says so' '
	PATH="$(dirname "$(command -v flux)"):/usr/bin:/bin" with_etc 2>err <<-EOD &&
	! flux module list | grep "^ensemble " && flux run hostname
	EOD
	grep "the ensemble service is not loaded: there is no flux-ensemble on PATH" err
'

test_expect_success FLUX 'a configuration can leave it out' '
	printf "[modules]\nensemble.disabled = true\n" >conf.toml &&
	with_etc --config-path=conf.toml 2>err <<-EOD &&
	! flux module list | grep "^ensemble "
	EOD
	test_must_fail grep "not loaded" err
'

test_expect_success MOUNT 'where the rundir is full from the start the service says so, and ensembles run' '
	cat >ran.yaml <<-EOD &&
	jobs:
	  - {name: hello, command: "true", count: 3}
	rules:
	  - {trigger: start, action: {name: submit, label: hello}}
	EOD
	# Its path is short, since sockets are in it.
	rundir=$(mktemp -d) && test_when_finished "umount -l $rundir; rmdir $rundir" &&
	mount -t tmpfs -o mode=0700,size=4m none "$rundir" &&
	mkdir state &&
	cat >full.sh <<-EOD &&
	cat /dev/zero >"$rundir/ballast"
	flux ensemble run ran.yaml
	EOD
	flux start -Srundir="$rundir" -Sstatedir="$PWD/state" sh ./full.sh >out 2>err &&
	grep "^hello  *3  *3 " out &&
	grep "cannot note which event is being handled (.*No space left on device" err
'

test_done
