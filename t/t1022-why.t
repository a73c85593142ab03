#!/bin/sh
test_description='why rules fire or do not, and the commands that steer single rules'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

test_expect_success 'load an ensemble' '
	cat >study.yaml <<-EOD &&
	jobs:
	  - {name: sim, command: "true", count: 2}
	  - {name: analyse, command: sleep 600}
	rules:
	  - trigger: start
	    action: {name: submit, label: sim}
	  - id: enough
	    trigger: metric
	    name: count.sim.success
	    when: 2
	    action: {name: submit, label: analyse}
	  - id: more
	    trigger: metric
	    name: count.sim.success
	    when: ">= 3"
	    action: {name: terminate}
	  - id: late
	    trigger: timer
	    after: 90m
	    action: {name: terminate}
	EOD
	flux ensemble load study.yaml &&
	wait_until sh -c "flux ensemble status study | grep -q analyse.*1"
'

test_expect_success 'why tells of each rule what it waits for' '
	wait_until sh -c "flux ensemble why study >out; grep \"is 2 and can become 2 at most\" out" &&
	cat out &&
	grep "^enough: submit analyse on count.sim.success" out &&
	grep "fired once, 0 left" out &&
	grep "cannot fire any more: it has fired once, and its repetitions allow no more" out &&
	grep "cannot fire any more: count.sim.success is 2 and can become 2 at most: it cannot be >= 3" out &&
	grep "waits for its timer" out &&
	grep "its timer is due at .*, in 1[.][0-9]*h" out
'

test_expect_success 'why of one rule, and as JSON' '
	flux ensemble why study more >one &&
	grep "^more: terminate on count.sim.success" one &&
	is 1 "$(grep -c "^[a-z]" one)" &&
	flux ensemble why --json study more >json &&
	is false "$(json rules.0.terms.0.holds <json)"
'

test_expect_success 'why of what there is not' '
	test_must_fail flux ensemble why study mor 2>err &&
	grep "no rule with id .mor.*did you mean .more." err &&
	test_must_fail flux ensemble why stud 2>err &&
	grep "did you mean .study." err
'

test_expect_success 'disable and enable turn a rule off and on' '
	is "study: rule late disabled" "$(flux ensemble disable study late)" &&
	is false "$(status_of study rules.3.enabled)" &&
	flux ensemble why study late | grep "it is disabled" &&
	is "study: rule late enabled" "$(flux ensemble enable study late)" &&
	is true "$(status_of study rules.3.enabled)" &&
	test_must_fail flux ensemble enable study lat 2>err &&
	grep "did you mean .late." err
'

test_expect_success 'action performs an action as a document has it' '
	test_expect_code 2 flux ensemble action study submit &&
	test_must_fail flux ensemble action study "{name: sumbit}" 2>err &&
	grep "did you mean .submit." err &&
	flux ensemble action study "{name: submit, label: sim, count: 3}" >ids &&
	is 3 "$(wc -l <ids)" &&
	for id in $(cat ids); do
		flux job wait-event -t 300 $id clean || return 1
	done &&
	flux ensemble wait study
'

test_expect_success 'why of an ensemble that has ended says so' '
	flux ensemble why study | grep "^study has completed: "
'

test_expect_success 'why tells of a run on the local queue, too' '
	cat >local.yaml <<-EOD &&
	jobs:
	  - {name: sim, command: [sh, -c, "until test -e go; do sleep 0.1; done"]}
	rules:
	  - trigger: start
	    action: {name: submit, label: sim}
	  - id: after
	    trigger: job-success
	    when: count.sim.failed >= 1
	    action: {name: terminate}
	EOD
	{ flux-ensemble run --queue local --state-dir state local.yaml & } &&
	wait_until sh -c "flux-ensemble why --state-dir state local after | grep waits.for.job-success" &&
	flux-ensemble why --state-dir state local >out &&
	grep "^rule-0: submit sim on start" out &&
	grep "count.sim.failed is 0, and must be >= 1" out &&
	test_must_fail flux-ensemble why --state-dir state local afte 2>err &&
	grep "has said nothing about a rule .afte." err &&
	touch go &&
	wait &&
	flux-ensemble why --state-dir state local | grep "^local has completed: "
'

test_done
