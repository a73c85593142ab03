#!/bin/sh
test_description='The end says what went wrong, and can fail the command'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'write documents' '
	cat >wrong.yaml <<-EOD &&
	jobs:
	  - {name: good, command: "true", count: 2}
	  - {name: bad, command: "false", count: 3}
	  - {name: slow, command: sleep 60, duration: 0.3s}
	rules:
	  - trigger: start
	    action: {name: submit, label: good}
	  - trigger: start
	    action: {name: submit, label: bad}
	  - trigger: start
	    action: {name: submit, label: slow}
	  - id: judge
	    trigger: idle
	    action: {name: custom, label: judge}
	custom: |
	  def judge(**event):
	      raise RuntimeError("no verdict")
	EOD
	cat >jobs.yaml <<-EOD &&
	jobs: [{name: bad, command: "false"}]
	rules: [{trigger: start, action: {name: submit, label: bad}}]
	EOD
	cat >good.yaml <<-EOD
	jobs: [{name: good, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: good}}]
	EOD
'

cause="custom function .judge. raised RuntimeError: no verdict"
sentence="3 jobs failed, 1 job ran out of time and rule .judge. is disabled ($cause)"

test_expect_success 'run says what went wrong, and exits 0 all the same where that is asked for' '
	flux ensemble run --fail-on none wrong.yaml >out &&
	tail -n 2 out | grep "^wrong: completed after .*: nothing is active .*, but $sentence$"
'

test_expect_success 'run --fail-on exits 1 if jobs or rules went wrong' '
	test_expect_code 1 flux ensemble run --name a --fail-on job wrong.yaml &&
	test_expect_code 1 flux ensemble run --name b wrong.yaml &&
	test_expect_code 1 flux ensemble run --name c --fail-on job,rule jobs.yaml &&
	flux ensemble run --name d --fail-on rule jobs.yaml &&
	flux ensemble run --fail-on job,rule good.yaml &&
	test_expect_code 2 flux ensemble run --fail-on jobs good.yaml 2>err &&
	grep "expected some of job, rule" err
'

test_expect_success 'wait and watch do so too' '
	test_expect_code 1 flux ensemble wait wrong >out &&
	flux ensemble wait --fail-on none wrong &&
	grep "^wrong: $sentence" out &&
	test_expect_code 1 flux ensemble wait --fail-on rule wrong &&
	test_expect_code 1 flux ensemble wait --fail-on job good d &&
	flux ensemble wait --fail-on job,rule good &&
	test_expect_code 1 flux ensemble watch --fail-on job d &&
	flux ensemble watch --fail-on job,rule good
'

test_expect_success 'a run on the local queue does so too' '
	flux-ensemble run --queue local --state-dir state jobs.yaml >out &&
	tail -n 2 out | grep "^jobs: completed after .*, but 1 job failed$" &&
	test_expect_code 1 flux-ensemble run --queue local --state-dir state --fail-on job jobs.yaml
'

test_done
