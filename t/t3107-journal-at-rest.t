#!/bin/sh
test_description='The journal of job events is not read while nobody needs it'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Print how many read the journal; one does always, job-list.
readers() {
	flux module stats --parse journal.listeners job-manager
}

read_by() {
	test "$(readers)" = "$1"
}

test_expect_success 'an ensemble that does nothing does not have it read' '
	cat >idle.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: a, command: "true"}
	  - {name: b, command: "true"}
	rules:
	  - {trigger: job-success, group: a, action: {name: submit, label: b, repetitions: unlimited}}
	EOD
	load_module && flux ensemble load idle.yaml &&
	is 1 "$(readers)"
'

test_expect_success 'nor what others do' '
	flux submit --cc=1-5 --wait true &&
	is 0 "$(flux ensemble status --json | json service.events)"
'

test_expect_success 'its first job is seen from the beginning, and so is what follows' '
	flux ensemble submit idle a && wait_status_of idle groups.b.success 1 &&
	is "1/1" "$(status_of idle groups.a.success)/$(status_of idle groups.a.submitted)"
'

test_expect_success 'it is closed again when nobody has a job any more' '
	wait_until read_by 1
'

test_expect_success 'again and again, at the moment when it is closed too' '
	for pause in 0 2 2.05 4 4.05; do
		sleep $pause && flux ensemble submit idle a || return 1
	done &&
	wait_status_of idle groups.b.success 6 &&
	is "6/0" "$(status_of idle groups.a.success)/$(status_of idle violations)"
'

test_expect_success 'a rule on the jobs of others has it read, from when it is added' '
	cat >others.yaml <<-EOD &&
	finish: never
	jobs: [{name: c, command: "true"}]
	rules:
	  - {trigger: job-finish, scope: queue, name: theirs, action: {name: submit, label: c}}
	EOD
	wait_until read_by 1 &&
	flux ensemble load others.yaml && is 2 "$(readers)" &&
	flux submit --wait --job-name=theirs true && wait_status_of others groups.c.success 1 &&
	flux ensemble cancel others && wait_until read_by 1
'

test_expect_success 'the job manager may be gone when it is to be opened' '
	wait_until read_by 1 && flux module remove --force job-manager &&
	{ flux ensemble submit idle a & } && flux module load job-manager &&
	flux module reload job-exec && flux module reload sched-simple && flux module load job-list &&
	wait_status_of idle groups.b.success 7 && is 0 "$(status_of idle violations)"
'

test_done
