#!/bin/sh
test_description='Outcomes: every job ends in exactly one'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

test_expect_success 'run jobs that end in every way' '
	cat >outcomes.yaml <<-EOD &&
	jobs:
	  - name: good
	    command: /bin/true
	    count: 2
	  - name: bad
	    command: /bin/false
	    count: 2
	  - name: killed
	    command: [sh, -c, kill -9 \$\$]
	  - name: slow
	    command: sleep 600
	    duration: 0.5
	  - name: stopped
	    command: sleep 600
	  - name: too-big
	    command: /bin/true
	    nodes: 100
	  - name: no-command
	    command: /nonexistent/command
	  - name: no-directory
	    command: /bin/true
	    workdir: /dev/null/nonexistent
	rules:
	  - trigger: start
	    action: {name: submit, label: good}
	  - trigger: start
	    action: {name: submit, label: bad}
	  - trigger: start
	    action: {name: submit, label: killed}
	  - trigger: start
	    action: {name: submit, label: slow}
	  - trigger: start
	    action: {name: submit, label: stopped}
	  - trigger: start
	    action: {name: submit, label: too-big}
	  - trigger: start
	    action: {name: submit, label: no-command}
	  - trigger: start
	    action: {name: submit, label: no-directory}
	  - trigger: job-start
	    group: stopped
	    action: {name: cancel, label: stopped}
	EOD
	flux ensemble run outcomes.yaml
'

test_expect_success 'status 0 is success' '
	is 2/0/0/0 "$(counts_of outcomes good)"
'

test_expect_success 'another status is failed' '
	is 0/2/0/0 "$(counts_of outcomes bad)"
'

test_expect_success 'a job that is killed from inside is failed' '
	is 0/1/0/0 "$(counts_of outcomes killed)"
'

test_expect_success 'a job over its duration is timeout' '
	is 0/0/0/1 "$(counts_of outcomes slow)"
'

test_expect_success 'a job that is canceled is canceled' '
	is 0/0/1/0 "$(counts_of outcomes stopped)"
'

test_expect_success 'a job with more nodes than there are never runs and is failed' '
	is 0/1/0/0 "$(counts_of outcomes too-big)"
'

test_expect_success 'a command that does not exist is failed' '
	is 0/1/0/0 "$(counts_of outcomes no-command)"
'

test_expect_success 'a working directory that cannot be made is not fatal to Flux' '
	is 1/0/0/0 "$(counts_of outcomes no-directory)"
'

test_expect_success 'a pending job that is canceled is canceled' '
	cat >pending.yaml <<-EOD &&
	jobs:
	  - name: first
	    command: sleep 600
	    nodes: 4
	    exclusive: true
	  - name: second
	    command: /bin/true
	    nodes: 4
	rules:
	  - trigger: start
	    action: {name: submit, label: first}
	  - trigger: job-start
	    group: first
	    action: {name: submit, label: second}
	  - trigger: job-priority
	    group: second
	    action: {name: cancel, label: second}
	  - trigger: job-cancel
	    group: second
	    action: {name: cancel, label: first}
	EOD
	flux ensemble run pending.yaml &&
	is 0/0/1/0 "$(counts_of pending first)" &&
	is 0/0/1/0 "$(counts_of pending second)"
'

test_expect_success 'a job that the user cancels with flux cancel is canceled' '
	cat >user.yaml <<-EOD &&
	jobs:
	  - name: sleep
	    command: sleep 600
	rules:
	  - trigger: start
	    action: {name: submit, label: sleep}
	EOD
	flux ensemble load user.yaml &&
	wait_entry user outcome &&
	flux cancel $(flux jobs --no-header --format={id} --name=sleep) &&
	flux ensemble wait --timeout 300 user &&
	is 0/0/1/0 "$(counts_of user sleep)"
'

test_expect_success 'each outcome triggers its rule' '
	cat >rules.yaml <<-EOD &&
	jobs:
	  - {name: good, command: /bin/true}
	  - {name: bad, command: /bin/false}
	  - {name: slow, command: sleep 600, duration: 0.5}
	  - {name: big, command: /bin/true, nodes: 100}
	  - {name: after-good, command: /bin/true}
	  - {name: after-bad, command: /bin/true}
	  - {name: after-slow, command: /bin/true}
	  - {name: after-big, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: good}}
	  - {trigger: start, action: {name: submit, label: bad}}
	  - {trigger: start, action: {name: submit, label: slow}}
	  - {trigger: start, action: {name: submit, label: big}}
	  - {trigger: job-success, group: good, action: {name: submit, label: after-good}}
	  - {trigger: job-fail, group: bad, action: {name: submit, label: after-bad}}
	  - {trigger: job-timeout, group: slow, action: {name: submit, label: after-slow}}
	  - {trigger: job-fail, group: big, action: {name: submit, label: after-big}}
	EOD
	flux ensemble run rules.yaml &&
	for group in after-good after-bad after-slow after-big; do
		is 1/0/0/0 "$(counts_of rules $group)" || return 1
	done
'

test_expect_success 'a failed job is tried again as often as its group says' '
	cat >retries.yaml <<-EOD &&
	jobs:
	  - name: flaky
	    command: /bin/false
	    retries: 2
	rules:
	  - {trigger: start, action: {name: submit, label: flaky}}
	EOD
	flux ensemble run retries.yaml &&
	is 0/3/0/0 "$(counts_of retries flaky)"
'

test_expect_success 'a job that the queue refuses fails the ensemble' '
	cat >refused.yaml <<-EOD &&
	jobs:
	  - name: echo
	    command: echo hello
	    queue: nonexistent
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	EOD
	test_expect_code 1 flux ensemble run refused.yaml >out 2>&1 &&
	grep nonexistent out &&
	is failed "$(status_of refused state)" &&
	status_of refused reason | grep nonexistent
'

# Print where the attempts of the jobs of a group ran, by their indices: `ranks_of NAME GROUP`.
ranks_of() {
	flux ensemble jobs -n -o "{index} {attempt} {ranks}" --group $2 $1 | sort
}

# Jobs that have their nodes alone wait for each other, so that there is one on each node.
test_expect_success 'what runs again keeps off the nodes where it failed, if others can run it' '
	cat >bad-node.yaml <<-EOD &&
	jobs:
	  - name: anywhere
	    command: &bad >-
	      sh -c "touch {name}.\$FLUX_JOB_ID;
	      until test \$(ls {name}.* | wc -l) -ge {together}; do sleep 0.1; done;
	      test \$(flux getattr rank) != 1"
	    params: {name: anywhere, together: 4}
	    count: 4
	    nodes: 1
	    exclusive: true
	    retries: 4
	  - name: on-two
	    command: *bad
	    params: {name: on-two, together: 2}
	    count: 2
	    nodes: 1
	    exclusive: true
	    retries: 4
	    attributes: {system: {constraints: {ranks: ["1-2"]}}}
	  - name: wide
	    command: sh -c "test \$FLUX_TASK_RANK != 0 || test -e wide || { touch wide; exit 1; }"
	    nodes: 4
	    retries: 4
	  - name: pinned
	    command: sh -c "test -e pinned || { touch pinned; exit 1; }"
	    retries: 4
	    attributes: {system: {constraints: {ranks: ["1"]}}}
	rules:
	  - {trigger: start, action: {name: submit, label: anywhere}}
	  - {trigger: idle, group: anywhere, action: {name: submit, label: on-two}}
	  - {trigger: idle, group: on-two, action: {name: submit, label: wide}}
	  - {trigger: idle, group: on-two, action: {name: submit, label: pinned}}
	EOD
	flux ensemble run bad-node.yaml &&
	ranks_of bad-node anywhere >anywhere &&
	is "0 1 2 3" "$(awk "\$2 == 0 {print \$3}" anywhere | sort | xargs)" &&
	is 1 "$(grep -c " 1 [023]$" anywhere)" &&
	is 5 "$(wc -l <anywhere)" &&
	ranks_of bad-node on-two >on-two &&
	is "1 2" "$(awk "\$2 == 0 {print \$3}" on-two | sort | xargs)" &&
	is 1 "$(grep -c " 1 2$" on-two)" &&
	is 3 "$(wc -l <on-two)" &&
	is "0 0 0-3;0 1 0-3;" "$(ranks_of bad-node wide | tr "\n" ";")" &&
	is "0 0 1;0 1 1;" "$(ranks_of bad-node pinned | tr "\n" ";")"
'

test_expect_success 'nodes that are drained are no others' '
	cat >drained.yaml <<-EOD &&
	jobs:
	  - {name: bad, command: sh -c "test \$(flux getattr rank) != 1", retries: 1}
	rules:
	  - {trigger: start, action: {name: submit, label: bad}}
	EOD
	flux resource drain 0,2-3 &&
	test_must_fail flux ensemble run --fail-on job drained.yaml &&
	flux resource undrain 0,2-3 &&
	is "0 0 1;0 1 1;" "$(ranks_of drained bad | tr "\n" ";")"
'

test_expect_success 'a copy runs on another node than its original, and beside it where no other can have it' '
	cat >copied.yaml <<-EOD &&
	jobs:
	  - name: slow
	    command: &slow sh -c "until test -e {name}.copy; do sleep 0.1; done"
	    params: {name: slow}
	  - name: pinned
	    command: *slow
	    params: {name: pinned}
	    attributes: {system: {constraints: {ranks: ["1"]}}}
	rules:
	  - {trigger: start, action: {name: submit, label: slow}}
	  - {trigger: start, action: {name: submit, label: pinned}}
	  - trigger: job-running
	    every: 0.2s
	    when: not job.copied
	    action: {name: copy, repetitions: unlimited}
	EOD
	flux ensemble load copied.yaml &&
	wait_status_of copied groups.slow.running 2 groups.pinned.running 2 &&
	touch slow.copy pinned.copy &&
	wait_status_of copied state completed &&
	is 2 "$(ranks_of copied slow | sort -u | wc -l)" &&
	is "0 0 1" "$(ranks_of copied pinned | sort -u)" &&
	flux ensemble jobs -n -o "{copy_of} {id}" --group slow copied | awk "NF == 2 {print \$2}" >id &&
	flux job info $(cat id) jobspec | grep -F "\"not\"" &&
	flux ensemble jobs -n -o "{id}" --filter "group == '\''pinned'\'' and copy_of == '\''rule-1:1'\''" copied >id &&
	! flux job info $(cat id) jobspec | grep -F "\"not\""
'

test_expect_success 'with avoid-nodes: false a job runs again wherever there is room' '
	cat >again.yaml <<-EOD &&
	jobs:
	  - {name: bad, command: "false", retries: 1, avoid-nodes: false}
	rules:
	  - {trigger: start, action: {name: submit, label: bad}}
	EOD
	test_must_fail flux ensemble run --fail-on job again.yaml &&
	flux ensemble jobs -n -o "{id}" again >ids &&
	for id in $(cat ids); do flux job info $id jobspec || return 1; done >jobspecs &&
	is 2 "$(grep -c duration jobspecs)" &&
	! grep constraints jobspecs
'

test_expect_success 'the counts are those of the jobs in the queue' '
	flux queue idle --timeout=300 &&
	for name in outcomes pending user rules retries; do
		jobs_of $name jobs.json &&
		flux ensemble status --json $name >status.json &&
		run_python <<-EOD || return 1
		import collections, json

		jobs = json.load(open("jobs.json"))
		status = json.load(open("status.json"))["ensembles"][0]
		queue = collections.Counter(job["tag"]["group"] for job in jobs)
		groups = {name: group["attempts"] for name, group in status["groups"].items()}
		assert groups == queue, (groups, queue)
		assert status["jobs"]["total"] == len(jobs), (status["jobs"], len(jobs))
		EOD
	done
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
