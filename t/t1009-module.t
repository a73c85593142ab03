#!/bin/sh
test_description='Removing and reloading the module leaves the broker healthy'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

test_expect_success 'load the module and a busy ensemble with a custom function' '
	cat >busy.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: sleep, command: sleep 600, count: 2}
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: submit, label: sleep}}
	  - {trigger: start, action: {name: custom, label: nap}}
	custom: |
	  def nap(**kwargs):
	      import time
	      time.sleep(600)
	EOD
	load_module &&
	flux ensemble load busy.yaml &&
	wait_entry busy outcome
'

test_expect_success 'the module can be removed while its ensemble is busy' '
	flux ensemble log --follow busy >followed 2>&1 & pid=$! &&
	flux module remove ensemble &&
	test_must_fail flux module stats ensemble &&
	kill -INT $pid &&
	test_might_fail wait $pid &&
	test_must_fail grep Traceback followed
'

test_expect_success 'requests are then refused with a sentence' '
	test_must_fail flux ensemble list 2>err &&
	grep "^flux-ensemble: ERROR: .*not loaded" err
'

test_expect_success 'the broker still runs jobs' '
	is healthy "$(flux run echo healthy)"
'

test_expect_success 'the module loads again, and its ensemble goes on' '
	load_module &&
	wait_entry busy epoch &&
	is running "$(status_of busy state)" &&
	is 2/2/0 "$(status_of busy groups.sleep.submitted)/$(
		status_of busy groups.sleep.running)/$(status_of busy violations)" &&
	flux ensemble log busy >out &&
	grep "epoch .*service number 2" out
'

test_expect_success 'it can be reloaded in place' '
	load_module reload &&
	is running "$(status_of busy state)" &&
	is 2 "$(status_of busy groups.sleep.submitted)"
'

test_expect_success 'the name can be used again when the ensemble has ended and is removed' '
	test_must_fail flux ensemble load busy.yaml 2>err &&
	grep "busy.*running already" err &&
	flux ensemble cancel busy &&
	test_expect_code 3 flux ensemble wait --timeout 300 busy &&
	flux ensemble rm busy &&
	flux ensemble load busy.yaml &&
	wait_entry busy outcome
'

test_expect_success 'the jobs of before are not counted as the new ones' '
	is 2 "$(status_of busy groups.sleep.submitted)"
'

test_expect_success 'loading it twice is refused and harms nothing' '
	test_must_fail load_module &&
	is running "$(status_of busy state)"
'

test_expect_success 'job-manager events go on after many reloads' '
	for round in 1 2 3; do
		load_module reload || return 1
	done &&
	cat >hello.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello, count: 3}
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	EOD
	flux ensemble run hello.yaml &&
	is 3/0/0/0 "$(counts_of hello echo)"
'

test_expect_success 'an instance that ends with the module loaded ends with 0' '
	flux start --test-size=2 sh -c "
		flux ensemble run hello.yaml && flux ensemble load busy.yaml"
'

test_expect_success 'an instance that a failed run ends in ends with the code of the run' '
	test_expect_code 124 flux start flux ensemble run --timeout 0.5 busy.yaml 2>err &&
	test_must_fail grep panic err
'

test_expect_success 'stats of the module are answered' '
	flux module stats ensemble
'

test_expect_success 'nothing of it is left when it is removed' '
	flux module remove ensemble &&
	is 0 "$(modules_loaded)" &&
	flux cancel --all &&
	flux queue idle --timeout=300 &&
	is healthy "$(flux run echo healthy)"
'

test_done
