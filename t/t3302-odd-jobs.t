#!/bin/sh
test_description='What jobs say, whoever has them, does nothing but what rules ask for'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

# Here all jobs are the owner's: this Flux takes signed jobs of others only with flux-security.
# Those that no ensemble has submitted are as foreign to it.

# Both ensembles go on, and the service has logged no traceback.
unharmed() {
	is running "$(status_of watch state)" &&
	is running "$(status_of own state)" &&
	flux dmesg >dmesg.out &&
	test_must_fail grep Traceback dmesg.out
}

# Have a job post odd memos and exceptions: `talk JOBID`.
talk() {
	flux python - "$1" <<-\EOD
	import json, sys
	import flux
	from flux.job import JobID

	handle, job = flux.Flux(), int(JobID(sys.argv[1]))

	def memo(text):
	    handle.rpc("job-manager.memo", f"{{\"id\": {job}, \"memo\": {text}}}").get()

	def exception(**given):
	    handle.rpc("job-manager.raise", {"id": job, "severity": 1, **given}).get()

	memo("{\"fom\": 7, \"text\": \"100%s%n\"}")
	memo("{\"escape\": \"\\u001b[31m\\u0007\", \"null\": \"a\\u0000b\", \"bidi\": \"\\u202e\"}")
	memo("{\"a.b.c\": 1, \"\": 2, \"\\n\": 3, \"duration\": 4, \"\\u001b[31m\": 5}")
	memo("{\"int\": 9223372036854775807, \"real\": 1.7e308, \"low\": -9223372036854775808}")
	memo("{\"real\": 1.7e308, \"int\": 9223372036854775807}")
	memo("{\"deep\": %s%s}" % ("[" * 60, "]" * 60))
	memo("{\"large\": \"%s\", \"after\": 1}" % ("x" * 1_000_000))
	memo(json.dumps({f"key{number}": "x" for number in range(20_000)}))
	memo(json.dumps({"x" * 1_000_000: 1}))
	for refused in ("1e999", "9223372036854775808", "NaN", "\"\\ud800\"", "[" * 10_000):
	    try:
	        memo("{\"refused\": %s}" % refused)
	    except OSError:
	        pass
	    else:
	        raise AssertionError(refused)
	exception(type="odd%s", note="100%s%n \x1b[31m\n" * 10)
	exception(type="odd", note="x" * 1_000_000)
	exception(type="x" * 1_000_000, note="x")
	memo("{\"last\": 1}")
	EOD
}

# A custom function of an ensemble has seen the last of what `talk` says, for the nth time.
heard() {
	test "$(flux dmesg | grep -c "$1: f: {.*last.: 1")" -ge "$2"
}

test_expect_success 'load an ensemble that looks at all jobs, and one that has a job' '
	cat >watch.yaml <<-\EOD &&
	finish: never
	rules:
	  - {trigger: job-submit, scope: queue, action: {name: custom, label: f, repetitions: unlimited}}
	  - {trigger: job-memo, scope: queue, action: {name: custom, label: f, repetitions: unlimited}}
	  - {trigger: job-exception, scope: queue, action: {name: custom, label: f, repetitions: unlimited}}
	custom: |
	  def f(event, **kwargs):
	      print(ascii(event["context"]))
	EOD
	sed "/scope/s/scope: queue/group: a/; /job-submit/d" watch.yaml >own.yaml &&
	cat >>own.yaml <<-EOD &&
	jobs:
	  - {name: a, command: sleep 300}
	EOD
	load_module &&
	flux ensemble load watch.yaml &&
	flux ensemble load own.yaml &&
	flux ensemble submit own a >own.id
'

test_expect_success 'jobs say odd things' '
	flux submit sleep 300 >other.id &&
	talk $(cat other.id) &&
	talk $(cat own.id) &&
	wait_until heard own 1 &&
	wait_until heard watch 2 &&
	unharmed
'

test_expect_success 'what they say is in the log at a bounded length' '
	flux ensemble log --json own >own.log &&
	flux ensemble log --json watch >watch.log &&
	test $(wc -L <own.log) -lt 100000 &&
	test $(wc -L <watch.log) -lt 100000 &&
	test $(wc -c <watch.log) -lt 500000 &&
	grep "characters left out" own.log >/dev/null &&
	flux ensemble log own >/dev/null &&
	flux ensemble metrics own >/dev/null &&
	flux ensemble status own >/dev/null &&
	rpc metrics name=own | json max.a-fom >fom &&
	is 7 "$(sed "s/[.]0//" fom)"
'

test_expect_success 'jobs have odd names and jobspecs' '
	cat <<-\EOD | flux python - &&
	import json
	import flux, flux.job
	from flux.job import JobspecV1

	def submit(change, **flags):
	    jobspec = json.loads(JobspecV1.from_command(["true"]).dumps())
	    change(jobspec)
	    job = flux.job.submit_async(handle, json.dumps(jobspec), **flags).get_id()
	    flux.job.event_wait(handle, job, "clean")

	def named(name):
	    return lambda jobspec: jobspec["attributes"]["system"].update(job={"name": name})

	handle = flux.Flux()
	for name in ("100%s%n", "\x1b[31m\n", "x" * 1_000_000, 7, {}, ""):
	    submit(named(name))
	for user in ("text", [], {"ensemble": {"name": "own"}}, {"ensemble": []}, {"ensemble": {"fence": []}}):
	    submit(lambda jobspec: jobspec["attributes"].update(user=user))
	submit(lambda jobspec: jobspec.update(tasks=[]))
	submit(lambda jobspec: jobspec["attributes"]["system"].update(job="text"))
	for tasks in (None, [], [{"command": "text"}], [{"command": []}], [7]):
	    submit(lambda jobspec: jobspec.update(tasks=tasks), novalidate=True)
	EOD
	# The two from before, and these 18 but for the one that has the tag of a fence.
	is 19 "$(status_of watch rules.0.fired)" &&
	flux ensemble log --json watch >watch.log &&
	test $(wc -L <watch.log) -lt 100000 &&
	unharmed
'

test_expect_success 'what they said while the service was away is taken in' '
	flux module remove ensemble &&
	talk $(cat other.id) &&
	talk $(cat own.id) &&
	load_module &&
	wait_entry own epoch &&
	wait_until heard own 2 &&
	wait_until heard watch 4 &&
	unharmed
'

test_expect_success 'their ends are seen as they are' '
	flux cancel $(cat own.id) $(cat other.id) &&
	flux queue idle --timeout=300 &&
	is 0/0/1/0 "$(counts_of own a)" &&
	unharmed
'

test_done
