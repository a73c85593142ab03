#!/bin/sh
test_description='members: a service dies between the loss of one and its fence'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 2

# Succeed if the log in the KVS has an entry.
is_durable() {
	flux kvs get --raw ensemble.sweep.log.00000000 | grep -q "\"$1\""
}

# Succeed if the job that the member is was cancelled.
is_canceled() {
	flux job eventlog $job | grep -q "exception type=\"cancel\""
}

test_expect_success 'a member is lost in the log of a service that dies before it has fenced it' '
	cat >sweep.yaml <<-EOD &&
	members:
	  - {name: pool, count: {min: 1, max: 2}}
	jobs:
	  - name: sim
	    command: sh -c "echo {s} >>ran; until test -e go; do sleep 0.1; done"
	    params: {s: {range: [0, 4]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - {trigger: member-lost, action: {name: grow, label: pool}}
	EOD
	begin_python "$SHARNESS_TEST_SRCDIR/lib/unfenced_service.py" 2>unfenced.log &&
	unfenced=$! &&
	wait_service &&
	flux ensemble load sweep.yaml &&
	wait_until has_lines ran 1 &&
	job=$(flux jobs -n -o "{id}" --name=sweep:pool.0) &&
	broker=$(FLUX_URI=$(flux uri --local $job) flux getattr broker.pid) &&
	shell=$(ps -o ppid= -p $broker) &&
	# The enclosing instance does not hear that the broker is gone.
	kill -STOP $shell &&
	kill -9 $broker &&
	wait_until is_durable member-lost &&
	kill -9 $unfenced &&
	test_must_fail is_canceled
'

test_expect_success 'the next one fences it, and only then has its jobs run elsewhere' '
	serve &&
	wait_until is_canceled &&
	is lost "$(status_of sweep pools.pool.members.0.state)" &&
	is 0 "$(entries sweep member-ended)" &&
	is 0 "$(status_of sweep groups.sim.attempts)" &&
	kill -CONT $shell &&
	wait_entry sweep member-ended &&
	flux job wait-event -t 300 $job clean
'

test_expect_success 'each of them counts once' '
	touch go &&
	flux ensemble wait sweep &&
	is 4 "$(status_of sweep groups.sim.success)" &&
	is 4 "$(status_of sweep groups.sim.finished)" &&
	is 4 "$(sort -u ran | wc -l)" &&
	flux ensemble log sweep >log &&
	is 1 "$(grep -c "member-lost *pool.0" log)" &&
	is 1 "$(grep -c "member-ended *pool.0" log)" &&
	flux ensemble jobs -n -o "{id} {outcome}" sweep >jobs &&
	is 4 "$(grep -c "^pool.1:.* success" jobs)" &&
	test_must_fail grep "^pool.0:.* success" jobs &&
	kill $serve
'

test_done
