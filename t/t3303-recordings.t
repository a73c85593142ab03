#!/bin/sh
test_description='Recordings that cannot be written do no harm'
# Limits are set on processes here.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
# Python takes a module for compiled of which only a part could be written.
export PYTHONDONTWRITEBYTECODE=1
test_under_flux 1

# Let the service write no file that is longer than $1 bytes.
limit_service() {
	pid=$(flux ensemble status --json | json service.pid) &&
	flux python -c '
import resource, sys
resource.prlimit(int(sys.argv[1]), resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))' $pid $1
}

# Run a Python program that can write no file which is longer than $1 bytes.
limited() {
	flux python -c '
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), -1))
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
}

lost_recording() {
	status_of "$1" errors | grep -q "cannot be written on"
}

test_expect_success 'load the module' '
	cat >echo.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello, count: 20}
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	EOD
	load_module
'

test_expect_success 'what is no regular file is refused, and nothing waits for a reader' '
	mkfifo fifo &&
	for file in fifo .; do
		refused EINVAL "record: $PWD/$file: " load text=@echo.yaml name=echo cwd="$PWD" \
			environment:={} record="$PWD/$file" || return 1
	done &&
	refused EINVAL "record: $PWD/fifo: expected a regular file" load text=@echo.yaml name=echo \
		cwd="$PWD" environment:={} record="$PWD/fifo" &&
	refused EINVAL "record: /dev/full: expected a regular file" load text=@echo.yaml name=echo \
		cwd="$PWD" environment:={} record=/dev/full &&
	refused EINVAL "record: /dev/tty: " load text=@echo.yaml name=echo \
		cwd="$PWD" environment:={} record=/dev/tty &&
	cat <<-\EOD | run_python
	import os
	from flux_ensemble.client import Client, EnsembleError, user_context

	reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
	request = {"text": open("echo.yaml").read(), "name": "echo", **user_context()}
	try:
	    Client().call("load", record=os.path.abspath("fifo"), **request)
	except EnsembleError as error:
	    assert "expected a regular file" in str(error), error
	else:
	    raise AssertionError("not refused")
	EOD
'

test_expect_success 'a path that there cannot be is refused' '
	refused EINVAL "record: expected text without" load \
		:="{\"text\": \"\", \"cwd\": \"/\", \"environment\": {}, \"record\": \"/a\\u0000b\"}" &&
	refused EINVAL "record: expected UTF-8" load \
		:="{\"text\": \"\", \"cwd\": \"/\", \"environment\": {}, \"record\": \"/\\ud800\"}" &&
	refused EINVAL "record: /x*: File name too long" load text=@echo.yaml name=echo cwd="$PWD" \
		environment:={} record="/$(printf %0300d 0 | tr 0 x)" &&
	flux ensemble list >list &&
	test_must_fail grep echo list
'

test_expect_success 'a file that is there is replaced' '
	echo "something else, which is longer than nothing" >run.jsonl &&
	ln -s run.jsonl link.jsonl &&
	flux ensemble run --record link.jsonl echo.yaml &&
	flux ensemble replay run.jsonl
'

test_expect_success 'when the disk is full the recording ends, and the ensemble goes on' '
	flux ensemble rm echo &&
	limit_service 9000 &&
	test_expect_code 1 flux ensemble run --record full.jsonl echo.yaml >out 2>err &&
	grep "^flux-ensemble: ERROR: the recording $PWD/full.jsonl cannot be written on: File too large" err &&
	grep "^echo: completed" out &&
	is 20/0/0/0 "$(counts_of echo echo)" &&
	is completed "$(status_of echo state)" &&
	status_of echo errors | grep "cannot be written on" &&
	flux ensemble log echo >log &&
	is 1 "$(grep -c " error .*cannot be written on" log)" &&
	flux dmesg >dmesg.out &&
	is 1 "$(grep -c "echo: the recording .* cannot be written on" dmesg.out)" &&
	test_must_fail grep Traceback dmesg.out &&
	test_expect_code 2 flux ensemble replay full.jsonl
'

test_expect_success 'so it is when the disk is full at the end only' '
	flux ensemble rm echo &&
	limit_service 300 &&
	test_expect_code 1 flux ensemble run --record end.jsonl echo.yaml >out 2>err &&
	grep "^flux-ensemble: ERROR: the recording $PWD/end.jsonl cannot be written on: File too large" err &&
	is completed "$(status_of echo state)" &&
	flux ensemble unload echo
'

test_expect_success 'an ensemble that lost its recording can be cancelled and unloaded' '
	cat >long.yaml <<-EOD &&
	jobs:
	  - {name: echo, command: echo hello, count: 40}
	  - {name: sleep, command: sleep 300}
	rules:
	  - {trigger: start, action: {name: submit, label: echo}}
	  - {trigger: start, action: {name: submit, label: sleep}}
	EOD
	rpc load text=@long.yaml name=long cwd="$PWD" environment:="{\"PATH\": \"$PATH\"}" \
		record="$PWD/long.jsonl" &&
	wait_until lost_recording long &&
	is running "$(status_of long state)" &&
	flux ensemble cancel long &&
	test_expect_code 3 flux ensemble wait --timeout 300 long &&
	flux ensemble unload long
'

test_expect_success 'so it is in a simulation' '
	test_expect_code 1 limited 9000 flux-ensemble simulate --duration echo=1 \
		--record sim.jsonl echo.yaml >out 2>err &&
	grep completed out &&
	grep "^flux-ensemble: ERROR: the recording sim.jsonl cannot be written on: File too large" err
'

test_expect_success 'a local run and a simulation take regular files only too' '
	test_expect_code 2 flux-ensemble run --queue local --state-dir "$PWD/local" \
		--record fifo echo.yaml 2>err &&
	grep "ERROR: cannot write fifo: expected a regular file" err &&
	test_expect_code 2 flux-ensemble simulate --duration echo=1 --record fifo echo.yaml 2>err &&
	grep "ERROR: fifo: expected a regular file" err
'

test_done
