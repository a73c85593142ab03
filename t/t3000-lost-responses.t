#!/bin/sh
test_description='Lost responses: job-ingest comes and goes while jobs are submitted'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Mock jobs: the job execution service pretends to run them, so that many are cheap.
mock='attributes: {system: {exec: {test: {run_duration: "0.001s"}}}}'

# Write a document with many jobs to a file.
burst() {
	cat >$1.yaml <<-EOD
	jobs:
	  - {name: a, command: /bin/true, count: 400, $mock}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
}

# Wait until the queue has some of the jobs of an ensemble.
wait_submitted() {
	tries=0
	until test "$(status_of $1 groups.a.submitted)" -gt 50; do
		tries=$(($tries + 1))
		test $tries -lt 1800 || return 1
		sleep 0.05
	done
}

# Fail unless the queue has each job of an ensemble once.
each_job_once() {
	jobs_of $1 jobs.json &&
	run_python <<-EOD
	import json

	jobs = json.load(open("jobs.json"))
	assert sorted(job["tag"]["index"] for job in jobs) == list(range(400)), len(jobs)
	EOD
}

test_expect_success 'the module is loaded' '
	load_module
'

test_expect_success 'job-ingest is reloaded while an ensemble submits its jobs' '
	burst reloaded &&
	flux ensemble load reloaded.yaml &&
	wait_submitted reloaded &&
	flux module reload job-ingest &&
	flux ensemble wait --timeout 300 reloaded &&
	is 400/0/0/0 "$(counts_of reloaded a)"
'

test_expect_success 'each job was submitted once' '
	each_job_once reloaded
'

test_expect_success 'job-ingest is away for a while' '
	burst away &&
	flux ensemble load away.yaml &&
	wait_submitted away &&
	flux module remove job-ingest &&
	is running "$(status_of away state)" &&
	sleep 3 &&
	is running "$(status_of away state)" &&
	flux module load job-ingest &&
	flux ensemble wait --timeout 300 away &&
	is 400/0/0/0 "$(counts_of away a)"
'

test_expect_success 'each job of this one was submitted once too' '
	each_job_once away
'

test_expect_success 'a job that the queue refuses fails an ensemble at once' '
	cat >bad.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true, queue: nowhere}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
	test_expect_code 1 flux ensemble run --timeout 300 bad.yaml &&
	status_of bad reason | grep nowhere
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
