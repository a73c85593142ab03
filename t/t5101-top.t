#!/bin/sh
test_description='The live view of ensembles in the service'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 2 -Sbroker.module-nopanic=1

test_expect_success 'an ensemble is shown once, in plain text' '
	cat >study.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: md, command: "sh -c \"echo broken >&2; exit {code}\"", params: {code: [0, 3]}}
	rules:
	  - {id: begin, trigger: start, action: {name: submit, label: md}}
	  - {id: more, trigger: metric, name: count.md.failed, when: "> 5", action: {name: submit, label: md}}
	EOD
	flux ensemble load study.yaml &&
	tries=0 &&
	until flux ensemble top --once study >printed && grep "md: 2 of 2 finished" printed; do
		tries=$(($tries + 1)); test $tries -lt 1800 || return 1
	done &&
	grep "^study: running for .*, 2 of 2 jobs (100%)" printed &&
	grep "begin  submit md  fired 1 of 1" printed &&
	grep "when count.md.failed > 5 (count.md.failed is 1)" printed &&
	grep "1 md exit 3" printed &&
	grep "outcome       begin #0: ok, 2 jobs" printed &&
	flux ensemble top | grep "^study: running"
'

test_expect_success 'a name that is unknown is an error with a near one' '
	test_expect_code 1 flux ensemble top stduy 2>errors &&
	grep "no ensemble named .stduy.*did you mean .study." errors
'

test_expect_success 'keys steer the ensemble and show what its jobs wrote' '
	cat >keys.py <<-EOD &&
	import asyncio
	from functools import partial
	from flux_ensemble.cli.top.app import TopApp
	from flux_ensemble.cli.top.poller import Poller
	from flux_ensemble.cli.top.rows import Rows
	from flux_ensemble.cli.top.source import open_source

	poller = Poller(partial(open_source, None, "flux", None), 0.1)
	app = TopApp(poller, str, ascii_only=False)
	said = []
	app.notify = lambda text, **_: said.append(text)

	async def main():
	    async with app.run_test(size=(100, 40)) as pilot:
	        def seen(word):
	            return any(word in rows.render().plain for rows in app.screen.query(Rows))
	        async def until(condition):
	            for _ in range(600):
	                if condition():
	                    return
	                await pilot.pause(0.05)
	            raise SystemExit(f"{said}: {[rows.render().plain for rows in app.screen.query(Rows)]}")
	        await until(lambda: seen("exit 3"))
	        await pilot.press("p")
	        await until(lambda: said and app.picture.status["state"] == "paused")
	        await pilot.press("r")
	        await until(lambda: app.picture.status["state"] == "running")
	        await pilot.press("s", "space", "2", "enter")
	        await until(lambda: len(said) == 3)
	        await until(lambda: app.picture.whole.total == 6)
	        await pilot.press("o")
	        await until(lambda: seen("broken"))
	        await pilot.press("escape", "c", "n")
	        await pilot.press("c", "y")
	        await until(lambda: len(said) == 4 and app.picture.status["state"] == "canceled")

	asyncio.run(main())
	print(said[0], "|", said[1], "|", said[2].partition(":")[0], "|", said[3])
	EOD
	python keys.py >printed &&
	is "pause: study is paused | resume: study is running | 4 jobs submitted | cancel: study is canceled" \
		"$(sed "s/ending/canceled/" printed)"
'

test_expect_success 'a service that dies and comes back is waited for, and nothing is shown twice' '
	cat >away.py <<-EOD &&
	import subprocess, sys
	from flux_ensemble.cli.top.source import open_source

	source = open_source("study", "flux", None)
	before = source.look()
	print(before.trouble, before.name, source.look().log == before.log)
	subprocess.run(["flux", "module", "remove", "ensemble"], check=True)
	gone = source.look()
	print(gone.trouble)
	print(gone.name, len(gone.groups))
	subprocess.run(["flux", "ensemble", "load", "other.yaml"], check=True, stdout=sys.stderr)
	after = source.look()
	names = [entry["name"] for entry in after.log]
	print(after.trouble, names.count("load"), names.count("finish"))
	print([(kind.reason, kind.jobs) for kind in after.failures])
	EOD
	cat >other.yaml <<-EOD &&
	jobs: [{name: a, command: "true"}]
	rules: [{trigger: start, action: {name: submit, label: a}}]
	EOD
	cat >expected <<-EOD &&
	 study True
	the ensemble service is not loaded: \`flux ensemble run FILE\` starts it, with --resume to go on with a run that this instance has kept, and \`flux ensemble supervise\` starts it alone, with all that is kept; waiting for it to come back
	study 1
	 1 1
	[("exit 3", 3)]
	EOD
	python away.py | tr "'\''" "\"" >printed &&
	test_cmp expected printed
'

test_done
