#!/bin/sh
test_description='run --queue minicluster: the gRPC service is asked for the size'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 3

# Two of three nodes are as a shrink leaves them, but for their brokers, which are still there:
# the dry run starts none.
test_expect_success 'minicluster: the size is asked for, and the job that needs it runs' '
	interruptible flux ensemble grpc start --port 0 --backend dry-run --max-nodes 3 \
		--cluster default/ensemble 2>grpc.log &&
	echo $pid >grpc.pid &&
	wait_line grpc.log "^the gRPC service: localhost:" &&
	sed -n "s/.*localhost:\([0-9]*\),.*/\1/p" grpc.log >port &&
	flux resource drain 1-2 "ensemble: shrink" &&
	flux ensemble run --timeout 300 --queue minicluster --name default/ensemble \
		--host localhost --port $(cat port) "$PROJECT/examples/minicluster.yaml" >out &&
	is 1/0/0/0 "$(counts_of minicluster solve)" &&
	is 0/0/0/0 "$(counts_of minicluster complaint)" &&
	grep "the size is 3 nodes now" out &&
	grep "dry run: the size of cluster .default/ensemble. would change from 1 to 3" grpc.log
'

test_expect_success 'status names the service that is asked' '
	flux ensemble status --json >status.json &&
	is minicluster "$(json instance.scaler.kind <status.json)" &&
	is "localhost:$(cat port)" "$(json instance.scaler.target <status.json)" &&
	is null "$(json instance.scaler.t_expires <status.json)" &&
	is 3 "$(json instance.nodes <status.json)"
'

test_expect_success 'a scaler that a document brought gives way to that of the next one' '
	cat >down.yaml <<-EOD &&
	scaling: {deadline: 2s}
	jobs:
	  - {name: solve, command: echo solve}
	  - {name: complaint, command: echo complaint}
	rules:
	  - {trigger: start, action: {name: submit, label: solve}}
	  - {trigger: start, action: {name: shrink, value: 2}}
	  - {trigger: scale-denied, action: {name: submit, label: complaint}}
	EOD
	kill -INT $(cat grpc.pid) && wait_gone $(cat grpc.pid) &&
	flux ensemble run --timeout 300 --queue minicluster --port $(cat port) down.yaml >down.out
'

test_expect_success 'while the service is down the ensemble goes on, and a deadline ends the wait' '
	is 1/0/0/0 "$(counts_of down solve)" &&
	is 1/0/0/0 "$(counts_of down complaint)" &&
	grep "did not answer within 2 seconds" down.out
'

says_trouble() {
	flux ensemble status | grep "^scaling: .*localhost:$(cat port).*is not available"
}

test_expect_success 'what keeps the service from being asked is shown' '
	wait_until says_trouble
'

test_expect_success 'status has the requests that are outstanding, and by the names before too' '
	sed "s/deadline: 2s/deadline: 1h/" down.yaml >asks.yaml &&
	flux resource undrain 1-2 &&
	wait_status instance.nodes 3 &&
	rpc load file=asks.yaml cwd=/ environment:={} text=@asks.yaml &&
	wait_status instance.nodes 1 &&
	flux ensemble status >status.out &&
	grep "^scaling: asks: rule-1 #0 asks for a size of 1" status.out &&
	flux ensemble status --json >status.json &&
	is "$(json nodes.node_up_count <status.json)" \
		"$(json members.default.nodes.node_up_count <status.json)" &&
	is 1 "$(json members.default.size <status.json)" &&
	is "$(json instance.requests <status.json)" "$(json members.default.requests <status.json)" &&
	is "$(json queue.run <status.json)" "$(json members.default.queue.run <status.json)" &&
	flux ensemble cancel asks
'

test_expect_success 'certificates that are not there are refused with the document' '
	test_expect_code 2 flux ensemble run --queue minicluster --tls-cert no.crt --tls-key no.key \
		--tls-ca no.ca down.yaml 2>err &&
	grep "cannot read .*no.crt" err &&
	test_expect_code 2 flux ensemble run --queue minicluster --tls-cert no.crt down.yaml 2>err &&
	grep "all of tls-cert, tls-key and tls-ca" err
'

test_expect_success 'options of a MiniCluster are refused for another queue' '
	test_expect_code 2 flux ensemble run --port 1 down.yaml 2>err &&
	grep "port is for a MiniCluster: add --queue minicluster" err
'

test_expect_success 'without a scaler such a document is refused, and the reason is named' '
	flux module remove ensemble &&
	test_expect_code 2 flux ensemble run down.yaml 2>err &&
	grep "needs an instance that can change its nodes" err
'

test_expect_success 'a rule reads the nodes of an instance of fixed size' '
	cat >fixed.yaml <<-EOD &&
	jobs:
	  - {name: hold, command: sleep 300, nodes: 3, exclusive: true}
	rules:
	  - {trigger: start, action: {name: submit, label: hold}}
	  - trigger: metric
	    name: nodes.free
	    when: 0
	    action: {name: cancel, label: hold}
	EOD
	flux resource undrain 1-2 &&
	flux ensemble run --timeout 300 fixed.yaml &&
	is 0/0/1/0 "$(counts_of fixed hold)" &&
	is null "$(flux ensemble status --json | json instance.scaler)"
'

test_expect_success 'an instance with such a scaler ends without an error of its broker' '
	flux start --test-size=1 flux ensemble run --queue minicluster --port $(cat port) \
		"$PROJECT/examples/hello-world.yaml" >end.out 2>end.err &&
	! grep "broker.err" end.err
'

# What a broker leaves that is lost when a job has been given resources, but before that is
# recorded: the next one gives its scheduler up, and starts no job.
test_expect_success 'after such a loss of rank 0 the next one goes on with --resume' '
	cat >lost.yaml <<-EOD &&
	jobs: [{name: solve, command: sh -c "echo ran >>ran", count: 2}]
	rules: [{trigger: start, action: {name: submit, label: solve}}]
	EOD
	cat >first.sh <<-\EOD &&
	done=$(flux submit true) && flux job wait-event $done clean >/dev/null
	flux queue stop >/dev/null
	flux ensemble run --queue minicluster --port 1 lost.yaml >first.out 2>&1 &
	until test "$(flux jobs -no {id} --filter=pending | wc -l)" = 2; do sleep 0.1; done
	one=$(flux jobs -no {id} --filter=pending | head -n 1)
	flux kvs put --sync "$(flux job id --to=kvs $one).R=$(flux job info $done R)"
	kill -9 $(flux getattr broker.pid)
	EOD
	cat >next.sh <<-\EOD &&
	flux ensemble run --timeout 300 --queue minicluster --port 1 --resume lost.yaml &&
	flux ensemble status --json lost
	EOD
	mkdir lost &&
	test_expect_code 137 flux start -Sstatedir="$PWD/lost" sh ./first.sh &&
	flux start -Sstatedir="$PWD/lost" sh ./next.sh >next.out 2>next.err &&
	grep "already allocated" next.err &&
	grep "it is loaded again, and what was lost is submitted again" next.err &&
	tail -n 1 next.out >lost.json &&
	is 2 "$(json ensembles.0.groups.solve.success <lost.json)" &&
	is 0 "$(json ensembles.0.groups.solve.failed <lost.json)" &&
	is 2 "$(wc -l <ran)"
'

test_done
