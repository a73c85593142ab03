#!/bin/sh
test_description='Supervision: the service is started again after a crash'
. "$(dirname "$0")/lib/ensemble.sh"

# Shell functions for the initial programs of the instances here.
cat >functions <<-'EOF'
	# The process id of the service.
	service_pid() {
		flux ensemble status --json | flux python -c '
	import json, sys
	print(json.load(sys.stdin)["service"]["pid"])'
	}

	# Wait until the service answers with another process id than $1.
	wait_service() {
		tries=0
		until pid=$(service_pid 2>/dev/null) && test "$pid" != "$1"; do
			tries=$(($tries + 1))
			test $tries -lt 150 || return 1
			sleep 0.2
		done
	}

	# Kill the service, and wait until it answers again.
	kill_service() {
		old=$(service_pid) && kill -KILL "$old" && wait_service "$old"
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

test_expect_success FLUX 'flux ensemble supervise: the service comes back after kill -9, each time' '
	with_flux >out 2>err <<-EOD &&
	flux ensemble supervise &&
	test "\$(flux getattr broker.module-nopanic)" = 1 &&
	kill_service && kill_service && flux run echo healthy
	EOD
	grep "is started again after a crash" out &&
	grep healthy out
'

test_expect_success FLUX 'commands wait for a service that is being started again' '
	cat >idle.yaml <<-EOD &&
	finish: never
	jobs: [{name: echo, command: echo hello}]
	EOD
	with_flux >out 2>waits.err <<-EOD &&
	flux ensemble supervise &&
	flux ensemble load idle.yaml &&
	kill -KILL "\$(service_pid)" &&
	until ! flux module list | grep -q "^ensemble "; do sleep 0.05; done &&
	flux ensemble list &&
	kill -KILL "\$(service_pid)" &&
	until ! flux module list | grep -q "^ensemble "; do sleep 0.05; done &&
	flux ensemble log idle
	EOD
	grep "^idle .*running" out &&
	grep "start" out &&
	test_must_fail grep "not loaded" waits.err
'

test_expect_success FLUX 'a service that is not supervised is not waited for' '
	with_flux >out 2>unloaded.err <<-EOD &&
	! flux ensemble list
	EOD
	grep "the ensemble service is not loaded" unloaded.err
'

test_expect_success FLUX 'the instance then ends well, and does not load it once more' '
	grep "killed" err &&
	test_must_fail grep "ensemble: Connection reset\|panic\|cron-1.*Failed" err
'

test_expect_success FLUX 'a module that was loaded before is supervised, and twice is as good as once' '
	with_flux >out 2>&1 <<-EOD &&
	flux ensemble supervise && flux ensemble supervise && kill_service &&
	flux cron list
	EOD
	is 1 "$(grep -c " ensemble  *Active" out)"
'

test_expect_success FLUX '--off: it may be removed and stays away' '
	with_flux >out 2>&1 <<-EOD &&
	flux ensemble supervise && flux ensemble supervise --off &&
	flux module remove ensemble && flux ensemble supervise --off
	! flux cron list | grep " ensemble "
	EOD
	grep "not started again any more" out &&
	grep "was not supervised" out
'

test_expect_success FLUX 'a site has it supervised from the start of the broker' '
	printf "[ensemble]\nsupervise = true\n" >conf.toml &&
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" \
		with_flux --test-size=2 --config-path=conf.toml >out 2>err <<-EOD &&
	test "\$(flux getattr broker.module-nopanic)" = 1 &&
	kill_service && flux run echo healthy
	EOD
	grep healthy out &&
	test_must_fail grep "ensemble: Connection reset\|panic\|not loaded\|not supervised" err
'

test_expect_success FLUX 'without it a site has the module alone' '
	FLUX_MODPROBE_PATH_APPEND="$PROJECT/etc" with_flux <<-EOD
	flux ensemble list && ! flux cron list | grep " ensemble " &&
	! flux getattr broker.module-nopanic
	EOD
'

test_expect_success FLUX 'serve is for something else to start again, which is said' '
	with_flux 2>err <<-EOD &&
	flux ensemble serve 2>serve.log & serve=\$!
	wait_service none &&
	! flux ensemble supervise &&
	kill \$serve && wait \$serve
	EOD
	grep "^flux-ensemble: ERROR: .*flux ensemble serve" err
'

test_expect_success FLUX 'the loop of etc/README.md starts serve again' '
	sed -n "/^    until flux ensemble serve/,/^    done/s/^    //p" "$PROJECT/etc/README.md" >loop &&
	grep "until flux ensemble serve" loop &&
	with_flux <<-EOD
	sh ./loop >loop.log 2>&1 & loop=\$!
	wait_service none && kill_service &&
	kill -INT \$(service_pid) && wait \$loop
	EOD
'

test_expect_success FLUX 'a guest may not change it' '
	with_flux 2>err <<-EOD &&
	flux ensemble supervise &&
	! FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 flux ensemble supervise --off &&
	flux cron list | grep " ensemble "
	EOD
	grep "only the owner" err
'

test_done
