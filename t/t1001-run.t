#!/bin/sh
test_description='flux ensemble run: what it prints and how it exits'
# Signals are sent to the commands here.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

test_expect_success 'write documents' '
	cat >hello.yaml <<-EOD &&
	jobs:
	  - name: sleep
	    command: sleep 0.1
	    count: 3
	  - name: echo
	    command: echo hello world
	    count: 2
	rules:
	  - trigger: start
	    action: {name: submit, label: sleep}
	  - trigger: metric
	    name: count.sleep.success
	    when: 3
	    action: {name: submit, label: echo}
	EOD
	cat >long.yaml <<-EOD &&
	jobs:
	  - name: sleep
	    command: sleep 600
	    count: 2
	rules:
	  - trigger: start
	    action: {name: submit, label: sleep}
	EOD
	cat >failing.yaml <<-EOD
	jobs:
	  - name: echo
	    command: echo hello
	rules:
	  - trigger: start
	    action: {name: custom, label: broken}
	    on-error: fail
	custom: |
	  def broken(**kwargs):
	      raise RuntimeError("no such luck")
	EOD
'

test_expect_success 'run ends with 0 when the ensemble completes' '
	flux ensemble run hello.yaml >out 2>err &&
	is 3/0/0/0 "$(counts_of hello sleep)" &&
	is 2/0/0/0 "$(counts_of hello echo)"
'

test_expect_success 'run prints each trigger and each submission' '
	grep "^ => trigger start" out &&
	grep "^   submit sleep  *(name:sleep),(command:sleep 0.1),(count:3),(nodes:1)" out &&
	grep "^ => trigger count.sleep.success" out &&
	grep "^   submit echo  *(name:echo),(command:echo hello world),(count:2),(nodes:1)" out
'

test_expect_success 'run closes with a table of the groups' '
	tail -n 8 out >table &&
	grep "sleep.* 3 " table &&
	grep "echo.* 2 " table
'

test_expect_success 'without a terminal there is no colour and no cursor movement' '
	esc=$(printf "\033") &&
	test_must_fail grep "$esc" out &&
	test_must_fail grep "$esc" err
'

test_expect_success 'run --debug prints every event' '
	flux ensemble run --debug hello.yaml >debug.out &&
	for event in submit validate depend priority alloc start finish release free clean; do
		grep -w "$event" debug.out || return 1
	done
'

test_expect_success 'logging: debug: true in the document does the same' '
	{ echo "logging: {debug: true}" && cat hello.yaml; } >verbose.yaml &&
	flux ensemble run verbose.yaml >debug.out &&
	for event in submit validate depend priority alloc start finish release free clean; do
		grep -w "$event" debug.out || return 1
	done
'

test_expect_success 'run reads standard input' '
	flux ensemble run --name piped - <hello.yaml &&
	is 3/0/0/0 "$(counts_of piped sleep)"
'

test_expect_success 'a failed job does not fail the ensemble' '
	sed "s/echo hello world/\/bin\/false/" hello.yaml >false.yaml &&
	flux ensemble run false.yaml &&
	is 0/2/0/0 "$(counts_of false echo)"
'

test_expect_success 'run ends with 1 when the ensemble fails' '
	test_expect_code 1 flux ensemble run failing.yaml >out 2>&1 &&
	grep "no such luck" out &&
	is failed "$(status_of failing state)"
'

test_expect_success 'run ends with 2 for an invalid document' '
	sed "s/label: echo/label: ecko/" hello.yaml >invalid.yaml &&
	test_expect_code 2 flux ensemble run invalid.yaml 2>err &&
	grep "invalid.yaml:14: rules\[1\].action.label: no job group named .ecko." err
'

test_expect_success 'run ends with 2 for a document that does not exist' '
	test_expect_code 2 flux ensemble run nowhere.yaml 2>err &&
	grep nowhere.yaml err
'

test_expect_success 'run ends with 3 when the ensemble is canceled' '
	flux ensemble run long.yaml >out 2>&1 & pid=$! &&
	wait_loaded long &&
	wait_entry long outcome &&
	flux ensemble cancel long &&
	test_expect_code 3 wait $pid &&
	is 0/0/2/0 "$(counts_of long sleep)"
'

test_expect_success 'run --timeout ends with 124 and cancels the jobs' '
	test_expect_code 124 flux ensemble run --timeout 1 --name late long.yaml &&
	flux queue idle --timeout=300 &&
	# A slow machine may not have submitted both by then.
	counts_of late sleep | grep "^0/0/[012]/0$"
'

test_expect_success 'Ctrl-C ends run with 130 and cancels the jobs' '
	interruptible flux ensemble run --name stopped long.yaml &&
	wait_loaded stopped &&
	wait_entry stopped outcome &&
	kill -INT $pid &&
	test_expect_code 130 wait $pid &&
	flux queue idle --timeout=300 &&
	is canceled "$(status_of stopped state)" &&
	is 0/0/2/0 "$(counts_of stopped sleep)"
'

test_expect_success 'run leaves other ensembles alone' '
	flux ensemble load --name bystander long.yaml &&
	flux ensemble run hello.yaml &&
	is running "$(status_of bystander state)" &&
	flux ensemble cancel bystander
'

test_expect_success 'wait ends as run does' '
	flux ensemble wait hello &&
	test_expect_code 1 flux ensemble wait failing &&
	test_expect_code 3 flux ensemble wait bystander &&
	flux ensemble rm long &&
	flux ensemble load long.yaml &&
	test_expect_code 124 flux ensemble wait --timeout 0.5 long &&
	flux ensemble cancel long
'

test_expect_success 'what has ended is kept: a second run of its name has one of its own' '
	flux ensemble run --name kept hello.yaml &&
	flux ensemble log kept >before &&
	flux ensemble run --name kept hello.yaml >out 2>err &&
	grep "^flux-ensemble: .kept. has ended and is kept: this run is .kept-2" err &&
	grep "^kept-2: completed" out &&
	flux ensemble log kept >after && test_cmp before after &&
	is kept-3 "$(flux ensemble load --name kept hello.yaml 2>err)" &&
	grep "this run is .kept-3" err &&
	flux ensemble wait kept-3 &&
	is "kept: completed (it had ended before)" "$(flux ensemble cancel kept 2>err)" &&
	grep "^flux-ensemble: .run. begins another run and .flux ensemble rm kept. removes this" err &&
	load_module reload &&
	is "kept kept-2 kept-3" "$(echo $(flux ensemble list -n -o "{name}" | grep kept))"
'

test_expect_success 'one that goes on keeps others of its name out, whatever name it has itself' '
	flux ensemble rm long && flux ensemble run --timeout 0.1 long.yaml;
	is long-2 "$(flux ensemble load long.yaml)" &&
	test_must_fail flux ensemble load long.yaml 2>err &&
	grep "an ensemble named .long-2. is running already, with or without its .run.: .flux ensemble watch long-2. follows it; wait for its end, or give this one another name with --name" err &&
	load_module reload &&
	test_must_fail flux ensemble load long.yaml 2>err &&
	grep "an ensemble named .long-2. is running already, with or without its .run.: .flux ensemble watch long-2. follows it; wait for its end, or give this one another name with --name" err &&
	flux ensemble cancel long-2 && test_expect_code 3 flux ensemble wait long-2
'

test_expect_success 'rm removes what has ended, and its name can be asked for again' '
	test_must_fail flux ensemble rm nothing &&
	flux ensemble rm kept kept-3 &&
	is kept "$(flux ensemble load --name kept hello.yaml)" &&
	flux ensemble wait kept kept-2
'

test_expect_success 'run --resume of what never began says that it begins, and goes on with nothing else' '
	flux ensemble run --resume --quiet --name fresh hello.yaml 2>err &&
	grep "the instance has no run of .fresh. to go on with: it begins" err &&
	flux ensemble run --resume --quiet --name fresh hello.yaml 2>err &&
	test_must_fail grep "it begins" err
'

test_done
