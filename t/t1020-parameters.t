#!/bin/sh
test_description='Parameters from files and in steps, and sizes of jobs that they give'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

test_expect_success 'the columns of a file go side by side' '
	mkdir study &&
	printf "length,angle\n1.5,30\n2.5,60\n" >study/points.csv &&
	cat >study/points.yaml <<-EOD &&
	jobs:
	  - name: point
	    command: sh -c "echo {length} {angle} {x} >>points.out"
	    params: {length: {file: points.csv}, angle: {file: points.csv}, x: {range: [0.1, 0.3, 0.1]}}
	rules:
	  - trigger: start
	    action: {name: submit, label: point}
	EOD
	flux ensemble run study/points.yaml &&
	cat >expected <<-EOD &&
	1.5 30 0.1
	1.5 30 0.2
	2.5 60 0.1
	2.5 60 0.2
	EOD
	sort points.out | test_cmp expected -
'

test_expect_success 'what is wrong with a file is told with both lines' '
	printf "length,angle\n1.5\n" >study/points.csv &&
	test_expect_code 2 flux ensemble validate study/points.yaml 2>err &&
	grep "points.yaml:4: jobs.0..params.angle: points.csv:2: expected 2 values" err
'

test_expect_success 'every job has the size that its parameter says' '
	cat >scaling.yaml <<-EOD &&
	jobs:
	  - name: scaling
	    command: "true"
	    params: {n: [1, 2, 4]}
	    nodes: "{n}"
	    tasks: "{n}"
	    duration: "{n}m"
	    urgency: "1{n}"
	rules:
	  - trigger: start
	    action: {name: submit, label: scaling}
	EOD
	flux ensemble run scaling.yaml &&
	flux jobs -a -n --name=scaling -o "{nnodes} {ntasks} {duration:.0f}" | sort >sizes &&
	printf "1 1 60\n2 2 120\n4 4 240\n" | test_cmp - sizes &&
	for id in $(flux jobs -a -n --name=scaling -o "{id}"); do
		flux job info $id eventlog | grep "\"name\":\"submit\"" || return 1
	done >logs &&
	for urgency in 11 12 14; do
		grep "\"urgency\":$urgency" logs || return 1
	done
'

test_expect_success 'the names of jobs can say which ensemble they are of' '
	cat >named.yaml <<-EOD &&
	job-names: full
	jobs:
	  - {name: short, command: echo hello, output: "{{name}}.out"}
	rules:
	  - trigger: start
	    action: {name: submit, label: short}
	EOD
	flux ensemble run --name study named.yaml &&
	is study.short "$(flux jobs -a -n --name=study.short -o {name})" &&
	is hello "$(cat study.short.out)" &&
	is 1/0/0/0 "$(counts_of study short)" &&
	flux-ensemble run --queue local --state-dir state --name here named.yaml &&
	is hello "$(cat here.short.out)"
'

test_expect_success 'the local queue gives each job its own limit' '
	cat >limits.yaml <<-EOD &&
	jobs:
	  - name: limited
	    command: sleep 20
	    params: {s: [0.1, 0.2]}
	    duration: "{s}s"
	rules:
	  - trigger: start
	    action: {name: submit, label: limited}
	  - trigger: metric
	    name: count.limited.timeout
	    when: 2
	    action: {name: terminate}
	EOD
	flux-ensemble run --queue local --state-dir state limits.yaml >out &&
	grep "count.limited.timeout" out
'

test_done
