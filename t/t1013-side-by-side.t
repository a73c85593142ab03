#!/bin/sh
test_description='Two ensembles side by side, with commands and scripts that look on and steer'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

# $1 - The ensemble's name, $2 - how many jobs a round has.
document() {
	cat <<-EOD
	name: $1
	jobs:
	  - {name: work, command: sleep 0.1, count: $2}
	  - {name: check, command: /bin/true}
	rules:
	  - trigger: start
	    action: {name: submit, label: work}
	  - trigger: idle
	    name: work
	    action: {name: submit, label: check, repetitions: 2}
	  - trigger: job-success
	    group: check
	    action: {name: submit, label: work}
	finish: never
	EOD
}

test_expect_success 'two ensembles with groups of the same names run side by side' '
	document one 3 >one.yaml &&
	document two 5 >two.yaml &&
	flux ensemble load one.yaml &&
	flux ensemble load two.yaml &&
	flux ensemble submit one work --count 1 >ids &&
	flux ensemble submit two work --count 2 >>ids &&
	is 3 $(wc -l <ids)
'

test_expect_success 'submit prints the ids that flux job knows' '
	for id in $(cat ids); do
		flux job wait-event --timeout=300 $id clean || return 1
	done
'

test_expect_success 'a Python script over raw RPCs sees and steers both' '
	flux python "$PROJECT/examples/raw_rpc.py" one work >raw.out
'

test_expect_success 'status as JSON shows both while they run' '
	flux ensemble status --json >status.json &&
	is one "$(json ensembles.0.name <status.json)" &&
	is two "$(json ensembles.1.name <status.json)" &&
	is running "$(json ensembles.0.state <status.json)" &&
	is running "$(json ensembles.1.state <status.json)" &&
	is 4 "$(json nodes.node_up_count <status.json)"
'

test_expect_success 'the client of the package does the same' '
	flux python -c "import sys; print(sys.version_info[:2])" >flux.version &&
	run_python <<-EOD
	from flux_ensemble.client import Client, EnsembleError

	client = Client()
	assert [one["name"] for one in client.list()] == ["one", "two"]
	ids = client.submit("two", "work", count=2)
	assert len(ids) == 2
	try:
	    client.status("three")
	except EnsembleError as error:
	    assert "three" in str(error)
	else:
	    raise AssertionError("status of an unknown ensemble was answered")
	EOD
'

test_expect_success 'each counts only its own jobs' '
	flux queue idle --timeout=300 &&
	for name in one two; do
		jobs_of $name jobs.json &&
		flux ensemble status --json $name >status.json &&
		run_python <<-EOD || return 1
		import collections, json

		queue = collections.Counter(job["tag"]["group"] for job in json.load(open("jobs.json")))
		groups = json.load(open("status.json"))["ensembles"][0]["groups"]
		assert {name: group["success"] for name, group in groups.items()} == queue
		EOD
	done
'

test_expect_success 'one ends and the other does not' '
	flux ensemble terminate one &&
	flux ensemble wait --timeout 300 one &&
	is completed "$(status_of one state)" &&
	is running "$(status_of two state)" &&
	flux ensemble unload one &&
	test_must_fail flux ensemble status one &&
	flux ensemble terminate two &&
	flux ensemble wait --timeout 300 two
'

test_expect_success 'twenty ensembles at once end one by one' '
	for number in $(test_seq 1 20); do
		sed "s/^name: .*/name: many-$number/; /^finish/d" one.yaml |
			rpc load text=@/dev/stdin cwd="$PWD" environment:="{\"PATH\": \"$PATH\"}" ||
			return 1
	done &&
	flux ensemble wait --timeout 300 $(test_seq 1 20 | sed s/^/many-/) &&
	for number in 1 10 20; do
		is 6/0/0/0 "$(counts_of many-$number work)" || return 1
	done
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
