#!/bin/sh
test_description='members: an ensemble over Flux instances that are jobs of the enclosing one'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 3

# Succeed if all jobs of a group have succeeded, each counted once: `all_done NAME GROUP COUNT`.
all_done() {
	is $3 "$(status_of $1 groups.$2.success)" &&
	is $3 "$(status_of $1 groups.$2.finished)" &&
	is 0 "$(status_of $1 groups.$2.failed)"
}

# Kill the broker of a member: `kill_member JOB`.
kill_member() {
	kill -9 $(FLUX_URI=$(flux uri --local $1) flux getattr broker.pid)
}

test_expect_success 'load the module' '
	load_module
'

test_expect_success 'members: a sweep is shared out over two instances' '
	flux ensemble run "$PROJECT/examples/members.yaml" &&
	counts_are members sim=20/0/0/0 &&
	flux ensemble jobs -n -o "{id}" members >ids &&
	is 20 "$(grep -c "^pool.[01]:" ids)" &&
	grep -q "^pool.0:" ids &&
	grep -q "^pool.1:" ids
'

test_expect_success 'ids that others are told are those of Flux' '
	flux ensemble jobs --json members >jobs.json &&
	python3 -c "
import json
jobs = json.load(open(\"jobs.json\"))[\"jobs\"]
assert len(jobs) == 20
assert all(job[\"id\"] < 2**64 for job in jobs)
"
'

test_expect_success 'members end with the ensemble' '
	wait_quiet &&
	is 2 "$(flux jobs -a -n -o "{result}" | grep -c COMPLETED)"
'

test_expect_success 'pinned: jobs run where their group is to run' '
	flux ensemble run "$PROJECT/examples/pinned.yaml" &&
	counts_are pinned sim=12/0/0/0 train=3/0/0/0 &&
	flux ensemble jobs -n -o "{group} {id}" pinned >pinned &&
	is 3 "$(grep -c "^train big.0:" pinned)"
'

test_expect_success 'member-lost: a member is killed, and its jobs run elsewhere' '
	sed "s/command: sleep 1/command: sh -c \"until test -e go; do sleep 0.1; done\"/" \
		"$PROJECT/examples/member-lost.yaml" >member-lost.yaml &&
	grep "test -e go" member-lost.yaml &&
	{ flux ensemble run member-lost.yaml >lost.log 2>&1 & run=$!; } &&
	wait_loaded member-lost &&
	wait_entry member-lost member-up 2 &&
	flux ensemble status member-lost >status &&
	grep "^MEMBER  *STATE  *NODES  *CORES  *JOBS" status &&
	grep "^pool.1  *up  *1 " status &&
	kill_member $(flux jobs -n -o "{id}" --name=member-lost:pool.0) &&
	wait_entry member-lost member-lost &&
	touch go &&
	wait $run &&
	all_done member-lost sim 20 &&
	is 1 "$(entries member-lost member-lost)" &&
	is 3 "$(entries member-lost member-start)"
'

# Write a document whose pool replaces whatever ends, in either way: `replaces NAME`.
replaces() {
	cat <<-EOD
	name: $1
	finish: never
	members: [{name: pool, count: {min: 1, max: 9}}]
	jobs:
	  - name: sim
	    command: sh -c 'echo {s} >>$1.ran; until test -e $1.go; do sleep 0.1; done'
	    params: {s: {range: [0, 2]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - {trigger: member-draining, action: {name: grow, label: pool, repetitions: unlimited}}
	  - {trigger: member-lost, action: {name: grow, label: pool, repetitions: unlimited}}
	EOD
}

# Succeed if each of so many members that ended was lost and replaced once: `replaced NAME COUNT`.
replaced() {
	wait_entry $1 member-ended $2 &&
	wait_entry $1 member-up $(($2 + 1)) &&
	is $2 "$(entries $1 member-lost)" &&
	is 0 "$(entries $1 member-draining)" &&
	is $(($2 + 1)) "$(entries $1 member-start)"
}

test_expect_success 'a member that ends unasked is replaced once by rules on both ways to end, busy or idle' '
	replaces unasked >unasked.yaml &&
	flux ensemble load unasked.yaml &&
	wait_until has_lines unasked.ran 1 &&
	flux cancel $(flux jobs -n -o "{id}" --name=unasked:pool.0) &&
	replaced unasked 1 &&
	touch unasked.go &&
	wait_status_of unasked groups.sim.success 2 &&
	flux shutdown --background \
		$(flux uri --local $(flux jobs -n -o "{id}" --name=unasked:pool.1)) &&
	replaced unasked 2 &&
	flux ensemble log unasked | grep "pool.1 is lost, with 0 jobs: its instance ends" &&
	flux ensemble terminate unasked &&
	wait_quiet
'

test_expect_success 'rolling-allocations: members with a walltime replace each other' '
	flux ensemble run "$PROJECT/examples/rolling-allocations.yaml" &&
	all_done rolling-allocations sim 20 &&
	test "$(entries rolling-allocations member-draining)" -ge 1 &&
	test "$(entries rolling-allocations member-start)" -ge 2
'

test_expect_success 'a member that fails everything is drained; jobs run again elsewhere, others near them' '
	cat >broken.yaml <<-EOD &&
	finish: never
	members:
	  - {name: pool, count: 2, breaker: 3}
	jobs:
	  - name: sim
	    command: sh -c '\''test "\$FLUX_URI" != "\$(cat broken)"'\''
	    count: 8
	    retries: {times: 1, spread: node}
	  - {name: post, command: "true"}
	rules:
	  - {id: go, trigger: start, enabled: false, action: {name: submit, label: sim}}
	  - {id: more, trigger: job-success, group: sim, action: {name: submit, label: sim, count: 1, repetitions: unlimited}}
	  - {trigger: member-draining, action: {name: disable, label: more}}
	  - {trigger: job-success, group: sim, action: {name: submit, label: post, near: trigger, repetitions: unlimited}}
	  - {trigger: idle, action: {name: terminate}}
	EOD
	{ flux ensemble run broken.yaml >broken.log 2>&1 & run=$!; } &&
	wait_loaded broken &&
	wait_entry broken member-up 2 &&
	flux uri --local $(flux jobs -n -o "{id}" --name=broken:pool.0) >broken &&
	flux ensemble enable broken go &&
	wait $run &&
	flux ensemble log broken >log &&
	grep "member-doubted.*pool.0" log &&
	grep "member-draining.*pool.0.*3 more after others had run well elsewhere" log &&
	is 0 "$(status_of broken groups.sim.gave-up)" &&
	flux ensemble jobs -n -o "{group} {id} {outcome}" broken >jobs &&
	test_must_fail grep "pool.0.*success" jobs &&
	sims=$(grep -c "^sim pool.1:" jobs) &&
	test $sims -ge 10 &&
	is $sims "$(status_of broken groups.sim.success)" &&
	is $sims "$(grep -c "^post pool.1:.*success" jobs)"
'

test_expect_success 'unload the module' '
	flux module remove ensemble
'

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
	{ flux ensemble run --timeout 300 killed.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded killed &&
	for lines in 0 5 15
	do
		wait_until has_lines ran $lines &&
		kill -9 $serve &&
		serve || return 1
	done &&
	{ wait $run || { cat run.log && flux ensemble log killed && flux jobs -a && false; }; } &&
	is 40/0/0/0 "$(counts_of killed sim)" &&
	is 40 "$(wc -l <ran)" &&
	is 40 "$(sort -u ran | wc -l)" &&
	is 2 "$(entries killed member-start)" &&
	is 2 "$(entries killed member-up)"
'

test_expect_success 'a service that begins ends the members of ensembles that are over' '
	kill -9 $serve &&
	serve &&
	wait_quiet &&
	kill $serve
'

test_done
