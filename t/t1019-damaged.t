#!/bin/sh
test_description='What is wrong in the KVS with one ensemble leaves the others alone'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Print why an ensemble is unreadable.
unreadable() {
	rpc status | json "service.unreadable.$1"
}

# Change what an ensemble was loaded with: `change_load NAME PYTHON`, where `load` is the object.
change_load() {
	flux kvs get --raw "ensemble.$1.load" >load.json &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "
import json
load = json.load(open('load.json'))
$2
json.dump(load, open('load.json', 'w'))" &&
	flux kvs put --raw "ensemble.$1.load=-" <load.json
}

# Load an ensemble of one job that then waits for a request.
load_waiting() {
	cat >"$1.yaml" <<-EOD &&
	name: $1
	finish: never
	jobs:
	  - {name: work, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: work}}
	EOD
	flux ensemble load "$1.yaml" &&
	wait_until has_finished "$1" 1
}

has_finished() {
	test "$(status_of "$1" groups.work.success)" = "$2"
}

test_expect_success 'load some ensembles, and remove the service' '
	load_module &&
	for name in good orig run files cwd gone deep one two three four five six; do
		load_waiting $name || return 1
	done &&
	flux module remove ensemble
'

test_expect_success 'have their entries copied, changed, swapped and cut off' '
	flux kvs copy ensemble.orig ensemble.backup &&
	flux kvs move ensemble.gone ensemble.moved &&
	change_load run "load[\"run\"] = \"text\"" &&
	change_load files "load[\"files\"] = [1]" &&
	change_load cwd "del load[\"cwd\"]" &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "print(\"[\" * 100000)" >deep.json &&
	flux kvs put --raw ensemble.deep.load=- <deep.json &&
	flux kvs get --raw ensemble.one.snapshot >one.json &&
	flux kvs get --raw ensemble.two.snapshot >two.json &&
	flux kvs put --raw ensemble.one.snapshot=- <two.json &&
	sed "s/\"number\":/\"number\":1/" two.json >changed.json &&
	flux kvs put --raw ensemble.two.snapshot=- <changed.json &&
	flux kvs put --raw ensemble.three.snapshot="{}" &&
	flux kvs copy ensemble.good.log ensemble.four.log &&
	flux kvs get --raw ensemble.five.log.00000000 >five.log &&
	head -n -1 five.log | sed "s/\"timestamp\":1/\"timestamp\":2/" >cut.log &&
	flux kvs put --raw ensemble.five.log.00000000=- <cut.log &&
	flux kvs copy ensemble.good.values ensemble.six.values
'

test_expect_success 'the service begins, and the ensembles that are whole go on' '
	load_module &&
	rpc list >list.json &&
	is running "$(status_of good state)" &&
	is running "$(status_of orig state)" &&
	rpc submit name=orig group=work &&
	wait_until has_finished orig 2 &&
	is 0 "$(status_of orig violations)" &&
	jobs_of orig orig.json &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "
import json
assert len(json.load(open(\"orig.json\"))) == 2"
'

test_expect_success 'each of the others is unreadable, with a sentence' '
	unreadable backup | grep "ensemble.backup.load in the KVS is damaged: it is that of ensemble .orig., copied" &&
	unreadable moved | grep "it is that of ensemble .gone., copied or moved" &&
	unreadable run | grep "run: expected the number of a run, not .text." &&
	unreadable files | grep "files: expected an object of strings, not a list" &&
	unreadable cwd | grep "cwd: expected a directory, and it is missing" &&
	unreadable deep | grep "expected JSON" &&
	unreadable one | grep "the snapshot is of ensemble .two., run [0-9]*, not of .one." &&
	unreadable two | grep "the snapshot is damaged" &&
	unreadable three | grep "the snapshot is damaged: it has no .engine." &&
	unreadable four | grep "of the log is damaged" &&
	unreadable five | grep "of the log is damaged" &&
	unreadable six | grep "the values beside the snapshot are damaged" &&
	test_must_fail grep Traceback list.json
'

test_expect_success 'list shows them, and whoever names one is told why it cannot be read' '
	flux ensemble list >list.out &&
	grep "^two  *unreadable.*the snapshot is damaged" list.out && grep "^good  *running" list.out &&
	test_must_fail flux ensemble log two 2>err && grep "ensemble .two. cannot be read: the snapshot" err
'

test_expect_success 'what a later version has written is said to be, and goes on with that version' '
	flux module remove ensemble &&
	flux kvs get --raw ensemble.good.snapshot >good.json &&
	sed "s/\"format\":[0-9]*/\"format\":99/; s/\"values\":\"/\"values\":\"0/" good.json >later.json &&
	flux kvs put --raw ensemble.good.snapshot=- <later.json &&
	load_module &&
	unreadable good | grep "the snapshot was written by flux-ensemble [^ ]*, in format 99; this one" &&
	flux ensemble list | grep "^good  *unreadable" &&
	flux module remove ensemble &&
	flux kvs put --raw ensemble.good.snapshot=- <good.json &&
	load_module && is running "$(status_of good state)"
'

test_expect_success 'the name is free again when it has been unloaded' '
	flux ensemble unload backup &&
	flux ensemble unload run &&
	load_waiting run &&
	load_module reload &&
	is running "$(status_of run state)" &&
	flux dmesg | grep "ensemble.err" >errors &&
	test_must_fail grep Traceback errors
'

test_done
