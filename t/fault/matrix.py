"""Scenarios in which parts of Flux, or the user's own code, go wrong under the service."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from typing import Any

import flux.job
from kills import patience
from scenario import Context
from scene import Scene, scene
from services import Module
from workloads import Expected, Submits, Workload, burst, fed, mixed, mock, stages

from flux_ensemble.bindings import module_arguments, module_path


def module_reload(context: Context) -> None:
    """The broker module is removed and loaded again, and reloaded in place, under load."""
    with scene(context, kind="module") as stage:
        workload = mixed("mixed", context.in_flight, stage.calls)
        stage.load(workload)
        for verb in ("load", "reload", "load"):
            already = stage.witness.seen["mixed", "submit"]
            more = context.random.randrange(1, context.in_flight // 4)
            _await_submits(stage, "mixed", already + more)
            if verb == "load":
                stage.instance.flux("module", "remove", "ensemble")
                stage.service.gone()
            stage.service.launcher = Module(verb)
            stage.service.start()
            stage.service.await_answer(stage.handle)
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload)


def second_service(context: Context) -> None:
    """Others are started beside the service under load, also while it is stopped."""
    with scene(context) as stage:
        workload = mixed("mixed", context.in_flight, stage.calls)
        stage.load(workload)
        other = ["module", "load", "--name=other", str(module_path()), *module_arguments()]
        for stopped in (False, True, False):
            already = stage.witness.seen["mixed", "submit"]
            more = context.random.randrange(1, context.in_flight // 4)
            _await_submits(stage, "mixed", already + more)
            if stopped:
                stage.service.signal(signal.SIGSTOP)
            try:
                stage.instance.flux(*other)
                context.row.problems.append("another service could be started")
            except RuntimeError as error:
                if "busy" not in str(error):
                    raise
            if stopped:
                stage.service.signal(signal.SIGCONT)
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload)


def _await_submits(stage: Scene, name: str, many: int) -> None:
    stage.witness.wait_seen(name, "submit", many, 20)


def ingest_reload(context: Context) -> None:
    """job-ingest is reloaded in mid-burst, and is away for a while; responses are lost."""
    jobs = 2000 if context.long else 250
    with scene(context) as stage:
        workload = burst("burst", jobs)
        stage.load(workload)
        for part in (0.1, 0.3, 0.5):
            _await_submits(stage, "burst", int(jobs * part))
            stage.instance.flux("module", "reload", "job-ingest")
        _await_submits(stage, "burst", int(jobs * 0.6))
        stage.instance.flux("module", "remove", "job-ingest")
        time.sleep(context.random.uniform(0, 2))
        # The service dies too, with responses outstanding that nobody will ever get.
        stage.kill()
        stage.instance.flux("module", "load", "job-ingest")
        stage.service.await_answer(stage.handle)
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload)


def queue_disabled(context: Context) -> None:
    """The queue takes no jobs, again and again at random; the service dies meanwhile."""
    cycles = 200 if context.long else 15
    with scene(context) as stage:
        workload = fed("fed", 3000 if context.long else 200, 20)
        stage.load(workload)
        kills = {cycles // 3, cycles * 2 // 3} if context.wanted else set()
        for cycle in range(cycles):
            _enable(stage, False)
            if cycle in kills:
                stage.kill()
                stage.service.await_answer(stage.handle)
            time.sleep(context.random.uniform(0, 0.2))
            _enable(stage, True)
            time.sleep(context.random.uniform(0, 0.2))
        stage.await_end(workload.name, patience(workload))
        stage.verify(workload)


def _enable(stage: Scene, enable: bool) -> None:
    """Have the queue take jobs, or take none."""
    request = {"enable": enable, "all": True, "reason": "maintenance"}
    stage.handle.rpc("job-manager.queue-enable", request, nodeid=0).get()


def ids_again(context: Context) -> None:
    """The ids of jobs that were refused are given again after job-ingest was reloaded.

    Its ids go on from the newest job that the queue accepted, by a millisecond each.
    """
    with scene(context) as stage:
        workload = stages("stages", 100, lossy=False)
        stage.instance.flux("queue", "stop")
        stage.load(workload)
        stage.witness.wait_seen("stages", "validate", 100)
        await_quiet(stage, "stages")
        refused = json.dumps(_refused())
        for _ in range(3000 if context.long else 1500):
            flux.job.submit_async(stage.handle, refused, novalidate=True)
            time.sleep(0.001)
        stage.instance.flux("module", "reload", "job-ingest")
        stage.instance.flux("queue", "start")
        stage.await_end("stages", patience(workload))
        stage.verify(workload)


def _refused() -> dict[str, Any]:
    """A job that the job manager refuses, which comes from nobody's ensemble."""
    core = {"type": "core", "count": 1}
    return {
        "version": 1,
        "resources": [{"type": "slot", "label": "task", "count": 1, "with": [core]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {"duration": 0, "dependencies": [{"scheme": "nobodys", "value": "x"}]}
        },
    }


def job_manager_reload(context: Context) -> None:
    """job-manager is reloaded with jobs in the queue: ENODATA, then ENOSYS on the journal.

    No submission is in flight then: that crashes the broker of Flux 0.88.
    """
    with scene(context) as stage:
        for number, kill in enumerate((False, True)):
            workload = stages(f"stages-{number}", 60, lossy=False)
            stage.instance.flux("queue", "stop")
            stage.load(workload)
            name = workload.name
            stage.witness.wait_seen(name, "validate", 60)
            await_quiet(stage, name)
            _reload_job_manager(stage, kill=kill)
            stage.instance.flux("queue", "start")
            stage.await_end(name, patience(workload))
            stage.verify(workload)


def await_quiet(stage: Scene, name: str) -> None:
    """Wait until the service has had all responses to its submissions."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        names = [entry["name"] for entry in stage.entries(name)]
        if names.count("outcome") == names.count("fire"):
            return
    raise RuntimeError(f"the submissions of {name!r} are not answered")


def _reload_job_manager(stage: Scene, *, kill: bool) -> None:
    stage.instance.flux("module", "remove", "--force", "job-manager")
    if kill:
        stage.kill()
    time.sleep(stage.random.uniform(0, 1))
    load_job_manager(stage)
    stage.service.await_answer(stage.handle)


def load_job_manager(stage: Scene) -> None:
    """Load job-manager, which was removed, and what went with it."""
    flux = stage.instance.flux
    flux("module", "load", "job-manager")
    # These were registered with the one that is gone; job-list has ended with it.
    flux("module", "reload", "job-exec")
    flux("module", "reload", "sched-simple")
    flux("module", "load", "job-list")


def purge(context: Context) -> None:
    """Inactive jobs are purged, by command or by limit, before the service comes back.

    Nobody saw what became of them, so they are interrupted and run again. What had been submitted
    and not been seen is not submitted again with its tag.
    """
    for limit in (False, True):
        config = "[job-manager]\ninactive-num-limit = 0\n" if limit else ""
        with scene(context, config=config) as stage:
            workload = stages("stages", 80)
            stage.load(workload)
            stage.witness.wait_seen("stages", "finish", context.random.randrange(1, 140))
            stage.kill(restart=False)
            stage.await_quiet("stages")
            if not limit:
                stage.instance.flux("job", "purge", "--force", "--num-limit=0")
            _await_purged(stage)
            stage.start_service()
            stage.await_end(workload.name, patience(workload))
            stage.verify(workload, purged=True)


def _await_purged(stage: Scene) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not stage.instance.flux("jobs", "-a", "-n", "-o", "{id}").strip():
            return
    raise RuntimeError("inactive jobs are not purged")


#: What the function of an ensemble does wrong.
_WRONG = {
    "raises": 'raise RuntimeError("no such luck")',
    "hangs": "import time\ntime.sleep(600)",
    "deaf": "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    pass",
    "exits": "import os\nos._exit(3)",
    "killed": "import os\nos.kill(os.getpid(), 9)",
    "eats": (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "hoard = []\n"
        "while True:\n    hoard.append(bytearray(1 << 20))"
    ),
}


def _wrong(name: str, code: str) -> Workload:
    body = "\n".join("    " + line for line in code.splitlines())
    document: dict[str, Any] = {
        "name": name,
        "jobs": [
            {"name": group, "command": "true", "attributes": mock(0.05)} for group in ("a", "after")
        ],
        "rules": [
            {"id": "a", "trigger": "start", "action": {"name": "submit", "label": "a"}},
            {"id": "wrong", "trigger": "job-success", "group": "a",
             "action": {"name": "custom", "label": "wrong", "timeout": 3}},
            {"id": "after", "trigger": "idle", "group": "a",
             "action": {"name": "submit", "label": "after"}},
        ],
        "custom": f"def wrong(**kwargs):\n{body}\n",
    }  # fmt: skip
    submits = {"a": Submits("a", 1, 1), "after": Submits("after", 1, 1)}
    outcomes = {"a": {"success": 1}, "after": {"success": 1}}
    return Workload(document, Expected(submits, firings={"wrong": 1}, outcomes=outcomes))


def user_code(context: Context) -> None:
    """Functions raise, hang, exit, are killed and eat memory, and the service dies meanwhile."""
    with scene(context) as stage:
        bystander = mixed("mixed", 60, stage.calls)
        wrong = [_wrong(name, code) for name, code in _WRONG.items()]
        for workload in (bystander, *wrong):
            stage.load(workload)
        stage.witness.wait_seen("hangs", "finish", 1)
        time.sleep(context.random.uniform(0, 2))
        stage.kill()
        stage.service.await_answer(stage.handle)
        for workload in (bystander, *wrong):
            status = stage.await_end(workload.name, patience(workload, 1))
            stage.verify(workload)
            rules = {rule["id"]: rule for rule in status["rules"]}
            if workload is not bystander and (
                rules["wrong"]["enabled"] or not rules["wrong"]["error"]
            ):
                context.row.problems.append(f"{workload.name}: status does not show the fault")


def engine_raises(context: Context) -> None:
    """A document whose engine raises something fails alone, also when it is recovered."""
    with scene(context, options=("--raise=Skew",), raises=True) as stage:
        workload = mixed("mixed", 100, stage.calls)
        stage.load(workload)
        unlucky = burst("unlucky", 100)
        stage.load(replace(unlucky, document={**unlucky.document, "metrics": ["skew"]}))
        _check_unlucky(stage)
        stage.kill()
        stage.service.await_answer(stage.handle)
        _check_unlucky(stage)
        stage.await_end(workload.name, patience(workload, 1))
        stage.verify(workload)


def _check_unlucky(stage: Scene) -> None:
    status = stage.await_state("unlucky", "failed", 30)
    if not any("no such luck" in error for error in status["errors"]):
        stage.row.problems.append(f"status does not show the traceback: {status['errors']}")
