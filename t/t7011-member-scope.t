#!/bin/sh
test_description='members: rules with scope member, each of which is about one of them'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 3

# Wait until so many jobs of a group have ended so: `wait_ended GROUP COUNTER COUNT`.
wait_ended() {
	wait_status_of study groups.$1.$2 $3
}

# Succeed if so many jobs of `check` ran on each of the two members: `checks COUNT`.
checks() {
	flux ensemble jobs -n -o "{group} {id}" study >jobs &&
	is $1 "$(grep -c "^check pool.0:" jobs)" &&
	is $1 "$(grep -c "^check pool.1:" jobs)"
}

test_expect_success 'load the module' '
	load_module
'

test_expect_success 'member-scope: each member tries again, and is looked at, by itself' '
	flux ensemble run "$PROJECT/examples/member-scope.yaml" &&
	ends_as_listed member-scope &&
	flux ensemble jobs -n -o "{group} {id}" member-scope >jobs &&
	for member in pool.0 pool.1; do
		is 2 "$(grep -c "^step $member:" jobs)" &&
		is 1 "$(grep -c "^check $member:" jobs)" || return 1
	done
'

test_expect_success 'without members such a rule is refused with a sentence' '
	cat >wrong.yaml <<-EOD &&
	jobs: [{name: a, command: a}]
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - {trigger: job-fail, scope: member, action: {name: terminate}}
	EOD
	test_expect_code 2 flux ensemble load wrong.yaml 2>errors &&
	grep "wrong.yaml:4: rules\[1\].scope: .member. is each of the members" errors
'

test_expect_success 'what each member has counted triggers its own rule' '
	cat >study.yaml <<-EOD &&
	finish: never
	members:
	  - {name: pool, count: 2, breaker: 0}
	jobs:
	  - {name: step, command: "false"}
	  - {name: check, command: "true"}
	rules:
	  - {id: look, trigger: job-fail, group: step, scope: member, when: count.step.failed >= 2,
	     action: {name: submit, label: check}}
	  - {id: late, trigger: job-fail, group: step, scope: member, when: count.step.failed >= 9,
	     action: {name: submit, label: check}}
	EOD
	flux ensemble load study.yaml &&
	wait_both_up study pool &&
	flux ensemble submit study step --count 8 &&
	wait_ended step failed 8 &&
	wait_ended check success 2 &&
	wait_until checks 1
'

test_expect_success 'status and why say what the rule did for each member' '
	flux ensemble status study >shown &&
	grep "job-fail step on each member (pool.0 1x, pool.1 1x)" shown &&
	flux ensemble why study look >shown &&
	grep "pool.0: fired once, 0 left" shown &&
	flux ensemble why study late >shown &&
	grep "count.step.failed is [0-9], and must be >= 9" shown
'

test_expect_success 'a service that is loaded again goes on with what was counted' '
	flux module remove ensemble &&
	load_module &&
	wait_both_up study pool &&
	flux ensemble submit study step --count 20 &&
	wait_ended step failed 28 &&
	wait_ended check success 4 &&
	wait_until checks 2 &&
	flux ensemble cancel study
'

test_done
