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

test_done
