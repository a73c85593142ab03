#!/bin/sh
test_description='Values that jobs publish and statistics that documents ask for stop nobody'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Publish a memo of a job that nobody's ensemble has submitted.
publish() {
	flux job memo "$(cat foreign)" "$@"
}

# The ensemble has submitted so many jobs, and they have succeeded.
has_run() {
	is $1/0/0/0 "$(counts_of watch a)"
}

test_expect_success 'load an ensemble that looks at the memos of other jobs' '
	cat >watch.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: a, command: /bin/true}
	rules:
	  - trigger: job-memo
	    scope: queue
	    when: round(fom, digits) >= 0 or step % 100 == 0 or x * x * x * x < 0 or last == "yes"
	    action: {name: submit, label: a, repetitions: unlimited}
	EOD
	flux ensemble load watch.yaml &&
	flux submit sleep inf >foreign
'

test_expect_success 'digits, text and numbers that take long are no value' '
	publish fom=5 digits=-999999999 &&
	publish fom=5 digits=999999999999999999 &&
	publish step="%1999999999d" &&
	publish step="\"%1999999999d\"" &&
	publish x=$(printf "9%.0s" $(seq 18)) x2=1e308 &&
	publish fom="[1]" digits="{\"a\": 1}"
'

test_expect_success 'memos as deep as Flux takes them are no harm' '
	for levels in 60 500 900 950 960 970 980 990 1000 1500 2040
	do
		echo "print(\"x=\" + \"[\" * $levels + \"]\" * $levels)" | run_python >memo &&
		publish "$(cat memo)" || return 1
	done
'

test_expect_success 'the ensemble goes on, and sees what is published after all that' '
	publish last=yes &&
	wait_until has_run 1 &&
	is running "$(status_of watch state)" &&
	is "[]" "$(status_of watch errors)" &&
	flux dmesg >dmesg &&
	test_must_fail grep -i traceback dmesg
'

test_expect_success 'it does so after the service was started again, which reads the log and the journal' '
	load_module reload &&
	publish last=yes &&
	wait_until has_run 2 &&
	flux dmesg >dmesg &&
	test_must_fail grep -i traceback dmesg
'

test_expect_success 'a statistic that would panic is refused with a sentence, and the service answers' '
	cat >statistics.yaml <<-EOD &&
	jobs: [{name: a, command: /bin/true}]
	metrics:
	  - {name: low, statistic: iqr, q_inf: -1}
	  - {name: high, statistic: rolling_iqr, window_size: 3, q_inf: 1, q_sup: 1.5}
	  - {name: large, statistic: rolling_quantile, q: 0.5, window_size: 1000000000}
	  - {name: text, statistic: shift, fill_value: x}
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	test_must_fail flux ensemble load statistics.yaml 2>err &&
	cat err &&
	grep "metrics\[0\].q_inf: expected a number >= 0 and <= 1, not -1" err &&
	grep "metrics\[1\].q_sup: expected a number >= 0 and <= 1, not 1.5" err &&
	grep "metrics\[2\].window_size: expected an integer >= 1 and <= 100000" err &&
	grep "metrics\[3\].fill_value: expected a number or a boolean" err &&
	test_must_fail grep -i "panic\|traceback" err &&
	flux ensemble list
'

test_expect_success 'a memo of thousands of keys has statistics of a thousand, and the log says so once' '
	cat >keys.py <<-EOD &&
	import flux, flux.job, os
	handle = flux.Flux()
	id = flux.job.JobID(os.environ["FLUX_JOB_ID"])
	for first in (0, 2000):
	    memo = {f"key{number}": number for number in range(first, first + 2000)}
	    handle.rpc("job-manager.memo", {"id": int(id), "memo": memo}).get()
	EOD
	cat >keys.yaml <<-EOD &&
	jobs: [{name: a, command: [flux, python, $PWD/keys.py]}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	flux ensemble run keys.yaml >out &&
	is 1 "$(grep -c "no statistics of the memo key" out)" &&
	rpc metrics name=keys >metrics.json &&
	run_python <<-EOD
	import json

	found = json.load(open("metrics.json"))["mean"]
	assert sum(name.startswith("a-key") for name in found) == 1000, len(found)
	EOD
'

test_expect_success 'the module is removed' '
	flux cancel --all &&
	flux ensemble cancel watch &&
	flux module remove ensemble
'

test_done
