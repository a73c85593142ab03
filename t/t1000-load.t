#!/bin/sh
test_description='Loading the module and loading ensembles'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'write documents' '
	cat >hello.yaml <<-EOD &&
	jobs:
	  - name: echo
	    command: echo hello
	rules:
	  - trigger: start
	    action: {name: submit, label: echo}
	EOD
	cat >forever.yaml <<-EOD
	name: forever
	finish: never
	jobs:
	  - name: echo
	    command: echo hello
	EOD
'

test_expect_success 'a request without the service says that it is not loaded' '
	test_must_fail flux ensemble list 2>err &&
	grep "^flux-ensemble: ERROR: .*not loaded" err
'

test_expect_success 'load brings the module in when it is not there' '
	flux ensemble load hello.yaml &&
	is 1 "$(modules_loaded)"
'

test_expect_success 'a document without a name is called after its file' '
	flux ensemble wait --timeout 300 hello &&
	is 1/0/0/0 "$(counts_of hello echo)"
'

test_expect_success 'a document is called by its own name' '
	flux ensemble load forever.yaml &&
	is running "$(status_of forever state)"
'

test_expect_success 'an option names the ensemble before its document does' '
	flux ensemble load --name other forever.yaml &&
	is running "$(status_of other state)"
'

test_expect_success 'a name that is in use is refused' '
	test_must_fail flux ensemble load forever.yaml 2>err &&
	grep "^flux-ensemble: ERROR: .*forever" err
'

test_expect_success 'the name of an ensemble that has ended may be used again' '
	flux ensemble load hello.yaml &&
	flux ensemble wait --timeout 300 hello &&
	is 1/0/0/0 "$(counts_of hello echo)"
'

test_expect_success 'a document on standard input needs a name' '
	test_must_fail flux ensemble load - <hello.yaml 2>err &&
	grep "^flux-ensemble: ERROR: .*name" err &&
	flux ensemble load --name piped - <hello.yaml &&
	flux ensemble wait --timeout 300 piped
'

test_expect_success 'an invalid document is reported with its line and loads nothing' '
	sed "s/label: echo/label: ecko/" hello.yaml >invalid.yaml &&
	test_expect_code 2 flux ensemble load invalid.yaml 2>err &&
	grep "invalid.yaml:6: rules\[0\].action.label: no job group named .ecko." err &&
	test_must_fail flux ensemble status invalid
'

test_expect_success 'a document with grow is refused on an instance of fixed size' '
	sed "s/name: submit, label: echo/name: grow/" hello.yaml >grow.yaml &&
	test_expect_code 2 flux ensemble load grow.yaml 2>err &&
	grep "grow.yaml:6: .*grow" err
'

test_expect_success 'list shows all of them' '
	flux ensemble list >out &&
	for name in hello forever other piped; do
		grep "$name" out || return 1
	done
'

test_expect_success 'flux module load starts the service, which knows what there was' '
	flux module remove ensemble &&
	load_module &&
	is completed "$(status_of hello state)" &&
	flux module remove ensemble
'

test_expect_success 'write a document with use, and a package with an algorithm' '
	cat >use.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: echo, command: echo hello, duration: 1m}
	use:
	  - {algorithm: lab-again, group: echo}
	  - {algorithm: retry-with-more, group: echo, duration: 2}
	EOD
	mkdir lab &&
	PYTHONPATH=$PROJECT/t/python/helpers "$SHARNESS_BUILD_DIRECTORY/python" -c "
from pathlib import Path
from algorithm_packages import write_package
write_package(Path(\"lab\"))"
'

test_expect_success 'what an algorithm of a package makes is what the service has' '
	load_module &&
	PYTHONPATH=$PWD/lab${PYTHONPATH:+:$PYTHONPATH} \
		"$SHARNESS_BUILD_DIRECTORY/flux-ensemble" load use.yaml &&
	flux ensemble log --json use >log.json &&
	grep lab-again-start log.json &&
	test_must_fail grep algorithm log.json
'

test_expect_success 'a service that comes back needs no package for it' '
	flux module remove ensemble &&
	load_module &&
	is running "$(status_of use state)" &&
	flux ensemble why use lab-again-start &&
	flux ensemble terminate use
'

test_expect_success 'the service itself makes what its own algorithms make, and runs no packages' '
	cat >request.py <<-EOD &&
	from flux_ensemble.client import Client, EnsembleError
	text = open("use.yaml").read()
	own = "".join(line for line in text.splitlines(True) if "lab-again" not in line)
	client = Client()
	print(client.load(own, name="own")["name"])
	try:
	    client.load(text, name="others")
	except EnsembleError as error:
	    print(error)
	EOD
	PYTHONPATH=$PWD/lab "$SHARNESS_BUILD_DIRECTORY/python" request.py >out &&
	cat out &&
	grep "^own$" out &&
	flux ensemble log --json own | grep "job.duration \* 2" &&
	grep "no algorithm named .lab-again. .*validate --expanded" out &&
	flux ensemble terminate own &&
	flux module remove ensemble
'

test_expect_success 'a file that never ends, and one that nobody writes to, are no files of a document' '
	load_module && mkfifo pipe &&
	for file in /proc/kmsg /dev/zero pipe; do
		printf "jobs: [{name: a, command: \"x {p}\", params: {p: {file: %s}}}]\n" $file >endless.yaml &&
		rpc load text=@endless.yaml name=endless cwd="$PWD" environment:={} >endless.out 2>&1
		grep "$file" endless.out && flux ensemble list || return 1
	done &&
	printf "p\n1\n2\n" >points.csv &&
	echo "jobs: [{name: a, command: \"true {p}\", params: {p: {file: points.csv}}}]" >sheet.yaml &&
	rpc load text=@sheet.yaml name=sheet cwd="$PWD" environment:={} &&
	flux module remove ensemble
'

test_expect_success 'the service logs to the broker at the level of the module argument' '
	flux dmesg --clear &&
	load_module log-level=debug &&
	flux ensemble load hello.yaml &&
	flux ensemble wait --timeout 300 hello &&
	flux dmesg | grep "ensemble.*hello" &&
	flux module remove ensemble
'

test_expect_success 'an unknown module argument is reported in the log' '
	flux dmesg --clear &&
	test_might_fail load_module colour=red &&
	flux dmesg | grep "ensemble.*colour" &&
	test_might_fail flux module remove ensemble
'

test_done
