#!/bin/sh
test_description='A queue that was stopped because the allocation is about to expire is given back'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

cat >expire.py <<-EOD
	import time
	import flux
	# Within the guard, so that the first look stops the queue.
	request = {"expiration": time.time() + 600}
	flux.Flux().rpc("resource.expiration-update", request, nodeid=0).get()
EOD

cat >idle.yaml <<-EOD
	finish: never
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: job-success, action: {name: terminate}}]
EOD

stopped() {
	flux queue status | grep "stopped: the allocation is about to expire"
}

started() {
	! stopped
}

test_expect_success 'the guard stops the queue while an ensemble is live' '
	echo "[ensemble]" >config.toml && echo "walltime-guard = \"1h\"" >>config.toml &&
	flux config load <config.toml && flux python expire.py &&
	load_module && flux ensemble load idle.yaml && wait_until stopped
'

test_expect_success 'it is started again when the last ensemble has ended' '
	flux ensemble cancel idle && wait_until started
'

test_expect_success 'and when the service is removed' '
	flux ensemble load idle.yaml && wait_until stopped &&
	flux module remove ensemble && wait_until started && flux run true
'

test_done
