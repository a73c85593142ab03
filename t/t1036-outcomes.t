#!/bin/sh
test_description='subject-to: a search with constraints on what its trials publish'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"
. ./functions

if ! python -c 'import optuna' 2>/dev/null; then
	skip_all='optuna is not installed'
	test_done
fi

# Writes a document whose search is subject to $1; the best points are those that it forbids.
document() {
	cat <<-EOD
	seed: 7
	search:
	  - id: hpo
	    group: trial
	    variables: {x: {low: 0, high: 1}}
	    minimize: loss
	    subject-to: $1
	    points: [{x: 0.25}, {x: 0.75}, {x: 0.5}]
	    trials: 4
	jobs:
	  - {name: trial, command: "sh trial.sh {x}"}
	rules:
	  - {trigger: start, action: {name: search, label: hpo}}
	EOD
}

cat >trial.sh <<-EOD
	touch began-\$1
	while [ -e gate-\$1 ]; do sleep 0.1; done
	flux-ensemble memo loss=\$1 mass=\$(awk "BEGIN {print 1 - \$1}")
EOD

# The numbers of trials, their points and states.
trials() {
	flux ensemble jobs "$1" --group trial -n -o "{trial} {params.x} {trial_state}" | sort -n
}

test_expect_success 'the best is feasible, also if the service is killed while trials are under way' '
	document "mass <= 0.5" >bound.yaml &&
	flux ensemble run --isolate -q --record bound.jsonl bound.yaml &&
	trials bound >expected &&
	printf "0 0.25 infeasible\n1 0.75 complete\n2 0.5 complete\n" >first &&
	head -3 expected >out && test_cmp first out &&
	touch gate-0.75 && rm -f began-* &&
	flux ensemble load --name killed bound.yaml &&
	wait_until test -e began-0.75 &&
	kill_service &&
	flux ensemble search killed >out &&
	grep "no trial is feasible yet; the least violation is that of trial 0 (mass <= 0.5, by 0.25)" out &&
	rm gate-0.75 &&
	flux ensemble wait killed &&
	trials killed >out && test_cmp expected out &&
	best=$(awk "\$3 == \"complete\" {print \$2}" expected | sort -g | head -1) &&
	is "$best" "$(status_of killed searches.0.best.0.value)"
'

test_expect_success 'a recording replays to the same commands, and needs no sampler' '
	flux ensemble replay bound.jsonl >out &&
	grep "^bound: [0-9]* events, the same commands; completed" out
'

test_expect_success 'Optuna finds the same best in an export' '
	flux ensemble export --to optuna bound bound.journal &&
	python -c "
import optuna
backend = optuna.storages.journal.JournalFileBackend(\"bound.journal\")
storage = optuna.storages.JournalStorage(backend)
print(optuna.load_study(study_name=\"bound/hpo\", storage=storage).best_value)
" >out &&
	is "$(status_of bound searches.0.best.0.value)" "$(cat out)"
'

test_expect_success 'a search without a feasible trial found nothing' '
	document "mass <= -1" >none.yaml &&
	test_must_fail flux ensemble run --isolate -q none.yaml >out 2>&1 &&
	grep "search .hpo. found nothing in 4 trials: no trial is feasible; the least violation" out &&
	flux ensemble best none 2>&1 | grep "no trial is feasible"
'

test_done
