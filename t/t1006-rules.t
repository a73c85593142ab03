#!/bin/sh
test_description='Rules: when they fire and how often'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

test_expect_success 'a cooldown keeps an action from running again too soon' '
	cat >cooldown.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true, count: 4}
	  - {name: b, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - trigger: job-success
	    group: a
	    action: {name: submit, label: b, repetitions: unlimited, cooldown: 10m}
	EOD
	flux ensemble run cooldown.yaml &&
	is 4/0/0/0 "$(counts_of cooldown a)" &&
	is 1/0/0/0 "$(counts_of cooldown b)"
'

test_expect_success 'repetitions bound how often, and backoff lets events pass' '
	cat >backoff.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true, count: 8}
	  - {name: bound, command: /bin/true}
	  - {name: skip, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - trigger: job-finish
	    group: a
	    action: {name: submit, label: bound, repetitions: 5}
	  - trigger: job-finish
	    group: a
	    action: {name: submit, label: skip, repetitions: unlimited, backoff: 3}
	EOD
	flux ensemble run backoff.yaml &&
	is 5/0/0/0 "$(counts_of backoff bound)" &&
	is 2/0/0/0 "$(counts_of backoff skip)"
'

test_expect_success 'timers fire once after, and every' '
	cat >timers.yaml <<-EOD &&
	jobs:
	  - {name: once, command: /bin/true}
	  - {name: tick, command: /bin/true}
	rules:
	  - {trigger: timer, after: 0.3, action: {name: submit, label: once}}
	  - {trigger: timer, every: 0.1, action: {name: submit, label: tick, repetitions: 4}}
	EOD
	flux ensemble run timers.yaml &&
	is 1/0/0/0 "$(counts_of timers once)" &&
	is 4/0/0/0 "$(counts_of timers tick)"
'

test_expect_success 'idle fires when the last job of a group, or of the ensemble, is gone' '
	cat >idle.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true, count: 3}
	  - {name: b, command: /bin/true, count: 2}
	  - {name: last, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - {trigger: idle, name: a, action: {name: submit, label: b}}
	  - trigger: idle
	    when: count.b.success == 2
	    action: {name: submit, label: last}
	EOD
	flux ensemble run idle.yaml &&
	is 3/0/0/0 "$(counts_of idle a)" &&
	is 2/0/0/0 "$(counts_of idle b)" &&
	is 1/0/0/0 "$(counts_of idle last)"
'

test_expect_success 'enable and disable turn other rules on and off' '
	cat >switch.yaml <<-EOD &&
	jobs:
	  - {name: step, command: /bin/true}
	  - {name: after, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: step}}
	  - {trigger: start, action: {name: disable, label: after}}
	  - trigger: metric
	    name: count.step.success
	    when: 4
	    action: {name: disable, label: again}
	  - trigger: metric
	    name: count.step.success
	    when: 2
	    action: {name: enable, label: after}
	  - id: after
	    trigger: job-success
	    group: step
	    action: {name: submit, label: after, repetitions: unlimited}
	  - id: again
	    trigger: job-success
	    group: step
	    action: {name: submit, label: step, repetitions: unlimited}
	EOD
	flux ensemble run switch.yaml &&
	is 4/0/0/0 "$(counts_of switch step)" &&
	is 3/0/0/0 "$(counts_of switch after)"
'

test_expect_success 'update sets the urgency of pending jobs' '
	cat >urgency.yaml <<-EOD &&
	jobs:
	  - {name: first, command: sleep 600, nodes: 4, exclusive: true}
	  - {name: second, command: /bin/true, nodes: 4}
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - {trigger: job-start, group: first, action: {name: submit, label: second}}
	  - {trigger: job-priority, group: second, action: {name: update, label: second, urgency: 25}}
	  - {trigger: job-urgency, group: second, action: {name: cancel, label: first}}
	EOD
	flux ensemble run urgency.yaml &&
	is 1/0/0/0 "$(counts_of urgency second)" &&
	is 25 "$(flux jobs -a --no-header --format={urgency} --name=second)"
'

test_expect_success 'update sets the duration of jobs' '
	cat >duration.yaml <<-EOD &&
	jobs:
	  - {name: first, command: sleep 600, nodes: 4, exclusive: true}
	  - {name: limited, command: /bin/true, nodes: 4, duration: 10m}
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - {trigger: job-start, group: first, action: {name: submit, label: limited}}
	  - {trigger: job-priority, group: limited, action: {name: update, label: limited, duration: 5m}}
	  - {trigger: job-jobspec-update, group: limited, action: {name: cancel, label: first}}
	EOD
	flux ensemble run duration.yaml &&
	is 1/0/0/0 "$(counts_of duration limited)" &&
	is 300.0 "$(flux jobs -a --no-header --format={duration} --name=limited)"
'

test_expect_success 'a rule on the events of a job fires at each of them' '
	cat >events.yaml <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true, count: 2}
	  - {name: seen, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
	for event in submit validate depend priority alloc start finish release free clean \
		sched run cleanup; do
		cat >>events.yaml <<-EOD || return 1
		  - trigger: job-$event
		    group: a
		    action: {name: submit, label: seen, repetitions: unlimited}
		EOD
	done &&
	flux ensemble run events.yaml &&
	is 26/0/0/0 "$(counts_of events seen)"
'

test_expect_success 'a rule on a mean waits until the mean is there' '
	cat >mean.yaml <<-EOD &&
	jobs:
	  - {name: step, command: sleep 0.1}
	  - {name: steady, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: step}}
	  - trigger: metric
	    when: count.step.success >= 3 and mean["step-duration"] > 0.05 and
	      max["step-pending"] >= 0
	    action: {name: submit, label: steady}
	  - trigger: metric
	    name: mean.step-duration
	    when: "< 0.05"
	    action: {name: terminate}
	  - trigger: job-success
	    group: step
	    when: count.step.success < 5
	    action: {name: submit, label: step, repetitions: unlimited}
	EOD
	flux ensemble run mean.yaml &&
	is 5/0/0/0 "$(counts_of mean step)" &&
	is 1/0/0/0 "$(counts_of mean steady)"
'

test_expect_success 'idle waits for the functions that the last jobs have called' '
	cat >parsed.yaml <<-EOD &&
	jobs:
	  - {name: sim, command: /bin/true, count: 4}
	  - {name: report, command: [sh, -c, "wc -l <parsed >report"]}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - trigger: job-success
	    group: sim
	    action: {name: custom, label: parse, repetitions: unlimited}
	  - trigger: idle
	    group: sim
	    action: {name: submit, label: report}
	custom: |
	  import time
	  def parse(event, **kwargs):
	      time.sleep(0.1)
	      with open("parsed", "a") as file:
	          print(event["job"], file=file)
	EOD
	flux ensemble run parsed.yaml &&
	is 4 "$(cat report)"
'

test_expect_success 'idle by a parameter fires for each of its values' '
	cat >by.yaml <<-EOD &&
	jobs:
	  - name: md
	    command: /bin/true
	    params: {t: [280, 300], seed: {range: [0, 3]}}
	  - {name: reduce, command: [touch, "reduced-{t}"], params: {t: 0}}
	rules:
	  - {trigger: start, action: {name: submit, label: md}}
	  - trigger: idle
	    group: md
	    by: [t]
	    action: {name: custom, label: reduce}
	custom: |
	  def reduce(event, metrics, **kwargs):
	      return Action(name="submit", label="reduce", params={"t": event["params"]["t"]})
	EOD
	flux ensemble run by.yaml &&
	is 2/0/0/0 "$(counts_of by reduce)" &&
	test -e reduced-280 &&
	test -e reduced-300
'

test_expect_success 'rules know when the allocation expires' '
	cat >left.yaml <<-EOD &&
	jobs:
	  - {name: work, command: sleep 1000}
	  - {name: save, command: touch saved}
	  - {name: known, command: touch known}
	rules:
	  - {trigger: start, action: {name: submit, label: work}}
	  - trigger: start
	    when: time.left > 500 and time.left <= 600
	    action: {name: submit, label: known}
	  - {trigger: time-left, below: 20m, action: {name: submit, label: save}}
	  - {trigger: job-success, group: save, action: {name: terminate, cancel: true}}
	EOD
	flux run -N1 -t 10m flux start flux ensemble run left.yaml &&
	test -e saved &&
	test -e known
'

test_expect_success 'a group that may take longer than the allocation lasts waits, and the log says so' '
	cat >long.yaml <<-EOD &&
	jobs:
	  - {name: long, command: touch long-ran, duration: 20m}
	  - {name: short, command: touch short-ran, duration: 5m}
	rules:
	  - {trigger: start, action: {name: submit, label: long}}
	  - {trigger: start, action: {name: submit, label: short}}
	  - {trigger: idle, group: short, action: {name: terminate}}
	EOD
	flux run -N1 -t 10m flux start flux ensemble run long.yaml >long.out &&
	grep "long: its jobs are not started: they may take 1200 seconds" long.out &&
	test -e short-ran &&
	test_must_fail test -e long-ran &&
	flux ensemble run --name plenty long.yaml &&
	is 1/0/0/0 "$(counts_of plenty long)"
'

test_expect_success 'time-left does not fire where the allocation has no limit' '
	flux ensemble run --name unlimited --timeout 1s left.yaml;
	test $? = 124 &&
	is 0/0/0/0 "$(counts_of unlimited save)" &&
	is 0/0/0/0 "$(counts_of unlimited known)"
'

test_expect_success 'while an ensemble is paused its rules wait and its jobs go on' '
	cat >paused.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: a, command: /bin/true}
	  - {name: b, command: /bin/true}
	rules:
	  - {trigger: job-success, group: a, action: {name: submit, label: b}}
	EOD
	flux ensemble load paused.yaml &&
	flux ensemble submit paused a >id &&
	flux ensemble pause paused &&
	flux job wait-event --timeout=300 $(cat id) clean &&
	is paused "$(status_of paused state)" &&
	flux ensemble resume paused &&
	wait_entry paused outcome 2 &&
	flux queue idle --timeout=300 &&
	is 1/0/0/0 "$(counts_of paused b)" &&
	flux ensemble terminate paused
'

test_expect_success 'finish: never goes on until it is ended' '
	cat >never.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: a, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
	flux ensemble load never.yaml &&
	wait_entry never outcome &&
	flux queue idle --timeout=300 &&
	is running "$(status_of never state)" &&
	flux ensemble terminate never &&
	flux ensemble wait --timeout 300 never
'

test_expect_success 'terminate with cancel also cancels the jobs' '
	cat >end.yaml <<-EOD &&
	jobs:
	  - {name: long, command: sleep 600, count: 3}
	  - {name: short, command: /bin/true}
	rules:
	  - {trigger: start, action: {name: submit, label: long}}
	  - {trigger: start, action: {name: submit, label: short}}
	  - {trigger: job-success, group: short, action: {name: terminate, cancel: true}}
	EOD
	flux ensemble run end.yaml &&
	flux queue idle --timeout=300 &&
	is 0/0/3/0 "$(counts_of end long)"
'

test_expect_success 'the log says why each action was done' '
	flux ensemble log switch >log &&
	grep "count.step.success" log &&
	flux ensemble log --json switch >log.json &&
	head -n 1 log.json >first &&
	is load "$(json name <first)" &&
	tail -n 1 log.json >last &&
	is finish "$(json name <last)" &&
	is completed "$(json context.state <last)"
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
