#!/bin/sh
test_description='mistakes with workers in Slurm, and limits that are met there'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"

try_slurm
unset FLUX_URI
XDG_STATE_HOME=$PWD/state && export XDG_STATE_HOME

# A document over workers in Slurm, which ends with its first member that is lost:
# `on_workers NAME JOBS KEYS COMMAND`.
on_workers() {
	>$1.ran &&
	cat >$1.yaml <<-EOD
		name: $1
		members:
		  - {name: hpc, from: slurm, runs: tasks, exclusive: false, cores: 2, $3}
		jobs:
		  - name: sim
		    command: sh -c '$4'
		    params: {s: {range: [0, $2]}}
		rules:
		  - {trigger: start, action: {name: submit, label: sim}}
		  - {trigger: member-lost, action: {name: terminate, cancel: true}}
	EOD
}

# Start a home: `begin NAME`; its process is $home.
begin() {
	flux-ensemble run --resume $1.yaml >>$1.out 2>&1 & home=$!
}

# Succeed if `why` says something: `says NAME PATTERN`.
says() {
	flux-ensemble why $1 >$1.why 2>&1 && grep "$2" $1.why
}

# Have the ensemble of a home canceled, and wait for its end.
interrupt() {
	kill -INT $home && test_expect_code 130 wait $home && wait_until slurm_is_quiet
}

test_expect_success SLURM 'an account that a partition does not take is told in the words of Slurm' '
	slurm_with EnforcePartLimits=ALL "PartitionName=chem Nodes=ALL AllowAccounts=chem" &&
	on_workers account 2 "options: {partition: chem, account: bio}" true &&
	flux-ensemble run account.yaml >account.out 2>&1 &&
	grep "hpc.0 is lost.*: Slurm refuses its job: .*Invalid account or account/partition combination" account.out
'

test_expect_success SLURM 'more time than a partition gives is refused, where Slurm checks that at once' '
	slurm_with EnforcePartLimits=ALL "PartitionName=short Nodes=ALL MaxTime=1" &&
	on_workers refused 2 "duration: 1h, options: {partition: short}" true &&
	flux-ensemble run refused.yaml >refused.out 2>&1 &&
	grep "hpc.0 is lost.*: Slurm refuses its job: .*Requested time limit is invalid" refused.out
'

test_expect_success SLURM 'a member that can never start says what it is to ask for' '
	slurm_with "PartitionName=short Nodes=ALL MaxTime=1" &&
	on_workers never 2 "duration: 1h, options: {partition: short}" true &&
	begin never &&
	wait_until says never "member hpc.0 waits in Slurm: PartitionTimeLimit (.*give a shorter .duration.)" &&
	interrupt
'

test_expect_success SLURM 'what Slurm refuses is asked for again, and the run goes on once it is mended' '
	slurm_with EnforcePartLimits=ALL "PartitionName=short Nodes=ALL MaxTime=1" &&
	on_workers mended 4 "duration: 1h, options: {partition: short}" "echo {s} >>mended.ran" &&
	sed -i "/member-lost/d" mended.yaml &&
	begin mended &&
	wait_until says mended "Slurm is asked again in .*: 1 failure in a row, the latest: Slurm refuses its job: .*time limit" &&
	scontrol update PartitionName=short MaxTime=120 &&
	wait $home && cat mended.out &&
	is 4 "$(sort -u mended.ran | wc -l)"
'

test_expect_success SLURM 'a partition that is down is waited for' '
	slurm_with "PartitionName=night Nodes=ALL State=DOWN" &&
	on_workers down 4 "duration: 5m, options: {partition: night}" "echo {s} >>down.ran" &&
	begin down &&
	wait_until says down "waits in Slurm: PartitionDown (its partition is down" &&
	scontrol update PartitionName=night State=UP &&
	wait $home &&
	is 4 "$(sort -u down.ran | wc -l)" && ! grep "is lost" down.out
'

test_expect_success SLURM 'a queue that is full is waited for, and that is no failure' '
	slurm_with MaxJobCount=3 MinJobAge=2 &&
	on_workers full 4 "duration: 5m" "echo {s} >>full.ran" &&
	while timeout 3 sbatch -H -o none --job-name=other --wrap true; do :; done &&
	test "$(squeue -h -o %i | wc -l)" -gt 0 &&
	begin full &&
	wait_until says full "member hpc.0 waits: sbatch has not answered yet, as where the queue of Slurm is full" &&
	scancel --name other &&
	wait $home &&
	is 4 "$(sort -u full.ran | wc -l)" && ! grep "failure" full.out
'

test_expect_success SLURM 'the limit of an account is waited for, and that is no failure' '
	if test ! -e "$(scontrol show config | sed -n "s/^PluginDir *= //p")/job_submit_lua.so"; then
		say "skipped: this Slurm has no plugin job_submit/lua"
		return 0
	fi
	cat >"$slurm/job_submit.lua" <<-\EOD &&
		function slurm_job_submit(job, partitions, user)
		  local file = io.open(os.getenv("SLURM_CONF") .. ".limited")
		  if file then file:close() return 2050 end
		  return slurm.SUCCESS
		end
		function slurm_job_modify(job, record, partitions, user) return slurm.SUCCESS end
		return slurm.SUCCESS
	EOD
	>"$slurm/slurm.conf.limited" &&
	slurm_with JobSubmitPlugins=lua &&
	on_workers limit 4 "duration: 5m" "echo {s} >>limit.ran" &&
	begin limit &&
	wait_until says limit "hpc.0 waits: .*job submit limit" &&
	rm "$slurm/slurm.conf.limited" &&
	wait $home &&
	is 4 "$(sort -u limit.ran | wc -l)" && ! grep "failure\|is lost" limit.out
'

test_expect_success SLURM 'doctor asks Slurm whether it would take the members' '
	slurm_with "PartitionName=short Nodes=ALL MaxTime=1" "PartitionName=night Nodes=ALL State=DOWN" &&
	on_workers fine 2 "duration: 1m, options: {partition: short}" true &&
	flux-ensemble doctor fine.yaml >fine.out && cat fine.out &&
	grep "^site  *ok  *hpc: partition short is up, with $slurm_nodes nodes" fine.out &&
	on_workers long 2 "duration: 1h, options: {partition: short}" true &&
	test_expect_code 1 flux-ensemble doctor long.yaml >long.out && cat long.out &&
	grep "partition short gives 1m at most, and a member" long.out &&
	on_workers near 2 "options: {partition: shirt}" true &&
	test_expect_code 1 flux-ensemble doctor near.yaml >near.out && cat near.out &&
	grep "there is no partition .shirt." near.out && grep "did you mean .short." near.out &&
	on_workers big 2 "nodes: 99, options: {partition: short}" true &&
	sed -i "s/runs: tasks, exclusive: false, cores: 2, //" big.yaml &&
	test_expect_code 1 flux-ensemble doctor big.yaml >big.out && cat big.out &&
	grep "gives $slurm_nodes nodes at most, and a member" big.out &&
	on_workers asleep 2 "options: {partition: night}" true &&
	flux-ensemble doctor asleep.yaml >asleep.out && cat asleep.out &&
	grep "^site  *warning  *hpc: partition night is down" asleep.out
'

stop_slurm

test_done
