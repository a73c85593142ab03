#!/bin/sh
test_description='ensembles that compete divide the cores by their shares'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Jobs that run for so long without a process: NAME SHARE JOBS SECONDS.
document() {
	cat <<-EOD
	name: $1
	share: $2
	job-names: full
	jobs:
	  - name: work
	    count: $3
	    command: "true"
	    attributes: {system: {exec: {test: {run_duration: $4}}}}
	rules:
	  - {trigger: start, action: {name: submit, label: work}}
	EOD
}

says() {
	flux ensemble status "$1" | grep "$2"
}

urgencies() {
	flux jobs -a -c0 -no "{name} {urgency}" | grep "^$1" | sort -u
}

test_expect_success 'a share that is none is refused with what it may be' '
	for share in 0 -1 1000000000 lots; do
		document odd $share 1 0.01s >odd.yaml &&
		test_expect_code 2 flux ensemble validate odd.yaml 2>err &&
		grep "odd.yaml:2: share: expected a number >= 0.001 and <= 1000, not" err || return 1
	done &&
	document odd .inf 1 0.01s >odd.yaml &&
	test_expect_code 2 flux ensemble validate odd.yaml 2>err &&
	grep "odd.yaml:2: share: expected a finite number, not inf" err
'

test_expect_success 'alone an ensemble sends all that it has' '
	document first 1 4000 0.2s >first.yaml &&
	flux ensemble load first.yaml &&
	wait_status_of first groups.work.waiting 0 &&
	is "first.work 16" "$(urgencies first)"
'

test_expect_success 'another does not wait for the thousands of the first: its jobs are above these' '
	document second 1 3 0.01s >second.yaml &&
	flux ensemble run second.yaml &&
	test "$(status_of first groups.work.finished)" -lt 3000 &&
	is "second.work 17" "$(urgencies second)" &&
	is "first.work 16" "$(urgencies first)"
'

test_expect_success 'jobs that are held stay so' '
	document held 1 1 0.01s | sed "s/command:/urgency: 0\n    command:/" >held.yaml &&
	flux ensemble load held.yaml &&
	wait_status_of held groups.work.pending 1 &&
	is "held.work 0" "$(urgencies held)" &&
	flux ensemble cancel held
'

test_expect_success 'rules see the part of the cores that is their own' '
	document reader 3 400 1000s >reader.yaml &&
	echo "  - {trigger: metric, name: share.queue, when: \"< 1\", action: {name: cancel, label: work}}" >>reader.yaml &&
	{ flux ensemble run reader.yaml || :; } &&
	flux ensemble log reader >out &&
	grep "share.queue = 0.75" out
'

test_expect_success 'who waits is told for whom, and goes on when the others are gone' '
	document third 2 40 1000s >third.yaml &&
	flux ensemble load third.yaml &&
	wait_until says third "waits* to be submitted: its share is .* cores, while jobs of .first. wait, too" &&
	flux ensemble why third | grep "its share is" &&
	flux ensemble cancel first &&
	wait_status_of third groups.work.waiting 0 &&
	flux ensemble cancel third
'

test_done
