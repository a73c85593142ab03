#!/bin/sh
test_description='The directories of output files'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'the directory of an output file is made' '
	cat >made.yaml <<-EOD &&
	jobs:
	  - name: made
	    command: echo hello {x}
	    params: {x: [1, 2]}
	    output: out/{x}/hello.txt
	    error: err/{x}.txt
	rules:
	  - trigger: start
	    action: {name: submit, label: made}
	EOD
	flux ensemble run made.yaml &&
	is 2/0/0/0 "$(counts_of made made)" &&
	is "hello 1" "$(cat out/1/hello.txt)" &&
	is "hello 2" "$(cat out/2/hello.txt)" &&
	test -d err
'

test_expect_success 'why a directory cannot be made is in the log, the status and what run prints' '
	touch plain &&
	cat >refused.yaml <<-EOD &&
	jobs:
	  - {name: refused, command: "true", count: 3, output: plain/out/x.txt}
	rules:
	  - trigger: start
	    action: {name: submit, label: refused}
	EOD
	flux ensemble run refused.yaml >printed &&
	is 0/3/0/0 "$(counts_of refused refused)" &&
	sentence="cannot make the output directory .*/plain/out.: Not a directory (ENOTDIR)" &&
	flux ensemble log refused | grep "$sentence" &&
	status_of refused errors.0 | grep "$sentence" &&
	grep "$sentence" printed &&
	flux dmesg | grep "refused: $sentence"
'

test_done
