#!/bin/sh
test_description='A Flux instance inside a Slurm job: how it was launched, and how its time ends'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"

test -z "$(command -v flux)" || try_slurm

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
	    command: [sh, -c, 'test -e second || sleep \$STEP; echo {i} >>ended.\$WHERE']
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

# Whether none of their jobs is in the queue any more, and no broker of theirs is left; a controller
# that does not answer in time says nothing.
all_over() {
	squeue -h -o %i >queued 2>/dev/null || return 1
	cat *.id >submitted
	! grep -qxFf submitted queued && ! pgrep -f -- "-Sstatedir=$slurm/" >/dev/null
}

# It leaves by itself, and the batch script ends.
cat >leaves.sh <<-EOD
	#!/bin/sh
	export WHERE=leaves STEP=4
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
	export WHERE=killed STEP=4
	srun -n1 --mpi=pmi2 flux start -Sstatedir=$slurm/killed.state sh -c '
		trap "" TERM
		flux ensemble supervise
		flux ensemble status long >/dev/null 2>&1 || flux ensemble load long.yaml
		flux ensemble wait long
		flux ensemble jobs long --interrupted -n -o "{outcome} {params.i}" >killed.jobs
		flux ensemble status long --json >killed.status
	'
EOD

# Flux does not get to know the end, or a wrong one: Slurm kills what knows of nothing. Flux waits
# for ten seconds for squeue. One is cancelled by its user.
mkdir late wrong absent canceled
echo "sleep 11" >late/squeue.sh
echo "echo 1:00:00; exit" >wrong/squeue.sh
echo "exit 127" >absent/squeue.sh
for each in late wrong absent canceled; do
	cat >$each.sh <<-EOD
		#!/bin/sh
		export WHERE=$each STEP=8
		cd $each
		srun -n1 --mpi=pmi2 flux start -Sstatedir=$slurm/$each.state sh -c '
			cd ..
			flux ensemble run --resume long.yaml
			flux ensemble jobs long --interrupted -n -o "{outcome} {params.i}" >$each.jobs
		'
	EOD
done

test_expect_success SLURM 'allocations of a minute come to their ends' '
	for each in leaves killed late wrong absent; do
		mkdir "$slurm/$each.state" && submit_script $each $each.first -t 1 || return 1
	done &&
	mkdir "$slurm/canceled.state" && submit_script canceled canceled.first -t 5 &&
	wait_until test -e ended.canceled && scancel "$(cat canceled.id)" &&
	wait_until all_over &&
	cat leaves.first killed.first late.first canceled.first
'

test_expect_success SLURM 'run leaves before the end, and says what is left' '
	grep "the allocation ends in [0-9]*s: no more jobs are started" leaves.first &&
	grep "the allocation is about to expire, [0-9]* of 32 jobs are left" leaves.first
'

test_expect_success SLURM 'where Flux was not told of the end, run cancels nothing either' '
	for each in late wrong absent canceled; do
		grep "SIGTERM, with which Slurm ends a job: nothing is cancelled" $each.first || return 1
	done
'

test_expect_success SLURM 'the next allocations go on with what was left, and complete' '
	touch second &&
	for each in leaves killed late wrong absent canceled; do
		submit_script $each $each.second -t 5 || return 1
	done &&
	wait_until all_over &&
	for each in leaves late wrong absent canceled; do
		grep "^long: completed" $each.second || return 1
	done
'

for each in leaves killed late wrong absent canceled; do
	test_expect_success SLURM "$each: every job succeeded once, and none counts as failed" "
		is 32 \$(sort -u ended.$each | wc -l) &&
		is 32 \$(grep -c ^success $each.jobs) &&
		! grep -E '^(failed|timeout)' $each.jobs
	"
done

# One that has written its line and is killed before it exits has not succeeded.
test_expect_success SLURM 'only jobs that were interrupted ran again' '
	for each in leaves killed late wrong absent canceled; do
		grep ^success $each.jobs | sort | uniq -d >twice && test_must_be_empty twice &&
		sed -n "s/^interrupted //p" $each.jobs | sort >interrupted &&
		sort ended.$each | uniq -d >again && comm -23 again interrupted >unasked &&
		test_must_be_empty unasked || return 1
	done
'

stop_slurm

test_done
