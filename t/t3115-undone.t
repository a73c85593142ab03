#!/bin/sh
test_description='What a crash of the instance undid is told by run, list, status, the log and the report'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"

cat >study.yaml <<-EOD
	jobs:
	  - name: sim
	    command: [sh, -c, "touch began{n}; until test -e go{n}; do sleep 0.1; done"]
	    params: {n: [1, 2, 3]}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
EOD

# The second job ends after the checkpoint that the synced commit makes; the third one runs then.
cat >first.sh <<-EOD
	noted() {
	    until grep -q "\"study\": \[[0-9]*, \$1," state/ensemble.ended 2>/dev/null; do sleep 0.1; done
	}
	flux ensemble run study.yaml &
	touch go1
	until test -e began3; do sleep 0.1; done
	noted 1
	flux kvs put --sync here=1
	touch go2
	noted 2
	kill -9 \$(flux getattr broker.pid)
EOD

cat >second.sh <<-EOD
	flux ensemble run --resume study.yaml >run
	flux ensemble list >list
	flux ensemble status study >status
	flux ensemble log study >log
	flux ensemble report study
EOD

test_expect_success FLUX 'the broker is killed after a job has ended since its checkpoint' '
	mkdir state &&
	test_expect_code 137 timeout 60 flux start -Sstatedir="$PWD/state" sh ./first.sh &&
	sleep 2 &&
	touch go3 &&
	timeout 60 flux start -Sstatedir="$PWD/state" sh ./second.sh
'

test_expect_success FLUX 'run, list, status and the log say how many results were undone' '
	said="a crash undid the results of at least 1 job since the checkpoint of [0-9:]*; they run again" &&
	grep "goes on, interrupted for [0-9]*s; $said" run &&
	grep "completed after .*, not counting .* in which it did not run, and .* whose results a crash" run &&
	grep "study: $said" list &&
	grep "study: $said" status &&
	grep "service number 2 goes on with it, interrupted for [0-9]*s; $said" log
'

test_expect_success FLUX 'so does the report, of which times leave out what was undone' '
	grep "it did not run for [0-9.]*s, which the times and charts leave out; as they do the [0-9.]*m*s before a crash, which undid the results of at least 1 job" study.html
'

test_done
