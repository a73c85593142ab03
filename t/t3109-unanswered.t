#!/bin/sh
test_description='What a service outside of the broker was asked before it died is never answered'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 1

# Start a service that dies at a moment (lib/dying_service.py); its process is $serve.
serve_until() {
	begin_python "$SHARNESS_TEST_SRCDIR/lib/dying_service.py" $1 2>>serve.log
	serve=$!
	wait_until has_claimed
}

# Succeed if a service has begun; it is asked nothing that it may die of.
has_claimed() {
	rpc claim >claim 2>&1 && grep -q token claim
}

# End the service.
end_service() {
	kill $serve && wait $serve
}

# Run a command that is not to wait for ever.
bounded() {
	timeout --kill-after=10 120 "$@"
}

# An ensemble that ends when the file `go` is there: `write_document NAME`.
write_document() {
	cat >$1.yaml <<-EOD
	name: $1
	jobs:
	  - name: first
	    command: "true"
	  - name: second
	    command: sh -c "until test -e $1.go; do sleep 0.1; done"
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - {trigger: job-success, name: first, action: {name: submit, label: second}}
	EOD
}

# Succeed if an ensemble has run as it was to: `has_run NAME`.
has_run() {
	is 1/0/0/0 "$(counts_of $1 first)" &&
	is 1/0/0/0 "$(counts_of $1 second)" &&
	is 1 "$(entries $1 load)"
}

test_expect_success 'run finds what a service has loaded that died before it said so' '
	write_document said && touch said.go &&
	serve_until loaded &&
	{ bounded flux ensemble run said.yaml >said.out 2>said.err & run=$!; } &&
	wait_gone $serve &&
	serve &&
	wait $run &&
	has_run said &&
	grep "submit second" said.out &&
	is 2 "$(flux jobs -a -n -o "{id}" | wc -l)" &&
	flux ensemble rm said &&
	end_service
'

test_expect_success 'run loads once more what a service had not loaded when it died' '
	serve_until load &&
	{ bounded flux ensemble run said.yaml >again.out 2>again.err & run=$!; } &&
	wait_gone $serve &&
	serve &&
	wait $run &&
	has_run said &&
	grep "submit second" again.out &&
	is 4 "$(flux jobs -a -n -o "{id}" | wc -l)" &&
	end_service
'

test_expect_success 'Ctrl-C while nobody has said whether it is loaded cancels it when the service is back' '
	write_document unknown &&
	serve_until loaded &&
	interruptible flux ensemble run unknown.yaml >unknown.out 2>unknown.err && run=$pid &&
	wait_gone $serve &&
	kill -INT $run &&
	wait_line unknown.out interrupted &&
	serve &&
	test_expect_code 130 wait $run &&
	is canceled "$(status_of unknown state)" &&
	end_service
'

test_expect_success 'run goes on where a service dies of the request for the log' '
	write_document asked && touch asked.go &&
	serve_until log &&
	{ bounded flux ensemble run asked.yaml >asked.out 2>asked.err & run=$!; } &&
	wait_gone $serve &&
	serve &&
	wait $run &&
	has_run asked &&
	grep "submit second" asked.out &&
	end_service
'

test_expect_success 'so do those that follow logs, where that is the second service to die' '
	write_document twice &&
	cat >client.py <<-EOD &&
	import json
	from flux_ensemble.client import Client
	for entry in Client().log("twice", follow=True):
	    print(json.dumps(entry), flush=True)
	EOD
	serve &&
	flux ensemble load twice.yaml &&
	{ bounded flux ensemble log --json --follow twice >twice-log.out 2>twice-log.err & log=$!; } &&
	{ bounded "$SHARNESS_BUILD_DIRECTORY/python" client.py >twice-client.out & client=$!; } &&
	wait_line twice-log.out second && wait_line twice-client.out second &&
	kill -KILL $serve &&
	serve_until log &&
	wait_gone $serve &&
	serve &&
	wait_status service.state ready &&
	touch twice.go &&
	wait $log && wait $client &&
	has_run twice &&
	flux ensemble log --json twice >whole &&
	test_cmp whole twice-log.out &&
	test_cmp whole twice-client.out &&
	end_service
'

test_expect_success 'a service that was stopped for so long that requests have timed out goes on' '
	write_document stopped &&
	serve &&
	{ bounded flux ensemble run stopped.yaml >stopped.out 2>stopped.err & run=$!; } &&
	wait_loaded stopped &&
	{ bounded flux ensemble log --json --follow stopped >stopped-log.out 2>stopped-log.err & log=$!; } &&
	wait_line stopped-log.out second && wait_line stopped.out second &&
	stopped=$(service_pid) &&
	kill -STOP $stopped &&
	wait_line stopped.err "waiting for it" && wait_line stopped-log.err "waiting for it" &&
	kill -CONT $stopped &&
	wait_line stopped.err "is back" && wait_line stopped-log.err "is back" &&
	touch stopped.go &&
	wait $run && wait $log &&
	has_run stopped &&
	flux ensemble log --json stopped >whole &&
	test_cmp whole stopped-log.out &&
	end_service
'

test_expect_success 'a request that a service dies of is an error' '
	for request in metrics jobs log; do
		serve_until $request &&
		test_must_fail bounded flux ensemble $request said 2>err &&
		grep "went away" err || return 1
	done
'

test_expect_success 'the gRPC service ends the log that a service which died was asked for' '
	write_document streamed &&
	serve &&
	flux ensemble load streamed.yaml &&
	interruptible flux ensemble grpc start --socket "$PWD/s" --cluster here 2>grpc.log &&
	grpc=$pid &&
	wait_line grpc.log "^the gRPC service: unix:" &&
	cat >stream.py <<-EOD &&
	from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
	try:
	    for entry in RpcClient("unix:$PWD/s").log("streamed", follow=True):
	        print(entry, flush=True)
	except RpcError as error:
	    print(error.code.name, error)
	EOD
	{ bounded "$SHARNESS_BUILD_DIRECTORY/python" stream.py >streamed.out & stream=$!; } &&
	wait_line streamed.out second &&
	kill -KILL $serve &&
	wait $stream &&
	grep "^UNAVAILABLE .*went away" streamed.out &&
	kill -INT $grpc &&
	wait $grpc
'

test_done
