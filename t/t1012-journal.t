#!/bin/sh
test_description='The journal: its filter grows with the rules, and nothing is lost or repeated'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

mock='attributes: {system: {exec: {test: {run_duration: "0.05s"}}}}'

test_expect_success 'jobs that run while the filter widens are each counted once' '
	cat >steady.yaml <<-EOD &&
	jobs:
	  - {name: job, command: /bin/true, count: 300, $mock}
	rules:
	  - {trigger: start, action: {name: submit, label: job}}
	EOD
	flux ensemble load steady.yaml &&
	for event in memo alloc depend free release; do
		cat >wider-$event.yaml <<-EOD &&
		jobs:
		  - {name: a, command: [sh, -c, "flux job memo \$FLUX_JOB_ID x=1"]}
		  - {name: seen, command: /bin/true}
		rules:
		  - {trigger: start, action: {name: submit, label: a}}
		  - {trigger: job-$event, group: a, action: {name: submit, label: seen,
		      repetitions: unlimited}}
		EOD
		flux ensemble run wider-$event.yaml || return 1
	done &&
	flux ensemble wait --timeout 300 steady &&
	is 300/0/0/0 "$(counts_of steady job)" &&
	is 300 "$(status_of steady groups.job.submitted)"
'

test_expect_success 'each wider filter showed its events exactly once' '
	for event in memo alloc depend free release; do
		is 1/0/0/0 "$(counts_of wider-$event seen)" || return 1
	done
'

test_expect_success 'the queue agrees' '
	jobs_of steady jobs.json &&
	is 300 "$("$SHARNESS_BUILD_DIRECTORY/python" -c "
import json; print(len(json.load(open(\"jobs.json\"))))")"
'

test_expect_success 'an ensemble does not react to jobs of before it was loaded' '
	cat >late.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: job, command: /bin/true}
	rules:
	  - trigger: job-success
	    scope: queue
	    action: {name: submit, label: job, repetitions: 1}
	EOD
	flux ensemble load late.yaml &&
	wait_entry late start &&
	is 0 "$(status_of late groups.job.submitted)" &&
	flux run /bin/true &&
	wait_entry late outcome &&
	flux queue idle --timeout=300 &&
	is 1/0/0/0 "$(counts_of late job)" &&
	flux ensemble terminate late
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
