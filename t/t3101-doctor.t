#!/bin/sh
test_description='flux ensemble doctor: what is wrong with an instance, and what to do'
. "$(dirname "$0")/lib/ensemble.sh"

# Run a script as the initial program of an instance.
#
# $@ - Options for flux start; the script is standard input.
with_flux() {
	cat >script &&
	flux start "$@" sh ./script
}

test_expect_success FLUX 'an instance that was made for it is healthy' '
	mkdir state &&
	printf "[kvs]\ncheckpoint-period = \"1m\"\n" >conf.toml &&
	with_flux -Sstatedir="$PWD/state" --config-path=conf.toml >out <<-EOD &&
	flux ensemble supervise >/dev/null && flux ensemble doctor
	EOD
	cat out &&
	grep "^all is well$" out &&
	test_must_fail grep "warning\|problem" out &&
	for check in flux service others keeper rundir tmpdir statedir content checkpoint kvs journal \
		clocks node-clocks guests scaler members ssh logs
	do
		grep "^$check  *ok  *[^ ]" out || return 1
	done &&
	grep "^statedir .*/state" out
'

test_expect_success FLUX 'it leaves nothing behind' '
	with_flux <<-EOD
	test_list() { flux kvs ls; } && test_list >before && flux ensemble doctor >/dev/null
	test_list >after && cmp before after
	EOD
'

test_expect_success FLUX 'it tells what the KVS holds of ensembles' '
	printf "jobs: [{name: echo, command: echo}]\nfinish: never\n" >idle.yaml &&
	with_flux >out <<-EOD &&
	flux ensemble load idle.yaml && flux ensemble load --name other idle.yaml &&
	flux ensemble doctor
	EOD
	grep "^logs  *ok  *the KVS holds 2 ensembles in [0-9]* values" out
'

test_expect_success FLUX 'a service that is not loaded yet is no problem, and what loads it is said' '
	with_flux >out <<-EOD &&
	flux ensemble doctor
	EOD
	cat out &&
	grep "^service  *ok  *it is not loaded yet: .run. and .load. do so" out &&
	grep "^[0-9] warnings" out
'

test_expect_success FLUX 'without a statedir and a keeper there are warnings, which are no failure' '
	with_flux >out <<-EOD &&
	flux module load \$("$SHARNESS_BUILD_DIRECTORY/python" -c \
		"from flux_ensemble.bindings import *; print(module_path(), *module_arguments())") &&
	flux ensemble doctor
	EOD
	cat out &&
	for check in statedir keeper; do
		grep "^$check  *warning " out || return 1
	done &&
	grep -e "-> .*flux start -Sstatedir=" out &&
	grep "^2 warnings" out
'

test_expect_success FLUX 'a statedir without checkpoints is a warning' '
	with_flux -Sstatedir="$PWD/state" >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	EOD
	cat out &&
	grep "^checkpoint  *warning .*checkpoint-period" out
'

test_expect_success FLUX 'job-ingest or job-exec that is gone is a problem, and the remedy is named' '
	with_flux >out <<-EOD &&
	for module in job-ingest job-exec
	do
		flux module remove \$module && flux ensemble doctor
		test \$? = 1 && flux module load \$module || exit 1
	done
	EOD
	cat out &&
	grep "^queue  *problem  *no job can be submitted" out &&
	grep -e "-> load it with .flux module load job-ingest." out &&
	grep "^queue  *problem  *no job can start" out &&
	grep -e "-> load it with .flux module load job-exec." out
'

test_expect_success FLUX 'a job manager that is gone is a problem' '
	with_flux >out <<-EOD &&
	flux ensemble supervise && flux module remove -f job-list sched-simple job-manager
	flux module remove job-manager; flux ensemble doctor
	code=\$?; flux module load job-manager; flux module load sched-simple; test \$code = 1
	EOD
	cat out &&
	grep "^journal  *problem " out
'

test_expect_success FLUX 'a wrong configuration is a problem' '
	printf "[ensemble]\nallow-guest-status = \"yes\"\n" >wrong.toml &&
	with_flux --config-path=wrong.toml >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	test \$? = 1
	EOD
	grep "^guests  *problem .*allow-guest-status" out
'

test_expect_success FLUX 'a scaler that is configured wrongly, or not for this instance, is a problem' '
	printf "[ensemble]\nscaler = \"instance\"\n" >wrong.toml &&
	with_flux --config-path=wrong.toml >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	test \$? = 1
	EOD
	grep "^scaler  *problem .*start-broker: missing" out &&
	printf "start-broker = \"start {host}\"\n" >>wrong.toml &&
	with_flux --config-path=wrong.toml >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	code=\$?; flux dmesg | grep "ensemble.err.*bootstrap"; test \$code = 1
	EOD
	cat out &&
	grep "^scaler  *problem .*the service does not use it" out
'

test_expect_success FLUX 'serve needs no keeper' '
	with_flux >out <<-EOD &&
	flux ensemble serve 2>serve.log & serve=\$!
	tries=0
	until flux ensemble list >/dev/null 2>&1; do
		tries=\$((\$tries + 1)); test \$tries -lt 1800 || exit 1; sleep 0.1
	done
	flux ensemble doctor; code=\$?
	kill \$serve && wait \$serve && exit \$code
	EOD
	grep "^service  *ok .* client" out &&
	grep "^keeper  *ok .*flux ensemble serve" out
'

test_expect_success FLUX 'clocks of nodes that differ are a warning' '
	mkdir clocks && cat >clocks/date <<-\EOD && chmod +x clocks/date &&
	#!/bin/sh
	seconds=$(/bin/date +%s)
	test "$(flux getattr rank)" = 0 || seconds=$(($seconds + 300))
	echo $seconds.5
	EOD
	PATH="$PWD/clocks:$PATH" with_flux --test-size=2 >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	EOD
	cat out && tr -s " \n" " " <out >words &&
	grep "node-clocks warning of 2 clocks, by that of this node, rank 1 is [23][0-9]* s ahead" words &&
	grep -e "-> have the clocks of the nodes set by one time server" words
'

test_expect_success FLUX 'ssh that fails between nodes is reported, and what members have in place of it' '
	printf "echo no route to \$1 >&2; exit 255\n" >no-ssh &&
	FLUX_SSH="sh no-ssh" with_flux --test-size=2 --test-hosts=here,there >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	EOD
	cat out && tr -s " \n" " " <out >words &&
	grep "ssh ok .*no-ssh there true. fails: no route to there; members get services of their own, unless" words
'

test_expect_success MOUNT 'a rundir that is nearly full is a warning' '
	mkdir small && mount -t tmpfs -o size=32m none small &&
	test_when_finished "umount -l small" &&
	with_flux -Srundir="$PWD/small" >out <<-EOD &&
	flux ensemble supervise && flux ensemble doctor
	EOD
	cat out && tr -s " \n" " " <out >words &&
	grep "rundir warning .*/small/[^ ]*, [0-9]* MiB free -> make room there" words
'

test_expect_success FLUX '--json has all of it' '
	with_flux >out <<-EOD &&
	flux ensemble doctor --json
	EOD
	is flux "$(json checks.0.check <out)" &&
	is launch "$(json checks.1.check <out)" &&
	is ok "$(json checks.1.state <out)" &&
	is service "$(json checks.2.check <out)" &&
	is ok "$(json checks.2.state <out)" &&
	json checks.2.found <out | grep "flux ensemble supervise"
'

test_expect_success FLUX 'a guest gets no traceback' '
	with_flux >out 2>&1 <<-EOD &&
	flux ensemble supervise &&
	FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 flux ensemble doctor
	EOD
	cat out &&
	grep "^service  *warning .*guests" out &&
	test_must_fail grep Traceback out
'

test_expect_success 'without an instance it says so, and fails' '
	(
		unset FLUX_URI &&
		test_expect_code 1 flux-ensemble doctor >out &&
		test_expect_code 1 flux-ensemble doctor --json >out.json
	) &&
	cat out &&
	grep "problem " out &&
	is problem "$(json checks.0.state <out.json)"
'

test_expect_success 'without Flux it says so, and fails' '
	(
		unset FLUX_URI &&
		PATH="$SHARNESS_BUILD_DIRECTORY:/nonexistent" &&
		test_expect_code 1 "$SHARNESS_BUILD_DIRECTORY/python" -m flux_ensemble.cli.main doctor
	) >out &&
	grep "^flux  *problem " out
'

test_done
