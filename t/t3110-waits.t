#!/bin/sh
test_description='What jobs wait for: queues that take none, or are stopped, jobs that are held, nodes'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

cat >fed.yaml <<-EOD
	jobs: [{name: a, command: "true", count: 40, max-active: 2}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
EOD

cat >one.yaml <<-EOD
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
EOD

# Whether status says something of an ensemble.
#
# $1 - The ensemble.
# $2 - The text.
says() {
	flux ensemble status "$1" | grep "$2"
}

# Whether the log of an ensemble says something.
#
# $1 - The ensemble.
# $2 - The text.
logged() {
	flux ensemble log "$1" | grep "$2"
}

# Whether so many jobs of an ensemble have succeeded.
#
# $1 - The ensemble.
# $2 - How many.
succeeded() {
	is $2 "$(flux ensemble jobs $1 --outcome success -no "{id}" | wc -l)"
}

# Whether all jobs of a group of `both` have ended.
#
# $1 - The group.
ended() {
	is 3 "$(flux ensemble jobs both --group "$1" --outcome success -no "{id}" | wc -l)"
}

test_expect_success 'load the service' '
	load_module
'

test_expect_success 'a queue that is disabled holds the jobs, and status, why and log say so' '
	flux ensemble load fed.yaml &&
	flux queue disable -m maintenance &&
	wait_until says fed "to be submitted: job submission is disabled: maintenance; enable it with .flux queue enable" &&
	flux ensemble why fed | grep "is disabled: maintenance" &&
	flux ensemble top --once fed >top.out && grep "is disabled: maintenance" top.out &&
	! grep " left" top.out &&
	test_expect_code 0 flux ensemble doctor >doctor.out; grep "queue .*takes no jobs (maintenance)" doctor.out &&
	wait_until logged fed "held .*maintenance" &&
	flux queue enable &&
	flux ensemble wait fed &&
	is 40 "$(flux jobs -ano "{name}" | grep -c "^a$")" &&
	logged fed "go-on .*the queue accepts jobs of group" &&
	! says fed "to be submitted"
'

test_expect_success 'an ensemble that is cancelled while the queue is disabled ends' '
	flux queue disable -m maintenance &&
	flux ensemble load one.yaml --name gone &&
	wait_until says gone "is disabled" &&
	flux ensemble cancel gone && test_expect_code 3 flux ensemble wait gone &&
	flux queue enable
'

test_expect_success 'a queue that is stopped is said, with all that shows it' '
	flux queue stop -m later &&
	flux ensemble load one.yaml --name stopped &&
	wait_until says stopped "1 job of group .a. waits: the queue is stopped: later; start it with .flux queue start" &&
	flux ensemble jobs stopped | grep "the queue is stopped: later" &&
	flux ensemble jobs stopped --json | grep "\"waits\": \"the queue is stopped: later\"" &&
	flux ensemble doctor | grep "stopped: the queue is stopped" &&
	{ flux ensemble run one.yaml --name told >told.out 2>&1 & told=$!; } &&
	wait_line told.out "1 job of group .a. waits: the queue is stopped: later; start it with .flux queue start" &&
	flux queue start && flux ensemble wait stopped && wait $told
'

test_expect_success 'where the scheduler is gone, starting the queue is not what is advised' '
	flux module remove sched-simple &&
	flux ensemble load one.yaml --name unscheduled &&
	wait_until says unscheduled "the queue is stopped: Scheduler is offline; .*flux module reload" &&
	! says unscheduled "flux queue start" &&
	flux ensemble doctor | tr -s " \n" " " | grep "flux module reload -f sched-simple" &&
	flux module reload -f sched-simple && flux ensemble wait unscheduled
'

test_expect_success 'a job that its user holds is said, and one that is let go of is not' '
	flux queue stop &&
	flux ensemble load one.yaml --name held &&
	wait_until says held stopped &&
	job=$(flux ensemble jobs held -no "{id}") &&
	flux job urgency $job hold && flux queue start &&
	wait_until says held "1 job of group .a. waits: held by urgency 0" &&
	flux job urgency $job 16 && flux ensemble wait held &&
	! says held "held by"
'

test_expect_success 'a job that needs more nodes than are up says which are missing' '
	flux resource drain 1 bad memory &&
	sed "s/\"true\"/\"true\", nodes: 2/" one.yaml >two.yaml &&
	flux ensemble load two.yaml &&
	wait_until says two "needs 2 nodes, and 1 of 2 is up: rank 1 is drained (.bad memory.)" &&
	flux ensemble jobs two | grep "needs 2 nodes" &&
	flux ensemble doctor | grep "nodes .*1 of 2 is up" &&
	flux ensemble load one.yaml --name behind &&
	first=$(flux ensemble jobs two -no "{id}") &&
	wait_until says behind "1 job of group .a. waits: stands behind job $first in the queue, which needs 2 nodes, and 1 of 2 is up" &&
	flux ensemble jobs behind | grep "stands behind job" &&
	flux ensemble doctor | tr -s " \n" " " | grep "two, behind: wait for nodes that are not up" &&
	flux job urgency $first hold &&
	flux ensemble wait behind &&
	flux job urgency $first 16 &&
	flux resource undrain 1 && flux ensemble wait two
'

test_expect_success 'a log that cannot be written is said, and the ensemble goes on when it can' '
	sed "1idurability: strict" one.yaml >strict.yaml &&
	flux ensemble load strict.yaml --name kept &&
	flux ensemble wait kept &&
	sed "1ifinish: never" strict.yaml >fed-later.yaml &&
	flux ensemble load fed-later.yaml --name unwritten &&
	wait_until succeeded unwritten 1 &&
	flux module remove content-sqlite &&
	{ flux ensemble submit unwritten a >submitted.out 2>&1 & submitted=$!; } &&
	wait_until says unwritten "1 job of group .a. waits: cannot put the KVS on disk" &&
	! says unwritten "job-ingest" && ! says unwritten "held by urgency" &&
	flux ensemble why unwritten | grep "cannot put the KVS on disk" &&
	flux ensemble top --once unwritten | grep "cannot put the KVS on disk" &&
	flux ensemble doctor >doctor.out; tr -s " \n" " " <doctor.out | grep "unwritten: cannot put the KVS on disk" &&
	flux module load content-sqlite &&
	wait $submitted && wait_until succeeded unwritten 2 &&
	! says unwritten "on disk" &&
	flux ensemble cancel unwritten
'

test_expect_success 'job-ingest that is away holds the jobs for as long as that takes' '
	flux module remove job-ingest &&
	flux ensemble load one.yaml --name away &&
	wait_until says away "load it with .flux module load job-ingest" &&
	flux module load job-ingest && flux ensemble wait away &&
	is 1 "$(flux ensemble jobs away -no "{id}" | wc -l)"
'

# EAGAIN, ENOMEM, ENOSPC: what a broker gives that is short of something.
for errno in 11 12 28; do
	test_expect_success "errno $errno of job-ingest holds the jobs until there is none" '
		flux module remove job-ingest &&
		mkfifo refuse.$errno &&
		{ flux python "$SHARNESS_TEST_SRCDIR/lib/refusing_ingest.py" $errno \
			<refuse.$errno >refusing.$errno & refusing=$!; } &&
		exec 9>refuse.$errno && wait_line refusing.$errno ready &&
		flux ensemble load fed.yaml --name short-$errno &&
		wait_until says short-$errno " to be submitted: " >said &&
		! grep "No service" said &&
		flux ensemble why short-$errno >said && grep " to be submitted: " said &&
		flux ensemble top --once short-$errno >said && grep " to be submitted: " said &&
		test_expect_code 1 flux ensemble doctor >said && grep "waits .*short-$errno: " said &&
		exec 9>&- && wait $refusing &&
		flux module load job-ingest && flux ensemble wait short-$errno &&
		is 40 "$(flux ensemble jobs short-$errno -no "{id}" | wc -l)" &&
		succeeded short-$errno 40 && ! says short-$errno "to be submitted"
	'
done

test_expect_success 'queues without a default one hold what names none, until there is one' '
	printf "[queues.batch]\n[queues.debug]\n" >queues.toml && flux config load <queues.toml &&
	flux queue start --all &&
	flux ensemble load one.yaml --name nowhere &&
	wait_until says nowhere "no queue specified; give the group a .queue." &&
	flux ensemble doctor | grep "no default one" &&
	printf "[policy.jobspec.defaults.system]\nqueue = \"batch\"\n" >>queues.toml &&
	flux config load <queues.toml && flux ensemble wait nowhere
'

test_expect_success 'a group waits for its own queue, and the others go on' '
	cat >both.yaml <<-EOD &&
	jobs:
	  - {name: here, command: "true", count: 3, queue: batch}
	  - {name: there, command: "true", count: 3, queue: debug}
	rules:
	  - {trigger: start, action: {name: submit, label: there}}
	  - {trigger: start, action: {name: submit, label: here}}
	EOD
	flux queue disable -q debug -m closed && flux queue stop -q batch &&
	flux ensemble load both.yaml &&
	wait_until says both "of group .there. wait to be submitted: job submission to debug is disabled: closed" &&
	wait_until says both "3 jobs of group .here. wait: queue .batch. is stopped" &&
	flux queue start -q batch && wait_until ended here &&
	flux queue enable -q debug && flux ensemble wait both
'

test_expect_success 'a queue that there is not fails the submission, and what else runs goes on' '
	cat >wrong.yaml <<-EOD &&
	jobs:
	  - {name: right, command: "sleep 1", queue: batch}
	  - {name: wrong, command: "true", count: 5, queue: nowhere}
	rules:
	  - {trigger: start, action: {name: submit, label: right}}
	  - {id: bad, trigger: start, action: {name: submit, label: wrong}}
	EOD
	test_expect_code 1 flux ensemble run wrong.yaml >wrong.out 2>&1 &&
	flux ensemble status wrong --json >wrong.json &&
	grep "\"refused\": 5" wrong.json && grep "\"success\": 1" wrong.json &&
	grep "5 jobs of group .*wrong.* refused: job 0: Invalid queue" wrong.json
'

test_done
