#!/bin/sh
test_description='A service that follows one on another rank waits for what that had sent'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

on_rank_1() {
	test -n "$rank_1" || rank_1=$(flux exec -r1 flux getattr local-uri)
	FLUX_URI=$rank_1 "$@"
}

# At least so many jobs are there: `jobs_there 5`.
jobs_there() {
	test "$(flux jobs -a -n -o "{id}" | wc -l)" -ge $1
}

is_ready() {
	test "$(rpc status | json service.state)" = ready
}

test_expect_success 'jobs take their time in job-ingest, and on rank 1 are held while there is a file' '
	cat >frobnicator.py <<-EOD &&
	import os, time
	from flux.job.frobnicator import FrobnicatorPlugin
	class Frobnicator(FrobnicatorPlugin):
	    def __init__(self, parser): pass
	    def frob(self, jobspec, userid, urgency, flags):
	        jobspec.setattr("system.exec.test.run_duration", "0.01s")
	        time.sleep(0.02)
	        while os.environ["FLUX_URI"].endswith("-1") and os.path.exists("$PWD/hold"):
	            time.sleep(0.02)
	EOD
	cat >frobnicator.toml <<-EOD &&
	[ingest.frobnicator]
	plugins = ["$PWD/frobnicator.py"]
	EOD
	flux config load frobnicator.toml
'

test_expect_success 'a service on rank 1 is killed in mid-burst' '
	cat >burst.yaml <<-EOD &&
	jobs: [{name: many, command: "true", count: 300}]
	rules: [{trigger: start, action: {name: submit, label: many}}]
	EOD
	on_rank_1 interruptible flux ensemble serve >serve.log 2>&1 &&
	on_rank_1 wait_service &&
	on_rank_1 flux ensemble load burst.yaml &&
	wait_until jobs_there 5 &&
	touch hold &&
	kill -KILL $pid
'

test_expect_success 'the one on rank 0 is not ready until that is there' '
	load_module &&
	tries=0 &&
	while test $tries -lt 30; do
		! is_ready || break
		tries=$(($tries + 1))
		sleep 0.1
	done &&
	is 30 $tries &&
	rm hold &&
	wait_until is_ready
'

test_expect_success 'no job is there twice' '
	rm -f hold &&
	flux ensemble wait --timeout 300 burst &&
	is 300/0/0/0 "$(counts_of burst many)" &&
	is 0 "$(status_of burst violations)" &&
	is 300 "$(flux jobs -a -n -o "{id}" | wc -l)"
'

# Succeed if the log of rank 1 has a line.
logged_on_rank_1() {
	on_rank_1 flux dmesg | grep "$1"
}

test_expect_success 'commits that take long are one warning, and no errors' '
	flux config load </dev/null && flux module remove ensemble &&
	on_rank_1 interruptible flux ensemble serve >late.log 2>&1 &&
	on_rank_1 wait_service &&
	on_rank_1 flux dmesg --clear &&
	cat >late.yaml <<-EOD &&
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: timer, every: 1, action: {name: submit, label: a, repetitions: unlimited}}]
	EOD
	for name in one two; do on_rank_1 flux ensemble load --name $name late.yaml || return 1; done &&
	broker=$(flux getattr broker.pid) &&
	kill -STOP $broker &&
	{ wait_until logged_on_rank_1 "take more than 10 s"; waited=$?; kill -CONT $broker; } &&
	test $waited = 0 &&
	for name in one two; do on_rank_1 flux ensemble terminate $name || return 1; done &&
	logged_on_rank_1 "ensemble.warning.* commits to the KVS take more than 10 s, and new jobs of [a-z, ]* wait for them" &&
	is 1 "$(on_rank_1 flux dmesg | grep -c "take more than")" &&
	! logged_on_rank_1 "ensemble.err"
'

test_done
