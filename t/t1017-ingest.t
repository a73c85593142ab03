#!/bin/sh
test_description='What a site has configured for job-ingest, and the jobs of an ensemble'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Print how many jobs of a group a plugin has looked at.
#
# $1 - The plugin.
# $2 - The name of the group.
looked_at() {
	grep -c "^$2\$" "$1.seen"
}

# Run an ensemble of the groups `one`, of two job sets, and `other`, with 20 jobs each.
#
# $1 - Its name.
run_groups() {
	cat >"$1.yaml" <<-EOD &&
	jobs:
	  - {name: one, command: "true", count: 10}
	  - {name: one, command: "true {x}", params: {x: {range: [0, 10]}}}
	  - {name: other, command: "true", count: 20}
	rules:
	  - {trigger: start, action: {name: submit, label: one}}
	  - {trigger: start, action: {name: submit, label: other}}
	EOD
	flux ensemble run "$1.yaml"
}

test_expect_success 'configure a validator and a frobnicator that note what they look at' '
	cat >validator.py <<-EOD &&
	from flux.job.validator import ValidatorPlugin
	class Validator(ValidatorPlugin):
	    def __init__(self, parser): pass
	    def validate(self, args):
	        name = args.jobspec["attributes"]["system"]["job"]["name"]
	        print(name, file=open("$PWD/validator.seen", "a"))
	        if name == "refused":
	            raise ValueError("no such jobs here")
	EOD
	cat >frobnicator.py <<-EOD &&
	from flux.job.frobnicator import FrobnicatorPlugin
	class Frobnicator(FrobnicatorPlugin):
	    def __init__(self, parser): pass
	    def frob(self, jobspec, userid, urgency, flags):
	        name = jobspec.jobspec["attributes"]["system"]["job"]["name"]
	        print(name, file=open("$PWD/frobnicator.seen", "a"))
	        jobspec.setattr("system.exec.test.run_duration", "0.01s")
	EOD
	flux config load <<-EOD
	[ingest.validator]
	plugins = ["$PWD/validator.py"]
	[ingest.frobnicator]
	plugins = ["$PWD/frobnicator.py"]
	EOD
'

test_expect_success 'frobnicators see every job, and validators one of each job set' '
	run_groups all &&
	is 20 "$(looked_at frobnicator one)" &&
	is 20 "$(looked_at frobnicator other)" &&
	is 2 "$(looked_at validator one)" &&
	is 1 "$(looked_at validator other)"
'

test_expect_success 'what a validator refuses fails the ensemble, and no other job is sent' '
	cat >refused.yaml <<-EOD &&
	jobs: [{name: refused, command: "true", count: 50}]
	rules: [{trigger: start, action: {name: submit, label: refused}}]
	EOD
	test_expect_code 1 flux ensemble run refused.yaml >refused.out 2>&1 &&
	grep "no such jobs here" refused.out &&
	is 1 "$(looked_at frobnicator refused)" &&
	is 1 "$(looked_at validator refused)"
'

# The job manager cuts its sentence off within a letter, and then it is lost (flux-core 0.88).
test_expect_success 'a job that Flux gives an id and does not have fails the ensemble' '
	queue=$(printf "\303\251%.0s" 0 1 2 3 4 5 6 7 8 9) &&
	queue=$queue$queue$queue$queue$queue$queue$queue$queue$queue$queue &&
	cat >lost.yaml <<-EOD &&
	jobs: [{name: lost, command: "true", count: 2, queue: $queue}]
	rules: [{trigger: start, action: {name: submit, label: lost}}]
	EOD
	test_expect_code 1 flux ensemble run lost.yaml >lost.out 2>&1 &&
	grep "refused jobs of group .lost.: job 0: .*given it an id, and does not have it" lost.out
'

test_done
