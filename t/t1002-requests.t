#!/bin/sh
test_description='The requests of the service: every topic, good and bad'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

topics="load list status submit rerun search metrics why output log pause resume terminate cancel unload rules action"

test_expect_success 'load the module and an ensemble' '
	cat >idle.yaml <<-EOD &&
	name: idle
	finish: never
	limits: {jobs: 20}
	jobs:
	  - name: echo
	    command: echo {word}
	    count: 2
	    params: {word: [a, b]}
	  - name: sleep
	    command: sleep 600
	rules:
	  - id: more
	    trigger: job-fail
	    group: echo
	    action: {name: submit, label: echo}
	EOD
	load_module &&
	rpc load text=@idle.yaml cwd="$PWD" environment:="{\"PATH\": \"$PATH\"}" >out &&
	is idle "$(json name <out)" &&
	is running "$(json state <out)"
'

test_expect_success 'load takes a mapping in place of text' '
	rpc load name=mapped cwd="$PWD" environment:={} \
		spec:="{\"jobs\": [{\"name\": \"a\", \"command\": \"true\"}], \"finish\": \"never\"}" \
		>out &&
	is mapped "$(json name <out)"
'

test_expect_success 'list gives each ensemble in short' '
	rpc list >out &&
	is idle "$(json ensembles.0.name <out)" &&
	is running "$(json ensembles.0.state <out)" &&
	is null "$(json ensembles.0.t_end <out)" &&
	is 0 "$(json ensembles.0.active <out)" &&
	is mapped "$(json ensembles.1.name <out)"
'

test_expect_success 'status describes the service, the nodes and the queue' '
	rpc status >out &&
	is module "$(json service.mode <out)" &&
	json service.version <out &&
	json service.pid <out &&
	is 2 "$(json nodes.node_up_count <out)" &&
	is 2 "$(json nodes.node_free_count <out)" &&
	is "$(json nodes.node_cores_up <out)" "$(json nodes.node_cores_free <out)" &&
	for state in new depend priority sched run cleanup inactive; do
		is 0 "$(json queue.$state <out)" || return 1
	done
'

test_expect_success 'submit gives the ids of jobs that the queue has accepted' '
	rpc submit name=idle group=echo >out &&
	for number in 0 1 2 3; do
		flux job wait-event --timeout=300 $(json ids.$number <out) clean || return 1
	done &&
	test_must_fail json ids.4 <out
'

test_expect_success 'submit takes a count and values of parameters' '
	rpc submit name=idle group=echo count:=1 params:="{\"word\": [\"c\"]}" >out &&
	is c "$(flux job attach $(json ids.0 <out))" &&
	test_must_fail json ids.1 <out
'

test_expect_success 'the queue counts of status follow' '
	flux queue idle --timeout=300 &&
	# The numbers of Flux may be those of a second ago.
	wait_status queue.inactive 5 &&
	rpc status name=idle >out &&
	is 5 "$(json ensembles.0.groups.echo.success <out)"
'

test_expect_success 'metrics has counts and statistics' '
	rpc metrics name=idle >out &&
	is 5 "$(json count.echo.success <out)" &&
	json mean.echo-duration <out &&
	is null "$(json mean.sleep-duration <out)"
'

test_expect_success 'pause and resume give the state' '
	is paused "$(rpc pause name=idle | json state)" &&
	refused EAGAIN paused submit name=idle group=echo &&
	is running "$(rpc resume name=idle | json state)"
'

test_expect_success 'why says what the rules wait for' '
	rpc why name=idle >out &&
	is running "$(json state <out)" &&
	is more "$(json rules.0.id <out)" &&
	is 1 "$(json rules.0.left <out)" &&
	json rules.0.waits <out | grep "^waits for job-fail of a job of group .echo.$" &&
	is null "$(json rules.0.never <out)" &&
	rpc why name=idle rule=more &&
	refused ENOENT "no rule with id .mor. (rules: more)" why name=idle rule=mor
'

test_expect_success 'rules turns a rule off and on' '
	rpc rules name=idle id=more enabled:=false &&
	is false "$(status_of idle rules.0.enabled)" &&
	rpc rules name=idle id=more enabled:=true &&
	is true "$(status_of idle rules.0.enabled)"
'

test_expect_success 'action performs one action now' '
	rpc action name=idle action:="{\"name\": \"submit\", \"label\": \"sleep\"}" >out &&
	json firing <out &&
	flux job wait-event --timeout=300 $(json ids.0 <out) start
'

test_expect_success 'rerun runs again what did not succeed, and refuses a filter that is none' '
	rpc rerun name=idle dry_run:=true >out &&
	is 0 "$(json jobs <out)" &&
	refused EINVAL "filter: .*nope" rerun name=idle filter="job.nope > 1" &&
	refused EINVAL "expected an expression" rerun name=idle filter:=3
'

test_expect_success 'the last jobs are sent alone, with how many there are' '
	refused EPROTO "expected a streaming request" jobs name=idle last:=2 &&
	refused EINVAL "last: expected at most 10000, not 10001" jobs name=idle last:=10001 &&
	refused EINVAL "last: expected a number of jobs, 1 or more" jobs name=idle last:=0 &&
	cat >last.py <<-EOF &&
	from flux_ensemble.client import Client, EnsembleError

	client = Client()
	every = [job["id"] for job in client.jobs("idle")]
	last = client.jobs("idle", last=1)
	assert [job["id"] for job in last] == every[-1:], (list(last), every)
	assert last.total == len(every) > 1
	try:
	    stream = client.send("jobs", {"name": "idle", "last": 2, "group": "sleep"}, stream=True)
	    stream.get()
	    raise AssertionError("taken")
	except OSError as error:
	    assert "last: expected without group" in str(error), error
	try:
	    stream = client.send("jobs", {"name": "idle", "interrupted": True}, stream=True)
	    stream.get()
	    raise AssertionError("taken")
	except OSError as error:
	    assert "interrupted: expected with last" in str(error), error
	EOF
	python3 last.py
'

test_expect_success 'search refuses an ensemble without one, and a number of trials that is none' '
	refused ENOENT "ensemble .idle. has no search" search name=idle more:=1 &&
	refused EINVAL "more: expected a number of trials, 1 or more" search name=idle more:=0 &&
	refused EINVAL "points: expected a list of points" search name=idle points:=3
'

test_expect_success 'cancel of one group leaves the ensemble running' '
	is running "$(rpc cancel name=idle group=sleep | json state)" &&
	flux queue idle --timeout=300 &&
	is 0/0/1/0 "$(counts_of idle sleep)"
'

test_expect_success 'an ensemble that has not ended is not unloaded' '
	refused EAGAIN idle unload name=idle
'

test_expect_success 'a submission over the limit is refused and fails nothing' '
	refused EAGAIN 20 submit name=idle group=echo count:=100 &&
	is running "$(status_of idle state)"
'

test_expect_success 'every topic refuses an unknown key by its name' '
	for topic in $topics; do
		refused EINVAL colour $topic colour=red || return 1
	done
'

test_expect_success 'every topic refuses a payload that is no object' '
	for topic in $topics; do
		refused EINVAL . $topic :="[1, 2]" || return 1
	done
'

test_expect_success 'every topic but load and list refuses a name of the wrong type' '
	for topic in $topics; do
		test $topic = list || refused EINVAL name $topic name:=7 || return 1
	done
'

test_expect_success 'every topic that needs a name refuses to go without' '
	for topic in submit rerun search metrics why output log pause resume terminate cancel unload rules action; do
		refused EINVAL name $topic || return 1
	done
'

test_expect_success 'every topic refuses the name of no ensemble' '
	refused ENOENT nobody submit name=nobody group=echo &&
	refused ENOENT nobody rerun name=nobody &&
	refused ENOENT nobody search name=nobody more:=1 &&
	refused ENOENT nobody output name=nobody member=a id:=1 &&
	refused ENOENT nobody rules name=nobody id=more enabled:=true &&
	refused ENOENT nobody action name=nobody action:="{\"name\": \"terminate\"}" &&
	for topic in status metrics why log pause resume terminate cancel unload; do
		refused ENOENT nobody $topic name=nobody || return 1
	done
'

test_expect_success 'load refuses a name in use' '
	refused EEXIST idle load text=@idle.yaml cwd="$PWD" environment:={}
'

test_expect_success 'load refuses a bad document with one line for each error' '
	sed "s/label: echo/label: ecko/; s/count: 2/count: -2/" idle.yaml >bad.yaml &&
	refused EINVAL . load text=@bad.yaml name=bad cwd="$PWD" environment:={} &&
	grep "count.*-2" refused.out &&
	grep "ecko" refused.out
'

test_expect_success 'load refuses to go without a document, and two of them' '
	refused EINVAL text load name=bad cwd="$PWD" environment:={} &&
	refused EINVAL text load name=bad cwd="$PWD" environment:={} text=@idle.yaml spec:={}
'

test_expect_success 'load refuses a document without any name' '
	sed /^name/d idle.yaml >nameless.yaml &&
	refused EINVAL name load text=@nameless.yaml cwd="$PWD" environment:={}
'

test_expect_success 'load refuses an environment and a directory of the wrong type' '
	refused EINVAL environment load text=@idle.yaml name=bad cwd="$PWD" environment:="[1]" &&
	refused EINVAL environment load text=@idle.yaml name=bad cwd="$PWD" \
		environment:="{\"A\": 1}" &&
	refused EINVAL cwd load text=@idle.yaml name=bad cwd:=3 environment:={}
'

test_expect_success 'submit refuses what it cannot mean' '
	refused ENOENT nothing submit name=idle group=nothing &&
	refused EINVAL count submit name=idle group=echo count:=-1 &&
	refused EINVAL count submit name=idle group=echo count=two &&
	refused EINVAL count submit name=idle group=echo count:=true &&
	refused EINVAL colour submit name=idle group=echo params:="{\"colour\": [1]}" &&
	refused EINVAL params submit name=idle group=echo params:=7
'

test_expect_success 'rules refuses what it cannot mean' '
	refused ENOENT nothing rules name=idle id=nothing enabled:=true &&
	refused EINVAL enabled rules name=idle id=more enabled=yes &&
	refused EINVAL enabled rules name=idle id=more
'

test_expect_success 'action refuses what it cannot mean' '
	refused EINVAL dance action name=idle action:="{\"name\": \"dance\"}" &&
	refused EINVAL nothing action name=idle \
		action:="{\"name\": \"submit\", \"label\": \"nothing\"}" &&
	refused EINVAL action action name=idle &&
	refused EINVAL action action name=idle action=submit
'

test_expect_success 'a topic that does not exist is refused' '
	refused ENOSYS . dance
'

test_expect_success 'log gives the entries of the eventlog, each an object of RFC 18' '
	rpc log name=idle >log &&
	head -n 1 log >entry &&
	is load "$(json name <entry)" &&
	json timestamp <entry &&
	json context.document <entry
'

test_expect_success 'log is refused without the streaming flag' '
	test_must_fail flux python -c "
import flux
flux.Flux().rpc(\"ensemble.log\", {\"name\": \"idle\"}).get()" 2>err &&
	grep streaming err
'

test_expect_success 'terminate ends the ensemble, and unload forgets it' '
	rpc terminate name=idle &&
	flux ensemble wait --timeout 300 idle &&
	is completed "$(rpc unload name=idle | json state)" &&
	refused ENOENT idle status name=idle
'

test_expect_success 'a load is answered whatever is asked at once after it' '
	cat >at-once.py <<-EOD &&
	import errno, os, sys
	import flux
	handle = flux.Flux()
	document = {"name": "hasty", "jobs": [{"name": "a", "command": "true"}], "finish": "never"}
	load = {"spec": document, "cwd": os.getcwd(), "environment": {}}
	name = {"name": "hasty"}
	futures = []
	for _ in range(20):
	    for topic, payload in (("load", load), ("terminate", name), ("unload", name),
	                           ("load", load), ("cancel", name), ("load", load),
	                           ("cancel", name), ("unload", name)):
	        futures.append(handle.rpc(f"ensemble.{topic}", payload))
	outcomes = []
	for future in futures:
	    try:
	        future.wait_for(30).get()
	        outcomes.append("done")
	    except OSError as error:
	        if error.errno == errno.ETIMEDOUT:
	            sys.exit(f"request {len(outcomes)} is not answered")
	        outcomes.append(errno.errorcode[error.errno])
	print(*outcomes)
	EOD
	flux python at-once.py >at-once.out &&
	cat at-once.out &&
	grep done at-once.out
'

test_expect_success 'after all this the service is as healthy as before' '
	is running "$(status_of mapped state)" &&
	rpc cancel name=mapped &&
	test_expect_code 3 flux ensemble wait --timeout 300 mapped &&
	flux module remove ensemble
'

test_done
