#!/bin/sh
test_description='Rules see the job that triggers them, and jobs run again with other limits'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Print the time limits in seconds of all jobs of a name.
limits_of() {
	flux jobs -a --no-header --format={duration} --name="$1" | sort -n | xargs
}

test_expect_success 'a job gets what the triggering job was, had and said' '
	cat >seen.yaml <<-EOD &&
	jobs:
	  - name: first
	    command: [sh, -c, "flux job memo \$FLUX_JOB_ID word=so-so energy=1.5 && sleep 0.1; exit 3"]
	    params: {t: [280, 300]}
	    duration: 10m
	  - name: then
	    command: [sh, -c, "echo t={t} n={n} energy={energy} code={code} word=\$WORD in=\${PWD##*/}"]
	    params: {t: 0, n: 0, energy: 0, code: 0}
	rules:
	  - {trigger: start, action: {name: submit, label: first}}
	  - trigger: [job-fail, job-timeout]
	    group: [first]
	    when: job.returncode == 3 and job.outcome == "failed" and job.params.t > 290
	    action:
	      name: submit
	      label: then
	      params: {t: "{job.params.t}", n: "{job.index}", energy: "{job.memo.energy * 2}", code: "{job.returncode}"}
	      environment: {WORD: "{job.memo.word}"}
	      workdir: $PWD/at-{job.params.t}
	      duration: "{job.duration / 2}"
	      repetitions: unlimited
	EOD
	mkdir at-300 &&
	flux ensemble run seen.yaml &&
	is 0/2/0/0 "$(counts_of seen first)" &&
	is 1/0/0/0 "$(counts_of seen then)" &&
	id=$(flux jobs -a --no-header --format={id} --name=then) &&
	is "t=300 n=1 energy=3.0 code=3 word=so-so in=at-300" "$(flux job attach $id)" &&
	is 300.0 "$(limits_of then)"
'

test_expect_success 'the exit code of a signal is negative, and an exception has a type' '
	cat >ends.yaml <<-EOD &&
	jobs:
	  - {name: killed, command: [sh, -c, "kill -9 \$\$"]}
	  - {name: odd, command: "true", nodes: 100}
	  - {name: saw-signal, command: "true"}
	  - {name: saw-exception, command: "true"}
	rules:
	  - trigger: start
	    actions:
	      - {name: submit, label: killed}
	      - {name: submit, label: odd}
	  - trigger: job-fail
	    group: killed
	    when: job.returncode in (-9, 137)
	    action: {name: submit, label: saw-signal}
	  - trigger: job-fail
	    group: odd
	    when: job.exception.type == "alloc" and "unsatisfiable" in job.exception.note
	    action: {name: submit, label: saw-exception}
	EOD
	flux ensemble run ends.yaml &&
	is 1/0/0/0 "$(counts_of ends saw-signal)" &&
	is 1/0/0/0 "$(counts_of ends saw-exception)"
'

one_has_more_time() {
	is "100.0 300.0" "$(limits_of long)"
}

one_is_canceled() {
	is 0/0/1/0 "$(counts_of alone long)"
}

test_expect_success 'the triggering job alone is given more time, or cancelled' '
	cat >alone.yaml <<-EOD &&
	jobs:
	  - name: long
	    command: [sh, -c, "flux job memo \$FLUX_JOB_ID n={n}; sleep 600"]
	    params: {n: [1, 2]}
	    duration: 100s
	  - {name: end, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: long}}
	  - trigger: job-start
	    group: long
	    when: job.params.n == 2
	    action: {name: update, jobs: trigger, duration: "{job.duration * 3}"}
	  - trigger: job-memo
	    group: long
	    when: job.memo.n == 1
	    action: {name: cancel, jobs: trigger}
	EOD
	flux ensemble load alone.yaml &&
	wait_until one_is_canceled &&
	wait_until one_has_more_time &&
	flux ensemble cancel alone &&
	flux queue idle --timeout=300
'

test_expect_success 'a firing without a fitting value is in the log and in the status' '
	cat >unfit.yaml <<-EOD &&
	jobs:
	  - {name: a, command: "true"}
	  - {name: b, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - id: more
	    trigger: job-success
	    group: a
	    action: {name: submit, label: b, nodes: "{job.memo.nodes}"}
	EOD
	test_expect_code 1 flux ensemble run unfit.yaml >out 2>&1 &&
	sentence="submit b: nodes: {job.memo.nodes} has no value" &&
	grep -F "$sentence" out &&
	flux ensemble log unfit | grep -F "$sentence" &&
	is "$sentence" "$(status_of unfit rules.1.error)" &&
	is false "$(status_of unfit rules.1.enabled)" &&
	sed "s/id: more/id: more\n    on-error: fail/" unfit.yaml >fail.yaml &&
	test_expect_code 1 flux ensemble run --name fails fail.yaml >out 2>&1 &&
	grep "rule .more.: submit b: nodes: .* has no value" out
'

test_expect_success 'a job that asks for a thousand million of anything fails with a sentence' '
	cat >huge.yaml <<-EOD &&
	name: huge
	jobs:
	  - {name: a, command: "true"}
	  - {name: b, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	EOD
	for key in nodes tasks cores gpus; do
		echo "  - {trigger: job-success, group: a, action:" \
			"{name: submit, label: b, $key: \"{1000000000 + job.index}\"}}" >>huge.yaml
	done &&
	flux ensemble run huge.yaml &&
	flux ensemble run --queue local --state-dir state huge.yaml &&
	flux ensemble jobs huge --group b -n -o "{outcome} {exception.note}" >notes &&
	is 4 "$(grep -c "^failed *unsatisfiable request" notes)" &&
	flux ensemble jobs --state-dir state huge --group b -n -o "{outcome} {exception.note}" >notes &&
	is 4 "$(grep -c "^failed *unsatisfiable request" notes)"
'

test_expect_success 'terminate as failed ends with 1 and the reason' '
	cat >ended.yaml <<-EOD &&
	jobs:
	  - {name: a, command: "false"}
	rules:
	  - {trigger: start, action: {name: submit, label: a}}
	  - trigger: job-fail
	    action: {name: terminate, state: failed, reason: "job {job.index} said {job.returncode}"}
	EOD
	test_expect_code 1 flux ensemble run ended.yaml >out 2>&1 &&
	grep "job 0 said 1" out &&
	is failed "$(status_of ended state)" &&
	flux ensemble status --json ended | json ensembles.0.reason | grep "job 0 said 1"
'

test_expect_success 'a job runs again later with more, gives up, and a rule sees that' '
	cat >again.yaml <<-EOD &&
	jobs:
	  - name: tried
	    command: [sh, -c, "exit 17"]
	    duration: 10s
	    retries:
	      times: 2
	      on: job.returncode == 17
	      after: 0.1s
	      factor: 2
	      with: {duration: "{job.duration * 2}"}
	  - {name: b, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: tried}}
	  - trigger: job-gave-up
	    when: job.attempt == 2 and job.duration == 40
	    action: {name: submit, label: b}
	EOD
	flux ensemble run again.yaml &&
	is 0/3/0/0 "$(counts_of again tried)" &&
	is 1/0/0/0 "$(counts_of again b)" &&
	is "10.0 20.0 40.0" "$(limits_of tried)"
'

test_expect_success 'a job that waits for its next try is kept by a service that begins again' '
	cat >kept.yaml <<-EOD &&
	jobs:
	  - {name: kept, command: "false", retries: {times: 1, after: 2s, with: {duration: 7m}}}
	rules:
	  - {trigger: start, action: {name: submit, label: kept}}
	EOD
	flux ensemble load kept.yaml &&
	wait_entry kept retry &&
	load_module reload &&
	flux ensemble wait kept &&
	is 0/2/0/0 "$(counts_of kept kept)" &&
	is "0.0 420.0" "$(limits_of kept)"
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
