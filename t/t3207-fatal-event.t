#!/bin/sh
test_description='An event that ends the service ends it three times, and then its ensemble is set aside'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Start a service that a memo `deadly` ends, in the background; its id is in $service.
begin_service() {
	begin_python "$SHARNESS_TEST_SRCDIR/lib/fatal_service.py" 2>service.err
	service=$!
}

# Wait until the service has died of SIGKILL.
await_death() {
	wait $service
	is 137 $?
}

# Whether the ensemble has its job by now; its id is in $job.
has_job() {
	job=$(flux jobs -no {id} --name=work --filter=running,pending)
	test -n "$job"
}

test_expect_success 'an event of one of two ensembles ends the service' '
	cat >victim.yaml <<-EOD &&
	finish: never
	jobs:
	  - name: work
	    command: sleep 600
	rules:
	  - trigger: start
	    action: {name: submit, label: work}
	EOD
	cat >bystander.yaml <<-EOD &&
	finish: never
	jobs:
	  - name: work
	    command: "true"
	rules:
	  - trigger: start
	    action: {name: submit, label: work}
	EOD
	begin_service &&
	wait_service &&
	flux ensemble load victim.yaml &&
	wait_until has_job &&
	flux ensemble load bystander.yaml &&
	flux job wait-event -t 300 $job start &&
	flux job memo $job deadly=1 &&
	await_death
'

test_expect_success 'the next two services die of it too' '
	begin_service &&
	await_death &&
	begin_service &&
	await_death
'

test_expect_success 'the fourth one sets the ensemble aside, and says why' '
	begin_service &&
	wait_service &&
	flux ensemble wait victim >wait.out || is 1 $? &&
	is failed "$(status_of victim state)" &&
	status_of victim reason >reason &&
	grep "3 services in a row died while they handled event .memo. of job" reason
'

test_expect_success 'its jobs are left as they are' '
	is RUN "$(flux jobs -no {state} $job)"
'

test_expect_success 'the other ensemble goes on' '
	is running "$(status_of bystander state)" &&
	id=$(flux ensemble submit bystander work) &&
	flux job wait-event -t 300 $id clean &&
	until is 2/0/0/0 "$(counts_of bystander work)" 2>/dev/null
	do
		kill -0 $service || return 1
	done
'

test_expect_success 'it can be unloaded, and loaded again when its jobs are gone' '
	flux ensemble cancel victim &&
	flux job wait-event -t 300 $job clean &&
	flux ensemble unload victim &&
	flux ensemble load victim.yaml &&
	is running "$(status_of victim state)"
'

test_expect_success 'the service ends in good order' '
	kill $service &&
	wait $service
'

test_done
