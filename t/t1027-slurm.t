#!/bin/sh
test_description='A Flux instance inside a Slurm job: how it was launched, and how its time ends'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"

test_expect_success SLURM 'a cluster of two nodes begins' 'start_slurm'

cat >hello.yaml <<-EOD
	jobs:
	  - {name: hello, command: sh -c "echo hello >>ran", count: 3}
	rules:
	  - {trigger: start, action: {name: submit, label: hello}}
EOD

test_expect_success SLURM 'tasks of srun that are instances of their own are refused, with the option' '
	test_must_fail srun -N2 -n2 --mpi=none flux start flux ensemble run hello.yaml 2>refused &&
	grep "is task [01] of 2 that srun started.*the ensemble would run 2 times" refused &&
	grep "srun --mpi=pmi2 flux start" refused &&
	! test -e ran
'

test_expect_success SLURM 'so they are by load, and doctor names it' '
	test_must_fail srun -n2 --mpi=none flux start flux ensemble load hello.yaml 2>refused &&
	grep "is task [01] of 2 that srun started" refused &&
	{ srun -n2 --mpi=none flux start sh -c "flux ensemble doctor; :" >found || :; } &&
	grep "launch *problem *this Flux instance is task [01] of 2" found
'

test_expect_success SLURM 'one instance of the two nodes runs it once' '
	srun -N2 -n2 --mpi=pmi2 flux start sh -c "flux getattr size; flux ensemble run hello.yaml" >out &&
	is 2 "$(head -n 1 out)" && grep "^hello: completed" out && is 3 "$(wc -l <ran)"
'

# Jobs that take longer than their first allocation; each writes down that it has run.
cat >long.yaml <<-EOD
	jobs:
	  - name: step
	    command: [sh, -c, 'test -e second || sleep 4; echo {i} >>ended.\$WHERE']
	    params: {i: {range: [1, 33]}}
	rules:
	  - {trigger: start, action: {name: submit, label: step}}
EOD

# Submit a script, and wait until Slurm has forgotten its job or calls it over.
#
# $1 - The script, without .sh.
# $2 - Where its output goes.
# $3.. - Options of sbatch.
submit_script() {
	name=$1 output=$2
	shift 2
	sbatch --parsable -n1 -o "$output" "$@" "$name.sh" >"$name.id"
}

# Whether neither of the two jobs is in the queue any more; a controller that does not answer in time
# says nothing.
both_over() {
	squeue -h -o %i >queued 2>/dev/null || return 1
	! grep -qxF -e "$(cat leaves.id)" -e "$(cat killed.id)" queued
}

# It leaves by itself, and the batch script ends.
cat >leaves.sh <<-EOD
	#!/bin/sh
	export WHERE=leaves
	srun -n1 --mpi=pmi2 flux start -Sstatedir=$slurm/leaves.state sh -c '
		flux ensemble supervise
		if flux ensemble status long >/dev/null 2>&1; then
			flux ensemble watch long
		else
			flux ensemble run long.yaml
		fi
		flux ensemble jobs long --interrupted -n -o "{outcome} {params.i}" >leaves.jobs
	'
EOD

# Its script takes no notice of the end: Slurm has to kill all of it.
cat >killed.sh <<-EOD
	#!/bin/sh
	export WHERE=killed
	srun -n1 --mpi=pmi2 flux start -Sstatedir=$slurm/killed.state sh -c '
		trap "" TERM
		flux ensemble supervise
		flux ensemble status long >/dev/null 2>&1 || flux ensemble load long.yaml
		flux ensemble wait long
		flux ensemble jobs long --interrupted -n -o "{outcome} {params.i}" >killed.jobs
		flux ensemble status long --json >killed.status
	'
EOD

test_expect_success SLURM 'two allocations of a minute come to their ends' '
	mkdir "$slurm/leaves.state" "$slurm/killed.state" &&
	submit_script leaves leaves.first -t 1 && submit_script killed killed.first -t 1 &&
	wait_until both_over &&
	cat leaves.first killed.first
'

test_expect_success SLURM 'run leaves before the end, and says what is left' '
	grep "the allocation ends in [0-9]*s: no more jobs are started" leaves.first &&
	grep "the allocation is about to expire, [0-9]* of 32 jobs are left" leaves.first
'

test_expect_success SLURM 'the next allocations go on with what was left, and complete' '
	touch second &&
	submit_script leaves leaves.second -t 5 && submit_script killed killed.second -t 5 &&
	wait_until both_over &&
	grep "^long: completed" leaves.second
'

for each in leaves killed; do
	test_expect_success SLURM "$each: every job succeeded once, and none counts as failed" "
		is 32 \$(sort -u ended.$each | wc -l) &&
		is 32 \$(grep -c ^success $each.jobs) &&
		! grep -E '^(failed|timeout)' $each.jobs
	"
done

# One that has written its line and is killed before it exits has not succeeded.
test_expect_success SLURM 'only jobs that were interrupted ran again' '
	for each in leaves killed; do
		grep ^success $each.jobs | sort | uniq -d >twice && test_must_be_empty twice &&
		sed -n "s/^interrupted //p" $each.jobs | sort >interrupted &&
		sort ended.$each | uniq -d >again && comm -23 again interrupted >unasked &&
		test_must_be_empty unasked || return 1
	done
'

stop_slurm

test_done
