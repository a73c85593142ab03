#!/bin/sh
test_description='members: what commands, requests and tools show of them'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 3

# Wait until so many jobs of the group have ended: `wait_ended GROUP COUNT`.
wait_ended() {
	wait_status_of study groups.$1.finished $2
}

# Run a sentence of a wrong command, and look for what is said: `refused SENTENCE COMMAND...`.
refused() {
	sentence=$1 && shift &&
	test_expect_code 2 "$@" 2>errors &&
	grep -F "$sentence" errors
}

test_expect_success 'a document with two members is loaded' '
	cat >study.yaml <<-EOD &&
	finish: never
	members:
	  - {name: pool, count: 2}
	jobs:
	  - {name: say, command: "sh -c \"echo told {s}; echo wrong {s} >&2; exit {code}\"", params: {s: 0, code: 0}}
	  - {name: file, command: "echo kept {s}", params: {s: {range: [0, 4]}}, output: "out-{s}.txt"}
	  - {name: wait, command: sleep inf}
	EOD
	load_module &&
	flux ensemble load study.yaml &&
	wait_both_up study pool
'

test_expect_success 'submit: the members of jobs are in the response, and in what is printed' '
	flux ensemble submit study say --param s="[0,1,2,3]" >printed &&
	is 4 "$(grep -c "^pool.[01]:." printed)" &&
	wait_ended say 4 &&
	flux_python rpc.py ensemble.submit name=study group=say >answer.json &&
	is 1 "$(json members <answer.json | grep -c "pool.[01]")" &&
	is 0 "$(json waiting <answer.json)" &&
	wait_ended say 5
'

test_expect_success 'submit: jobs that there is no room for are not waited for' '
	flux ensemble submit study wait --count 100 >printed 2>waiting &&
	sent=$(wc -l <printed) &&
	test $sent -ge 1 &&
	grep "^$((100 - sent)) jobs wait until a member has room" waiting &&
	flux ensemble cancel study wait >cancelled &&
	grep "$sent jobs of group .wait. cancelled" cancelled &&
	wait_ended wait $sent
'

test_expect_success 'what is printed can be pasted: a job is found by its member and id' '
	job=$(flux ensemble jobs study -n -o "{id}" --filter "params.s == 2 and group == \"say\"") &&
	flux ensemble jobs study $job -n -o "{id} {params.s}" >found &&
	is "$job 2" "$(cat found)" &&
	flux ensemble output study $job >output 2>titles &&
	grep "^told 2" output &&
	grep "^wrong 2" output &&
	file=$(flux ensemble jobs study -n -o "{id}" --group say | head -1) &&
	is "$file" "$(flux ensemble jobs study -n -o "{id}" $file)"
'

test_expect_success 'a wrong name of a job is refused with the remedy' '
	test_expect_code 1 flux ensemble output study pol.0:ƒ1 2>errors &&
	grep -F "did you mean '\''pool.0'\''? members: pool.0, pool.1" errors &&
	test_expect_code 1 flux ensemble output study pool.0:ƒ1 2>errors &&
	grep "has no job pool.0:ƒ1 in its record (jobs: pool.[01]:" errors &&
	refused "expected a job such as" flux ensemble output study pool.0 &&
	refused "name jobs, or choose them by options, not both" \
		flux ensemble jobs study $job --group say
'

test_expect_success 'an id that two jobs have is refused' '
	cat >ids.py <<-EOD &&
	from flux_ensemble.cli.common import Failure
	from flux_ensemble.cli.commands.jobs import named_jobs
	from flux_ensemble.client import Client

	class Two(Client):
	    def jobs(self, name, **more):
	        (one, *_) = super().jobs(name, group="say")
	        return [{**one, "member": "pool.0"}, {**one, "member": "pool.1"}]

	(one,) = named_jobs(Two(), "study", ["pool.1:ƒ1"])
	assert one["member"] == "pool.1", one
	try:
	    print(list(named_jobs(Two(), "study", ["ƒ1"])))
	except Failure as error:
	    print(error)
	EOD
	"$SHARNESS_BUILD_DIRECTORY/python" ids.py >said &&
	grep "^2 jobs have the id ƒ1: say which (pool.0:.*, pool.1:.*)" said
'

test_expect_success 'status, log, why, list and metrics show members and their jobs' '
	flux ensemble status study >status &&
	grep "^MEMBER  *STATE  *NODES  *CORES  *JOBS  *JOBID" status &&
	id=$(flux jobs -n -o "{id}" --name=study:pool.1) &&
	grep "^pool.1  *up  *1 .* $id " status &&
	flux ensemble log study >log &&
	grep "member-start  pool.0 was asked for" log &&
	grep "member-up  *pool.1 is up: 1 node" log &&
	flux ensemble why study &&
	flux ensemble list -n -o "{name} {state}" | grep "^study running" &&
	flux ensemble metrics study >metrics &&
	grep "^say  *duration" metrics
'

test_expect_success 'top shows the members' '
	flux ensemble top --once study >top &&
	grep "^  pool.0  up        1 node, .* 0 jobs" top
'

test_expect_success 'failures counts by member, and shows what a job on a member wrote' '
	flux ensemble submit study say --param s=7 --param code=3 &&
	wait_ended say 6 &&
	flux ensemble failures study >failures &&
	grep "say: exit 3: 1 job" failures &&
	grep "job pool.[01]:.* wrote at last:" failures &&
	grep "^    wrong 7" failures
'

test_expect_success 'export, report and the exporter have the members' '
	flux ensemble export study jobs.csv &&
	head -1 jobs.csv | grep "\bmember\b" &&
	flux ensemble report study &&
	grep -q "2 instances shared the jobs" study.html &&
	flux ensemble metrics-exporter --textfile "$PWD/study.prom" --interval 0 &&
	grep "flux_ensemble_pool_member_nodes{ensemble=\"study\",member=\"pool.0\",pool=\"pool\"} 1" study.prom
'

test_expect_success 'cancel of a paused ensemble reaches the jobs of its members' '
	flux ensemble submit study wait --count 2 &&
	flux ensemble pause study &&
	flux ensemble cancel study wait | grep "2 jobs of group .wait. cancelled" &&
	wait_ended wait $((sent + 2)) &&
	flux ensemble resume study
'

test_expect_success 'jobs of an ensemble that is over go on, and are cancelled when that is asked' '
	flux ensemble submit study file &&
	flux ensemble submit study wait --count 2 &&
	wait_ended file 4 &&
	flux ensemble terminate study &&
	is completed "$(status_of study state)" &&
	is 2 "$(status_of study jobs.active)" &&
	flux ensemble cancel study &&
	wait_ended wait $((sent + 4))
'

test_expect_success 'output that only a member had is gone with it, which is said; files stay' '
	wait_quiet &&
	test_expect_code 1 flux ensemble output study $job 2>errors &&
	grep "what it wrote was in member pool.[01], which has ended; .output: FILE. in the document keeps it" errors &&
	flux ensemble failures study | grep "which has ended" &&
	kept=$(flux ensemble jobs study -n -o "{id}" --filter "group == \"file\" and params.s == 3") &&
	is "kept 3" "$(flux ensemble output study $kept)"
'

test_expect_success 'unload the module' '
	flux module remove ensemble
'

test_done
