#!/bin/sh
test_description='The record of jobs: each that has ended, and those that are active'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'run jobs that end in different ways' '
	cat >study.yaml <<-EOD &&
	jobs:
	  - name: sim
	    command: [sh, -c, "flux job memo \$FLUX_JOB_ID fom={t}; exit {t}"]
	    params: {t: [0, 3]}
	    output: "out-{t}-{{{{id}}}}.txt"
	  - {name: killed, command: [sh, -c, "kill -9 \$\$"]}
	  - {name: long, command: sleep 100, duration: 1s}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - {trigger: start, action: {name: submit, label: killed}}
	  - {trigger: start, action: {name: submit, label: long}}
	EOD
	sed -i "s/{{{{id}}}}/{{id}}/" study.yaml &&
	flux ensemble run study.yaml
'

# The jobs of an ensemble as JSON lines, sorted by group and index.
jobs_by_client() {
	run_python "$@" <<-EOD
	import json
	import sys

	from flux_ensemble.client import Client

	jobs = list(Client().jobs(sys.argv[1], filter=sys.argv[2] if len(sys.argv) > 2 else None))
	for job in sorted(jobs, key=lambda job: (job["group"], job["index"])):
	    print(json.dumps(job))
	EOD
}

test_expect_success 'the client has each of them, with how it ended' '
	jobs_by_client study >jobs &&
	run_python <<-EOD
	import json

	killed, long, zero, three = map(json.loads, open("jobs"))
	outcomes = [job["outcome"] for job in (killed, long, zero, three)]
	assert outcomes == ["failed", "timeout", "success", "failed"], outcomes
	assert [job["returncode"] for job in (zero, three)] == [0, 3]
	assert [job["params"] for job in (zero, three)] == [{"t": 0}, {"t": 3}]
	assert [job["memo"] for job in (zero, three)] == [{"fom": 0}, {"fom": 3}]
	assert long["exception"]["type"] == "timeout", long
	for job in (killed, long, zero, three):
	    assert job["state"] == "inactive", job
	    assert job["nnodes"] == 1, job
	    assert job["t_submit"] < job["t_alloc"] <= job["t_run"] < job["t_end"], job
	EOD
'

test_expect_success 'they are those of flux-jobs' '
	flux jobs -a -n -o "{id.dec} {returncode} {ranks}" | sort >expected &&
	run_python >actual <<-EOD &&
	import json

	for job in map(json.loads, open("jobs")):
	    # Flux has the exit code of its shell, which is 128 and the number of a signal.
	    code = 128 + job["signal"] if job["signal"] else job["returncode"]
	    print(job["id"], code, job["ranks"])
	EOD
	sort actual >sorted && test_cmp expected sorted
'

test_expect_success 'the path of their output is that of the file' '
	run_python <<-EOD
	import json
	import os

	for job in map(json.loads, open("jobs")):
	    assert job["output"] is None or os.path.exists(job["output"]), job["output"]
	assert sum(job["output"] is not None for job in map(json.loads, open("jobs"))) == 2
	EOD
'

test_expect_success 'a filter is applied in the service' '
	jobs_by_client study "job.params.t > 0 or exception.type == \"timeout\"" >chosen &&
	is 2 "$(wc -l <chosen)" &&
	test_must_fail jobs_by_client study "job.colour == 1" 2>err &&
	grep "a job has no field .colour." err
'

test_expect_success 'the command prints a table, as flux-jobs does' '
	flux ensemble jobs study --group sim >out && cat out &&
	grep "JOBID *GROUP *STATUS *NNODES *RUNTIME *RC *PARAMS" out &&
	grep "sim *success *1 .*s *0 t=0" out &&
	grep "sim *failed *1 .*s *3 t=3" out &&
	# Flux has the exit code of its shell, which is 128 and the number of a signal.
	flux ensemble jobs study -n -o "{id} {returncode} {ranks}" |
		awk "{if (\$2 < 0) \$2 = 128 - \$2; print}" | sort >ours &&
	flux jobs -a -n -o "{id.f58} {returncode} {ranks}" | sort >theirs &&
	test_cmp theirs ours
'

test_expect_success 'its formats know parameters, keys of memos and exceptions' '
	flux ensemble jobs study -n -o "{group} {params.t} {memo.fom} {exception.type}" \
		--outcome timeout >out &&
	is "long   timeout" "$(cat out)" &&
	is "3 3" "$(flux ensemble jobs study -n -o "{params.t} {memo.fom}" --filter "params.t > 0")" &&
	flux ensemble jobs study -o long >long && grep "long .* timeout " long &&
	flux ensemble jobs study --json >out && json jobs.3.id <out &&
	test_must_fail flux ensemble jobs study -o "{colour}" 2>err &&
	grep "Unknown format field: colour (fields: id, .*params.NAME, memo.NAME)" err
'

test_expect_success 'what there is not is a sentence' '
	test_expect_code 2 flux ensemble jobs study --filter "job.colour == 1" 2>err &&
	grep "a job has no field .colour. (fields: id, member, name, " err &&
	test_expect_code 1 flux ensemble jobs study --group simm 2>err &&
	grep "no job group named .simm. (groups: killed, long, sim); did you mean .sim." err &&
	test_expect_code 1 flux ensemble jobs stuy 2>err &&
	grep "did you mean .study." err
'

test_expect_success 'they are exported to tables' '
	flux ensemble export study jobs.sqlite &&
	run_python >out <<-EOD &&
	import sqlite3

	query = "select \"params.t\", returncode, \"memo.fom\" from jobs where \"group\" = ? order by 1"
	print(*sqlite3.connect("jobs.sqlite").execute(query, ("sim",)))
	EOD
	is "(0, 0, 0) (3, 3, 3)" "$(cat out)" &&
	flux ensemble export study jobs.csv --outcome timeout >out &&
	is "1 job written to jobs.csv" "$(cat out)" &&
	is 2 "$(wc -l <jobs.csv)" &&
	test_expect_code 1 flux ensemble export study jobs.csv 2>err &&
	grep "jobs.csv exists: --force replaces it" err &&
	test_expect_code 1 flux ensemble export stuy other.csv 2>err &&
	grep "did you mean .study." err &&
	test_must_fail test -e other.csv
'

test_expect_success 'failures are grouped by their reasons, with what the jobs wrote' '
	cat >faulty.yaml <<-EOD &&
	jobs:
	  - name: sim
	    command: [sh, -c, "test {t} != 5 || { echo no licence for {t} >&2; exit 3; }"]
	    params: {t: {range: [0, 10]}}
	    count: 4
	  - {name: filed, command: [sh, -c, "echo to a file; exit 4"], output: filed.txt}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - {trigger: start, action: {name: submit, label: filed}}
	EOD
	flux ensemble run faulty.yaml >out &&
	grep "^5 of 41 jobs failed: see .flux ensemble failures faulty.$" out &&
	flux ensemble failures faulty >out && cat out &&
	grep "^5 of 41 jobs failed" out &&
	grep "^sim: exit 3: 4 jobs" out &&
	grep "params.t = 5: 4 of 4 jobs failed so (lift 10)" out &&
	grep "    no licence for 5" out &&
	grep "^filed: exit 4: 1 job$" out &&
	grep "    to a file" out &&
	eval "$(sed -n "s/.*all of them: \(.*group sim.*\)/\1/p" out) -n" >listed &&
	is 4 "$(wc -l <listed)"
'

test_expect_success 'run --fail-on-job-failure exits with 1, unless a retry made up for it' '
	for queue in flux local; do
		test_expect_code 1 flux ensemble run --fail-on-job-failure --queue $queue faulty.yaml ||
			return 1
	done &&
	cat >again.yaml <<-EOD &&
	jobs:
	  - name: once
	    command: [sh, -c, "test -e tried || { touch tried; exit 1; }"]
	    retries: 1
	rules:
	  - {trigger: start, action: {name: submit, label: once}}
	EOD
	flux ensemble run --fail-on-job-failure again.yaml >out &&
	test_must_fail grep "jobs failed" out
'

test_expect_success 'a local run leaves its jobs in a file' '
	flux ensemble run --queue local --state-dir state study.yaml;
	flux ensemble jobs --state-dir state study -n -o "{group} {index} {outcome} {returncode}" |
		sort >out &&
	cat >expected <<-EOD &&
	killed 0 failed -9
	long 0 timeout -15
	sim 0 success 0
	sim 1 failed 3
	EOD
	test_cmp expected out &&
	flux ensemble jobs --state-dir state study --outcome success -n -o "{params.t}" >out &&
	is 0 "$(cat out)"
'

test_expect_success 'a service that takes over has the same' '
	flux module remove ensemble &&
	load_module &&
	jobs_by_client study >again &&
	test_cmp jobs again
'

one_runs() {
	jobs_by_client none >active && grep running active
}

test_expect_success 'records: false leaves active jobs only' '
	cat >none.yaml <<-EOD &&
	records: false
	jobs:
	  - {name: short, command: "true"}
	  - {name: long, command: sleep 100}
	rules:
	  - {trigger: start, action: {name: submit, label: short}}
	  - {trigger: job-finish, group: short, action: {name: submit, label: long}}
	EOD
	flux ensemble load none.yaml &&
	wait_until one_runs &&
	is 1 "$(wc -l <active)" &&
	flux ensemble cancel none
'

test_done
