#!/bin/sh
test_description='members: their time limits are changed while they live'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 3

# Write a document whose jobs wait until they may end: `document NAME MEMBERS...`.
document() {
	name=$1
	shift
	echo "name: $name"
	echo "members:"
	printf "  - %s\n" "$@"
	cat <<-EOD
	jobs:
	  - name: sim
	    command: sh -c 'echo {s} >>$name.ran; until test -e $name.go; do sleep 0.1; done'
	    params: {s: {range: [0, 20]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
}

# Change the time limit of a member, from its start: `limit NAME MEMBER DURATION`.
limit() {
	flux update "$(flux jobs -n -o "{id}" --name="$1:$2")" duration=$3
}

# Print when the time of the first member of a pool is up, in whole seconds: `expires NAME POOL`.
expires() {
	status_of $1 pools.$2.members.0.t_expires | cut -d. -f1
}

# Print the state of the first member of a pool: `state NAME POOL`.
state() {
	status_of $1 pools.$2.members.0.state
}

# Load an ensemble with a member of each kind, and prolong both; fails if that comes too late:
# `are_prolonged NAME SECONDS`.
are_prolonged() {
	document $1 "{name: own, duration: $2s, drain: 15s}" \
		"{name: called, duration: $2s, drain: 15s, service: child}" >$1.yaml &&
	flux ensemble load $1.yaml &&
	wait_entry $1 member-up 2 &&
	last=$(expires $1 own) &&
	test "$(expires $1 called)" -le "$last" || last=$(expires $1 called) &&
	limit $1 own.0 1h &&
	limit $1 called.0 1h &&
	wait_entry $1 member-expires 2 &&
	is 0 "$(entries $1 member-draining)"
}

test_expect_success 'load the module' '
	load_module
'

test_expect_success 'members that are prolonged are not drained at the time that they were to be' '
	# On a machine that is too slow they are drained before.
	if are_prolonged quick 45
	then
		name=quick
	else
		flux ensemble cancel quick && are_prolonged slow 240 && name=slow
	fi &&
	test "$(expires $name own)" -gt $(($last + 3000)) &&
	test "$(expires $name called)" -gt $(($last + 3000)) &&
	while test "$(date +%s)" -le $(($last - 15)); do sleep 0.1; done &&
	is up "$(state $name own)" &&
	is up "$(state $name called)" &&
	touch $name.go &&
	flux ensemble wait $name &&
	is 20/0/0/0 "$(counts_of $name sim)" &&
	is 0 "$(entries $name member-draining)" &&
	is 2 "$(flux ensemble log $name | grep -c "has another time limit: .* from now")"
'

test_expect_success 'one that is shortened is drained by its new limit, and that is final' '
	document short "{name: pool, duration: 1h, drain: 10m}" "{name: other, count: {min: 0, max: 1}}" >short.yaml &&
	cat >>short.yaml <<-EOD &&
	  - {trigger: member-draining, action: {name: grow, label: other}}
	EOD
	flux ensemble load short.yaml &&
	wait_until has_lines short.ran 1 &&
	limit short pool.0 9m &&
	wait_entry short member-draining &&
	limit short pool.0 2h &&
	wait_entry short member-expires 2 &&
	is draining "$(state short pool)" &&
	touch short.go &&
	flux ensemble wait short &&
	is 20 "$(status_of short groups.sim.success)" &&
	is 20 "$(status_of short groups.sim.finished)" &&
	is 20 "$(sort -u short.ran | wc -l)" &&
	is 1 "$(entries short member-draining)" &&
	flux ensemble jobs -n -o "{id}" short | grep "^other.0:"
'

test_expect_success 'unload the module' '
	flux module remove ensemble
'

test_expect_success 'a time limit that is changed while there is no service counts for the next one' '
	document away "{name: pool, duration: 1h, drain: 15s}" >away.yaml &&
	serve &&
	flux ensemble load away.yaml &&
	wait_entry away member-up &&
	before=$(expires away pool) &&
	kill -9 $serve &&
	limit away pool.0 2h &&
	serve &&
	wait_entry away member-expires &&
	is $(($before + 3600)) "$(expires away pool)" &&
	touch away.go &&
	flux ensemble wait away &&
	is 20/0/0/0 "$(counts_of away sim)" &&
	kill $serve
'

test_done
