#!/bin/sh
test_description='members that are jobs of Slurm'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"

test -z "$(command -v flux)" || try_slurm
export SHARNESS_TEST_SRCDIR

# A document over members in Slurm: `in_slurm NAME JOBS KEYS COMMAND`.
in_slurm() {
	cat >$1.yaml <<-EOD
		name: $1
		members:
		  - {name: hpc, from: slurm, exclusive: false, cores: 2, duration: 5m, $3}
		jobs:
		  - name: sim
		    command: sh -c '$4'
		    params: {s: {range: [0, $2]}}
		rules:
		  - {trigger: start, action: {name: submit, label: sim}}
	EOD
}

# Print how many of its jobs Slurm has in a state.
slurm_has() {
	squeue -h -t "$1" -o %i | wc -l
}

test_expect_success SLURM 'the jobs run on the nodes of Slurm, once each, and the members end with it' '
	in_slurm plain 12 "count: 2, options: {partition: all}" "echo {s} >>plain.ran" &&
	flux start flux ensemble run plain.yaml >run.out 2>&1 &&
	grep "^plain: completed" run.out && is 12 "$(sort -u plain.ran | wc -l)" &&
	is 12 "$(wc -l <plain.ran)" && wait_until slurm_is_quiet
'

test_expect_success SLURM 'status names the job in Slurm, and why it waits' '
	in_slurm waits 2 "options: {partition: all, begin: now+1hour}" true &&
	cat >waits.sh <<-\EOD &&
		set -e
		flux ensemble load waits.yaml
		until flux ensemble status waits | grep BeginTime; do sleep 0.2; done
		flux ensemble status waits --json >waits.json
		flux ensemble cancel waits
		until test -z "$(squeue -h -o %i)"; do sleep 0.2; done
	EOD
	flux start sh ./waits.sh >status.out &&
	grep "hpc.0 *starting.*waits in Slurm: BeginTime" status.out &&
	grep -E "\"job\": \"[0-9]+\"" waits.json
'

test_expect_success SLURM 'what Slurm refuses is told in its words' '
	in_slurm nowhere 2 "options: {partition: nowhere}" true &&
	test_must_fail flux start sh -c "
		flux ensemble run nowhere.yaml --timeout 30s; rc=\$?
		flux ensemble log nowhere; exit \$rc" >nowhere.out 2>&1 &&
	grep "Slurm refuses its job: .*nvalid partition" nowhere.out
'

test_expect_success SLURM 'the service is killed, again and again: each job counts once, each member starts once' '
	in_slurm killed 40 "count: 2" "echo {s} >>killed.ran; sleep 0.5" &&
	cat >killed.sh <<-\EOD &&
		set -e
		. "$SHARNESS_TEST_SRCDIR/lib/wait.sh"
		. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
		flux ensemble supervise
		flux ensemble load killed.yaml
		pid() { flux ensemble status --json | python3 -c "import json, sys; print(json.load(sys.stdin)[\"service\"][\"pid\"])"; }
		kill -KILL $(pid)
		wait_until has_lines killed.ran 5
		kill -KILL $(pid)
		wait_until has_lines killed.ran 15
		kill -KILL $(pid)
		flux ensemble wait killed
		flux ensemble status killed --json >killed.json
		squeue -h -t all -o %i >all.killed
	EOD
	squeue -h -t all -o %i >before &&
	flux start sh ./killed.sh &&
	is 40 "$(sort -u killed.ran | wc -l)" && is 40 "$(wc -l <killed.ran)" &&
	is 2 "$(grep -vxFf before all.killed | wc -l)" &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'a member that Slurm ends is lost, and its jobs run on another' '
	in_slurm lost 30 "count: {min: 1, max: 2}" "echo {s} >>lost.ran; sleep 0.3" &&
	cat >>lost.yaml <<-EOD &&
		  - {trigger: member-lost, action: {name: grow, label: hpc}}
	EOD
	cat >lost.sh <<-\EOD &&
		set -e
		. "$SHARNESS_TEST_SRCDIR/lib/wait.sh"
		. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
		flux ensemble load lost.yaml
		wait_until has_lines lost.ran 4
		scancel $(squeue -h -t running -o %i)
		flux ensemble wait lost
		flux ensemble log lost >lost.log
		flux ensemble jobs lost -n -o "{outcome}" >lost.outcomes
	EOD
	flux start sh ./lost.sh &&
	is 30 "$(sort -u lost.ran | wc -l)" && is 30 "$(grep -c ^success lost.outcomes)" && ! grep -E "^(failed|timeout)" lost.outcomes &&
	grep "member-ended *hpc.0" lost.log && grep "finish *completed" lost.log
'

stop_slurm

test_done
