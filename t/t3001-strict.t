#!/bin/sh
test_description='Strict durability: jobs that have started survive a crash of the broker'
. "$(dirname "$0")/lib/ensemble.sh"

# Mock jobs, which no process runs and which never end.
mock='attributes: {system: {exec: {test: {run_duration: "600s"}}}}'

# Run a script as the initial program of an instance that keeps its state in a directory.
#
# $1 - The directory.
# standard input - The script.
with_state() {
	mkdir -p $1 &&
	cat >script &&
	timeout 300 flux start --setattr=statedir="$(pwd)/$1" sh ./script
}

# What scripts run at their beginning, with a function that waits until so many jobs run.
prelude='
until_running() {
	tries=0
	until test "$(flux jobs -n -f running -o "{id}" | wc -l)" = $1; do
		tries=$(($tries + 1))
		test $tries -lt 1800 || return 1
		sleep 0.05
	done
}'

test_expect_success FLUX 'the jobs of a strict ensemble start' '
	cat >strict.yaml <<-EOD &&
	durability: strict
	jobs:
	  - {name: a, command: /bin/true, count: 2, $mock}
	  - {name: held, command: /bin/true, urgency: 0, $mock}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - {trigger: start, action: {name: submit, label: held}}
	EOD
	test_expect_code 137 with_state strict >out 2>&1 <<-EOD &&
	$prelude
	flux ensemble load strict.yaml &&
	until_running 2 &&
	flux python "$SHARNESS_TEST_SRCDIR/lib/jobs.py" strict >before.json &&
	kill -9 \$(flux getattr broker.pid)
	EOD
	test -s before.json
'

test_expect_success FLUX 'they were submitted held, and then released to their urgency' '
	run_python <<-EOD
	import json

	jobs = json.load(open("before.json"))
	assert len(jobs) == 3, jobs
	for job in jobs:
	    names = [event["name"] for event in job["events"]]
	    (submit,) = [event for event in job["events"] if event["name"] == "submit"]
	    assert submit["context"]["urgency"] == 0
	    if job["tag"]["group"] == "held":
	        assert "urgency" not in names and "start" not in names, names
	        continue
	    (changed,) = [event for event in job["events"] if event["name"] == "urgency"]
	    assert changed["context"]["urgency"] == 16
	    assert names.index("urgency") < names.index("alloc"), names
	EOD
'

test_expect_success FLUX 'after a crash of the broker the queue knows those that had started' '
	FLUX_DISABLE_JOB_CLEANUP=1 &&
	export FLUX_DISABLE_JOB_CLEANUP &&
	test_might_fail with_state strict <<-EOD &&
	flux python "$SHARNESS_TEST_SRCDIR/lib/jobs.py" strict >after.json
	EOD
	run_python <<-EOD
	import json

	before, after = ({job["id"]: job["tag"] for job in json.load(open(name))}
	                 for name in ("before.json", "after.json"))
	started = {id: tag for id, tag in before.items() if tag["group"] == "a"}
	assert started.items() <= after.items() <= before.items(), (before, after)
	EOD
'

test_done
