#!/bin/sh
test_description='Requests that hold what no document and no job could: refused, and nothing happens'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Both ensembles are as they were, and the service has logged no traceback.
unharmed() {
	is running "$(status_of idle state)" &&
	is running "$(status_of other state)" &&
	flux dmesg >dmesg.out &&
	test_must_fail grep Traceback dmesg.out
}

# An error sentence is short enough to be read.
short() {
	test $(wc -c <refused.out) -lt 6000
}

test_expect_success 'load the module and two ensembles' '
	cat >idle.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: echo, command: "echo {x}", params: {x: [1]}}
	rules:
	  - {id: more, trigger: job-fail, group: echo, action: {name: submit, label: echo}}
	EOD
	load_module &&
	flux ensemble load idle.yaml &&
	flux ensemble load --name other idle.yaml
'

test_expect_success 'half a character in a request is refused with its key' '
	refused EINVAL "file: expected UTF-8 text" load \
		:="{\"text\": \"jobs: [\", \"file\": \"\\ud800.yaml\", \"cwd\": \"/\", \"environment\": {}}" &&
	refused EINVAL "environment.A: expected UTF-8 text" load \
		:="{\"text\": \"jobs: [\", \"cwd\": \"/\", \"environment\": {\"A\": \"\\udcff\"}}" &&
	refused EINVAL "cwd: expected UTF-8 text" load \
		:="{\"text\": \"jobs: [\", \"cwd\": \"/\\udcff\", \"environment\": {}}" &&
	refused EINVAL "name: expected UTF-8 text" status :="{\"name\": \"\\ud800\"}" &&
	refused EINVAL "params.x.0.: expected UTF-8 text" submit \
		:="{\"name\": \"idle\", \"group\": \"echo\", \"params\": {\"x\": [\"\\ud800\"]}}" &&
	refused EINVAL "action.label: expected UTF-8 text" action \
		:="{\"name\": \"idle\", \"action\": {\"name\": \"submit\", \"label\": \"\\ud800\"}}" &&
	refused EINVAL "unknown key .*ud800" list :="{\"\\ud800\": 1}" &&
	unharmed
'

test_expect_success 'half a character in a document is refused with its line' '
	refused EINVAL "bad.yaml:1" load \
		:="{\"text\": \"jobs: [\\ud800\", \"file\": \"bad.yaml\", \"cwd\": \"/\", \"environment\": {}}" &&
	refused EINVAL "expected UTF-8 text" load \
		:="{\"spec\": {\"jobs\": [{\"name\": \"a\", \"command\": \"\\ud800\"}]}, \"name\": \"a\",
		\"cwd\": \"/\", \"environment\": {}}" &&
	unharmed
'

test_expect_success 'a NUL is refused with its key' '
	refused EINVAL "cwd: expected text without" load \
		:="{\"text\": \"jobs: [\", \"cwd\": \"/a\\u0000b\", \"environment\": {}}" &&
	refused EINVAL "environment.A: expected text without" load \
		:="{\"text\": \"jobs: [\", \"cwd\": \"/\", \"environment\": {\"A\": \"\\u0000\"}}" &&
	refused EINVAL "name: expected text without" status :="{\"name\": \"idle\\u0000\"}" &&
	unharmed
'

test_expect_success 'a number that is not finite is refused with its key' '
	for number in Infinity -Infinity NaN 1e999; do
		refused EINVAL "params.x: expected a finite number, not" submit \
			:="{\"name\": \"idle\", \"group\": \"echo\", \"params\": {\"x\": $number}}" &&
		refused EINVAL "action.params.x.0.: expected a finite number, not" action \
			:="{\"name\": \"idle\", \"action\": {\"name\": \"submit\", \"label\": \"echo\",
			\"params\": {\"x\": [$number]}}}" &&
		refused EINVAL "scaler.grace: expected a finite number, not" load \
			:="{\"text\": \"\", \"cwd\": \"/\", \"environment\": {},
			\"scaler\": {\"grace\": $number}}" &&
		refused EINVAL "jobs.0..params.x: expected a finite number, not" load \
			:="{\"name\": \"a\", \"cwd\": \"/\", \"environment\": {},
			\"spec\": {\"jobs\": [{\"name\": \"a\", \"command\": \"a {x}\",
			\"params\": {\"x\": $number}}]}}" || return 1
	done &&
	unharmed
'

test_expect_success 'an integer that is too large is refused with its key' '
	large=1$(printf %0400d 0) &&
	for number in 9223372036854775808 -9223372036854775809 $large; do
		refused EINVAL "params.x: expected an integer of at most 64 bits" submit \
			:="{\"name\": \"idle\", \"group\": \"echo\", \"params\": {\"x\": $number}}" &&
		short || return 1
	done &&
	refused EINVAL "payload is not JSON" submit \
		:="{\"name\": \"idle\", \"group\": \"echo\", \"count\": $(printf %05000d 1)}" &&
	for number in 2147483648 9223372036854775808 $large; do
		refused EINVAL "count: expected at most 2147483647, not" submit \
			:="{\"name\": \"idle\", \"group\": \"echo\", \"count\": $number}" &&
		refused EINVAL "skip: expected at most 2147483647, not" log \
			:="{\"name\": \"idle\", \"skip\": $number}" &&
		refused EINVAL "to: expected at most 2147483647, not" scale :="{\"to\": $number}" &&
		short || return 1
	done &&
	unharmed
'

test_expect_success 'the largest integers that JSON has everywhere are taken' '
	rpc submit :="{\"name\": \"idle\", \"group\": \"echo\",
		\"params\": {\"x\": 9223372036854775807}}" >out &&
	is 9223372036854775807 "$(flux job attach $(json ids.0 <out))" &&
	rpc log :="{\"name\": \"idle\", \"skip\": 2147483647}" &&
	rpc log name=idle >log &&
	flux kvs get --raw ensemble.idle.log.00000000 >/dev/null &&
	unharmed
'

test_expect_success 'no stream that was refused counts as one that is open' '
	cat <<-\EOD | run_python &&
	from flux_ensemble.bindings import require_flux

	require_flux()
	import flux
	from flux.constants import FLUX_RPC_STREAMING

	handle = flux.Flux()
	for number in range(1100):
	    payload = {"name": "idle", "skip": 2**63}
	    try:
	        handle.rpc("ensemble.log", payload, flags=FLUX_RPC_STREAMING).get()
	    except OSError as error:
	        assert "at most" in error.strerror, error
	EOD
	rpc log name=idle >log &&
	unharmed
'

test_expect_success 'a directory and an environment that no job could have are refused' '
	cat <<-\EOD | run_python &&
	from flux_ensemble.client import Client, EnsembleError

	client = Client()
	text = open("idle.yaml").read()
	def refusal(**given):
	    context = {"cwd": "/", "environment": {}, **given}
	    try:
	        client.load(text, name="large", **context)
	    except EnsembleError as error:
	        assert error.errno == 22, error
	        assert len(str(error)) < 6000, len(str(error))
	        return str(error)
	assert "cwd: expected a path of less than 4096 bytes" in refusal(cwd="/" + "\u00e4" * 2048)
	assert "characters left out" in refusal(cwd="a" * 10_000_000)
	assert "LARGE" in refusal(environment={"LARGE": "x" * 131072})
	many = {f"A{number}": "x" * 100_000 for number in range(150)}
	assert "environment: expected at most 1048576 bytes" in refusal(environment=many)
	assert "expected a variable" in refusal(environment={"x" * 15_000_000: ""})
	assert refusal(cwd="/" * 4095, environment={"FITS": "x" * 131_000}) is None
	EOD
	flux ensemble cancel large &&
	unharmed
'

test_expect_success 'an error quotes no more than a few kilobytes' '
	cat <<-\EOD | run_python &&
	from flux_ensemble.client import Client, EnsembleError

	client = Client()
	long = "x" * 10_000_000
	for number, ask in enumerate((
	    lambda: client.status(long),
	    lambda: client.cancel("idle", long),
	    lambda: client.submit("idle", long),
	    lambda: client.submit("idle", "echo", params={long: 1}),
	    lambda: client.set_rule("idle", long, enabled=True),
	    lambda: client.action("idle", {"name": long}),
	    lambda: client.action("idle", {"name": "submit", "label": long}),
	    lambda: client.call("list", **{long: 1}),
	    lambda: client.load(long, name=long),
	    lambda: client.load({"jobs": [{"name": long}]}, name=long),
	    lambda: client.load("a: [", file=long),
	    lambda: client.load({"jobs": [{"name": "a"}] * 50_000}, name="many"),
	)):
	    try:
	        ask()
	    except EnsembleError as error:
	        assert error.errno == 22 or error.errno == 2, (number, error.errno, str(error)[:200])
	        text = str(error)
	    else:
	        raise AssertionError("not refused")
	    assert len(text) < 70_000, len(text)
	    assert len(max(text.splitlines(), key=len)) < 9_000
	assert "there are more problems than these" in text, text[-100:]
	EOD
	unharmed
'

test_expect_success 'the module is removed without complaint' '
	flux module remove ensemble 2>err &&
	test_must_fail grep . err &&
	flux dmesg >dmesg.out &&
	test_must_fail grep "ensemble: Invalid" dmesg.out
'

test_expect_success 'an ensemble that cannot be put down at the end does not harm the next one' '
	cat >faulty.py <<-EOD &&
	import sys

	sys.path.insert(0, "$PROJECT")
	from flux_ensemble.modules import ensemble

	def mod_main(handle, *args):
	    ensemble.add_to_path(ensemble.parse(args)[0])
	    from flux_ensemble.runtime.durability.wal import WriteAheadLog
	    from flux_ensemble.runtime.ensemble import Ensemble

	    def checkpoint(ledger):
	        raise ValueError("this one cannot be put down")

	    def close(ensemble, number, reason):
	        old_close(ensemble, number, reason)
	        if ensemble.name == "idle":
	            raise ValueError("this one cannot be closed")

	    old_close, Ensemble.close = Ensemble.close, close
	    WriteAheadLog.checkpoint = checkpoint
	    ensemble.mod_main(handle, *args)
	EOD
	"$SHARNESS_BUILD_DIRECTORY/python" -m flux_ensemble.bindings >module.json &&
	flux module load --name=ensemble ./faulty.py $(json args <module.json | tr -d "[],\"") &&
	is running "$(status_of idle state)" &&
	flux module remove ensemble 2>err &&
	test_must_fail grep . err &&
	flux dmesg >dmesg.out &&
	test_must_fail grep "ensemble: Invalid" dmesg.out &&
	grep "this one cannot be put down" dmesg.out &&
	grep "this one cannot be closed" dmesg.out &&
	load_module &&
	is running "$(status_of other state)"
'

test_expect_success 'why an ensemble cannot be restored is a sentence' '
	flux module remove ensemble &&
	flux kvs put --raw ensemble.other.snapshot="{}" &&
	load_module &&
	rpc status | json service.unreadable.other >reason &&
	cat >&2 reason &&
	grep "the snapshot is damaged: it has no .engine." reason &&
	flux ensemble unload other &&
	is running "$(status_of idle state)"
'

test_done
