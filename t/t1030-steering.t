#!/bin/sh
test_description='what commands say that steer and look at ensembles in Flux'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"
. ./functions

test_expect_success 'load an ensemble' '
	cat >study.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: sim, command: sleep 600, count: 2}
	  - {name: flaky, command: "false", params: {t: [280]}, retries: 1}
	rules:
	  - trigger: start
	    action: {name: submit, label: sim}
	  - id: again
	    trigger: timer
	    every: 2h
	    action: {name: submit, label: sim}
	EOD
	flux ensemble load study.yaml &&
	flux ensemble submit study flaky
'

test_expect_success 'cancel says how many jobs it cancels' '
	flux ensemble cancel study sim >out &&
	echo "study: running: 2 jobs of group '"'sim'"' cancelled" >expected &&
	test_cmp expected out
'

test_expect_success 'status has the period of a timer, and jobs have their time limit' '
	flux ensemble status study | grep "timer every 2h" &&
	flux ensemble jobs study -n -o "{duration}" | sort -u >out &&
	grep "^0" out
'

test_expect_success 'log says what is tried again, and has filters' '
	wait_until sh -c "flux ensemble log study | grep -q retry" &&
	flux ensemble log study --rule request --tail 1 >out &&
	is 1 "$(wc -l <out)" &&
	flux ensemble log study | grep "(index 0 of [^)]*): again as firing retry" &&
	test_must_fail flux ensemble log study --rule agian 2>err &&
	grep "did you mean .again" err &&
	flux ensemble cancel study &&
	flux ensemble log study --tail 2 -f >followed &&
	is 2 "$(wc -l <followed)" &&
	tail -1 followed | grep "canceled by the user"
'

test_expect_success 'why says how it ended' '
	flux ensemble why study >out &&
	grep "^study was canceled: canceled by the user" out &&
	grep "1 of 2 rules never fired: again" out
'

test_expect_success 'a time limit is the reason of the end' '
	sed s/never/idle/ study.yaml >limited.yaml &&
	test_expect_code 124 flux ensemble run --timeout 0.5 limited.yaml >out &&
	tail -2 out | grep "the time is up (--timeout 0.500s)"
'

test_expect_success 'a request that only reads is answered although the service dies with it' '
	flux start sh -c ". ./functions
		flux ensemble load --isolate idle.yaml || exit 1
		pid=\$(kept pid)
		kill -STOP \$pid
		flux ensemble list >list 2>list.err &
		lister=\$!
		sleep 1
		kill -KILL \$pid
		wait \$lister" &&
	grep "^idle *running" list
'

test_done
