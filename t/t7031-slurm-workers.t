#!/bin/sh
test_description='workers in Slurm, whose home has no Flux'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"

test -z "$(command -v flux)" || try_slurm
unset FLUX_URI
XDG_STATE_HOME=$PWD/state && export XDG_STATE_HOME

# A document over workers in Slurm: `on_workers NAME JOBS KEYS COMMAND`.
on_workers() {
	>$1.ran &&
	cat >$1.yaml <<-EOD
		name: $1
		members:
		  - {name: hpc, from: slurm, runs: tasks, exclusive: false, cores: 2, duration: 5m, $3}
		jobs:
		  - name: sim
		    command: sh -c '$4'
		    params: {s: {range: [0, $2]}}
		rules:
		  - {trigger: start, action: {name: submit, label: sim}}
	EOD
}

# Kill a process, and wait until it is gone.
kill_hard() {
	kill -KILL $1 && test_expect_code 137 wait $1
}

test_expect_success SLURM 'the tasks of a sweep run in two jobs of Slurm, once each' '
	on_workers sweep 100 "count: 2, options: {partition: all}" "echo {s} >>sweep.ran; sleep 0.2" &&
	flux-ensemble run sweep.yaml >sweep.out 2>&1 &&
	grep "^sweep: completed" sweep.out &&
	is 100 "$(sort -u sweep.ran | wc -l)" && is 100 "$(wc -l <sweep.ran)" &&
	is 2 "$(grep -c "hpc.* is up: 1 node, 2 cores" sweep.out)" &&
	slurm_is_quiet
'

test_expect_success SLURM 'the key of the authority is the user'"'"'s alone' '
	find state -name home -exec stat -c %a {} + >modes && echo 600 >expected &&
	test_cmp expected modes
'

test_expect_success SLURM 'the home is killed twice and goes on: each task ran once, in the same jobs of Slurm' '
	on_workers killed 40 "count: 2" "echo {s} >>killed.ran; sleep 0.4" &&
	squeue -h -t all -o %i >before &&
	for least in 6 16; do
		flux-ensemble run --resume killed.yaml >killed.out 2>&1 & pid=$!
		wait_until has_lines killed.ran $least &&
		kill_hard $pid || return 1
	done &&
	flux-ensemble run --resume killed.yaml >killed.out 2>&1 &&
	grep "^killed: completed" killed.out &&
	is 40 "$(sort -u killed.ran | wc -l)" && is 40 "$(wc -l <killed.ran)" &&
	squeue -h -t all -o %i >after && is 2 "$(grep -vxFf before after | wc -l)" &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'a home that is ended by SIGTERM leaves its workers, and goes on with them' '
	on_workers left 20 "count: 1" "echo {s} >>left.ran; sleep 0.3" &&
	flux-ensemble run left.yaml >left.out 2>&1 & pid=$!
	wait_until has_lines left.ran 4 &&
	kill -TERM $pid && test_expect_code 130 wait $pid &&
	grep "terminated (SIGTERM): its members go on, and call again" left.out &&
	flux-ensemble run --resume left.yaml >left.out 2>&1 &&
	is 20 "$(sort -u left.ran | wc -l)" && is 20 "$(wc -l <left.ran)"
'

test_expect_success SLURM 'a worker that Slurm ends is lost, and what it ran runs on another' '
	on_workers lost 30 "count: {min: 1, max: 2}" "echo {s} >>lost.ran; sleep 0.3" &&
	cat >>lost.yaml <<-EOD &&
		  - {trigger: member-lost, action: {name: grow, label: hpc}}
	EOD
	flux-ensemble run lost.yaml >lost.out 2>&1 & pid=$!
	wait_until has_lines lost.ran 4 &&
	scancel $(squeue -h -t running -o %i) &&
	wait $pid &&
	grep "hpc.0 is lost, with .* jobs: its job in Slurm is CANCELLED" lost.out &&
	is 30 "$(sort -u lost.ran | wc -l)" &&
	flux-ensemble jobs lost -n -o "{outcome}" >outcomes &&
	is 30 "$(grep -c ^success outcomes)" && ! grep -E "^(failed|timeout|canceled)" outcomes
'

test_expect_success SLURM 'Ctrl-C cancels the tasks, and ends the jobs of Slurm' '
	on_workers stopped 8 "count: 1" "echo {s} >>stopped.ran; sleep 60" &&
	flux-ensemble run stopped.yaml >stopped.out 2>&1 & pid=$!
	wait_until has_lines stopped.ran 2 &&
	kill -INT $pid && test_expect_code 130 wait $pid &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'status shows the job of a worker, and why it waits in Slurm' '
	on_workers waits 2 "options: {partition: all, begin: now+1hour}" true &&
	flux-ensemble run waits.yaml >waits.out 2>&1 & pid=$!
	waiting() { flux-ensemble status waits >waits.status 2>&1 && grep BeginTime waits.status; } &&
	wait_until waiting &&
	grep "hpc.0 *starting.*waits in Slurm: BeginTime" waits.status &&
	kill -INT $pid && test_expect_code 130 wait $pid &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'no more members wait in the queue of Slurm than are to, and why says so' '
	on_workers line 2 "count: 4, limits: {queued: 2}, options: {begin: now+1hour}" true &&
	flux-ensemble run line.yaml >line.out 2>&1 & pid=$!
	in_line() {
		flux-ensemble why line >line.why 2>&1 &&
			grep "2 members of hpc wait in Slurm: BeginTime" line.why &&
			grep "2 members of hpc wait: 2 are in the queue of Slurm, as many as .queued. allows" line.why
	} &&
	wait_until in_line &&
	flux-ensemble status line >line.status && grep "2 members of hpc wait in Slurm" line.status &&
	is 2 "$(squeue -h -o %i | wc -l)" &&
	kill -INT $pid && test_expect_code 130 wait $pid &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'members that wait in Slurm and that no job needs any more are cancelled' '
	on_workers spare 2 "count: {min: 1, max: 4}, idle: 2s, options: {nodelist: n1}" "while test ! -e go; do sleep 0.1; done" &&
	cat >>spare.yaml <<-EOD &&
		  - {trigger: start, action: {name: grow, label: hpc, value: 3}}
	EOD
	sbatch --job-name other -o none -w n1 -n 6 --wrap "sleep 600" &&
	flux-ensemble run spare.yaml >spare.out 2>&1 & pid=$!
	none_waits() { is 0 "$(squeue -h -t pending -o %i | wc -l)"; } &&
	two_run() { is 2 "$(squeue -h -t running -o %i | wc -l)"; } &&
	spared() {
		flux-ensemble why spare >spare.why 2>&1 &&
			grep "3 members of hpc ended: no job needs them now, and they start when one does" spare.why
	} &&
	wait_until spared &&
	wait_until two_run && wait_until none_waits &&
	flux-ensemble status spare >spare.status && grep "3 members of hpc ended" spare.status &&
	>go && wait $pid &&
	grep "hpc.3 gets no more jobs, and has 0: no job has needed it for 2s, and the pool has more than .min." spare.out &&
	! grep "is lost" spare.out &&
	scancel --name other && wait_until slurm_is_quiet
'

test_expect_success SLURM 'a partition that there is not is asked for ever more rarely' '
	on_workers nowhere 2 "count: 5, options: {partition: nowhere}" true &&
	flux-ensemble run nowhere.yaml >nowhere.out 2>&1 & pid=$!
	in_pause() {
		flux-ensemble why nowhere >nowhere.why 2>&1 &&
			grep "members* of hpc wait: Slurm is asked again in .*s: 2 failures in a row" nowhere.why
	} &&
	wait_until in_pause &&
	grep "nvalid partition" nowhere.why &&
	grep "hpc.1 is lost.*: Slurm refuses its job: .*nvalid partition" nowhere.out &&
	kill -INT $pid && test_expect_code 130 wait $pid &&
	grep "nowhere: the next member of hpc is asked for in 4s at the earliest, after 2 failures" nowhere.out
'

test_expect_success SLURM 'a worker that does not start is lost, and the log says why' '
	on_workers bare 2 "options: {partition: all}" true &&
	cat >>bare.yaml <<-EOD &&
		  - {trigger: member-lost, action: {name: terminate, cancel: true}}
	EOD
	mkdir bare && cat >bare/sbatch <<-EOD && chmod +x bare/sbatch &&
		#!/bin/sh
		sed "s,^exec [^ ]*,exec /nowhere/python," | $(command -v sbatch) "\$@"
	EOD
	PATH="$PWD/bare:$PATH" flux-ensemble run bare.yaml >bare.out 2>&1 &&
	grep "hpc.0 is lost.*: its job in Slurm is FAILED (NonZeroExitCode)" bare.out
'

stop_slurm

test_done
