#!/bin/sh
test_description='flux ensemble serve: the service outside the broker'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'serve in the background answers as the module does' '
	cat >hello.yaml <<-EOD &&
	jobs:
	  - {name: sleep, command: sleep 0.1, count: 2}
	  - {name: echo, command: echo hello}
	rules:
	  - {trigger: start, action: {name: submit, label: sleep}}
	  - {trigger: metric, name: count.sleep.success, when: 2, action: {name: custom, label: f}}
	custom: |
	  def f(**kwargs):
	      return Action({"name": "submit", "label": "echo"})
	EOD
	interruptible flux ensemble serve >serve.log 2>&1 &&
	echo $pid >pid &&
	wait_service &&
	is client "$(rpc status | json service.mode)"
'

test_expect_success 'an ensemble runs on it, and no module is loaded' '
	flux ensemble run hello.yaml &&
	is 2/0/0/0 "$(counts_of hello sleep)" &&
	is 1/0/0/0 "$(counts_of hello echo)" &&
	is 0 "$(modules_loaded)"
'

test_expect_success 'a second service is refused with a sentence' '
	test_must_fail flux ensemble serve 2>err &&
	grep "^flux-ensemble: ERROR: " err &&
	test_must_fail grep Traceback err
'

test_expect_success 'guests are refused' '
	(
		FLUX_HANDLE_ROLEMASK=0x2 &&
		FLUX_HANDLE_USERID=9999 &&
		export FLUX_HANDLE_ROLEMASK FLUX_HANDLE_USERID &&
		refused EPERM . list
	)
'

test_expect_success 'Ctrl-C ends it, and the service is gone' '
	kill -INT $(cat pid) &&
	wait_gone $(cat pid) &&
	test_must_fail grep Traceback serve.log &&
	test_must_fail flux ensemble list 2>err &&
	grep "not loaded" err
'

test_expect_success 'when it is killed the broker stays up' '
	interruptible flux ensemble serve >serve.log 2>&1 &&
	echo $pid >pid &&
	wait_service &&
	kill -KILL $(cat pid) &&
	wait_gone $(cat pid) &&
	is healthy "$(flux run echo healthy)"
'

test_done
