#!/bin/sh
test_description='Faults of custom functions: neither the service nor another ensemble notices'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Write a document whose custom function has the body on standard input.
#
# $1 - The ensemble's name.
# $2 - More keys for the rule.
# $3 - How long the function may take; on a slow machine any may take seconds.
broken() {
	cat >"$1.yaml" <<-EOD &&
	jobs:
	  - {name: a, command: /bin/true}
	  - {name: after, command: /bin/true}
	rules:
	  - id: broken
	    trigger: job-success
	    group: a
	    $2
	    action: {name: custom, label: broken, timeout: ${3:-5m}}
	  - {trigger: start, action: {name: submit, label: a}}
	  - {trigger: idle, name: a, action: {name: submit, label: after}}
	custom: |
	  def broken(**kwargs):
	EOD
	sed "s/^/      /" >>"$1.yaml"
}

# The ensemble went on after the fault, and status shows the rule off and why.
survived() {
	is 1/0/0/0 "$(counts_of "$1" after)" &&
	is completed "$(status_of "$1" state)" &&
	is false "$(status_of "$1" rules.0.enabled)" &&
	status_of "$1" rules.0.error | grep "$2"
}

test_expect_success 'load an ensemble that looks on' '
	cat >bystander.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: echo, command: /bin/true}
	rules:
	  - {trigger: job-success, action: {name: custom, label: count, repetitions: unlimited}}
	custom: |
	  seen = 0
	  def count(**kwargs):
	      global seen
	      seen += 1
	      if seen % 2:
	          return Action({"name": "submit", "label": "echo"})
	EOD
	flux ensemble load bystander.yaml &&
	rpc status >before
'

test_expect_success 'a function that raises' '
	echo "raise RuntimeError(\"no such luck\")" | broken raises &&
	test_expect_code 1 flux ensemble run raises.yaml >out 2>&1 &&
	survived raises "no such luck"
'

test_expect_success 'its traceback is shown by status and kept in the log' '
	flux ensemble status raises >status &&
	grep Traceback status &&
	grep "no such luck" status &&
	flux ensemble log --json raises >log &&
	grep custom-error log | grep Traceback
'

test_expect_success 'a function that answers its call itself, with what is no action' '
	broken forges <<-EOD &&
	import os, time
	for fd in range(100, 200):
	    try:
	        os.write(fd, b"""{"call": 1, "ok": true, "returned": [{"kind": "rule"}]}\n""")
	    except OSError:
	        pass
	time.sleep(600)
	EOD
	test_expect_code 1 flux ensemble run forges.yaml &&
	survived forges "returned what cannot be used: \[0\]: expected the keys kind and value"
'

test_expect_success 'a function that hangs' '
	printf "%s\n" "import time" "while True:" "    time.sleep(600)" | broken hangs "" 0.5 &&
	test_expect_code 1 flux ensemble run hangs.yaml &&
	survived hangs "0.5"
'

test_expect_success 'a function that hangs without ever listening to a signal' '
	printf "%s\n" "import signal, time" "signal.signal(signal.SIGTERM, signal.SIG_IGN)" \
		"while True:" "    pass" | broken deaf "" 0.5 &&
	test_expect_code 1 flux ensemble run deaf.yaml &&
	survived deaf "0.5"
'

test_expect_success 'a function that calls sys.exit' '
	printf "%s\n" "import sys" "sys.exit(0)" | broken exits &&
	test_expect_code 1 flux ensemble run exits.yaml &&
	survived exits exit
'

test_expect_success 'a function that kills its process' '
	printf "%s\n" "import os" "os.kill(os.getpid(), 9)" | broken killed &&
	test_expect_code 1 flux ensemble run killed.yaml &&
	survived killed .
'

test_expect_success 'a function that returns what is no action' '
	echo "return 17" | broken returns &&
	test_expect_code 1 flux ensemble run returns.yaml &&
	survived returns 17
'

test_expect_success 'a function that returns an action on a group that does not exist' '
	echo "return Action({\"name\": \"submit\", \"label\": \"nowhere\"})" | broken nowhere &&
	test_expect_code 1 flux ensemble run nowhere.yaml &&
	survived nowhere nowhere
'

test_expect_success 'a function that prints a megabyte is no fault' '
	printf "%s\n" "print(\"x\" * 1000000)" \
		"import os, sys" "os.write(1, b\"y\" * 1000000)" "os.write(2, b\"z\" * 1000000)" \
		"return Action({\"name\": \"submit\", \"label\": \"after\"})" | broken prints &&
	flux ensemble run prints.yaml &&
	is true "$(status_of prints rules.0.enabled)" &&
	is 2/0/0/0 "$(counts_of prints after)"
'

test_expect_success 'a function that does not exist is an error of the document' '
	echo pass | broken absent &&
	sed -i "s/label: broken/label: brocken/" absent.yaml &&
	test_expect_code 2 flux ensemble run absent.yaml 2>err &&
	grep "absent.yaml:9: .*brocken" err
'

test_expect_success 'custom source that is no Python is an error of the document' '
	echo "return return" | broken syntax &&
	test_expect_code 2 flux ensemble run syntax.yaml 2>err &&
	grep "syntax.yaml:" err &&
	test_must_fail grep Traceback err
'

test_expect_success 'on-error: fail fails the ensemble' '
	echo "raise RuntimeError(\"no such luck\")" | broken fails "on-error: fail" &&
	test_expect_code 1 flux ensemble run fails.yaml &&
	status_of fails reason | grep broken
'

test_expect_success 'on-error: retry calls the function again' '
	cat >flag.py <<-EOD &&
	import os
	if not os.path.exists("tried"):
	    open("tried", "w").close()
	    raise RuntimeError("the first time")
	return Action({"name": "submit", "label": "after"})
	EOD
	broken again "on-error: retry" <flag.py &&
	flux ensemble run again.yaml &&
	is true "$(status_of again rules.0.enabled)" &&
	is 2/0/0/0 "$(counts_of again after)"
'

test_expect_success 'a slow function does not hold up the service' '
	printf "%s\n" "import time" "time.sleep(600)" | broken slow &&
	flux ensemble load slow.yaml &&
	wait_entry slow fire 2 &&
	flux ensemble submit slow after >id &&
	flux job wait-event --timeout=300 $(cat id) clean &&
	flux ensemble cancel slow &&
	test_expect_code 3 flux ensemble wait --timeout 300 slow
'

test_expect_success 'the one that looked on still works, its own state untouched' '
	flux ensemble submit bystander echo &&
	wait_entry bystander outcome 4 &&
	flux queue idle --timeout=300 &&
	is 2/0/0/0 "$(counts_of bystander echo)" &&
	rpc status >after &&
	is "$(json service.pid <before)" "$(json service.pid <after)"
'

test_expect_success 'no process of the service is left behind when the module is removed' '
	pid=$(json service.pid <before) &&
	children=$(cat /proc/$pid/task/*/children) &&
	test -n "$children" &&
	flux module remove ensemble &&
	for process in $pid $children; do
		wait_gone $process || return 1
	done
'

test_done
