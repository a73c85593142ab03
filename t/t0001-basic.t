#!/bin/sh
test_description='The command without a service: help, version, validate'
# The commands are started here as users start them.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"

# What a broken document makes `validate` print, with nothing else and no traceback.
problems() {
	test_expect_code 2 flux-ensemble validate "$1" >out 2>err &&
	test_must_fail grep Traceback err &&
	cat err
}

test_expect_success 'the command prints its version' '
	flux-ensemble --version >out &&
	grep -F "$("$SHARNESS_BUILD_DIRECTORY/python" -c \
		"import flux_ensemble; print(flux_ensemble.__version__)")" out
'

test_expect_success 'help lists every command' '
	flux-ensemble --help >help &&
	for command in run load list status submit metrics watch log wait pause resume \
		terminate cancel rm validate serve; do
		grep "^ *$command " help || return 1
	done
'

test_expect_success 'every command has help of its own' '
	for command in run load list status submit metrics watch log wait pause resume \
		terminate cancel unload validate serve; do
		flux-ensemble $command --help || return 1
	done
'

test_expect_success FLUX 'flux finds the command as flux ensemble' '
	flux ensemble --version >flux.out &&
	flux-ensemble --version >own.out &&
	test_cmp own.out flux.out
'

test_expect_success 'an unknown command is a usage error' '
	test_expect_code 2 flux-ensemble lod 2>err &&
	grep lod err
'

test_expect_success 'an unknown option is a usage error' '
	test_expect_code 2 flux-ensemble list --colour 2>err &&
	grep -e --colour err
'

test_expect_success 'every example is valid' '
	for example in "$PROJECT"/examples/*.yaml; do
		flux-ensemble validate "$example" || return 1
	done
'

test_expect_success 'a document on standard input is valid' '
	flux-ensemble validate - <"$PROJECT/examples/hello-world.yaml"
'

test_expect_success 'a document that does not exist is a usage error' '
	problems nowhere.yaml | grep nowhere.yaml
'

test_expect_success 'malformed YAML is an error with its line' '
	printf "%s\n" "jobs:" "  - name: a" "   command: true" >malformed.yaml &&
	problems malformed.yaml | grep "malformed.yaml:3: "
'

test_expect_success 'a duplicate key is an error with its line' '
	cat >duplicate.yaml <<-EOD &&
	jobs:
	  - name: a
	    command: /bin/true
	    name: b
	EOD
	problems duplicate.yaml | grep "duplicate.yaml:4: .*name"
'

test_expect_success 'all errors of a document are reported at once' '
	cat >broken.yaml <<-EOD &&
	jobs:
	  - name: a
	    command: /bin/true
	    count: -3
	    colour: red
	rules:
	  - trigger: start
	    action: {name: submit, label: b}
	  - trigger: metric
	    name: count.a.success
	    when: "> > 3"
	    action: {name: terminate}
	  - trigger: metric
	    name: count.c.success
	    when: 3
	    action: {name: terminate}
	EOD
	problems broken.yaml >all &&
	grep "broken.yaml:4: jobs\[0\].count: .*-3" all &&
	grep "broken.yaml:5: .*colour" all &&
	grep "broken.yaml:8: rules\[0\].action.label: .*b" all &&
	grep "broken.yaml:11: rules\[1\].when: .*> > 3" all &&
	grep "broken.yaml:14: rules\[2\].name: .*c" all
'

test_expect_success 'a document that would execute code is refused' '
	printf "%s\n" "jobs: !!python/object/apply:os.system [touch executed]" >unsafe.yaml &&
	problems unsafe.yaml | grep "unsafe.yaml:1: " &&
	test ! -e executed
'

test_expect_success 'without a Flux instance a command says what to do' '
	(unset FLUX_URI && test_must_fail env HOME=/nonexistent flux-ensemble list 2>err) &&
	grep "^flux-ensemble: ERROR: .*[Ff]lux" err &&
	test_must_fail grep Traceback err
'

test_done
