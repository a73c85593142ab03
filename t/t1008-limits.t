#!/bin/sh
test_description='Limits: many jobs, and ensembles that would never end'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

# Mock jobs: the job execution service pretends to run them, so that many are cheap.
mock='attributes: {system: {exec: {test: {run_duration: "0.001s"}}}}'

test_expect_success 'rules that fire each other for ever fail the ensemble, which names them' '
	cat >pingpong.yaml <<-EOD &&
	limits: {jobs: 50}
	jobs:
	  - {name: ping, command: /bin/true, $mock}
	  - {name: pong, command: /bin/true, $mock}
	rules:
	  - {id: begin, trigger: start, action: {name: submit, label: ping}}
	  - id: to-pong
	    trigger: job-success
	    group: ping
	    action: {name: submit, label: pong, repetitions: unlimited}
	  - id: to-ping
	    trigger: job-success
	    group: pong
	    action: {name: submit, label: ping, repetitions: unlimited}
	EOD
	test_expect_code 1 flux ensemble run pingpong.yaml &&
	status_of pingpong reason >reason &&
	grep to-ping reason &&
	grep to-pong reason &&
	grep 50 reason &&
	test_must_fail grep begin reason &&
	flux queue idle --timeout=300 &&
	is 25/0/0/0 "$(counts_of pingpong ping)" &&
	is 25/0/0/0 "$(counts_of pingpong pong)"
'

test_expect_success 'rules that fire each other without any job between them fail the ensemble' '
	cat >chain.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true}
	rules:
	  - {id: seed, trigger: start, action: {name: custom, label: breed}}
	custom: |
	  def breed(**kwargs):
	      return Rule({"trigger": "start", "action": {"name": "custom", "label": "breed"}})
	EOD
	test_expect_code 1 flux ensemble run chain.yaml &&
	status_of chain reason | grep "fire each other.*seed"
'

test_expect_success 'more jobs than the limit fail the ensemble before any is submitted' '
	cat >many.yaml <<-EOD &&
	limits: {jobs: 10}
	jobs:
	  - {name: a, command: /bin/true, count: 11}
	rules:
	  - {id: begin, trigger: start, action: {name: submit, label: a}}
	EOD
	test_expect_code 1 flux ensemble run many.yaml &&
	status_of many reason >reason &&
	grep 10 reason &&
	grep begin reason &&
	is 0/0/0/0 "$(counts_of many a)"
'

test_expect_success 'a group of 600 jobs runs with no more of them in the queue than the limit' '
	cat >large.yaml <<-EOD &&
	limits: {active-jobs: 60}
	jobs:
	  - {name: a, command: /bin/true, count: 600, $mock}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
	flux ensemble run large.yaml &&
	is 600/0/0/0 "$(counts_of large a)" &&
	jobs_of large jobs.json &&
	run_python <<-EOD
	import json

	jobs = json.load(open("jobs.json"))
	changes = []
	for job in jobs:
	    t = {event["name"]: event["timestamp"] for event in job["events"]}
	    # A job that leaves makes room for one that comes at the same moment.
	    changes += [(t["submit"], 1), (t["clean"], -1)]
	queued = most = 0
	for _, change in sorted(changes):
	    queued += change
	    most = max(most, queued)
	print(f"{most} jobs were in the queue at once")
	assert 12 < most <= 60
	EOD
'

test_expect_success 'each of its jobs was submitted once' '
	run_python <<-EOD
	import json

	jobs = json.load(open("jobs.json"))
	assert sorted(job["tag"]["index"] for job in jobs) == list(range(600))
	EOD
'

test_expect_success 'cancelling thousands of waiting jobs leaves none' '
	cat >waiting.yaml <<-EOD &&
	limits: {active-jobs: 100}
	jobs:
	  - {name: w, command: sleep 600, count: 5000}
	rules:
	  - {trigger: start, action: {name: submit, label: w}}
	EOD
	flux ensemble load waiting.yaml &&
	flux ensemble cancel waiting &&
	test_expect_code 3 flux ensemble wait --timeout 300 waiting &&
	flux queue idle --timeout=300 &&
	is 0 "$(status_of waiting jobs.waiting)" &&
	is 0 "$(status_of waiting jobs.active)"
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
