#!/bin/sh
test_description='A job whose response is lost while the instance shuts down is not sent again'
. "$(dirname "$0")/lib/ensemble.sh"

test_expect_success FLUX 'the queue has the job once' '
	cat >one.yaml <<-EOD &&
	finish: never
	jobs: [{name: once, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: once}}]
	EOD
	cat >cleanup.sh <<-\EOD &&
	# Jobs that are sent again come within a second.
	count() { flux jobs -a -n -o "{id}" --name=once | wc -l; }
	touch go
	for try in $(seq 300); do test $(count) != 0 && break; sleep 0.1; done
	for try in $(seq 40); do test $(count) = 1 || break; sleep 0.1; done
	count >count
	EOD
	cat >script.sh <<-EOD &&
	flux ensemble supervise >/dev/null &&
	flux queue stop &&
	flux module remove job-ingest &&
	{ setsid flux python "$SHARNESS_TEST_SRCDIR/lib/forgetting_ingest.py" "$PWD/go" >ready 2>&1 & } &&
	until grep ready ready; do sleep 0.05; done &&
	flux ensemble load one.yaml &&
	until flux ensemble log one | grep "submit once"; do sleep 0.05; done &&
	flux admin cleanup-push "sh cleanup.sh"
	EOD
	flux start --test-size=2 sh ./script.sh && is 1 "$(cat count)"
'

test_done
