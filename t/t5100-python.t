#!/bin/sh
test_description='Ensembles made and run from Python'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2

test_expect_success 'a program runs an ensemble, and the commands see it' '
	cat >study.py <<-EOD &&
	import asyncio
	from flux_ensemble import Action, AsyncClient, Ensemble, Job, Rule

	study = Ensemble(
	    name="study",
	    jobs=[Job(name="md", command="sh -c \"exit {code}\"", params={"code": range(2)})],
	    rules=[Rule(trigger="start", action=Action(name="submit", label="md"))],
	)
	print(study.run()["state"])
	print([job["returncode"] for job in study.jobs(outcome="failed")])

	async def look():
	    other = Ensemble.attach("study")
	    print((await other.wait())["state"], [entry["name"] async for entry in other.log()][-1])
	    long = Ensemble(
	        name="long", jobs=[Job(name="a", command="sleep inf")], finish="never",
	    ).start()
	    async with AsyncClient() as client:
	        waiting = asyncio.create_task(client.wait("long"))
	        print(len(await client.submit("long", "a", count=2)))
	        print(long.pause(), long.resume())
	        await client.cancel("long")
	        print((await waiting)["state"], [one["name"] for one in await client.list()])
	        print([job["group"] async for job in client.jobs("long")])

	asyncio.run(look())
	EOD
	cat >expected <<-EOD &&
	completed
	[1]
	completed finish
	2
	paused running
	canceled ['"'study', 'long'"']
	['"'a', 'a'"']
	EOD
	python study.py >printed &&
	test_cmp expected printed &&
	is 1/1/0/0 "$(counts_of study md)"
'

test_expect_success 'a program has the reasons, the output and the document of an ensemble of the service' '
	cat >results.py <<-EOD &&
	from flux_ensemble import Ensemble
	study = Ensemble.attach("study")
	from flux.job import JobID
	print(study.document["jobs"][0]["params"])
	print([(one.group, one.reason, one.jobs) for one in study.failures()])
	print([study.output(job) for job in study.jobs()])
	print([study.output(JobID(job["id"]).f58) for job in study.jobs()])
	print(study.report("study.html"), study.export("study.csv"))
	EOD
	cat >expected <<-EOD &&
	{'"'code': {'range': [0, 2, 1]}"'}
	[('"'md', 'exit 1', 1"')]
	['"'', ''"']
	['"'', ''"']
	study.html 2
	EOD
	python results.py >printed &&
	test_cmp expected printed &&
	flux ensemble failures study >printed &&
	grep "exit 1: 1 job" printed
'

test_expect_success 'an interrupt of run cancels the ensemble, and is KeyboardInterrupt' '
	cat >interrupted.py <<-EOD &&
	import os, signal, threading, time
	from flux_ensemble import Action, Ensemble, Job, Rule
	from flux_ensemble.client import EnsembleError
	# Whoever starts the tests in the background has interrupts ignored.
	signal.signal(signal.SIGINT, signal.default_int_handler)
	try:
	    Ensemble.attach("nobody").status()
	except EnsembleError as error:
	    print(error.errno)
	print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
	held = Ensemble(
	    name="held",
	    jobs=[Job(name="a", command="sleep inf")],
	    rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
	)
	def interrupt():
	    while True:
	        try:
	            if Ensemble.attach("held").status()["groups"]["a"]["running"]:
	                break
	        except EnsembleError:
	            pass
	        time.sleep(0.05)
	    os.kill(os.getpid(), signal.SIGINT)
	threading.Thread(target=interrupt, daemon=True).start()
	try:
	    held.run()
	except KeyboardInterrupt as error:
	    print(held.status()["state"], error.__notes__)
	EOD
	flux module remove ensemble &&
	python interrupted.py >printed &&
	cat printed &&
	is "38 True" "$(head -n 2 printed | xargs)" &&
	grep "^canceled .*ensemble .held. and its jobs were" printed
'

test_expect_success 'what the service refuses is an error' '
	cat >twice.py <<-EOD &&
	from flux_ensemble import Ensemble, Job
	idle = Ensemble(name="idle", jobs=[Job(name="a", command="true")], finish="never")
	idle.start()
	idle.start()
	EOD
	test_must_fail python twice.py 2>errors &&
	grep "an ensemble named .idle. is running" errors
'

test_expect_success 'resume=True follows what the service has, and runs again nothing that has ended' '
	cat >again.py <<-EOD &&
	import asyncio, sys
	from flux_ensemble import Action, Ensemble, Job, Rule

	kept = Ensemble(
	    name="kept", jobs=[Job(name="a", command="test -e go", count=int(sys.argv[2]))],
	    rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
	    finish="never",
	)
	if sys.argv[1] == "start":
	    kept.start(resume=True)
	elif sys.argv[1] == "end":
	    kept.start(resume=True).terminate()
	    print(kept.run(resume=True)["state"], len(list(kept.jobs())))
	elif sys.argv[1] == "look":
	    try: kept.status()
	    except RuntimeError as error: print(error, file=sys.stderr)
	elif sys.argv[1] == "cancel":
	    kept.start()
	    print(Ensemble(kept.document).start(resume=True).name)
	    kept.cancel()
	    asyncio.run(kept.wait())
	    kept.run(resume=True)
	EOD
	python again.py start 2 &&
	test_must_fail python again.py start 3 2>errors &&
	grep "ensemble .kept. is running, and has another document: give this one another" errors &&
	flux module remove ensemble &&
	is "completed 2" "$(python again.py end 2)" &&
	is "completed 2" "$(python again.py end 2 2>told)" &&
	python again.py look 2 2>errors &&
	grep "with resume=True they follow the run of this name that Flux has, which is .*kept" errors &&
	grep ".kept. has ended, so nothing runs again: it would without resume=True" told &&
	test_must_fail python again.py cancel 2 2>errors >name &&
	is kept-2 "$(cat name)" &&
	grep "going on with .kept-2" errors &&
	grep "was cancelled: run() without resume=True starts it anew, and Ensemble.attach(.kept-2.).rerun()" errors
'

test_expect_success 'a program runs what failed again, in the same record, and follows it to its end' '
	cat >rerun.py <<-EOD &&
	import asyncio, pathlib
	from flux_ensemble import Action, AsyncClient, Ensemble, Job, Rule

	cases = Ensemble(
	    name="cases",
	    jobs=[Job(name="a", command="sh -c \"test {x} = 1 || cat table\"", params={"x": [1, 2, 3]})],
	    rules=[Rule(trigger="start", action=Action(name="submit", label="a"))],
	)
	print(cases.run()["trouble"], cases.rerun(dry_run=True)["outcomes"])
	pathlib.Path("table").touch()
	again = cases.rerun(filter="job.params.x == 2")
	print(again["jobs"], again["state"], again["trouble"])
	async def other():
	    async with AsyncClient() as client:
	        print((await client.rerun("cases", dry_run=True))["jobs"])
	asyncio.run(other())
	again = Ensemble.attach("cases").rerun(failed=True)
	print(again["jobs"], again["reason"], again["trouble"] == "")
	print(sorted((job["params"]["x"], job["outcome"]) for job in cases.jobs()))
	try:
	    cases.rerun(nodes=2)
	except ValueError as error:
	    print(error)
	EOD
	cat >expected <<-EOD &&
	2 jobs failed {'"'failed': 2"'}
	1 completed 1 job failed
	1
	1 nothing is active and no rule can fire any more True
	[(1, '"'success'), (2, 'success'), (3, 'success'"')]
	nodes is for a run on this machine, and this one is on Flux
	EOD
	python rerun.py >printed &&
	test_cmp expected printed
'

test_expect_success 'a program reads the parameters of its job, and an ensemble in a job has its own' '
	cat >read.py <<-EOD &&
	import sys
	from flux_ensemble import Action, Ensemble, Job, Rule

	reads = [sys.executable, "-c", "import flux_ensemble as fe; print(fe.params())"]
	inner = f"{sys.executable} inner.py {{x}}"
	both = Ensemble(
	    name="both",
	    jobs=[Job(name="outer", command=reads, params={"x": [7], "on": True}, output="outer.txt"),
	          Job(name="holds", command=inner, params={"x": [8]}, output="holds.txt")],
	    rules=[Rule(trigger="start", action=Action(name="submit", label=label))
	           for label in ("outer", "holds")],
	)
	print(both.run()["state"])
	EOD
	cat >inner.py <<-EOD &&
	import os, sys
	from flux_ensemble import Action, Ensemble, Job, Rule

	reads = [sys.executable, "-c", "import flux_ensemble as fe; print(fe.params())"]
	Ensemble(name="inner", jobs=[Job(name="a", command=reads, output="inner.txt")],
	         rules=[Rule(trigger="start", action=Action(name="submit", label="a"))]).run("flux")
	EOD
	is completed "$(python read.py)" &&
	is "{'"'x': 7, 'on': True"'}" "$(cat outer.txt)" &&
	is "{}" "$(cat inner.txt)"
'

test_done
