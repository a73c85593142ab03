#!/bin/sh
test_description='Names that are not UTF-8 text: the commands say which, and what to do'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

bytes=$(printf 'caf\351')

# A command that must fail, with a sentence that matches $1 and no traceback.
says() {
	sentence=$1
	shift
	test_must_fail flux ensemble "$@" 2>err >out &&
	cat >&2 err &&
	grep "^flux-ensemble: ERROR: .*$sentence" err &&
	test_must_fail grep Traceback err
}

test_expect_success 'load an ensemble' '
	cat >idle.yaml <<-EOD &&
	name: idle
	finish: never
	jobs:
	  - {name: echo, command: "echo {x}", params: {x: [1]}}
	EOD
	load_module &&
	flux ensemble load idle.yaml
'

test_expect_success 'the file of a document' '
	sed "s/idle/other/" idle.yaml >"$bytes.yaml" &&
	says "file: .caf.udce9.yaml. is not UTF-8 text.*: rename it" load "$bytes.yaml" &&
	says "file: .caf.udce9.yaml. is not UTF-8 text.*: rename it" run "$bytes.yaml" &&
	ln -s "$bytes.yaml" link.yaml &&
	flux ensemble load link.yaml &&
	flux ensemble load --name third - <"$bytes.yaml"
'

test_expect_success 'the directory that a document is in' '
	mkdir "$bytes" &&
	cp link.yaml "$bytes/doc.yaml" &&
	says "file: .caf.udce9/doc.yaml. is not UTF-8 text.*: rename it" load "$bytes/doc.yaml" &&
	(
		cd "$bytes" &&
		says "cwd: .*/caf.udce9. is not UTF-8 text.*: rename it" load --name fourth doc.yaml
	)
'

test_expect_success 'the file of a recording' '
	says "record: .*/caf.udce9. is not UTF-8 text" run --record "$bytes" idle.yaml &&
	test_must_fail test -e "$bytes.jsonl"
'

test_expect_success 'the name of an ensemble, a group and a parameter' '
	for command in status metrics log wait pause resume terminate cancel unload watch; do
		says "name: .caf.udce9. is not UTF-8 text" $command "$bytes" || return 1
	done &&
	says "group: .caf.udce9. is not UTF-8 text" cancel idle "$bytes" &&
	says "group: .caf.udce9. is not UTF-8 text" submit idle "$bytes" &&
	says "params: expected UTF-8 text" submit idle echo --param "$bytes=1" &&
	says "not YAML: .caf.udce9" submit idle echo --param "x=$bytes" &&
	says "name: expected a name" load --name "$bytes" idle.yaml
'

# Dates, and numbers that JSON does not have, are values like any other.
test_expect_success 'values of parameters are run as they are written' '
	flux ensemble submit idle echo --param x=.inf &&
	flux ensemble submit idle echo --param "x=[-.INF, .nan]" &&
	flux ensemble submit idle echo --param x=2026-01-01 &&
	flux ensemble submit idle echo --param x=9223372036854775808 >id &&
	flux job wait-event -t 60 $(cat id) clean &&
	flux jobs -a -n -o "{id}" >ids &&
	for id in $(cat ids); do
		flux job attach $id || return 1
	done | sort >ran &&
	printf "%s\n" -.INF .inf .nan 2026-01-01 9223372036854775808 | sort | test_cmp - ran
'

test_expect_success 'values that no request can have' '
	says "params.x.a: expected a finite number, not inf" submit idle echo --param "x={a: .inf}" &&
	says "params.x.range.1.: expected a finite number, not nan" submit idle echo \
		--param "x={range: [1, .nan]}" &&
	says "params.x.range.1.: expected an integer of at most 64 bits" submit idle echo \
		--param "x={range: [0, 9223372036854775808]}" &&
	says "params.x.0..0.: expected a finite number, not inf" submit idle echo \
		--param "x=[[.inf]]" &&
	says "invalid Unicode character" submit idle echo --param "x=\"\\ud800\"" &&
	says "the alias .\*a. stands inside of what it names" submit idle echo --param "x=&a [*a]" &&
	says "at most 64 levels deep" submit idle echo --param "x=$(printf "[%.0s" $(seq 99))" &&
	says "is not in the range" run --queue local --nodes 99999999999999999999 idle.yaml &&
	says "is not in the range" simulate --cores 99999999999999999999 idle.yaml
'

test_expect_success 'after all this the ensemble runs, and nothing else was loaded' '
	is running "$(status_of idle state)" &&
	flux ensemble list -n -o "{name}" >list &&
	is "idle other third" "$(echo $(cat list))" &&
	flux dmesg >dmesg.out &&
	test_must_fail grep Traceback dmesg.out
'

test_done
