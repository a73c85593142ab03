#!/bin/sh
test_description='A queue that was stopped because the allocation is about to expire is given back'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# expire.py SECONDS: until the allocation expires.
cat >expire.py <<-EOD
	import sys
	import time
	import flux
	request = {"expiration": time.time() + float(sys.argv[1])}
	flux.Flux().rpc("resource.expiration-update", request, nodeid=0).get()
EOD

cat >idle.yaml <<-EOD
	finish: never
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: job-success, action: {name: terminate}}]
EOD

cat >waiting.yaml <<-EOD
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
EOD

# The guard takes at most a twentieth of the allocation. So this one began in 1970: its last ten
# minutes are within the guard, and the first look stops the queue.
cat >begun.py <<-EOD
	import json
	import sys
	r = json.load(sys.stdin)
	r["execution"]["starttime"] = 1.0
	json.dump(r, sys.stdout)
EOD
flux resource R | flux python begun.py >R
flux module remove sched-simple && flux resource reload R && flux module load sched-simple
flux python expire.py 600

stopped() {
	flux queue status | grep "stopped: the allocation is about to expire"
}

started() {
	! stopped
}

test_expect_success 'the guard stops the queue while an ensemble is live' '
	echo "[ensemble]" >config.toml && echo "walltime-guard = \"1h\"" >>config.toml &&
	flux config load <config.toml &&
	load_module && flux ensemble load idle.yaml && wait_until stopped
'

test_expect_success 'it is started again when the last ensemble has ended' '
	flux ensemble cancel idle && wait_until started
'

test_expect_success 'and when the service is removed' '
	flux ensemble rm idle && flux ensemble load idle.yaml && wait_until stopped &&
	flux module remove ensemble && wait_until started && flux run true
'

test_expect_success 'and when the time limit is prolonged: what waited runs' '
	load_module && wait_until stopped &&
	flux ensemble load waiting.yaml && flux python expire.py 36000 &&
	flux ensemble wait waiting && started &&
	flux ensemble status waiting | grep completed && flux ensemble cancel idle
'

test_expect_success 'with a guard of 0 the queue is never stopped' '
	flux module remove ensemble && flux python expire.py 600 &&
	echo "[ensemble]" >config.toml && echo "walltime-guard = 0" >>config.toml &&
	flux config load <config.toml && load_module &&
	flux ensemble run waiting.yaml >out && started && grep completed out
'

test_done
