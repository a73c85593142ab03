#!/bin/sh
test_description='The report of ensembles in the service, its metrics, and its trace'
# What says that an instance ends with its command asks who started the command.
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'run an ensemble of which some jobs fail' '
	cat >study.yaml <<-EOD &&
	jobs:
	  - name: sim
	    command: [sh, -c, "flux job memo \$FLUX_JOB_ID fom={t}; echo bad luck >&2; exit {t}"]
	    params: {t: [0, 3]}
	    count: 2
	    environment: {TOKEN: hunter2}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	EOD
	flux ensemble run study.yaml
'

test_expect_success 'its report is one file, with the totals of status and export' '
	flux ensemble report study 2>said &&
	grep "study.html: 4 jobs" said &&
	flux ensemble status study --json >status &&
	flux ensemble export study jobs.jsonl &&
	run_python "$SHARNESS_TEST_SRCDIR" <<-EOD
	import json
	import re
	import sys

	sys.path.append(f"{sys.argv[1]}/python/helpers")
	from reports import columns

	page = open("study.html").read()
	(text,) = re.findall(r"id=.data.>([^<]*)<", page)
	found = columns(text)["e0.jobs"]
	jobs = [json.loads(line) for line in open("jobs.jsonl")]
	assert found["id"] == [job["id"] for job in jobs]
	for key in ("group", "outcome", "returncode", "ranks"):
	    assert found[key] == [job[key] for job in jobs], key
	assert found["params.t"] == [job["params"]["t"] for job in jobs]
	assert found["memo.fom"] == [job["memo"]["fom"] for job in jobs]
	(status,) = json.load(open("status"))["ensembles"]
	assert found["outcome"].count("failed") == status["groups"]["sim"]["failed"] == 2
	assert "2 of 4 jobs failed" in page
	assert "bad luck" in page
	assert "TOKEN" in page and "hunter2" not in page
	EOD
'

test_expect_success 'a report is replaced, another file is not' '
	flux ensemble report study &&
	echo mine >mine.html &&
	test_must_fail flux ensemble report study -o mine.html 2>said &&
	grep "mine.html exists and is no report: --force replaces it" said &&
	grep -x mine mine.html &&
	flux ensemble report study -o mine.html --force &&
	flux ensemble report study -o - >out.html &&
	head -n 2 out.html | grep "report of flux-ensemble"
'

test_expect_success 'an unknown ensemble is refused with a near one' '
	test_must_fail flux ensemble report stuy 2>said &&
	grep "did you mean .study." said &&
	test_must_fail flux ensemble report 2>said &&
	grep "name an ensemble" said
'

test_expect_success 'a live ensemble has a report, beside one that has ended' '
	cat >live.yaml <<-EOD &&
	jobs: [{name: long, command: sleep 300}]
	rules: [{trigger: start, action: {name: submit, label: long}}]
	EOD
	flux ensemble load live.yaml &&
	flux ensemble report live study -o both.html &&
	grep "id=\"e1\"" both.html >/dev/null &&
	flux ensemble cancel live
'

test_expect_success 'metrics of the service are those of the status' '
	flux ensemble metrics-exporter --textfile all.prom --interval 0 &&
	grep "flux_ensemble_jobs_ended_total{ensemble=\"study\",group=\"sim\",outcome=\"failed\"} 2.0" all.prom &&
	grep "flux_ensemble_instance_nodes 2.0" all.prom &&
	grep "flux_ensemble_member_nodes{member=\"default\"} 2.0" all.prom &&
	grep "flux_ensemble_up 1.0" all.prom
'

test_expect_success 'metrics are given before the service is loaded, and say that it is not there' '
	flux start flux ensemble metrics-exporter --textfile early.prom --interval 0 2>err &&
	grep "flux_ensemble_up 0.0" early.prom &&
	grep "service is not loaded.*until it answers" err &&
	FLUX_URI=local:///no-such flux ensemble metrics-exporter --textfile absent.prom --interval 0 2>err &&
	grep "flux_ensemble_up 0.0" absent.prom &&
	grep "no Flux instance at FLUX_URI.*until it answers" err
'

test_expect_success 'where the instance ends with the run, that says what keeps the results, or keeps them' '
	flux start flux ensemble run study.yaml >out &&
	grep "^this instance ends with this command.*--report FILE and --export FILE keep it" out &&
	test_must_fail grep "flux ensemble failures" out &&
	flux start flux ensemble run --report left.html --export left.json study.yaml >out 2>err &&
	test_must_fail grep "this instance ends" out &&
	grep "left.json: .* jobs" err &&
	head -n 2 left.html | grep "report of flux-ensemble" &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "import json; assert json.load(open(\"left.json\"))"
'

test_expect_success 'an instance without a statedir says so on a terminal and in a batch job, and how to keep the results' '
	cat >on-terminal.py <<-\EOD &&
	import pty
	import sys

	pty.spawn(["flux", "ensemble", "run", *sys.argv[1:]])
	EOD
	cat >in-turn.sh <<-EOD &&
	on_terminal() { TERM=xterm COLUMNS=200 "$SHARNESS_BUILD_DIRECTORY/python" on-terminal.py "\$@" </dev/null; }
	flux ensemble run study.yaml >"\$1.plain"
	on_terminal --name again study.yaml >"\$1.terminal"
	on_terminal --name kept --export "\$1.csv" study.yaml >"\$1.kept"
	EOD
	says="this instance has no statedir.*.flux ensemble export again again.csv. keeps them" &&
	flux start sh in-turn.sh here && grep "$says" here.terminal &&
	test_must_fail grep statedir here.plain here.kept &&
	mkdir stays && flux start -S statedir="$PWD/stays" sh in-turn.sh stays &&
	test_must_fail grep statedir stays.plain stays.terminal stays.kept &&
	flux alloc -n1 sh in-turn.sh job && grep "no statedir.*export study study.csv" job.plain
'

test_expect_success 'where it has a statedir, the command that asks it later works' '
	mkdir kept &&
	flux start -S statedir="$PWD/kept" flux ensemble run study.yaml >out 2>err &&
	grep "a crash of the first broker would lose this run.*checkpoint-period" err &&
	eval "$(sed -n "s/^later, .\(flux start .*\). asks this instance/\1/p" out)" >failures.out &&
	grep "jobs failed" failures.out &&
	flux start -S statedir="$PWD/kept" sh -c "flux ensemble; flux ensemble list || :" >again.out 2>again.err &&
	grep "does not run. It has kept .study." again.out &&
	grep "run --resume FILE .*goes on with the run" again.out &&
	grep "has kept .study.: .flux ensemble run --resume FILE. starts it" again.err
'

test_done
