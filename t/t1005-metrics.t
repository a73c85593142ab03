#!/bin/sh
test_description='Metrics: the statistics of what the queue recorded'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'run jobs of different lengths, one of which publishes numbers' '
	cat >metrics.yaml <<-EOD &&
	metrics:
	  - {name: median, statistic: quantile, q: 0.5}
	jobs:
	  - name: sleep
	    command: sleep {seconds}
	    params: {seconds: [0.1, 0.3, 0.5]}
	  - name: memo
	    command: [sh, -c, "flux job memo \$FLUX_JOB_ID fom={fom} word=x{fom}"]
	    params: {fom: [1, 2, 6]}
	  - name: never
	    command: /bin/true
	rules:
	  - {trigger: start, action: {name: submit, label: sleep}}
	  - {trigger: start, action: {name: submit, label: memo}}
	EOD
	flux ensemble run metrics.yaml &&
	rpc metrics name=metrics >metrics.json
'

test_expect_success 'durations and pending times agree with the eventlogs of the jobs' '
	jobs_of metrics jobs.json &&
	run_python <<-EOD
	import json
	import math
	import statistics

	metrics = json.load(open("metrics.json"))
	values = {"duration": [], "pending": []}
	for job in json.load(open("jobs.json")):
	    if job["tag"]["group"] == "sleep":
	        t = {event["name"]: event["timestamp"] for event in job["events"]}
	        values["duration"].append(t["finish"] - t["start"])
	        values["pending"].append(t["start"] - t["submit"])
	functions = {"mean": statistics.mean, "min": min, "max": max, "variance": statistics.variance}
	for statistic, function in functions.items():
	    for variable, numbers in values.items():
	        got, want = metrics[statistic][f"sleep-{variable}"], function(numbers)
	        assert math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-6), (statistic, variable, got, want)
	EOD
'

test_expect_success 'the numbers that jobs publish have the same statistics' '
	is 3.0 "$(json mean.memo-fom <metrics.json)" &&
	is 1 "$(json min.memo-fom <metrics.json)" &&
	is 6 "$(json max.memo-fom <metrics.json)" &&
	is 7.0 "$(json variance.memo-fom <metrics.json)"
'

test_expect_success 'metrics say how many values have no statistics, since they are no numbers' '
	is 3 "$(json memo-ignored.memo.word <metrics.json)" &&
	flux ensemble metrics metrics >ignored &&
	grep IGNORED ignored &&
	grep "word.* 3$" ignored
'

test_expect_success 'another statistic of River can be named in the document' '
	is 2.0 "$(json median.memo-fom <metrics.json)"
'

test_expect_success 'the statistic of nothing is null' '
	for statistic in variance mean iqr max min mad median; do
		is null "$(json $statistic.never-duration <metrics.json)" || return 1
	done
'

test_expect_success 'no infinity or NaN leaves the service' '
	flux ensemble metrics --json metrics >cli.json &&
	run_python <<-EOD
	import json

	def refuse(constant):
	    raise ValueError(constant)

	for file in ("metrics.json", "cli.json"):
	    json.load(open(file), parse_constant=refuse)
	EOD
'

test_expect_success 'counts add up' '
	is 3 "$(json count.sleep.submitted <metrics.json)" &&
	is 3 "$(json count.sleep.finished <metrics.json)" &&
	is 3 "$(json count.sleep.success <metrics.json)" &&
	is 0 "$(json count.never.submitted <metrics.json)"
'

test_expect_success 'the command prints them as a table' '
	flux ensemble metrics metrics >table &&
	grep sleep table &&
	grep fom table
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
