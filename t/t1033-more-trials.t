#!/bin/sh
test_description='search --more and --add: a search goes on, in the same record'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"
. ./functions

if ! python -c 'import optuna' 2>/dev/null; then
	skip_all='optuna is not installed'
	test_done
fi

# The points of all trials, in the order of their numbers.
points() {
	flux ensemble jobs "$1" --group trial -n -o "{trial} {params.x} {params.k}" | sort -n
}

test_expect_success 'the points of a document are tried first' '
	cat >tune.yaml <<-EOD &&
	seed: 7
	search:
	  - id: hpo
	    group: trial
	    variables: {x: {low: 0, high: 1}, k: {low: 1, high: 8, integer: true}}
	    minimize: loss
	    points: [{x: 0.5, k: 3}, {x: 0.75, k: 1}]
	    trials: 5
	    parallel: 2
	jobs:
	  - {name: trial, command: "sh trial.sh {x} {k}"}
	rules:
	  - {trigger: start, action: {name: search, label: hpo}}
	EOD
	cat >trial.sh <<-EOD &&
	touch began-\$1
	while [ -e gate ]; do sleep 0.1; done
	flux-ensemble memo loss=\$1
	EOD
	flux ensemble run --isolate -q tune.yaml &&
	points tune >before &&
	head -2 before >first &&
	printf "0 0.5 3\n1 0.75 1\n" >expected &&
	test_cmp expected first &&
	is 5 "$(status_of tune searches.0.complete)"
'

test_expect_success 'an ensemble that has ended goes on with more trials, and is followed to its end' '
	flux ensemble search tune --more 3 --add x=0.25,k=4 >out &&
	grep "going on after the end (completed)" out &&
	grep "hpo: 4 more trials, 9 in all" out &&
	tail -1 out | grep "^tune: completed after .* in which it did not run" &&
	points tune >after &&
	head -5 after >same &&
	test_cmp before same &&
	is "5 0.25 4" "$(sed -n 6p after)" &&
	is 9 "$(status_of tune searches.0.complete)" &&
	flux ensemble search tune | grep "9/9"
'

test_expect_success 'who follows its log sees the last end' '
	flux ensemble watch tune >out &&
	grep "4 more trials" out &&
	tail -1 out | grep "in which it did not run"
'

test_expect_success 'what it cannot have is refused, and it stays as it is' '
	flux ensemble log tune >before.log &&
	test_must_fail flux ensemble search tune --add x=2,k=4 2>err &&
	grep "points.0.: x: expected a number >= 0 and <= 1, not 2.0" err &&
	test_must_fail flux ensemble search tune hpx --more 1 2>err &&
	grep "has no search .hpx. (did you mean .hpo.? searches: hpo)" err &&
	flux ensemble log tune >after.log &&
	test_cmp before.log after.log &&
	is completed "$(status_of tune state)"
'

test_expect_success 'one that runs takes points among its own' '
	touch gate && rm -f began-* &&
	flux ensemble load --name slow tune.yaml &&
	wait_until test -e began-0.75 &&
	flux ensemble search slow --add x=0.125,k=8 --add x=0.0625,k=8 >out &&
	grep "^slow: 2 more trials of hpo, 7 in all$" out &&
	rm gate &&
	flux ensemble wait slow &&
	points slow >out &&
	grep "^2 0.125 8$" out && grep "^3 0.0625 8$" out &&
	is 7 "$(wc -l <out)"
'

test_expect_success 'the service is killed while it goes on, and each point is tried once' '
	touch gate && rm -f began-* &&
	flux ensemble search slow --detach --more 3 --add x=0.25,k=4 &&
	wait_until test -e began-0.25 &&
	kill_service &&
	is running "$(status_of slow state)" &&
	rm gate &&
	flux ensemble wait slow &&
	points slow >out &&
	is 1 "$(grep -c " 0.25 4$" out)" &&
	is 11 "$(wc -l <out)" &&
	is 11 "$(status_of slow searches.0.complete)"
'

test_expect_success 'and one that had ended before the kill goes on after it' '
	kill_service &&
	flux ensemble search slow -q --more 1 &&
	is 12 "$(status_of slow searches.0.complete)"
'

test_expect_success 'a program has a search go on, and waits for its end' '
	cat >more.py <<-EOD &&
	from flux_ensemble import Ensemble
	tune = Ensemble.attach("tune")
	answer = tune.search(more=1, points=[{"x": 0.3, "k": 2}])
	print(answer["added"], answer["trials"], answer["state"], len(tune.jobs()))
	EOD
	python more.py >out &&
	is "2 11 completed 11" "$(cat out)"
'

test_expect_success 'the members of an ensemble that has ended start once more' '
	flux ensemble run --tasks -q --name tasks tune.yaml &&
	flux ensemble search tasks -q --more 2 --add x=0.25,k=4 &&
	points tasks >out &&
	is "5 0.25 4" "$(sed -n 6p out)" &&
	is 8 "$(wc -l <out)" &&
	is completed "$(status_of tasks state)"
'

test_expect_success 'a new search begins with what an earlier one has found, and needs its file once' '
	flux ensemble export tune old.csv >out &&
	sed -e "/points:/d" -e "s/trials: 5/trials: 4/" \
		-e "s/minimize: loss/&\n    warm-start: {from: old.csv}/" tune.yaml >warm.yaml &&
	touch gate && rm -f began-* &&
	flux ensemble load warm.yaml &&
	two_began() { test "$(ls began-* | wc -l)" -eq 2; } &&
	wait_until two_began &&
	rm old.csv &&
	kill_service &&
	is running "$(status_of warm state)" &&
	rm gate &&
	flux ensemble wait warm &&
	is 4 "$(status_of warm searches.0.complete)" &&
	is 11 "$(status_of warm searches.0.warm_start.trials)" &&
	flux ensemble search warm | grep "^hpo begins with 11 trials of others, the best 0" &&
	flux ensemble log warm | grep "hpo: begins with 11 trials of others, the best 0" &&
	ls began-* | sed "s/began-//" | sort >began &&
	flux ensemble jobs warm --group trial -n -o "{params.x}" | sort >tried &&
	test_cmp began tried
'

test_expect_success 'the name of an ensemble stands for its trials' '
	sed "s/old.csv/tune/" warm.yaml >named.yaml &&
	flux ensemble run -q --record named.jsonl named.yaml &&
	is 11 "$(status_of named searches.0.warm_start.trials)" &&
	sed "s/old.csv/tuna/" warm.yaml >none.yaml &&
	test_must_fail flux ensemble load none.yaml 2>err &&
	grep "or the name of an ensemble, not .tuna.: .*export tuna tuna.csv. writes" err
'

test_expect_success 'its recording has what it was told, and replays to the same commands' '
	head -1 named.jsonl | grep warm-start >header &&
	test_must_fail grep "from: tune" header &&
	flux ensemble replay named.jsonl >out &&
	grep "^named: [0-9]* events, the same commands; completed" out
'

test_expect_success 'what is wrong with it is said with the file and the line' '
	printf "x,k,loss\n2,4,1\n" >old.csv &&
	test_must_fail flux ensemble load warm.yaml 2>err &&
	grep "warm.yaml:[0-9]*: search.0..warm-start.from: old.csv:2: x: expected a number >= 0" err &&
	rm old.csv &&
	test_must_fail flux ensemble load warm.yaml 2>err &&
	grep "cannot read .old.csv.: No such file or directory" err
'

test_done
