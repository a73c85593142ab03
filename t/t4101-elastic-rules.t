#!/bin/sh
test_description='Rules grow and shrink a running instance, and no job is lost'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/elastic.sh"
test_under_elastic_flux 'max-nodes = 3'

no_module() {
	test "$(modules_loaded)" = 0
}

# At most two nodes: where the first of its jobs takes longer than the cooldown of its rule, the
# second one waits, and it would grow again.
test_expect_success 'grow-on-pending: jobs that wait make the instance grow, and run' '
	sed "s/max-nodes: 4/max-nodes: 2/" "$PROJECT/examples/grow-on-pending.yaml" \
		>grow-on-pending.yaml &&
	grep "max-nodes: 2" grow-on-pending.yaml &&
	flux ensemble run --timeout 300 grow-on-pending.yaml >grow.out &&
	is 2/0/0/0 "$(counts_of grow-on-pending solve)" &&
	grep "the size is 2 nodes now" grow.out &&
	wait_status instance.nodes 2
'

test_expect_success 'the log says what was asked for, why, and what came of it' '
	flux ensemble log grow-on-pending >grow.log &&
	grep "scale *more #0: grow the instance to 2 nodes" grow.log &&
	grep "outcome *more #0: ok, 2 nodes" grow.log &&
	grep "fire .*more #0: grow .*solve-waiting" grow.log
'

test_expect_success 'status shows the size, the bounds and what changes it' '
	flux ensemble status >status.out &&
	grep "^scaling: 2 nodes, 1 to 3 possible (instance)" status.out &&
	is 2 "$(status_of grow-on-pending queue.nodes)"
'

test_expect_success 'shrink-when-idle: nodes that nobody needs are given back' '
	flux ensemble run --timeout 300 "$PROJECT/examples/shrink-when-idle.yaml" >shrink.out &&
	is 3/0/0/0 "$(counts_of shrink-when-idle solve)" &&
	is 1/0/0/0 "$(counts_of shrink-when-idle note)" &&
	is 0/0/0/0 "$(counts_of shrink-when-idle complaint)" &&
	grep "the size is 1 node now" shrink.out &&
	wait_status instance.nodes 1
'

test_expect_success 'at the bound a request is denied, and rules learn of it' '
	flux ensemble run --timeout 300 --name again "$PROJECT/examples/shrink-when-idle.yaml" &&
	is 0/0/0/0 "$(counts_of again note)" &&
	is 1/0/0/0 "$(counts_of again complaint)" &&
	flux ensemble log again | grep "is at its minimum of 1 node"
'

test_expect_success 'workload-demand: it grows for jobs that wait, and no job is lost' '
	flux ensemble run --timeout 300 "$PROJECT/examples/workload-demand.yaml" >demand.out &&
	is 2/0/0/0 "$(counts_of workload-demand small)" &&
	is 2/0/0/0 "$(counts_of workload-demand large)" &&
	flux ensemble log workload-demand >demand.log &&
	grep "workload-demand-up-large #0: grow the instance to [23] nodes" demand.log
'

test_expect_success 'workload-demand: with finish: never it gives all back that it can' '
	{ cat "$PROJECT/examples/workload-demand.yaml" && echo "finish: never"; } >demand.yaml &&
	flux ensemble load --name stays demand.yaml &&
	wait_status_of stays groups.small.success 2 groups.large.success 2 &&
	wait_status instance.nodes 1 &&
	flux ensemble terminate stays
'

test_expect_success 'a rule reads how many nodes are up and free' '
	cat >free.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: hold, command: sleep 300, exclusive: true}
	  - {name: seen, command: echo seen}
	rules:
	  - id: idle
	    trigger: metric
	    name: nodes.free
	    when: 1
	    actions:
	      - {name: enable, label: busy}
	      - {name: submit, label: hold}
	  - id: busy
	    enabled: false
	    trigger: metric
	    name: nodes.free
	    when: 0
	    action: {name: cancel, label: hold, repetitions: unlimited}
	  - trigger: job-cancel
	    action: {name: submit, label: seen}
	  - trigger: job-success
	    group: seen
	    action: {name: terminate}
	EOD
	flux ensemble run --timeout 300 free.yaml &&
	is 0/0/1/0 "$(counts_of free hold)" &&
	is 1/0/0/0 "$(counts_of free seen)" &&
	is 1 "$(flux ensemble metrics --json free | json nodes.up)"
'

test_expect_success 'a request that is under way goes on after the service was killed' '
	cat >three.yaml <<-EOD &&
	jobs:
	  - {name: wide, command: "true", nodes: 3}
	rules:
	  - trigger: start
	    action: {name: grow, value: 2}
	  - trigger: scale-done
	    action: {name: submit, label: wide}
	EOD
	flux setattr broker.module-nopanic 1 &&
	flux ensemble load three.yaml &&
	wait_entry three scale &&
	kill -9 $(flux ensemble status --json | json service.pid) &&
	wait_until no_module &&
	load_module &&
	flux ensemble wait --timeout 300 three &&
	is 1/0/0/0 "$(counts_of three wide)" &&
	is 1 "$(flux ensemble log three | grep -c "outcome.*3 nodes")" &&
	wait_status instance.nodes 3
'

test_expect_success 'any tool can ask for a size, and the bounds hold' '
	rpc scale to:=9 >scale.out &&
	is 3 "$(json size <scale.out)" &&
	refused EINVAL "1 or more" scale to:=0 &&
	rpc scale to:=1 &&
	wait_status instance.nodes 1
'

test_expect_success 'a size that is not reached is logged and shown, with the reason' '
	flux resource undrain 1-2 &&
	flux resource drain 1-2 somebody is at work &&
	rpc scale to:=3 &&
	wait_status instance.scaler.changing_to null &&
	flux ensemble status | grep "^scaling: failed: cannot grow .*drained by somebody else" &&
	flux dmesg | grep "cannot change the size to 3 nodes" &&
	flux resource undrain 1-2
'

test_expect_success 'another scaler is not taken while the site has configured one' '
	refused EEXIST "the site configured it" load \
		file=a.yaml cwd=/ environment:={} text="jobs: [{name: a, command: a}]" \
		scaler:="{\"scaler\": \"minicluster\", \"grpc-target\": \"localhost:1\"}"
'

test_done
