#!/bin/sh
test_description='Other users of the instance: the cells of the table in docs/reliability.md, as a real second user'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1 --config-path="$SHARNESS_TEST_SRCDIR/lib/access.toml"

# Run a command as another user, who may read what root may: the tools of this test can be anywhere.
# It is no fork of a process of root.
as_other() {
	setpriv --reuid=65534 --regid=65534 --clear-groups \
		--inh-caps=+dac_override,+dac_read_search --ambient-caps=+dac_override,+dac_read_search \
		env -u WARM_COMMANDS -u FLUX_EXEC_PATH_PREPEND HOME=/nonexistent "$@"
}

# Succeed if a command of the other user fails with a sentence: `is_refused PATTERN WORD ...`.
is_refused() {
	pattern=$1
	shift
	! as_other "$@" >out 2>&1 || { echo "not refused: $*"; return 1; }
	grep "$pattern" out || { cat out; echo "not as expected: $*"; return 1; }
}

owners="Request requires owner credentials"
closed="guests may not see the owner.s ensembles here (a site can allow it: allow-guest-status"

# Write down what the owner sees of the ensemble, to a file: $1.
owner_sees() {
	flux ensemble list -n -o "{name} {state} {active} {waiting} {finished}" >"$1" &&
	flux ensemble log --json plan >>"$1"
}

# Succeed if the other user can change nothing.
changes_nothing() {
	owner_sees before &&
	for words in "load plan.yaml" "run plan.yaml" "pause plan" "resume plan" "cancel plan" \
		"terminate plan" "unload plan" "rerun plan" "rm plan"
	do
		is_refused "$owners\|$closed" flux ensemble $words || return 1
	done &&
	is_refused "$owners" flux ensemble action plan "{name: terminate}" &&
	owner_sees after &&
	test_cmp before after
}

# Succeed if the other user sees neither what the document says nor what came of it.
sees_no_content() {
	for words in "log plan" "why plan" "metrics plan" "failures plan" "best plan" "search plan" \
		"output plan $job"
	do
		is_refused "$owners\|only the owner\|$closed" flux ensemble $words || return 1
	done
}

test_expect_success ROOT 'an ensemble of root, and a second user who may connect to the instance' '
	cat >plan.yaml <<-EOD &&
	name: plan
	finish: never
	jobs: [{name: hidden, command: echo hush}]
	rules: [{trigger: start, action: {name: submit, label: hidden}}]
	EOD
	load_module && flux ensemble load plan.yaml && wait_status_of plan groups.hidden.success 1 &&
	job=$(flux jobs -a -n -o "{id}") &&
	as_other flux getattr size
'

test_expect_success ROOT 'unless the site says otherwise: list, status and jobs are refused' '
	for words in "list" "status plan" "jobs plan"; do
		is_refused "$closed" flux ensemble $words || return 1
	done
'

test_expect_success ROOT 'so is all that shows what a document says, and all that changes anything' '
	sees_no_content && changes_nothing
'

test_expect_success ROOT 'doctor says what it cannot know' '
	test_might_fail as_other flux ensemble doctor >out &&
	grep "^service  *warning  *it does not answer guests" out &&
	grep "^kvs  *warning  *guests may not write to it" out
'

test_expect_success ROOT 'Flux shows that there are jobs, and no more' '
	as_other flux jobs -A -a -n -o "{name} {status}" >out &&
	grep "hidden COMPLETED" out &&
	is_refused "restricted" flux job info $job jobspec &&
	is_refused "not permitted" flux job eventlog $job &&
	is_refused "not permitted" flux kvs get --raw ensemble.plan.load &&
	is_refused "$owners" flux dmesg
'

test_expect_success ROOT 'a second user can submit nothing to an instance of one user' '
	is_refused "only instance owner can use sign-type=none" flux run true
'

test_expect_success ROOT 'a site opens list, status and jobs: names, states, times and counts' '
	flux module remove ensemble &&
	printf "[access]\nallow-guest-user = true\n[ensemble]\nallow-guest-status = true\n" |
		flux config load &&
	load_module && wait_entry plan epoch &&
	as_other flux ensemble list >out && grep "^plan  *running" out &&
	as_other flux ensemble status plan >out && grep "^hidden " out && ! grep "rule-0" out &&
	as_other flux ensemble jobs plan >out && grep "hidden  *success" out
'

test_expect_success ROOT 'and still nothing of what a document says, and nothing changes' '
	sees_no_content && changes_nothing &&
	flux ensemble terminate plan
'

test_done
