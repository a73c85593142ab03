#!/bin/sh
test_description='members in the queues of the enclosing instance, and on part of its nodes'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 4 --config-path="$SHARNESS_TEST_SRCDIR/lib/queues.toml"

# Write a document with a pool of more keys: `in_queue NAME KEYS`.
in_queue() {
	cat <<-EOD
	name: $1
	members: [{name: pool, $2}]
	jobs: [{name: sim, command: "true", count: 3}]
	rules: [{trigger: start, action: {name: submit, label: sim}}]
	EOD
}

# Print the queue and the nodes of the first member of an ensemble.
where() {
	flux jobs -a -n -o "{queue} {nodelist}" --name=$1:pool.0
}

# Succeed if the log of an ensemble has a line: `logged NAME PATTERN`.
logged() {
	flux ensemble log $1 | grep -q "$2"
}

test_expect_success 'load the module' '
	load_module && flux queue start --all
'

test_expect_success 'members are submitted to the queue and the bank of their pool, on nodes with what it asks for' '
	in_queue debug "queue: debug, bank: physics" >debug.yaml &&
	flux ensemble run debug.yaml &&
	counts_are debug sim=3/0/0/0 &&
	where debug | grep "^debug fake[23]" &&
	is physics "$(flux jobs -a -n -o "{bank}" --name=debug:pool.0)" &&
	in_queue fast "queue: batch, constraint: {properties: [fast]}" >fast.yaml &&
	flux ensemble run fast.yaml &&
	is "batch fake1" "$(where fast)"
'

test_expect_success 'with exclusive: false a member has some cores of a node' '
	in_queue part "queue: batch, exclusive: false, cores: 2" >part.yaml &&
	flux ensemble run part.yaml &&
	counts_are part sim=3/0/0/0 &&
	logged part "pool.0 is up: 1 node, 2 cores"
'

test_expect_success 'attributes of a pool are those of its members' '
	in_queue other "attributes: {system: {queue: debug}, user: {mine: 1}}" >other.yaml &&
	flux ensemble run other.yaml &&
	where other | grep "^debug" &&
	flux job info $(flux jobs -a -n -o "{id}" --name=other:pool.0) jobspec | grep "\"mine\": *1"
'

test_expect_success 'a queue that there is not, one that is too small, and nodes that nobody has: a sentence each' '
	in_queue nowhere "queue: nowhere" >nowhere.yaml &&
	in_queue large "queue: debug, nodes: 3" >large.yaml &&
	in_queue nobody "queue: debug, constraint: {properties: [fast]}" >nobody.yaml &&
	for name in nowhere large nobody; do flux ensemble load $name.yaml || return 1; done &&
	wait_until logged nowhere "pool.0 is lost, with 0 jobs: Invalid queue .nowhere. specified" &&
	wait_until logged large "pool.0 is lost, with 0 jobs: .*need 3 exclusive node(s), only 2 eligible" &&
	wait_until logged nobody "pool.0 is lost, with 0 jobs: .*only 0 eligible" &&
	logged nowhere "sim: no member of pool is up or starting; .grow. starts one" &&
	for name in nowhere large nobody; do flux ensemble terminate $name || return 1; done
'

test_expect_success 'members without a queue, and those of one that is disabled, wait and say so' '
	in_queue unnamed "nodes: 1" >unnamed.yaml &&
	in_queue closed "queue: debug" >closed.yaml &&
	flux queue disable -q debug -m maintenance &&
	flux ensemble load unnamed.yaml && flux ensemble load closed.yaml &&
	says() { flux ensemble status $1 | grep -q "$2"; } &&
	wait_until says unnamed "no queue specified" &&
	wait_until says closed "disabled: maintenance; enable it with .flux queue enable" &&
	flux ensemble terminate unnamed &&
	flux queue enable -q debug &&
	flux ensemble wait closed &&
	counts_are closed sim=3/0/0/0
'

test_expect_success 'the queue of a group is refused where its members have none' '
	in_queue wrong "queue: debug" | sed "s/count: 3/queue: debug/" >wrong.yaml &&
	test_must_fail flux ensemble validate wrong.yaml 2>err &&
	grep "jobs\[0\].queue: the job is submitted to a member (pool), an instance without named queues" err
'

test_done
