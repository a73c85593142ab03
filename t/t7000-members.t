#!/bin/sh
test_description='members: an ensemble over Flux instances that are jobs of the enclosing one'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'write a document' '
	cat >pool.yaml <<-EOD
	members:
	  - {name: pool, count: 2}
	jobs:
	  - name: sim
	    command: sh -c '\''echo {s} \$FLUX_URI >>ran'\''
	    params: {s: {range: [0, 20]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
'

test_expect_success 'start the service' '
	load_module
'

test_expect_success 'a sweep is shared out over two members' '
	flux ensemble run pool.yaml &&
	is 20/0/0/0 "$(counts_of pool sim)" &&
	is 20 "$(cut -d" " -f1 ran | sort -u | wc -l)" &&
	is 20 "$(wc -l <ran)" &&
	is 2 "$(cut -d" " -f2 ran | sort -u | wc -l)"
'

test_expect_success 'jobs are shown with their members' '
	flux ensemble jobs -n -o "{id}" pool >ids &&
	is 20 "$(grep -c "^pool.[01]:" ids)" &&
	grep -q "^pool.0:" ids &&
	grep -q "^pool.1:" ids
'

test_expect_success 'ids that are sent to others are those of Flux' '
	flux ensemble jobs --json pool >jobs.json &&
	python3 -c "
import json
jobs = json.load(open(\"jobs.json\"))[\"jobs\"]
assert len(jobs) == 20
assert all(job[\"id\"] < 2**64 for job in jobs)
"
'

# Succeed if no job of the instance is active.
no_job_is_active() {
	test -z "$(flux jobs -n)"
}

test_expect_success 'members end with the ensemble' '
	wait_until no_job_is_active &&
	is 2 "$(flux jobs -a -n -o "{result}" | grep -c COMPLETED)"
'

test_expect_success 'unload the module' '
	flux module remove ensemble
'

# Start the service outside of the broker, and wait until it answers.
serve() {
	flux ensemble serve 2>>serve.log &
	serve=$!
	wait_until flux ensemble list >/dev/null 2>&1
}

# Succeed if as many lines are in the file that jobs write to.
has_run() {
	test "$(wc -l <ran)" -ge "$1"
}

test_expect_success 'the service is killed: members and jobs go on, and none is lost or runs twice' '
	cat >killed.yaml <<-EOD &&
	members:
	  - {name: pool, count: 2}
	jobs:
	  - name: sim
	    command: sh -c '\''echo {s} >>ran; sleep 0.2'\''
	    params: {s: {range: [0, 40]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
	: >ran &&
	serve &&
	{ flux ensemble run killed.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded killed &&
	for lines in 0 5 15
	do
		wait_until has_run $lines &&
		kill -9 $serve &&
		serve || return 1
	done &&
	wait $run &&
	is 40/0/0/0 "$(counts_of killed sim)" &&
	is 40 "$(wc -l <ran)" &&
	is 40 "$(sort -u ran | wc -l)" &&
	is 2 "$(flux ensemble log killed | grep -c member-start)" &&
	is 2 "$(flux ensemble log killed | grep -c member-up)"
'

test_expect_success 'a service that begins ends the members of ensembles that are over' '
	kill -9 $serve &&
	serve &&
	wait_until no_job_is_active &&
	kill $serve
'

test_done
