#!/bin/sh
test_description='members: jobs with the tags of others count for nothing, wherever they are submitted'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 3

# Print the job that a member is: `member pool.0`.
member() {
	flux jobs -n -o "{id}" --name=forged:$1
}

# Print the URI of a member on this machine: `uri pool.0`.
uri() {
	flux uri --local $(member $1)
}

# Succeed if a member has active jobs: `has_jobs URI COUNT`.
has_jobs() {
	test "$(FLUX_URI=$1 flux jobs -n | wc -l)" -ge "$2"
}

# Submit a copy of the job that a member is or was, and print its id: `copy_of JOB`.
copy_of() {
	flux job info $1 jobspec | flux job submit
}

test_expect_success 'an ensemble over two members, of which one does not answer' '
	serve &&
	cat >forged.yaml <<-EOD &&
	finish: never
	members:
	  - {name: pool, count: {min: 2, max: 3}}
	jobs:
	  - name: sim
	    command: sh -c '\''until test -e go; do sleep 0.1; done; echo {s} >>ran'\''
	    params: {s: {range: [0, 12]}}
	rules:
	  - {trigger: member-lost, action: {name: grow, label: pool, repetitions: unlimited}}
	EOD
	flux ensemble load forged.yaml &&
	wait_entry forged member-up 2 &&
	stopped=$(FLUX_URI=$(uri pool.0) flux getattr broker.pid) &&
	answers=$(uri pool.1) &&
	kill -STOP $stopped &&
	{ rpc submit name=forged group=sim >/dev/null & } &&
	wait_until has_jobs $answers 1
'

test_expect_success 'jobs with tags of its jobs are cancelled, those that wait for the other member too' '
	job=$(FLUX_URI=$answers flux jobs -n -o "{id}" | head -1) &&
	flux_python forge.py $answers/$job 12 >ends &&
	is 24 "$(grep -c "cancel its tag is that of another job" ends)" &&
	is 24 "$(status_of forged violations)"
'

test_expect_success 'each of its own jobs counts once' '
	kill -CONT $stopped &&
	touch go &&
	wait_status ensembles.0.groups.sim.success 12 &&
	is 12/0/0/0 "$(counts_of forged sim)" &&
	is 12 "$(wc -l <ran)"
'

test_expect_success 'a copy of the job that a member is is cancelled' '
	copy=$(copy_of $(member pool.0)) &&
	flux job wait-event -q -t 300 $copy clean &&
	flux job wait-event $copy exception | grep "member pool.0" &&
	flux ensemble status forged >status &&
	is 2 "$(grep -c "^pool.[01]  *up " status)"
'

test_expect_success 'a copy of one that has ended while there was no service is not taken for it' '
	rm go &&
	{ rpc submit name=forged group=sim >/dev/null & } &&
	wait_until has_jobs $(uri pool.0) 1 &&
	lost=$(member pool.0) &&
	kill -9 $serve &&
	flux cancel $lost &&
	flux job wait-event -q -t 300 $lost clean &&
	copy=$(copy_of $lost) &&
	serve &&
	flux job wait-event -q -t 300 $copy clean &&
	touch go &&
	wait_status ensembles.0.groups.sim.success 24 &&
	is 1 "$(flux ensemble log --json forged | grep -c "\"name\": \"member-lost\"")"
'

test_expect_success 'a copy of one that is gone is no member' '
	copy=$(copy_of $lost) &&
	flux job wait-event -q -t 300 $copy clean &&
	flux ensemble cancel forged &&
	kill $serve
'

test_done
