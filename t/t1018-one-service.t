#!/bin/sh
test_description='One service drives the ensembles of an instance, wherever others are started'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Run a command with the broker of rank 1, as on its node.
on_rank_1() {
	test -n "$rank_1" || rank_1=$(flux exec -r1 flux getattr local-uri)
	FLUX_URI=$rank_1 "$@"
}

# Start serve on rank 1 in the background, and wait until it answers there; its id is $pid.
serve_on_rank_1() {
	on_rank_1 interruptible flux ensemble serve >serve.log 2>&1 &&
	on_rank_1 wait_service &&
	on_rank_1 flux ensemble list
}

# Wait until a line that matches is in the log of rank 0 or 1.
wait_logged() {
	wait_until is_logged "$1"
}

is_logged() {
	flux dmesg | grep "$1" || on_rank_1 flux dmesg | grep "$1"
}

module_is_gone() {
	test "$(modules_loaded)" = 0
}

# Load a document of 2 times 8 jobs, some of which run; it ends after check_busy has begun.
load_busy() {
	cat >busy.yaml <<-EOD &&
	jobs:
	  - {name: first, command: sleep 0.3, count: 8}
	  - {name: second, command: [sh, -c, "until test -e go-$1; do sleep 0.1; done"], count: 8}
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - {trigger: metric, name: count.first.finished, when: 4, action: {name: submit, label: second}}
	EOD
	flux ensemble load --name "$1" busy.yaml &&
	wait_entry "$1" outcome
}

# Wait for the end of an ensemble of such a document: each job ran once, and none was cancelled.
check_busy() {
	touch "go-$1" &&
	flux ensemble wait --timeout 300 "$1" &&
	is 8/0/0/0 "$(counts_of "$1" first)" &&
	is 8/0/0/0 "$(counts_of "$1" second)" &&
	is 0 "$(status_of "$1" violations)" &&
	jobs_of "$1" jobs.json &&
	is 16 "$(json_length jobs.json)"
}

json_length() {
	"$SHARNESS_BUILD_DIRECTORY/python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$1"
}

# Put a claim of another service in the KVS, with an epoch.
claim() {
	flux kvs put --raw "ensemble-service=$(printf "%s" "{\"epoch\": $1, \"rank\": 1, \
		\"name\": \"ensemble\", \"mode\": \"client\", \"pid\": 7, \"token\": \"another\"}")"
}

epoch_now() {
	flux kvs get --raw ensemble-service | json epoch
}

# The claim in the KVS is that of the module on rank 0, with an epoch.
claim_is() {
	flux kvs get --raw ensemble-service >claim.out 2>/dev/null &&
	is "$1/module/0" "$(json epoch <claim.out)/$(json mode <claim.out)/$(json rank <claim.out)" 2>/dev/null
}

# There is a module, or a serve, and not both.
one_stays() {
	if is_gone $pid; then test "$(modules_loaded)" = 1; else test "$(modules_loaded)" = 0; fi
}

test_expect_success 'serve on rank 1 is refused, and says that the module on rank 0 is there' '
	load_module &&
	load_busy first &&
	pid=$(rpc status | json service.pid) &&
	test_must_fail on_rank_1 timeout 300 flux ensemble serve 2>err &&
	grep "^flux-ensemble: ERROR: the module .ensemble. on rank 0 (pid $pid) drives" err &&
	grep "or end it first (.flux exec -r 0 flux module remove ensemble.)" err &&
	test_must_fail grep Traceback err
'

test_expect_success 'so is a module on rank 1, and one of another name, and the instance lives on' '
	"$SHARNESS_BUILD_DIRECTORY/python" -m flux_ensemble.bindings >module.json &&
	path=$(json path <module.json) site=$(json args.0 <module.json) &&
	test_must_fail on_rank_1 flux module load "$path" "$site" 2>err &&
	grep "Device or resource busy" err &&
	test_must_fail flux module load --name other "$path" "$site" 2>err &&
	grep "Device or resource busy" err &&
	flux dmesg | grep "other.err.*the module .ensemble. on rank 0 (pid $pid) drives" &&
	is 1 "$(flux module list | grep -c -e "^ensemble " -e "^other ")" &&
	is 0 "$(on_rank_1 flux module list | grep -c "^ensemble ")"
'

test_expect_success 'the jobs of the one that drives are done once' '
	check_busy first
'

test_expect_success 'a module that was removed or is reloaded leaves its place at once' '
	load_module reload &&
	flux module remove ensemble &&
	serve_on_rank_1 &&
	is client "$(on_rank_1 rpc status | json service.mode)"
'

test_expect_success 'a command on rank 0 says that the service is on another rank' '
	test_must_fail flux ensemble load busy.yaml 2>err &&
	grep "^flux-ensemble: ERROR: another ensemble service .*flux dmesg" err &&
	flux dmesg | grep "ensemble.err.*.flux ensemble serve. on rank 1 (pid $pid) drives" &&
	is 0 "$(modules_loaded)"
'

test_expect_success 'one that is stopped is not put aside, and goes on when it wakes up' '
	on_rank_1 load_busy stopped &&
	kill -STOP $pid &&
	test_must_fail load_module 2>err &&
	kill -CONT $pid &&
	grep "Device or resource busy" err &&
	flux dmesg | grep "rank 1 (pid $pid) drives .* has not answered within 10 .*kill -9 $pid" &&
	on_rank_1 check_busy stopped
'

test_expect_success 'one that is killed is followed at once by one on another rank' '
	on_rank_1 load_busy killed &&
	kill -KILL $pid &&
	load_module &&
	check_busy killed
'

test_expect_success 'a service that finds a newer claim ends in good order, and says whose it is' '
	load_busy claimed &&
	rpc log name=claimed follow:=true >followed 2>&1 & follower=$! &&
	wait_line followed first &&
	epoch=$(epoch_now) &&
	claim $((epoch + 1)) &&
	wait_until module_is_gone &&
	flux dmesg | grep "ensemble.err.* rank 1 (pid 7) drives .* now, as epoch $((epoch + 1)): .* has stopped" &&
	test_expect_code 1 wait $follower &&
	grep "^ESHUTDOWN .* rank 1 (pid 7) drives the ensembles" followed &&
	test_must_fail is_logged "ensemble.err.*Traceback" &&
	touch go-claimed &&
	is healthy "$(flux run echo healthy)"
'

test_expect_success 'serve ends with the sentence' '
	serve_on_rank_1 &&
	claim $(($(epoch_now) + 1)) &&
	test_expect_code 1 wait $pid &&
	grep "^flux-ensemble: ERROR: .* drives the ensembles of this instance now" serve.log &&
	test_must_fail grep Traceback serve.log
'

# Has died with its name registered: the broker has not read the end of its connection yet, because
# another process holds that too, until the name is asked whether it answers.
test_expect_success 'a name whose service has died is waited for' '
	cat >died.py <<-EOD &&
	import os
	import flux
	from flux.constants import FLUX_MSGTYPE_REQUEST
	handle = flux.Flux()
	handle.service_register("ensemble").get()
	if os.fork():
	    os._exit(0)
	def end(*_):
	    open("asked", "w").close()
	    os._exit(0)
	handle.msg_watcher_create(end, FLUX_MSGTYPE_REQUEST, "ensemble.*").start()
	handle.timer_watcher_create(60, end).start()
	handle.reactor_run()
	EOD
	on_rank_1 flux python died.py &&
	on_rank_1 interruptible flux ensemble serve >serve.log 2>&1 &&
	wait_until test -e asked &&
	on_rank_1 wait_service &&
	kill -INT $pid && wait $pid &&
	test_must_fail grep ERROR serve.log
'

# A client that goes at the moment when its registration is answered leaves the name behind.
test_expect_success 'a name that Flux has for a client that is gone is taken back' '
	cat >leave.py <<-EOD &&
	import random, time
	import flux
	def free():
	    handle = flux.Flux()
	    for _ in range(50):
	        try:
	            handle.service_register("ensemble").get()
	            return True
	        except FileExistsError:
	            time.sleep(0.01)
	    return False
	end = time.monotonic() + 120
	while free():
	    assert time.monotonic() < end, "the name is not left behind"
	    handle = flux.Flux()
	    future = handle.rpc("service.add", {"service": "ensemble"})
	    time.sleep(random.random() * 4e-4)
	    del future, handle
	EOD
	on_rank_1 flux python leave.py &&
	serve_on_rank_1 &&
	kill -INT $pid && wait $pid &&
	test_must_fail grep ERROR serve.log
'

test_expect_success 'the ensemble goes on when the service is started again' '
	load_module &&
	check_busy claimed
'

test_expect_success 'a claim that was dropped, or is old, is put there again' '
	epoch=$(epoch_now) &&
	flux kvs unlink -R ensemble-service &&
	wait_until claim_is $epoch &&
	claim $((epoch - 1)) &&
	wait_until claim_is $epoch &&
	flux kvs put --raw ensemble-service=nonsense &&
	wait_until claim_is $epoch &&
	is 1 "$(modules_loaded)"
'

test_expect_success 'of two that begin at the same moment one stays' '
	flux module remove ensemble &&
	load_module >load.log 2>&1 & loading=$! &&
	on_rank_1 interruptible flux ensemble serve >serve.log 2>&1 &&
	test_might_fail wait $loading &&
	wait_until one_stays &&
	if is_gone $pid; then flux ensemble list; else on_rank_1 wait_service; fi
'

test_expect_success 'nothing of it is left at the end' '
	test_might_fail kill -INT $pid &&
	test_might_fail flux module remove ensemble &&
	test_must_fail is_logged "ensemble.*Traceback"
'

test_done
