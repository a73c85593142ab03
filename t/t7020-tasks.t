#!/bin/sh
test_description='members: workers, whose jobs are processes'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 3

# Write a document whose members are workers: `document NAME JOBS [SECONDS]`.
document() {
	telling_document "$1" $2 "runs: tasks" ${3:-0.1}
}

# Print the process of a worker: `worker NAME MEMBER`.
worker() {
	pgrep -f "serve --worker.*\"$1\".*\"$2\"" | head -n 1
}

test_expect_success 'start the service' '
	serve
'

test_expect_success 'workers run the tasks of an ensemble, and end with it' '
	document shared 20 >shared.yaml &&
	run_on_both shared &&
	each_ran_once shared 40 &&
	flux ensemble jobs -n -o "{id}" shared >ids &&
	is 40 "$(grep -c "^pool.[01]:" ids)" &&
	wait_quiet &&
	is 2 "$(flux jobs -a -n -o "{result}" | grep -c COMPLETED)" &&
	test -z "$(worker shared pool.0)"
'

test_expect_success 'tasks: the example does what it says' '
	flux ensemble run "$PROJECT/examples/tasks.yaml" &&
	ends_as_listed tasks
'

test_expect_success 'how a task ended is known, and what it wrote while its worker is there' '
	cat >ends.yaml <<-EOD &&
	name: ends
	finish: never
	members:
	  - {name: pool, runs: tasks}
	jobs:
	  - {name: fine, command: "sh -c \"echo \$FLUX_JOB_ID; echo bad >&2; flux-ensemble memo x=1.5\""}
	  - {name: code, command: "sh -c \"exit 3\""}
	  - {name: signal, command: "sh -c \"kill -9 \$\$\""}
	  - {name: missing, command: no-such-program}
	  - {name: slow, command: "sleep 60", duration: 0.5s}
	  - {name: again, command: "sh -c \"test -e ran-before || { : >ran-before; exit 1; }\"", retries: 1}
	  - {name: many, command: "sh -c \"echo \$FLUX_TASK_RANK >>ranks\"", tasks: 2}
	rules:
	  - trigger: start
	    actions:
	      - {name: submit, label: fine}
	      - {name: submit, label: code}
	      - {name: submit, label: signal}
	      - {name: submit, label: missing}
	      - {name: submit, label: slow}
	      - {name: submit, label: again}
	      - {name: submit, label: many}
	EOD
	flux ensemble load ends.yaml &&
	wait_status_of ends groups.fine.finished 1 groups.code.finished 1 groups.signal.finished 1 \
		groups.missing.finished 1 groups.slow.finished 1 groups.again.finished 1 \
		groups.many.finished 1 &&
	flux ensemble jobs -n -o "{group} {status} {returncode}" ends >jobs &&
	grep "^fine success 0" jobs &&
	grep "^code failed 3" jobs &&
	grep "^signal failed -9" jobs &&
	grep "^missing failed 127" jobs &&
	grep "^slow timeout" jobs &&
	grep "^again success" jobs &&
	is "0 1" "$(sort ranks | xargs)" &&
	flux ensemble metrics ends >metrics &&
	grep "^fine  *x .* 1.5 " metrics &&
	job=$(flux ensemble jobs -n -o "{id}" --filter "job.group == \"fine\"" ends) &&
	flux ensemble output ends $job >output &&
	grep bad output
'

test_expect_success 'the last lines of tasks that failed are known after the end of their worker' '
	cat >fails.yaml <<-EOD &&
	name: fails
	job-names: full
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "sh -c \"echo bad luck with {x}; exit {x}\"", params: {x: [0, 3]}}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble run --report fails.html fails.yaml &&
	flux ensemble failures fails >why &&
	grep "bad luck with 3" why && grep "bad luck with 3" fails.html &&
	flux ensemble output fails $(flux ensemble jobs -n -o "{id}" -f failed fails) >output &&
	grep "bad luck with 3" output &&
	test_must_fail flux ensemble output fails $(flux ensemble jobs -n -o "{id}" -f completed fails) 2>why &&
	grep "was in member pool.0, which has ended" why
'

test_expect_success 'a task has cores of its own' '
	cat >bound.yaml <<-EOD &&
	name: bound
	members:
	  - {name: pool, runs: tasks}
	jobs:
	  - {name: one, command: "sh -c \"nproc >>cores; sleep 0.2\"", params: {s: {range: [0, 4]}}}
	rules:
	  - {trigger: start, action: {name: submit, label: one}}
	EOD
	flux ensemble run bound.yaml &&
	is 1 "$(sort -u cores)" &&
	is 4 "$(wc -l <cores)"
'

test_expect_success 'what is shown of a member says that it runs tasks' '
	flux ensemble status ends >status &&
	grep "^MEMBER  *STATE .* RUNS  *JOBS" status &&
	grep "^pool.0  *up .* tasks  *0 " status &&
	flux ensemble top --once ends >top &&
	grep "pool.0  *up .*, 0 tasks" top &&
	flux ensemble status --json ends >json &&
	grep -q "\"runs\": *\"tasks\"" json
'

test_expect_success 'memos come from threads and children, of Flux jobs and of tasks; others are refused' '
	cat >publish.py <<-EOD &&
	import os, threading
	import flux_ensemble as fe

	def publish(number):
	    for step in range(10):
	        fe.memo({f"thread{number}": step})

	fe.memo({"a.b": 0.5}, nan=float("nan"))
	threads = [threading.Thread(target=publish, args=(n,)) for n in range(4)]
	for thread in threads:
	    thread.start()
	for thread in threads:
	    thread.join()
	if os.fork() == 0:
	    fe.memo(child=1)
	    os._exit(0)
	os.wait()
	fe.memo(last=2)
	for wrong in ({"large": "x" * (1 << 20)}, {"n": 2**64}, {"text": "\\ud800"}):
	    try:
	        fe.memo(wrong)
	    except ValueError as error:
	        print(error)
	EOD
	cat >published.yaml <<-EOD &&
	jobs: [{name: a, command: "python publish.py", output: "published.txt"}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	for tasks in "" --tasks
	do
		name=published$tasks &&
		flux ensemble run $tasks --name $name published.yaml &&
		cat published.txt &&
		grep "a memo has at most 32768 bytes, and this has 10" published.txt &&
		grep "an integer in it has more than 64 bits" published.txt &&
		grep "a text in it is not Unicode" published.txt &&
		flux ensemble metrics $name >metrics &&
		for key in a.b thread0 thread1 thread2 thread3 child last
		do
			grep "^a  *$key " metrics || return 1
		done || return 1
	done
'

test_expect_success 'a request that asks for output of what is no worker is refused' '
	refused ENOENT "has no member .x" output :="{\"name\": \"ends\", \"member\": \"x\", \"id\": 1}" &&
	cat >plain.yaml <<-EOD &&
	name: plain
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble load plain.yaml &&
	refused EINVAL "has no members" output :="{\"name\": \"plain\", \"member\": \"x\", \"id\": 1}" &&
	flux ensemble cancel ends
'

test_expect_success 'the service of the ensemble is killed: tasks go on, and no job runs twice' '
	document parent 60 0.3 >parent.yaml &&
	{ flux ensemble run parent.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded parent &&
	for lines in 0 5 30
	do
		wait_until has_lines parent.ran $lines &&
		kill -9 $serve &&
		serve || return 1
	done &&
	wait $run &&
	each_ran_once parent 120 &&
	is 2 "$(entries parent member-start)" &&
	is 0 "$(entries parent member-lost)"
'

test_expect_success 'a worker is killed: its tasks are gone with it, run elsewhere, and each counts once' '
	document killed 30 0.35 >killed.yaml &&
	{ flux ensemble run killed.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded killed &&
	wait_until has_lines killed.ran 5 &&
	victim=$(worker killed pool.0) &&
	scratch=$(ps -o args= -p $(pgrep -P $victim | head -n 1) | awk "{print \$NF}") &&
	test -d $scratch/output &&
	kill -9 $victim &&
	wait_until test ! -e $scratch &&
	wait $run &&
	is 60 "$(status_of killed groups.sim.success)" &&
	is 60 "$(status_of killed groups.sim.finished)" &&
	is 30 "$(sort -u killed.ran | wc -l)" &&
	is 1 "$(entries killed member-lost)" &&
	kill $serve
'

test_done
