#!/bin/sh
test_description='rerun: jobs that did not succeed run again, in the same record'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2
. "$SHARNESS_TEST_SRCDIR/lib/keeper.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
. ./functions

# The point and the outcome of each job of a group.
points() {
	flux ensemble jobs "$1" --group case -n -o "{params.x} {outcome}" | sort | tr "\n" " "
}

# A page of the last jobs has what reading all has, and nothing else was read for it.
page_is_right() {
	python3 - "$1" <<-EOF
	import sys

	from flux_ensemble.client import Client

	(name,), client = sys.argv[1:], Client()
	for interrupted in (False, True):
	    every = client.jobs(name, interrupted=interrupted)
	    expected = [job["id"] for job in every]
	    for last in (1, 3, 100):
	        page = client.jobs(name, interrupted=interrupted, last=last)
	        found = [job["id"] for job in page]
	        assert found == expected[-last:], (found, expected)
	        assert (page.total, page.left_out) == (len(expected), every.left_out), vars(page)
	    rows = client.send("jobs", {"name": name, "last": 1, "interrupted": interrupted}, stream=True)
	    while "total" not in (answer := rows.get()):
	        rows.reset()
	    assert answer["total"] == len(expected), answer
	EOF
}

test_expect_success 'the service begins in a process of its own' '
	cat >cases.yaml <<-EOD &&
	jobs:
	  - name: case
	    command: sh case.sh {x}
	    params: {x: [1, 2, 3, 4]}
	    output: case-{x}-{attempt}.out
	    retries: 1
	  - {name: sum, command: "true"}
	rules:
	  - {trigger: start, action: {name: submit, label: case}}
	  - trigger: idle
	    group: case
	    action: {name: submit, label: sum, repetitions: unlimited}
	EOD
	cat >case.sh <<-EOD &&
	touch began-\$1
	while [ -e gate ]; do sleep 0.1; done
	test \$((\$1 % 2)) = 1 || cat table
	EOD
	flux ensemble run --isolate -q cases.yaml &&
	is "1 success 2 failed 2 failed 3 success 4 failed 4 failed " "$(points cases)" &&
	is 2 "$(status_of cases failed)"
'

test_expect_success 'rerun --dry-run says what it would be, and changes nothing' '
	flux ensemble log cases >before &&
	flux ensemble rerun --dry-run cases >out &&
	echo "cases: 2 jobs would run again (2 failed)" >expected &&
	test_cmp expected out &&
	flux ensemble log cases >after &&
	test_cmp before after
'

test_expect_success 'an ensemble that has ended goes on, and is followed to its end' '
	touch table &&
	page_is_right cases &&
	flux ensemble rerun cases >out &&
	page_is_right cases &&
	head -1 out | grep "^cases: 2 jobs run again (2 failed)$" &&
	grep "2 jobs run again: going on after the end (completed)" out &&
	grep "submit sum" out &&
	test_must_fail grep "submit case" out &&
	tail -1 out | grep "^cases: completed after .* in which it did not run" &&
	is "1 success 2 success 3 success 4 success " "$(points cases)" &&
	is 0 "$(status_of cases failed)" &&
	is 4 "$(status_of cases groups.case.finished)"
'

test_expect_success 'its log has both ends, and who follows it sees the last one' '
	flux ensemble log cases --json | grep -c "\"finish\"" >out &&
	is 2 "$(cat out)" &&
	flux ensemble watch cases >out &&
	grep "2 jobs run again" out &&
	tail -1 out | grep "in which it did not run" &&
	flux ensemble wait cases
'

test_expect_success 'without a job that did not succeed nothing runs again' '
	flux ensemble rerun cases >out &&
	grep "no job failed, ran out of time or was canceled: nothing runs again" out &&
	is completed "$(status_of cases state)"
'

test_expect_success 'a job that succeeded can be chosen, and its failure counts' '
	rm table &&
	test_expect_code 1 flux ensemble rerun -q --fail-on job --filter "job.params.x == 2" cases &&
	is 1 "$(status_of cases failed)" &&
	flux ensemble failures cases | grep "exit 1: 2 attempts$"
'

test_expect_success 'an ensemble that goes on takes jobs that are over among the others' '
	touch gate && rm -f began-* &&
	{ echo "finish: never" && cat cases.yaml; } >slow.yaml &&
	flux ensemble load slow.yaml &&
	wait_until test -e began-4 &&
	flux ensemble cancel slow case &&
	flux ensemble submit slow case --param x=7 &&
	wait_until sh -c "test \$(flux ensemble jobs slow --outcome canceled -n | wc -l) = 4" &&
	flux ensemble rerun slow --failed >out &&
	grep "nothing runs again" out &&
	flux ensemble rerun slow >out &&
	grep "^slow: 4 jobs run again (4 canceled)" out &&
	touch table && rm gate &&
	wait_until sh -c "test \$(flux ensemble jobs slow --outcome success --group case -n | wc -l) = 5" &&
	flux ensemble terminate slow &&
	is "1 success 2 success 3 success 4 success 7 success " "$(points slow)"
'

test_expect_success 'the service is killed while jobs run again, and each counts once' '
	rm table && flux ensemble load --name killed cases.yaml &&
	flux ensemble wait killed &&
	touch gate table && rm -f began-* &&
	flux ensemble rerun --detach killed &&
	wait_until test -e began-2 &&
	is 0/2 "$(status_of killed groups.case.failed)/$(status_of killed groups.case.attempts)" &&
	page_is_right killed &&
	kill_service &&
	is running "$(status_of killed state)" &&
	page_is_right killed &&
	is 0/2 "$(status_of killed groups.case.failed)/$(status_of killed groups.case.attempts)" &&
	flux ensemble metrics killed --json >metrics && grep "\"failed\": 4" metrics &&
	rm gate &&
	flux ensemble wait killed &&
	is "1 success 2 success 3 success 4 success " "$(points killed)" &&
	page_is_right killed &&
	is 4 "$(status_of killed groups.case.finished)"
'

test_expect_success 'and one that had ended before the kill goes on after it' '
	rm table && flux ensemble load --name past cases.yaml && flux ensemble wait past &&
	kill_service &&
	touch table &&
	flux ensemble rerun -q past &&
	is "1 success 2 success 3 success 4 success " "$(points past)"
'

test_expect_success 'tasks run again on other workers, which end with the ensemble' '
	rm table && sed "s/retries: 1/duration: 1m/" cases.yaml >tasks.yaml &&
	flux ensemble run --tasks -q tasks.yaml &&
	is "1 success 2 failed 3 success 4 failed " "$(points tasks)" &&
	flux ensemble rerun --dry-run tasks >out && grep "2 jobs would run again (2 failed)" out &&
	touch table &&
	flux ensemble rerun tasks >out &&
	grep "2 jobs run again: going on after the end (completed)" out &&
	is "1 success 2 success 3 success 4 success " "$(points tasks)" &&
	is 0 "$(status_of tasks failed)" &&
	wait_quiet &&
	is "" "$(flux jobs -n -o "{name}")"
'

test_expect_success 'members are instances, and the rerun does not wait for the end of the former ones' '
	rm table && { echo "members: [{name: pool, count: {min: 0, max: 2}}]" && cat tasks.yaml &&
		echo "  - {trigger: start, action: {name: grow, label: pool}}"; } >pools.yaml &&
	flux ensemble load pools.yaml && flux ensemble wait pools && touch table &&
	flux ensemble rerun -q pools &&
	is "1 success 2 success 3 success 4 success " "$(points pools)" &&
	# No rule has grown the pool once more, and it has a member all the same.
	is 2 "$(entries pools member-start)" &&
	rm table && touch gate && rm -f began-* &&
	flux ensemble rerun --detach --filter "job.params.x > 2" pools &&
	wait_until test -e began-4 &&
	kill_service && is running "$(status_of pools state)" && touch table && rm gate &&
	flux ensemble wait pools &&
	is "1 success 2 success 3 success 4 success " "$(points pools)" &&
	page_is_right pools &&
	is 4 "$(status_of pools groups.case.finished)" &&
	wait_quiet &&
	is "" "$(flux jobs -n -o "{name}")"
'

test_expect_success 'the service was killed after the end, while members ended' '
	rm table && flux ensemble load --name ended pools.yaml && flux ensemble wait ended &&
	kill_service && wait_quiet && touch table &&
	flux ensemble rerun -q ended &&
	is "1 success 2 success 3 success 4 success " "$(points ended)" &&
	wait_quiet
'

test_expect_success 'a file that exists is refused at the beginning, and nothing runs' '
	rm -f table && flux ensemble load --name files cases.yaml && flux ensemble wait files &&
	touch table old.csv &&
	flux ensemble log files >before &&
	test_expect_code 2 flux ensemble rerun files --export old.csv 2>err &&
	grep "export: old.csv exists: --force replaces it" err &&
	test_expect_code 2 flux ensemble rerun files --export best:new.csv 2>err &&
	grep "keeps no best job" err &&
	test_expect_code 2 flux ensemble rerun files --detach --report new.html 2>err &&
	grep "detach does not wait for the end" err &&
	flux ensemble log files >after && test_cmp before after &&
	flux ensemble rerun -q files --export old.csv --force --report new.html &&
	is 6 "$(grep -c success old.csv)" && test -s new.html &&
	flux ensemble rerun files --export none.csv >out && grep "nothing runs again" out &&
	is 6 "$(grep -c success none.csv)"
'

test_expect_success 'what cannot be is said' '
	test_must_fail flux ensemble rerun nobody 2>err && grep "no ensemble named .nobody" err &&
	test_must_fail flux ensemble rerun casse 2>err && grep "did you mean .cases." err &&
	test_expect_code 2 flux ensemble rerun cases --filter "job.nope > 1" 2>err &&
	grep "ERROR: filter: a job has no field .nope." err &&
	flux ensemble rerun cases --filter "job.params.y > 1" >out 2>err &&
	grep "no job that is over matches: nothing runs again" out &&
	grep "no job has .params.y. (did you mean .params.x." err &&
	test_expect_code 2 flux ensemble rerun cases --nodes 2 2>err && grep "add --queue local" err
'

test_done
