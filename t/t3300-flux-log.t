#!/bin/sh
test_description='What the service writes to the log of Flux can hold anything'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Run an ensemble whose custom function has the body on standard input; it is called $1.
run_function() {
	{
		cat <<-EOD &&
		name: $1
		jobs:
		  - {name: a, command: /bin/true}
		rules:
		  - {trigger: start, action: {name: submit, label: a}}
		  - {trigger: job-success, group: a, action: {name: custom, label: f}}
		custom: |
		  def f(**kwargs):
		EOD
		sed "s/^/      /"
	} >"$1.yaml" &&
	flux ensemble run "$1.yaml" &&
	wait_until logged "$1: f: last"
}

# Flux's log has a line with this text.
logged() {
	flux dmesg | grep -F "$1" >logged.out
}

test_expect_success 'load the module' '
	load_module
'

test_expect_success 'text is no format of printf' '
	cat <<-\EOD | run_function percent &&
	print("100% done, 50% disk")
	print("%s%s%s%s%s%s%n")
	print("last")
	EOD
	logged "percent: f: 100% done, 50% disk" &&
	logged "percent: f: %s%s%s%s%s%s%n"
'

test_expect_success 'what is no text, and control characters, are escaped' '
	cat <<-\EOD | run_function odd &&
	import os
	os.write(1, b"a\0b \x1b[31mred\x1b[0m \x07 tab\tend\n")
	print("half \ud800 of a character")
	print("last")
	EOD
	logged "odd: f: a\\x00b \\x1b[31mred\\x1b[0m \\x07 tab	end" &&
	logged "odd: f: half \\ud800 of a character"
'

test_expect_success 'a long line loses its middle' '
	cat <<-\EOD | run_function long &&
	print("begin" + 50_000 * "x" + "end")
	print("last")
	EOD
	logged "characters left out ... xxxx" &&
	grep -q "long: f: begin" logged.out &&
	grep -q "end$" logged.out &&
	test $(wc -c <logged.out) -lt 5000
'

test_expect_success 'a text of many lines is many lines of the log, up to a bound' '
	cat <<-\EOD | run_python &&
	import syslog
	from flux_ensemble.client import Client
	from flux_ensemble.service.logger import logger

	log = logger(Client().handle)
	log(syslog.LOG_INFO, "first\n" + "100%s\n" * 100_000)
	log(syslog.LOG_INFO, "after it")
	EOD
	wait_until logged "after it" &&
	logged "more lines left out" &&
	logged "100%s"
'

test_expect_success 'an argument that the module does not take is written as it is' '
	flux module remove ensemble &&
	test_must_fail load_module "%s%s%n=100%" &&
	logged "unknown argument '"'%s%s%n=100%'"'"
'

test_expect_success 'the instance has survived' '
	load_module &&
	flux ensemble list
'

test_done
