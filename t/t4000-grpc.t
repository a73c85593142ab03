#!/bin/sh
test_description='flux ensemble grpc start: the gRPC service on Flux instances'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Run the Python script on standard input with a client of each cluster: `first`, `second`.
with_clients() {
	{
		cat <<-EOD
		import json, sys
		import grpc
		from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
		first = RpcClient("$(cat target)", cluster="first", token_file="token", timeout=60)
		second = RpcClient("$(cat target)", cluster="second", token_file="token", timeout=60)
		def failure(call):
		    try:
		        call()
		    except RpcError as error:
		        print(error.code.name, error, file=sys.stderr)
		        return error.code.name
		EOD
		cat
	} >script.py &&
	run_python <script.py
}

test_expect_success 'the service starts with two clusters, one in an instance of its own' '
	cat >hello.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: echo, command: "echo {x}", params: {x: [1]}}
	rules: []
	EOD
	flux start --test-size=1 sh -c "flux getattr broker.pid >second.pid &&
		echo \$FLUX_URI >second.uri && exec sleep inf" &
	echo $! >second.start &&
	wait_line second.uri local &&
	interruptible flux ensemble grpc start --port 0 --backend dry-run --max-nodes 5 \
		--allow-load --token-file token --cluster first --cluster second=$(cat second.uri) 2>grpc.log &&
	echo $pid >grpc.pid &&
	wait_line grpc.log "^the gRPC service: localhost:" &&
	grep -o "localhost:[0-9]*" grpc.log >target &&
	is 600 "$(stat -c %a token)" &&
	grep "clusters: first, second" grpc.log
'

test_expect_success 'status tells that no ensemble service is loaded, and the size' '
	with_clients <<-EOD
	status = first.status()
	assert "the ensemble service is not loaded" in status.flux_error, status
	assert (status.cluster, status.size.nodes, status.size.maximum) == ("first", 1, 5), status
	assert failure(lambda: first.submit("hello", "echo")) == "UNAVAILABLE"
	EOD
'

test_expect_success 'each cluster has the ensembles of its instance' '
	flux ensemble load --name one hello.yaml &&
	FLUX_URI=$(cat second.uri) flux ensemble load --name two hello.yaml &&
	with_clients <<-EOD
	for client, name, nodes in (first, "one", 2), (second, "two", 1):
	    status = client.status()
	    assert not status.flux_error, status
	    assert [one.name for one in status.ensembles] == [name], status
	    assert status.ensembles[0].state == "running", status
	    assert "echo" in status.ensembles[0].groups, status
	    assert status.nodes.node_up_count == nodes, status
	    assert status.queue.run == 0 and status.queue.HasField("run"), status
	    assert status.service.mode == "module", status
	assert failure(lambda: first.status("two")) == "NOT_FOUND"
	EOD
'

test_expect_success 'submit gives the ids of jobs, whose parameters are what was sent' '
	with_clients <<-EOD &&
	ids = first.submit("one", "echo", count=2, params={"x": [7]})
	assert len(ids) == 2, ids
	print(*ids, file=open("ids", "w"))
	assert first.action("one", {"name": "submit", "label": "echo"})["ids"]
	EOD
	for id in $(cat ids); do
		is 7 "$(flux job attach $id)" || return 1
	done
'

test_expect_success 'a request that the ensemble service refuses has its code' '
	with_clients <<-EOD
	for code, call in (
	    ("NOT_FOUND", lambda: first.submit("nobody", "echo")),
	    ("NOT_FOUND", lambda: first.submit("one", "nobody")),
	    ("INVALID_ARGUMENT", lambda: first.submit("one", "echo", params={"y": [1]})),
	    ("INVALID_ARGUMENT", lambda: first.action("one", {"name": "dance"})),
	    ("NOT_FOUND", lambda: list(first.log("nobody"))),
	    ("NOT_FOUND", lambda: first.metrics("nobody")),
	    ("NOT_FOUND", lambda: first.pause("nobody")),
	):
	    assert failure(call) == code, code
	EOD
'

test_expect_success 'the metrics are those that flux ensemble metrics prints' '
	with_clients <<-EOD >actual &&
	print(json.dumps(first.metrics("one"), sort_keys=True))
	EOD
	flux ensemble metrics --json one >metrics.json &&
	run_python <<-EOD
	import json
	expected = json.dumps(json.load(open("metrics.json")), sort_keys=True)
	actual = open("actual").read().strip()
	assert actual == expected, (actual, expected)
	EOD
'

test_expect_success 'an ensemble is paused and resumed' '
	with_clients <<-EOD
	assert first.pause("one") == "paused"
	assert first.status("one").ensembles[0].state == "paused"
	assert failure(lambda: first.submit("one", "echo")) == "FAILED_PRECONDITION"
	assert first.pause("one") == "paused"
	assert first.resume("one") == "running"
	EOD
'

test_expect_success 'a document is loaded, and its jobs run where and as it was said' '
	cat >where.sh <<-EOD &&
	pwd
	echo \$COLOUR
	EOD
	with_clients <<-EOD &&
	import os
	text = """
	finish: never
	jobs: [{name: where, command: sh where.sh, output: out.txt}]
	"""
	where = dict(cwd=os.getcwd(), environment={"PATH": os.environ["PATH"], "COLOUR": "blue"})
	assert first.load(text, name="sent", **where) == "sent"
	assert failure(lambda: first.load(text, name="sent", **where)) == "ALREADY_EXISTS"
	assert failure(lambda: first.load("jobs: [{nam: a}]", name="bad", **where)) == "INVALID_ARGUMENT"
	assert failure(lambda: first.load(text, cwd="here", environment={})) == "INVALID_ARGUMENT"
	(id,) = first.submit("sent", "where")
	print(id, file=open("id", "w"))
	EOD
	flux job wait-event -t 300 $(cat id) clean &&
	pwd -P >expected &&
	echo blue >>expected &&
	test_cmp expected out.txt &&
	flux ensemble terminate sent
'

test_expect_success 'the log is the one that flux ensemble log prints' '
	flux ensemble log --json one >expected &&
	with_clients >actual <<-EOD &&
	for entry in first.log("one"):
	    print(json.dumps(entry))
	EOD
	run_python expected actual <<-EOD
	import json, sys
	expected, actual = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
	assert actual and actual == expected, (expected, actual)
	EOD
'

test_expect_success 'a log can be followed until the ensemble ends' '
	with_clients >followed <<-EOD &&
	log = first.log("one", follow=True, events=True)
	entry = next(log)
	ids = first.submit("one", "echo")
	first.action("one", {"name": "terminate"})
	names = [entry["name"], *(entry["name"] for entry in log)]
	print(*names, sep="\n")
	EOD
	grep "^job-event$" followed &&
	grep "^finish$" followed
'

test_expect_success 'a client that leaves a log makes room for others' '
	with_clients <<-EOD
	for _ in range(40):
	    log = second.log("two", follow=True)
	    next(log)
	    log.close()
	EOD
'

test_expect_success 'a client of the predecessors submits, and reads the status' '
	run_python $(cat target) <<-EOD
	import json, sys
	import grpc
	from flux_ensemble.k8s.grpc.protocol import predecessors_pb2 as pb
	from flux_ensemble.k8s.grpc.protocol import predecessors_pb2_grpc as api
	stub = api.EnsembleOperatorStub(grpc.insecure_channel(sys.argv[1]))
	metadata = (("authorization", "Bearer " + open("token").read().strip()),)
	payload = json.dumps({"ensemble": "two", "group": "echo", "count": 2})
	request = pb.ActionRequest(
	    member="minicluster", name="second", action="submit", payload=payload)
	response = stub.RequestAction(request)
	assert response.status == pb.Response.DENIED, response
	assert "do not say who they are" in response.payload, response
	response = stub.RequestAction(request, metadata=metadata)
	assert response.status == pb.Response.SUCCESS, response
	assert len(json.loads(response.payload)["ids"]) == 2, response
	response = stub.RequestStatus(pb.StatusRequest(member="minicluster", name="second"))
	assert response.status == pb.Response.SUCCESS, response
	status = json.loads(response.payload)
	assert status["nodes"]["node_up_count"] == 1, status
	assert set(status["queue"]) >= {"run", "inactive", "sched"}, status
	payload = json.dumps({"ensemble": "two", "group": "nobody"})
	response = stub.RequestAction(pb.ActionRequest(
	    member="minicluster", name="second", action="submit", payload=payload), metadata=metadata)
	assert response.status == pb.Response.ERROR, response
	EOD
'

test_expect_success 'an instance that hangs costs only the requests to it' '
	kill -STOP $(cat second.pid) &&
	with_clients <<-EOD
	second.timeout = 1
	for _ in range(6):
	    assert failure(lambda: second.submit("two", "echo")) == "DEADLINE_EXCEEDED"
	status = RpcClient("$(cat target)", cluster="second", token_file="token", timeout=5).status()
	assert "did not answer" in status.flux_error, status
	assert status.size.nodes == 1, status
	# More streams than there may be at once: one that hangs is not in the way of others.
	for _ in range(20):
	    channel = RpcClient("$(cat target)", cluster="second", token_file="token", timeout=0.2)
	    assert failure(lambda: list(channel.log("two"))) == "DEADLINE_EXCEEDED"
	assert list(first.log("one"))
	assert first.status().ensembles
	EOD
	status=$?
	kill -CONT $(cat second.pid) &&
	test $status -eq 0
'

test_expect_success 'and is served again when it goes on' '
	with_clients <<-EOD
	assert second.submit("two", "echo")
	EOD
'

test_expect_success 'an instance that is gone is told in the status, and the service stays' '
	kill -TERM $(cat second.pid) &&
	wait_gone $(cat second.start) &&
	with_clients <<-EOD
	assert second.status().flux_error, "the connection is lost"
	assert "cannot be reached" in second.status().flux_error, second.status()
	assert failure(lambda: second.submit("two", "echo")) == "UNAVAILABLE"
	assert first.status().ensembles
	EOD
'

test_expect_success 'Ctrl-C ends it without a traceback' '
	kill -INT $(cat grpc.pid) &&
	wait $(cat grpc.pid) &&
	test_must_fail grep -A 40 Traceback grpc.log
'

test_done
