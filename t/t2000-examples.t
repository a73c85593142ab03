#!/bin/sh
test_description='Examples end with exit code 0 and the expected job counts'
# Those that need nothing but to be run are in t2002-parity.t, two-allocations in t1026-walltime.t.
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 4

# Write the example with steps that wait for a file: `stepwise_counter`.
stepwise_counter() {
	sed "s/command: echo step.*/command: [sh, -c, \"until test -e go-{number}; do sleep 0.1; done\"]/" \
		"$PROJECT/examples/counter.yaml" >counter.yaml &&
	grep go-{number} counter.yaml &&
	touch go-1 go-2
}

# Whether the function has printed these steps: `counted OPTIONS STEPS`.
counted() {
	flux-ensemble log $1 counter 2>/dev/null | grep -q "steps so far: $2\$"
}

third_step_runs() {
	flux-ensemble jobs --state-dir state counter --interrupted -n -o "{params.number} {status}" | grep "^3 running"
}

service_is_gone() {
	is 0 "$(modules_loaded)"
}

test_expect_success 'counter: the count goes on after kill -9 of the service' '
	stepwise_counter &&
	flux setattr broker.module-nopanic 1 &&
	flux ensemble load counter.yaml &&
	wait_until counted "" "1 2" &&
	kill -KILL "$(flux ensemble status --json | json service.pid)" &&
	wait_until service_is_gone &&
	load_module &&
	touch go-3 go-4 go-5 go-6 &&
	flux ensemble wait --timeout 600 counter &&
	counted "" "1 2 3 4 5 6" &&
	ends_as_listed counter
'

test_expect_success 'counter: so it does on the local queue, with --resume' '
	rm go-* &&
	stepwise_counter &&
	{ "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" run --queue local --state-dir state \
		counter.yaml >out & pid=$!; } &&
	wait_until counted "--state-dir state" "1 2" &&
	wait_until third_step_runs &&
	kill -KILL $pid &&
	touch go-3 go-4 go-5 go-6 &&
	flux-ensemble run --queue local --state-dir state --resume counter.yaml &&
	counted "--state-dir state" "1 2 3 4 5 6" &&
	flux-ensemble jobs --state-dir state counter --interrupted -n -o "{status} {exception.type}" \
		--group step | sort | uniq -c >ended &&
	cat ended &&
	is 1 "$(grep -c "1 interrupted lost" ended)" &&
	is 1 "$(grep -c "6 success" ended)"
'

test_expect_success 'tune' '
	flux ensemble run --timeout 600 "$PROJECT/examples/tune.yaml" &&
	counts_are tune "trial=$(counts_of tune trial)" final=1/0/0/0
'

test_expect_success 'tune: trials were stopped early, and none has failed' '
	counts_of tune trial | tr / " " >counts &&
	read complete failed canceled timeout <counts &&
	is 20 $(($complete + $canceled)) &&
	is "0 0" "$failed $timeout" &&
	test $canceled -ge 1 &&
	flux ensemble search --json tune | grep "\"pruned\": $canceled,"
'

test_expect_success 'tune: search shows the best trials, and the last job has its parameters' '
	flux ensemble search tune >searches &&
	grep "^best *done *trials *tpe *20/20 *0 .* min loss" searches &&
	flux ensemble search --json tune >json &&
	x=$("$SHARNESS_BUILD_DIRECTORY/python" -c "import json
print(json.load(open(\"json\"))[\"searches\"][0][\"best\"][0][\"params\"][\"x\"])") &&
	id=$(flux jobs -a --no-header --format={id} --name=final) &&
	flux job attach $id >printed &&
	grep "^x=$x " printed &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "import json
(search,) = json.load(open(\"json\"))[\"searches\"]
print(*sorted(search[\"variables\"]), len(search[\"all_trials\"]))" >actual &&
	is "k kind x 20" "$(cat actual)"
'

test_expect_success 'tune: Optuna reads what export writes, trials that were stopped early too' '
	flux ensemble export tune tune.journal --to optuna >out &&
	is "20 trials of search '"'best'"' written to tune.journal" "$(cat out)" &&
	counts_of tune trial | tr / " " >counts &&
	read complete failed canceled timeout <counts &&
	"$SHARNESS_BUILD_DIRECTORY/python" -c "
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna import load_study
storage = JournalStorage(JournalFileBackend(\"tune.journal\"))
states = [trial.state.name for trial in load_study(study_name=None, storage=storage).trials]
print(states.count(\"COMPLETE\"), states.count(\"PRUNED\"))" >actual &&
	is "$complete $canceled" "$(cat actual)"
'

# $1 - The name of an example whose 9 trials are stopped early, some of them.
stopped_early() {
	flux ensemble run --timeout 600 "$PROJECT/examples/$1.yaml" &&
	counts_are $1 "trial=$(counts_of $1 trial)" final=1/0/0/0 &&
	counts_of $1 trial | tr / " " >counts &&
	read complete failed canceled timeout <counts &&
	is 9 $(($complete + $canceled)) &&
	is "0 0" "$failed $timeout" &&
	flux ensemble search --json $1 | grep "\"pruned\": $canceled,"
}

test_expect_success 'asha: each trial is complete or was stopped, and the last job has run' '
	stopped_early asha
'

test_expect_success 'median-stop: each trial is complete or was stopped, and the last job has run' '
	stopped_early median-stop
'

# Write the example with measurements that wait for the new model after each eight of them, however
# slow training is.
patient_learning() {
	cat >await-model <<-\EOD &&
	refreshed() {
		flux ensemble log active-learning | grep -c "fire .* refresh doubt"
	}
	until test $(ls measured | wc -l) -lt $((8 + 8 * $(refreshed))); do sleep 0.2; done
	EOD
	cp "$PROJECT/examples/active_learning.py" . &&
	sed "s/mkdir -p measured/& \&\& sh await-model/" "$PROJECT/examples/active-learning.yaml" \
		>active-learning.yaml &&
	grep await-model active-learning.yaml
}

test_expect_success 'active-learning' '
	patient_learning &&
	flux ensemble run --timeout 600 active-learning.yaml &&
	ends_as_listed active-learning
'

test_expect_success 'active_learning.py: most values were measured where the function is steep' '
	flux ensemble search active-learning | grep "^doubt *done *trials *active_learning:Doubt *24/24 " &&
	is 24 "$(wc -l <model)" &&
	is 3 "$(flux ensemble log active-learning | grep -c "fire .* refresh doubt")" &&
	test "$(awk "\$1 > 0.15 && \$1 < 0.45" model | wc -l)" -ge 10
'

test_expect_success 'samples.csv: each job has the cells of its row, and other rows have none' '
	flux ensemble run --timeout 600 "$PROJECT/examples/sample-sheet.yaml" &&
	for id in $(flux jobs -a --no-header --format={id} --name=align); do
		flux job attach $id || return 1
	done | sort >aligned &&
	cat >expected <<-\EOD &&
	aligning brain 2, brain_2.fq.gz with brain_2_2.fq.gz
	aligning liver 1, liver_1.fq.gz with liver_1_2.fq.gz
	EOD
	test_cmp expected aligned
'

test_expect_success 'queue-scope, with a job from outside' '
	flux ensemble run --timeout 600 "$PROJECT/examples/queue-scope.yaml" & pid=$! &&
	wait_loaded queue-scope &&
	wait_entry queue-scope start &&
	flux submit true &&
	wait $pid &&
	counts_are queue-scope follow-up=1/0/0/0
'

test_expect_success 'raw_rpc.py' '
	cat >idle.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: echo, command: echo hello}
	EOD
	flux ensemble load idle.yaml &&
	flux python "$PROJECT/examples/raw_rpc.py" idle echo &&
	flux ensemble terminate idle
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
