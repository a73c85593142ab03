#!/bin/sh
test_description='members: instances that are there already, reached by their URI'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 2

# Start another instance, which lasts until it is told to end; its URI is $other.
start_other() {
	rm -f other.uri &&
	{ flux start sh -c "flux getattr local-uri >other.part && mv other.part other.uri &&
		exec flux event sub --count=1 other.end" >/dev/null & } &&
	wait_until test -e other.uri &&
	other=$(cat other.uri)
}

# Print the processes by which the service reaches instances.
ways() {
	for child in $(cat /proc/$(service_pid)/task/*/children)
	do
		tr "\0" " " </proc/$child/cmdline | grep -q proxy && echo $child
	done
}

# Succeed if there is no way.
no_way() {
	test -z "$(ways)"
}

# Succeed if there is a way.
a_way() {
	! no_way
}

# Write a document over the other instance, and one that is started: `document NAME`.
document() {
	cat >$1.yaml <<-EOD
	members:
	  - {name: other, uri: "$other"}
	  - {name: pool}
	jobs:
	  - name: sim
	    command: sh -c 'echo {s} >>ran; until test -e go; do sleep 0.1; done; sleep 0.2'
	    params: {s: {range: [0, 30]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
}

test_expect_success 'a service with another instance beside it' '
	serve &&
	start_other
'

test_expect_success 'the service is killed, and the way is lost: nothing is lost, or runs twice' '
	document shared &&
	: >ran &&
	{ flux ensemble run shared.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded shared &&
	wait_entry shared member-up 2 &&
	wait_until has_lines ran 2 &&
	kill -9 $serve &&
	serve &&
	wait_until a_way &&
	way=$(ways) &&
	kill -9 $way &&
	touch go &&
	wait $run &&
	is 30/0/0/0 "$(counts_of shared sim)" &&
	is 30 "$(wc -l <ran)" &&
	is 30 "$(sort -u ran | wc -l)" &&
	is 0 "$(entries shared member-lost)" &&
	flux ensemble jobs -n -o "{id}" shared | grep "^other.0:"
'

test_expect_success 'the instance goes on when the ensemble is over' '
	wait_until no_way &&
	FLUX_URI=$other flux run true
'

# Succeed if there are files of such a name: `are_there COUNT NAME`.
are_there() {
	test $1 = "$(ls $2.* 2>/dev/null | wc -l)"
}

test_expect_success 'memos that were published while there was no service are those of their jobs' '
	rm -f go &&
	cat >memos.yaml <<-EOD &&
	members:
	  - {name: other, uri: "$other"}
	  - {name: pool}
	  - {name: child, service: child}
	jobs:
	  - {name: other, member: other, command: sh memos.sh other}
	  - {name: pool, member: pool, command: sh memos.sh pool}
	  - {name: child, member: child, command: sh memos.sh child}
	  - {name: seen, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: other}}
	  - {trigger: job-memo, group: other, when: job.memo.n == 1, action: {name: submit, label: seen}}
	  - {trigger: start, action: {name: submit, label: pool}}
	  - {trigger: job-memo, group: pool, when: job.memo.n == 1, action: {name: submit, label: seen}}
	  - {trigger: start, action: {name: submit, label: child}}
	  - {trigger: job-memo, group: child, when: job.memo.n == 1, action: {name: submit, label: seen}}
	EOD
	cat >memos.sh <<-\EOD &&
	touch began.$1
	until test -e publish; do sleep 0.1; done
	for n in 1 2 3; do flux job memo $FLUX_JOB_ID n=$n; done
	touch published.$1
	until test -e go; do sleep 0.1; done
	EOD
	{ flux ensemble run memos.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded memos &&
	wait_until are_there 3 began &&
	kill -9 $serve &&
	touch publish &&
	wait_until are_there 3 published &&
	serve &&
	touch go &&
	wait $run &&
	is 3 "$(status_of memos groups.seen.success)"
'

# Succeed if a member is no active job: `is_over NAME MEMBER`.
is_over() {
	test -z "$(flux jobs -n -o "{id}" --name="$1:$2")"
}

test_expect_success 'a member that was to end is not lost when it has while there was no service' '
	cat >shrunk.yaml <<-EOD &&
	finish: never
	members:
	  - {name: pool, count: {min: 1, max: 2}}
	jobs:
	  - {name: sim, command: "true"}
	rules:
	  - {trigger: start, action: {name: grow, label: pool}}
	EOD
	flux ensemble load shrunk.yaml &&
	wait_entry shrunk member-up 2 &&
	flux ensemble action shrunk "{name: shrink, label: pool}" &&
	wait_entry shrunk member-draining &&
	kill -9 $serve &&
	{ flux cancel --all --states=active -q 2>/dev/null || true; } &&
	for member in pool.0 pool.1
	do
		wait_until is_over shrunk $member || return 1
	done &&
	serve &&
	wait_entry shrunk member-ended 2 &&
	is 1 "$(entries shrunk member-lost)" &&
	flux ensemble cancel shrunk
'

test_expect_success 'a queue that an instance has not is refused at load, with those that it has' '
	rm -f queued.uri &&
	{ flux start -c "$SHARNESS_TEST_SRCDIR/lib/queues.toml" sh -c "flux getattr local-uri >queued.part &&
		mv queued.part queued.uri && exec flux event sub --count=1 queued.end" >/dev/null & } &&
	wait_until test -e queued.uri &&
	queued=$(cat queued.uri) &&
	cat >queued.yaml <<-EOD &&
	members: [{name: other, uri: "$queued"}]
	jobs:
	  - {name: a, command: "true", queue: batch}
	  - {name: b, command: "true", attributes: {system: {queue: debg}}}
	  - {name: c, command: "true", params: {q: [batch, nowhere]}, queue: "{q}"}
	rules: [{trigger: start, action: {name: submit, label: a}}]
	finish: never
	EOD
	test_must_fail flux ensemble load queued.yaml 2>err && cat err &&
	grep "queued.yaml:4: jobs\[1\].*member .other., whose instance has no queue .debg." err &&
	grep "did you mean .debug.? its queues: batch, debug" err &&
	is 1 "$(wc -l <err)" &&
	sed -i s/debg/debug/ queued.yaml &&
	flux ensemble load queued.yaml &&
	wait_entry queued member-up &&
	is 0 "$(entries queued queues-unknown)" &&
	flux ensemble cancel queued &&
	flux ensemble rm queued
'

test_expect_success 'an instance that does not say its queues is no reason to refuse a document' '
	pid=$(FLUX_URI=$queued flux getattr broker.pid) &&
	kill -STOP $pid &&
	sed "s/debug/nowhere/" queued.yaml >mute.yaml &&
	flux ensemble load mute.yaml &&
	kill -CONT $pid &&
	flux ensemble log mute | grep "not known whether other.0 has the queues.*no answer within 10 s" &&
	flux ensemble cancel mute &&
	FLUX_URI=$queued flux event pub queued.end
'

test_expect_success 'one that is gone is lost after reconnect-limit, and its jobs run elsewhere' '
	rm -f go &&
	flux config load <<-EOD &&
	[ensemble]
	reconnect-limit = "5s"
	EOD
	document gone &&
	: >ran &&
	{ flux ensemble run gone.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded gone &&
	wait_entry gone member-up 2 &&
	wait_until has_lines ran 2 &&
	kill -9 $serve &&
	kill -9 $(FLUX_URI=$other flux getattr broker.pid) &&
	serve &&
	wait_entry gone member-lost &&
	touch go &&
	wait $run &&
	is 30 "$(status_of gone groups.sim.success)" &&
	is 30 "$(status_of gone groups.sim.finished)" &&
	is 30 "$(sort -u ran | wc -l)"
'

test_expect_success 'one that hangs is lost after its silence, its jobs run elsewhere, and count once when it wakes up' '
	rm -f go &&
	start_other &&
	document hung &&
	sed "s/- {name: other, /&silence: 4s, /" hung.yaml >silent.yaml && grep silence silent.yaml &&
	: >ran &&
	{ flux ensemble run silent.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded silent &&
	wait_entry silent member-up 2 &&
	wait_until has_lines ran 2 &&
	hung=$(FLUX_URI=$other flux getattr broker.pid) &&
	kill -STOP $hung &&
	wait_entry silent member-lost &&
	touch go &&
	wait $run &&
	kill -CONT $hung &&
	flux ensemble log silent | grep "other.0 is lost.*it has not answered for 4 seconds" &&
	is 30 "$(status_of silent groups.sim.success)" &&
	is 30 "$(status_of silent groups.sim.finished)" &&
	is 30 "$(sort -u ran | wc -l)" &&
	FLUX_URI=$other flux queue drain &&
	FLUX_URI=$other flux event pub other.end
'

test_expect_success 'an instance is one member, and the enclosing one is none' '
	start_other &&
	# Of the same URI once more the document would be refused.
	ln -s "$(dirname "${other#local://}")" same &&
	cat >twice.yaml <<-EOD &&
	members:
	  - {name: first, uri: "$other"}
	  - {name: second, uri: "local://$PWD/same/local-0"}
	  - {name: here, uri: "$FLUX_URI"}
	jobs:
	  - {name: sim, command: "true", count: 20}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
	flux ensemble run twice.yaml &&
	is 20/0/0/0 "$(counts_of twice sim)" &&
	is 2 "$(entries twice member-lost)" &&
	flux ensemble log twice >log &&
	grep "here.0.*is the instance that the service is in" log &&
	grep "is member .* already" log
'

# Run a command as another user, who may read what root may: the tools of this test can be anywhere.
# It is no fork of a process of root.
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups \
		--inh-caps=+dac_override,+dac_read_search --ambient-caps=+dac_override,+dac_read_search \
		env -u WARM_COMMANDS -u FLUX_EXEC_PATH_PREPEND HOME=/nonexistent "$@"
}

# Have the instance of another user as a member, which is refused: `foreign NAME`, with the reason
# in the file "lost".
foreign() {
	cat >$1.yaml <<-EOD &&
	finish: never
	members:
	  - {name: theirs, uri: "$theirs"}
	jobs:
	  - {name: sim, command: "true"}
	rules: []
	EOD
	flux ensemble load $1.yaml &&
	wait_entry $1 member-ended &&
	flux ensemble log $1 | grep "member-lost *theirs.0" >lost &&
	flux ensemble cancel $1
}

test_expect_success ROOT 'one of another user is refused at once, whomever it lets in' '
	flux config load <<-EOD &&
	[ensemble]
	reconnect-limit = "1h"
	EOD
	kill $serve &&
	wait_gone $serve &&
	serve &&
	mkdir -m 777 nobody &&
	{ as_nobody TMPDIR="$PWD/nobody" flux start sh -c "flux getattr local-uri >nobody/part &&
		mv nobody/part nobody/uri && exec flux event sub --count=1 other.end" >/dev/null & } &&
	wait_until test -e nobody/uri &&
	theirs=$(cat nobody/uri) &&
	foreign closed &&
	grep "lets nobody in but its owner, which is not the user with id 0, .*: a member has to be of the same user" lost &&
	for who in allow-root-owner allow-guest-user
	do
		printf "[access]\n%s = true\n" $who |
			as_nobody FLUX_URI="$theirs" flux config load &&
		foreign $who &&
		grep "belongs to the user with id 65534, and this service to 0: a member has to be of the same user" lost || return 1
	done &&
	as_nobody FLUX_URI="$theirs" flux event pub other.end
'

test_expect_success 'end' '
	FLUX_URI=$other flux event pub other.end &&
	kill $serve
'

test_done
