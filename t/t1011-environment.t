#!/bin/sh
test_description='Jobs get the environment and the directory of the user who loaded the document'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Run an ensemble of one group from the directory `here`, with WHO=user, and print what
# its job wrote.
#
# $1 - More keys for the job set.
output_of() {
	cat >here/env.yaml <<-EOD &&
	name: env
	jobs:
	  - name: show
	    command: [sh, -c, 'echo "\$WHO \$WHAT \$(pwd)"']
	    $1
	rules:
	  - {trigger: start, action: {name: submit, label: show}}
	EOD
	(cd here && WHO=user flux ensemble run env.yaml) >&2 &&
	flux job attach $(flux jobs -a --no-header --format={id} --name=show --count=1)
}

test_expect_success 'load the module with another environment from another directory' '
	mkdir here there &&
	unset WHAT &&
	(cd there && WHO=broker WHAT=broker \
		load_module)
'

test_expect_success 'a job runs in the directory of the user, with their variables only' '
	is "user  $PWD/here" "$(output_of)"
'

test_expect_success 'the environment of a group is added' '
	is "user set $PWD/here" "$(output_of "environment: {WHAT: set}")"
'

test_expect_success 'the working directory of a group is used' '
	is "user  $PWD/there" "$(output_of "workdir: \"$PWD/there\"")"
'

test_expect_success 'a relative working directory is made, relative to the directory of the user' '
	is "user  $PWD/here/below" "$(output_of "workdir: below")"
'

test_expect_success 'an output template of Flux passes through, relative to the same' '
	output_of "output: \"out-{{id}}.txt\"" &&
	id=$(flux jobs -a --no-header --format={id.f58} --name=show --count=1) &&
	is "user  $PWD/here" "$(cat "here/out-$id.txt")"
'

test_expect_success 'where the working directory cannot be made, no output file is written elsewhere' '
	name=stray-$$ &&
	touch here/plain &&
	cat >here/missing.yaml <<-EOD &&
	name: missing
	jobs:
	  - name: missing
	    command: echo hello
	    workdir: plain/nowhere
	    output: "$name-{{id}}.txt"
	rules:
	  - {trigger: start, action: {name: submit, label: missing}}
	EOD
	(cd here && flux ensemble run missing.yaml >printed) &&
	grep "cannot make the working directory .*/plain/nowhere.: Not a directory (ENOTDIR)" here/printed &&
	is 0/1/0/0 "$(counts_of missing missing)" &&
	id=$(flux jobs -a --no-header --format={id.f58} --name=missing --count=1) &&
	test_must_fail flux job attach $id 2>attached &&
	grep "open: $PWD/here/plain/nowhere/$name-$id.txt: Not a directory" attached &&
	test -z "$(find /tmp -maxdepth 1 -name "$name-*")"
'

test_expect_success 'an output template for a directory of the job itself is left alone' '
	output_of "output: \"{{tmpdir}}/out.txt\"" 2>&1 | tee attached &&
	grep "stdout redirected to .*/jobtmp-.*/out.txt" attached &&
	! grep "redirected to $PWD" attached
'

test_expect_success 'a jobspec file is found relative to the document' '
	mkdir -p here/specs &&
	flux run --dry-run echo from a jobspec >here/specs/one.json &&
	cat >here/specs/spec.yaml <<-EOD &&
	jobs:
	  - name: spec
	    jobspec: one.json
	    count: 2
	rules:
	  - {trigger: start, action: {name: submit, label: spec}}
	EOD
	(cd here && flux ensemble run specs/spec.yaml) &&
	is 2/0/0/0 "$(counts_of spec spec)" &&
	is "from a jobspec" \
		"$(flux job attach $(flux jobs -a --no-header --format={id} --name=spec --count=1))"
'

test_expect_success 'a variable with a line break or another language arrives' '
	cat >text.yaml <<-EOD &&
	jobs:
	  - name: text
	    command: [sh, -c, "test \"\$TEXT\" = \"\$(printf \"a\\\\\\\\nb é\")\""]
	rules:
	  - {trigger: start, action: {name: submit, label: text}}
	EOD
	TEXT=$(printf "a\nb é") flux ensemble run text.yaml &&
	is 1/0/0/0 "$(counts_of text text)"
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
