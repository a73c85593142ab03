#!/bin/sh
test_description='flux ensemble grpc start --backend instance: the gRPC service scales Flux instances'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/elastic.sh"
test_under_elastic_flux 'max-nodes = 3'

# Run the Python script on standard input with a client of each cluster: `elastic`, `fixed`.
with_clients() {
	{
		cat <<-EOD
		import sys
		from flux_ensemble.k8s.grpc.client import Grant, RpcClient, RpcError, Size
		elastic = RpcClient("$(cat target)", cluster="elastic", timeout=60)
		fixed = RpcClient("$(cat target)", cluster="fixed", timeout=60)
		def failure(call, *words):
		    try:
		        call()
		    except RpcError as error:
		        print(error.code.name, error, file=sys.stderr)
		        missing = [word for word in words if word not in str(error)]
		        assert not missing, missing
		        return error.code.name
		EOD
		cat
	} >script.py &&
	run_python <script.py
}

# Send an action of the predecessors' protocol, once, and print the status and the payload of
# the response: `predecessors elastic grow 2`.
predecessors() {
	run_python $(cat target) "$@" <<-EOD
	import json, sys
	import grpc
	from flux_ensemble.k8s.grpc.protocol import predecessors_pb2 as pb
	from flux_ensemble.k8s.grpc.protocol import predecessors_pb2_grpc as api
	target, cluster, action, number = sys.argv[1:]
	stub = api.EnsembleOperatorStub(grpc.insecure_channel(target))
	response = stub.RequestAction(pb.ActionRequest(
	    member="minicluster", name=cluster, action=action,
	    payload=json.dumps({action: int(number)})), timeout=60)
	print(pb.Response.ResultType.Name(response.status), response.payload)
	EOD
}

# Wait until the size has come to this, and nothing changes any more.
settled() {
	wait_status instance.scaler.changing_to null &&
	wait_status instance.nodes "$1"
}

test_expect_success 'the service starts with two clusters, one of a fixed size' '
	flux start --test-size=1 sh -c "flux getattr broker.pid >fixed.pid &&
		echo \$FLUX_URI >fixed.uri && exec sleep inf" &
	echo $! >fixed.start &&
	wait_line fixed.uri local &&
	interruptible flux ensemble grpc start --port 0 --backend instance \
		--cluster elastic --cluster fixed=$(cat fixed.uri) 2>grpc.log &&
	echo $pid >grpc.pid &&
	wait_line grpc.log "^the gRPC service: localhost:" &&
	grep -o "localhost:[0-9]*" grpc.log >target &&
	grep "back end instance, clusters: elastic, fixed" grpc.log
'

test_expect_success 'without the ensemble service there the size is not known' '
	predecessors elastic grow 1 >absent &&
	grep "^ERROR .*cluster .elastic.: the ensemble service is not loaded" absent
'

test_expect_success 'the size and the bounds are those of the scaler' '
	load_module &&
	FLUX_URI=$(cat fixed.uri) load_module &&
	wait_status instance.nodes 1 &&
	with_clients <<-EOD
	assert elastic.size() == Size(1, 1, 3), elastic.size()
	status = elastic.status()
	assert (status.size.nodes, status.size.maximum) == (1, 3), status
	assert not status.size_error and not status.flux_error, status
	EOD
'

test_expect_success 'a client of the predecessors grows it, and the job that waits for nodes runs' '
	flux submit -N3 -n3 true >waiting &&
	predecessors elastic grow 2 >grown &&
	grep "^SUCCESS {\"before\": 1, \"size\": 3}" grown &&
	flux job status $(cat waiting) &&
	settled 3
'

test_expect_success 'beyond the bounds it is denied with the reason, and nothing changes' '
	predecessors elastic grow 1 >denied &&
	grep "^DENIED .*cannot grow: its size is 3, and its maximum is 3" denied &&
	with_clients <<-EOD &&
	assert failure(elastic.grow, "its maximum is 3") == "FAILED_PRECONDITION"
	EOD
	settled 3
'

test_expect_success 'a client of ours shrinks it: the size that it is to have counts at once' '
	flux submit -N3 -n3 --exclusive sleep inf >running &&
	flux job wait-event -t 300 $(cat running) start &&
	with_clients <<-EOD &&
	assert elastic.shrink() == Grant(3, 2)
	assert elastic.size() == Size(2, 1, 3), elastic.size()
	EOD
	is 2 "$(flux ensemble status --json | json instance.scaler.changing_to)"
'

test_expect_success 'a job keeps its nodes until it ends' '
	is R "$(flux jobs -no "{status_abbrev}" $(cat running))" &&
	is 0-2 "$(flux resource status -s online -no "{ranks}")" &&
	flux cancel $(cat running) &&
	settled 2 &&
	is 0-1 "$(flux resource status -s online -no "{ranks}")"
'

test_expect_success 'what goes beyond the bounds is clamped to them' '
	with_clients <<-EOD &&
	assert elastic.scale(99) == Grant(2, 3)
	EOD
	settled 3 &&
	with_clients <<-EOD &&
	assert elastic.shrink(99) == Grant(3, 1)
	EOD
	settled 1 &&
	predecessors elastic shrink 1 >denied &&
	grep "^DENIED .*cannot shrink: its size is 1, and its minimum is 1" denied &&
	with_clients <<-EOD
	assert failure(lambda: elastic.scale(0), "must be 1 or more") == "INVALID_ARGUMENT"
	EOD
'

test_expect_success 'without --cluster it is the enclosing instance' '
	interruptible flux ensemble grpc start --port 0 --backend instance 2>own.log &&
	own=$pid &&
	wait_line own.log "clusters: flux;" &&
	run_python $(grep -o "localhost:[0-9]*" own.log) <<-EOD &&
	import sys
	from flux_ensemble.k8s.grpc.client import Grant, RpcClient
	with RpcClient(sys.argv[1]) as client:
	    assert client.grow() == Grant(1, 2)
	EOD
	settled 2 &&
	kill -INT $own &&
	wait $own
'

test_expect_success 'an instance without a scaler is refused, and its status says why' '
	with_clients <<-EOD
	words = "fixed", "has a fixed size", "configure a scaler in [ensemble]"
	for call in fixed.size, fixed.grow, lambda: fixed.scale(2):
	    assert failure(call, *words) == "FAILED_PRECONDITION"
	status = fixed.status()
	assert "has a fixed size" in status.size_error, status
	assert status.service.version and not status.service.pid, status
	EOD
'

test_expect_success 'a scaler that would ask this very service is refused' '
	FLUX_URI=$(cat fixed.uri) rpc load file=loop.yaml cwd=/ environment:={} \
		text="{finish: never, jobs: [{name: a, command: a}], rules: []}" \
		scaler:="{\"scaler\": \"minicluster\", \"grpc-target\": \"$(cat target)\",
			\"grpc-cluster\": \"fixed\"}" &&
	with_clients <<-EOD
	words = "itself asks the gRPC service", "--backend kubernetes"
	assert failure(fixed.grow, *words) == "FAILED_PRECONDITION"
	EOD
'

test_expect_success 'an instance that hangs costs only the requests to it' '
	kill -STOP $(cat fixed.pid) &&
	with_clients <<-EOD
	hasty = [RpcClient("$(cat target)", cluster="fixed", timeout=0.5) for _ in range(6)]
	for client in hasty:
	    assert failure(client.size) in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
	assert elastic.grow() == Grant(2, 3)
	EOD
	status=$?
	kill -CONT $(cat fixed.pid) &&
	test $status -eq 0 &&
	settled 3
'

test_expect_success 'an instance that is gone is told of' '
	kill -TERM $(cat fixed.pid) &&
	wait_gone $(cat fixed.start) &&
	predecessors fixed grow 1 >lost &&
	predecessors fixed grow 1 >absent &&
	grep "^ERROR " lost &&
	grep "^ERROR .*cluster .fixed. cannot be reached: there is no Flux instance at" absent &&
	with_clients <<-EOD
	assert elastic.size() == Size(3, 1, 3)
	EOD
'

test_expect_success 'each change is logged, and Ctrl-C ends the service without a traceback' '
	kill -INT $(cat grpc.pid) &&
	wait $(cat grpc.pid) &&
	grep "scale cluster .elastic. by +2: from 1 to 3" grpc.log &&
	test_must_fail grep Traceback grpc.log
'

test_done
