#!/bin/sh
test_description='Commands that follow an ensemble outlive a restart of the service'
# Signals are sent to the commands here.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1 -Sbroker.module-nopanic=1

# Kill the service, and wait until those who follow have seen it.
#
# $@ - The files that they write their standard error to.
kill_service() {
	kill -KILL "$(rpc status | json service.pid)" &&
	for file in "$@"; do
		wait_text "waiting for it to come back" "$file" || return 1
	done
}

# Load the service where it is not there.
need_service() {
	flux module list | grep -q "^ensemble " || load_module
}

# Wait until a file has a line that matches: `wait_text TEXT FILE`.
wait_text() {
	tries=0
	until grep -q "$1" "$2" 2>/dev/null; do
		tries=$(($tries + 1))
		test $tries -lt 1800 || return 1
		sleep 0.1
	done
}

# An ensemble that ends when the file `go` is there: `write_document NAME`.
write_document() {
	cat >"$1.yaml" <<-EOD
	name: $1
	jobs:
	  - name: first
	    command: "true"
	  - name: second
	    command: sh -c "until test -e $1.go; do sleep 0.1; done"
	  - name: third
	    command: "true"
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - {trigger: job-success, name: first, action: {name: submit, label: second}}
	  - {trigger: job-success, name: second, action: {name: submit, label: third}}
	EOD
}

test_expect_success 'run goes on, prints nothing twice, and exits as its ensemble does' '
	need_service &&
	write_document run &&
	{ flux ensemble run run.yaml >run-run.out 2>run-run.err & pid=$!; } &&
	wait_text "submit second" run-run.out &&
	kill_service run-run.err &&
	load_module &&
	wait_text "is back" run-run.err &&
	touch run.go &&
	wait $pid &&
	is 1 "$(grep -c "went away" run-run.err)" &&
	is 3 "$(grep -c "=> trigger" run-run.out)" &&
	grep "submit third" run-run.out
'

test_expect_success 'watch, wait, log --follow and the Python client go on too' '
	need_service &&
	write_document all &&
	cat >client.py <<-EOD &&
	import json
	from flux_ensemble.client import Client
	for entry in Client().log("all", follow=True):
	    print(json.dumps(entry), flush=True)
	EOD
	flux ensemble load all.yaml &&
	{ flux ensemble watch all >all-watch.out 2>all-watch.err & watch=$!; } &&
	{ flux ensemble wait all >all-wait.out 2>all-wait.err & wait=$!; } &&
	{ flux ensemble log --json --follow all >all-log.out 2>all-log.err & log=$!; } &&
	{ "$SHARNESS_BUILD_DIRECTORY/python" client.py >all-client.out & client=$!; } &&
	for file in all-watch.out all-log.out all-client.out; do
		wait_text second $file || return 1
	done &&
	kill_service all-watch.err all-wait.err all-log.err &&
	load_module &&
	touch all.go &&
	wait $watch && wait $wait && wait $log && wait $client &&
	is 3 "$(grep -c "=> trigger" all-watch.out)" &&
	grep "^all: completed" all-wait.out &&
	flux ensemble log --json all >whole &&
	test_cmp whole all-log.out &&
	test_cmp whole all-client.out
'

test_expect_success 'a service that is removed and loaded again is the same to them' '
	need_service &&
	write_document removed &&
	flux ensemble load removed.yaml &&
	{ flux ensemble log --json --follow removed >removed-log.out 2>removed-log.err & log=$!; } &&
	wait_text second removed-log.out &&
	flux module remove ensemble &&
	wait_text "waiting for it to come back" removed-log.err &&
	load_module &&
	touch removed.go &&
	wait $log &&
	flux ensemble log --json removed >whole &&
	test_cmp whole removed-log.out
'

test_expect_success 'Ctrl-C while watch and log wait for it leaves at once' '
	need_service &&
	write_document left &&
	flux ensemble load left.yaml &&
	interruptible flux ensemble watch left >left-watch.out 2>left-watch.err && watch=$pid &&
	interruptible flux ensemble log --follow left >left-log.out 2>left-log.err && log=$pid &&
	wait_text second left-watch.out && wait_text second left-log.out &&
	kill_service left-watch.err left-log.err &&
	kill -INT $watch $log &&
	test_expect_code 130 wait $watch &&
	test_expect_code 130 wait $log
'

test_expect_success 'Ctrl-C while run waits for it cancels the jobs when it is back' '
	need_service &&
	write_document cancel &&
	interruptible flux ensemble run cancel.yaml >cancel-run.out 2>cancel-run.err && run=$pid &&
	wait_text "submit second" cancel-run.out &&
	kill_service cancel-run.err &&
	kill -INT $run &&
	wait_text "its jobs are cancelled when the service is back" cancel-run.out &&
	load_module &&
	test_expect_code 130 wait $run &&
	is canceled "$(status_of cancel state)"
'

test_expect_success 'Ctrl-C twice while run waits for it leaves at once' '
	need_service &&
	write_document again &&
	interruptible flux ensemble run again.yaml >again-run.out 2>again-run.err && run=$pid &&
	wait_text "submit second" again-run.out &&
	kill_service again-run.err &&
	kill -INT $run &&
	wait_text "its jobs are cancelled when the service is back" again-run.out &&
	kill -INT $run &&
	test_expect_code 130 wait $run
'

test_expect_success 'flux ensemble serve, too, whose requests get no error when it is killed' '
	touch left.go again.go && # their jobs have all the cores
	test_might_fail flux module remove ensemble &&
	write_document serve &&
	{ flux ensemble serve 2>serve.log & } &&
	wait_service &&
	flux ensemble load serve.yaml &&
	{ flux ensemble watch serve >serve-watch.out 2>serve-watch.err & watch=$!; } &&
	{ flux ensemble log --json --follow serve >serve-log.out 2>serve-log.err & log=$!; } &&
	wait_text second serve-watch.out && wait_text second serve-log.out &&
	kill -KILL "$(rpc status | json service.pid)" &&
	{ flux ensemble serve 2>serve.log & serve=$!; } &&
	wait_text "is back" serve-watch.err && wait_text "is back" serve-log.err &&
	touch serve.go &&
	wait $watch && wait $log &&
	is 3 "$(grep -c "=> trigger" serve-watch.out)" &&
	flux ensemble log --json serve >whole &&
	test_cmp whole serve-log.out &&
	kill $serve && wait $serve
'

test_done
