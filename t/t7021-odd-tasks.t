#!/bin/sh
test_description='tasks that ask for what a worker has not, or that leave, write or fail very much'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 3

# Write a document with a worker, whose one job runs a script: `worker_of NAME SCRIPT [KEYS]`.
worker_of() {
	cat <<-EOD
	name: $1
	finish: never
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "sh $2", ${3:-duration: 0}}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
}

# Print the process of the worker of an ensemble.
worker() {
	pgrep -f "serve --worker.*\"$1\"" | head -n 1
}

# Print the processes that came from tasks in this directory: they hold a file open that they got.
left() {
	for process in /proc/[0-9]*
	do
		case $(readlink $process/fd/9 2>/dev/null) in
		"$PWD"/mine*) echo ${process#/proc/} ;;
		esac
	done
}
none_left() {
	test -z "$(left)"
}
some_left() {
	test "$(left | wc -l)" -ge $1
}

test_expect_success 'start the service' '
	serve
'

test_expect_success 'tasks of more nodes than one are refused, also those that --tasks makes' '
	cat >nodes.yaml <<-EOD &&
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "true", nodes: 2}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	sed /^members/d nodes.yaml >plain.yaml &&
	test_expect_code 2 flux ensemble run nodes.yaml 2>refused &&
	grep "nodes.yaml:2: jobs.0..nodes: expected at most 1, because tasks run on the one node" refused &&
	test_expect_code 2 flux ensemble run --tasks plain.yaml 2>refused &&
	grep "plain.yaml:1: jobs.0..nodes: expected at most 1, because tasks run on the one node" refused &&
	{ echo "name: mixed" && sed "s/{name: pool/{name: wide, nodes: 2}, &/" nodes.yaml; } >mixed.yaml &&
	flux ensemble run -q mixed.yaml &&
	flux ensemble jobs -n -o "{id} {status}" mixed >jobs &&
	grep "^wide.0:.* success" jobs &&
	: Flux says nothing of what a job used &&
	test -z "$(flux ensemble jobs -n -o "{max_rss}{cpu_seconds}{efficiency}" mixed | tr -d " \n")"
'

test_expect_success 'a task of more cores than a worker has is named, and the others run' '
	cat >cores.yaml <<-EOD &&
	name: cores
	members: [{name: pool, runs: tasks}]
	jobs: [{name: much, command: "true", cores: 1000}, {name: b, command: "true"}]
	rules: [{trigger: start, actions: [{name: submit, label: much}, {name: submit, label: b}]}]
	EOD
	{ flux ensemble run cores.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded cores &&
	wait_status_of cores groups.b.success 1 &&
	wait_until grep "much: no member of pool is large enough for a job of 1 node, 1000 cores" run.log &&
	flux ensemble why cores >why &&
	grep "no member of pool is large enough for a job of 1 node, 1000 cores" why &&
	is 1 "$(status_of cores groups.much.waiting)" &&
	flux ensemble cancel cores &&
	test_must_fail wait $run
'

test_expect_success 'tasks that ask for MPI are refused, and processes that know nothing of it noted' '
	cat >mpi.yaml <<-EOD &&
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "true", tasks: 2, attributes: {system: {shell: {options: {mpi: intel}}}}}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	test_expect_code 2 flux ensemble run mpi.yaml 2>refused &&
	grep "mpi.yaml:2: jobs.0..attributes: tasks of a worker .* shell option .mpi. is for jobs of Flux" refused &&
	sed "s/, attributes.*/}]/" mpi.yaml >apart.yaml &&
	flux ensemble validate apart.yaml 2>noted &&
	grep "apart.yaml:2: jobs.0..tasks: on a worker these are processes that know nothing" noted
'

test_expect_success MPI 'an MPI program runs as a task that starts it with mpirun' '
	cat >ranks.c <<-EOD &&
	#include <mpi.h>
	#include <stdio.h>
	int main(int argc, char *argv[])
	{
	    int size, rank, sum;
	    MPI_Init(&argc, &argv);
	    MPI_Comm_size(MPI_COMM_WORLD, &size);
	    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	    MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	    if (!rank)
	        printf("%d ranks, sum %d\n", size, sum);
	    return MPI_Finalize();
	}
	EOD
	mpicc ranks.c -o ranks &&
	cat >mpirun.yaml <<-EOD &&
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "mpirun -n 2 ./ranks", cores: 2, output: ranks.txt}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble run -q mpirun.yaml &&
	grep "2 ranks, sum 1" ranks.txt
'

# A child in the process group of the task, a daemon, and a daemon of that.
cat >leaves.sh <<'EOD'
exec 9>"mine.$1"
sleep 1000 &
setsid sh -c "setsid sh -c ': >daemon.$1; exec sleep 1000' & sleep 1000" &
until test -e "daemon.$1"; do sleep 0.1; done
: >"begun.$1"
EOD
{ cat leaves.sh && echo 'sleep 1000'; } >stays.sh

test_expect_success 'children of a task end with it, and its daemons with the worker' '
	worker_of leaves "leaves.sh leaves" >leaves.yaml &&
	flux ensemble load leaves.yaml &&
	wait_status_of leaves groups.a.success 1 &&
	is 3 "$(left | wc -l)" &&
	flux ensemble cancel leaves &&
	wait_until none_left
'

for victim in worker guard supervisor "worker guard" "worker supervisor" shell
do
	name=$(echo kill-$victim | tr " " -)
	test_expect_success "$victim killed: no process of a task is left, daemons included" '
		worker_of $name "stays.sh $name" >$name.yaml &&
		flux ensemble load $name.yaml &&
		wait_until test -e begun.$name &&
		wait_until some_left 4 &&
		worker=$(worker $name) &&
		guard=$(pgrep -P $worker | head -n 1) &&
		supervisor=$(pgrep -P $guard | head -n 1) &&
		shell=$(ps -o ppid= -p $worker) &&
		for one in $victim
		do
			eval kill -9 \$$one || return 1
		done &&
		wait_until none_left &&
		wait_status_of $name pools.pool.lost 1 &&
		flux ensemble cancel $name
	'
done

test_expect_success 'when the shell of a worker is killed, no task runs twice at once' '
	cat >once.sh <<-\EOD &&
	exec 9>"mine.once$1"
	flock -n 9 || echo "$1" >>overlap
	echo "$1" >>once
	sleep 2
	EOD
	cat >once.yaml <<-EOD &&
	name: once
	members: [{name: pool, count: 2, runs: tasks}]
	jobs: [{name: a, command: "sh once.sh {n}", params: {n: {range: [0, 8]}}}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble load once.yaml &&
	wait_until has_lines once 3 &&
	kill -9 $(ps -o ppid= -p $(worker once)) &&
	flux ensemble wait once &&
	is 8 "$(status_of once groups.a.success)" &&
	is 8 "$(status_of once groups.a.finished)" &&
	is 1 "$(entries once member-lost)" &&
	test ! -e overlap &&
	is 8 "$(flux ensemble jobs -n --filter "cpu_seconds >= 0 and max_rss > 1" once | wc -l)"
'

test_expect_success 'of two gigabytes that a task writes the last lines are kept, on little of the disk' '
	cat >writes.sh <<-\EOD &&
	head -c 2G /dev/zero | tr "\0" "\n"
	echo the end
	until test -e read; do sleep 0.1; done
	exit 3
	EOD
	worker_of writes "writes.sh" >writes.yaml &&
	flux ensemble load writes.yaml &&
	job=pool.0:ƒ2 &&
	ends() {
		flux ensemble output writes $job >output && is "the end" "$(tail -n 1 output)"
	} &&
	wait_until ends &&
	test "$(wc -c <output)" -le 70000 &&
	scratch=$(ps -o args= -p $(pgrep -P $(worker writes) | head -n 1) | awk "{print \$NF}") &&
	small() {
		test "$(du -sk $scratch/output | cut -f 1)" -le 1100
	} &&
	wait_until small &&
	: >read &&
	wait_status_of writes groups.a.failed 1 &&
	test "$(du -sk $scratch/output | cut -f 1)" -le 100 &&
	flux ensemble failures writes >why &&
	grep "the end" why &&
	flux ensemble cancel writes
'

for directory in /no/such/directory /proc "" "$PWD/$(printf 'long%.0s' $(seq 60))/$(printf 'long%.0s' $(seq 60))"
do
	test_expect_success "a worker with TMPDIR=$(echo $directory | cut -c 1-60) runs tasks, and they publish" '
		case $directory in "$PWD"*) mkdir -p "$directory" ;; esac &&
		cat >tmpdir.yaml <<-EOD &&
		members: [{name: pool, runs: tasks}]
		jobs: [{name: a, command: "flux-ensemble memo x=3"}]
		rules: [{trigger: start, action: {name: submit, label: a}}]
		EOD
		TMPDIR=$directory flux ensemble run -q tmpdir.yaml >said 2>&1 &&
		flux ensemble metrics $(sed "s/.*this run is .\([a-z0-9-]*\).*/\1/;q" said | grep tmpdir- || echo tmpdir) >metrics &&
		grep "^a  *x .* 3 " metrics
	'
done

test_expect_success '10,000 tasks that fail at once are counted, with their reason in one line' '
	cat >fails.yaml <<-EOD &&
	name: fails
	members: [{name: pool, runs: tasks}]
	jobs: [{name: a, command: "sh -c \"echo bad luck; exit 3\"", params: {x: {range: [0, 10000]}}}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble run -q fails.yaml >said 2>&1 &&
	grep "10000 of 10000 jobs failed" said &&
	is 10000 "$(status_of fails groups.a.failed)" &&
	flux ensemble failures fails >why &&
	grep "a: exit 3: 10,000 jobs" why &&
	grep "bad luck" why &&
	test "$(wc -l <why)" -le 12
'

test_expect_success 'a pool grows and shrinks, tasks fail, hang and are searched for, service and worker are killed: each once' '
	cat >sim.sh <<-\EOD &&
	exec 9>"mine.sim$1"
	flock -n 9 || echo "$1" >>overlap
	sleep 0.2
	test $(($1 % 5)) != 0 || ! mkdir "failed.$1" 2>/dev/null || exit 3
	echo "$1" >>ended
	EOD
	cat >slow.sh <<-\EOD &&
	test "$1" != 3 || ! mkdir hung 2>/dev/null || sleep 1000
	EOD
	cat >trial.sh <<-\EOD &&
	for epoch in 1 2 4; do
		flux-ensemble memo epoch=$epoch loss=$(echo "$1 $epoch" | awk "{print \$1 + 1 / \$2}")
	done
	EOD
	cat >ways.yaml <<-EOD &&
	name: ways
	members: [{name: pool, count: {min: 1, max: 2}, runs: tasks}]
	jobs:
	  - {name: sim, command: "sh sim.sh {s}", params: {s: {range: [0, 40]}}, retries: 2}
	  - {name: slow, command: "sh slow.sh {k}", params: {k: [0, 1, 2, 3]}}
	  - {name: trial, command: "sh trial.sh {x}"}
	search:
	  - id: hunt
	    group: trial
	    variables: {x: {low: 0, high: 1}}
	    minimize: loss
	    sampler: random
	    trials: 8
	    parallel: 2
	    stop: {policy: asha, step: epoch, eta: 2}
	rules:
	  - trigger: start
	    actions: [{name: submit, label: sim}, {name: submit, label: slow}, {name: search, label: hunt}]
	  - {trigger: job-success, group: sim, action: {name: grow, label: pool}}
	  - {trigger: metric, when: count.sim.success >= 20, action: {name: shrink, label: pool}}
	  - {trigger: member-lost, action: {name: grow, label: pool, repetitions: unlimited}}
	  - trigger: job-running
	    group: slow
	    every: 200ms
	    when: not job.copied and count.slow.success == 3 and count.sim.finished == 40 and job.runtime > 0.5
	    action: {name: copy, repetitions: unlimited}
	EOD
	flux ensemble load ways.yaml &&
	wait_until has_lines ended 5 &&
	kill -9 $serve &&
	serve &&
	wait_until has_lines ended 10 &&
	kill -9 $(worker ways) &&
	flux ensemble wait ways &&
	for counts in sim:40 slow:4
	do
		is ${counts#*:} "$(status_of ways groups.${counts%:*}.success)" &&
		is ${counts#*:} "$(status_of ways groups.${counts%:*}.finished)" || return 1
	done &&
	is 8 "$(status_of ways groups.trial.finished)" &&
	is 40 "$(sort -u ended | wc -l)" &&
	test ! -e overlap &&
	is 1 "$(entries ways member-lost)" &&
	is 1 "$(entries ways member-draining)" &&
	test "$(status_of ways groups.sim.failed)" -ge 1
'

test_expect_success 'memos of what is no task are refused, or taken by nobody' '
	cat >publish.py <<-\EOD &&
	import os
	import flux_ensemble as fe

	with open("socket", "w") as file:
	    file.write(os.environ["FLUX_ENSEMBLE_MEMO"])
	fe.memo(x=float("nan"), y=float("inf"), z=1)
	try:
	    fe.memo(large="x" * (1 << 20))
	except ValueError as error:
	    print(error, flush=True)
	while not os.path.exists("told"):
	    pass
	EOD
	worker_of memos publish.py >memos.yaml &&
	sed "s/sh publish/python publish/" memos.yaml >publish.yaml &&
	flux ensemble load publish.yaml &&
	wait_until test -s socket &&
	test_must_fail flux-ensemble memo x=5 2>refused &&
	grep "memo is for use inside a job" refused &&
	FLUX_JOB_ID=12345 FLUX_ENSEMBLE_MEMO=$(cat socket) flux-ensemble memo stranger=7 &&
	: >told &&
	wait_status_of memos groups.a.success 1 &&
	flux ensemble metrics memos >metrics &&
	grep "^a  *z .* 1 " metrics &&
	! grep stranger metrics &&
	flux ensemble cancel memos &&
	kill $serve
'

test_done
