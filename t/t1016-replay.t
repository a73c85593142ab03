#!/bin/sh
test_description='flux ensemble run --record, and replay of what it wrote'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'write a document' '
	cat >mixed.yaml <<-EOD
	jobs:
	  - {name: good, command: "true", count: 4}
	  - {name: bad, command: "false", retries: 1}
	rules:
	  - {trigger: start, action: {name: submit, label: good}}
	  - {trigger: job-success, group: good, action: {name: custom, label: more, repetitions: 2}}
	custom: |
	  def more(**kwargs):
	      return Action({"name": "submit", "label": "bad"})
	EOD
'

test_expect_success 'a recorded run replays to the same commands' '
	flux ensemble run --record run.jsonl mixed.yaml >out &&
	is 4/0/0/0 "$(counts_of mixed good)" &&
	is 0/4/0/0 "$(counts_of mixed bad)" &&
	flux ensemble replay run.jsonl >replayed &&
	grep "^mixed: [0-9]* events, the same commands; completed" replayed
'

test_expect_success 'a replay that differs shows the event and exits with 1' '
	sed "s/\"status\":256/\"status\":0/" run.jsonl >differs.jsonl &&
	test_expect_code 1 flux ensemble replay differs.jsonl >out &&
	grep "differs.jsonl:[0-9]*: the commands differ at this event:" out &&
	grep "\"name\":\"finish\"" out
'

test_expect_success 'a recording that is cut short is refused' '
	sed "\$d" run.jsonl >short.jsonl &&
	test_expect_code 2 flux ensemble replay short.jsonl 2>err &&
	grep "ERROR: short.jsonl: the recording is cut short after line [0-9]*" err
'

test_expect_success 'a file that cannot be written is an error before anything runs' '
	test_expect_code 2 flux ensemble run --record missing/run.jsonl mixed.yaml 2>err &&
	grep "record: .*/missing/run.jsonl: No such file or directory" err
'

test_done
