"""A fence in Flux: when it is back, the journal has shown all that was submitted before it.

A job with an unknown dependency scheme goes the longest way that submissions take, through the
frobnicators and validators of job-ingest to the job manager, which refuses it and keeps nothing of
it. All that the job manager received before it has been put into the journal before.

Frobnicators and validators work side by side, so jobs can overtake each other on the way. So a
fence has two such jobs. When the first is back, all that was submitted before has reached
job-ingest. Then the fence waits until no job is with a validator or frobnicator. Then the second
goes the rest of the way behind all of them. A job that passes from one to the other is with neither
for a moment, so there must be none twice in a row. (flux-core `src/modules/job-ingest`:
`workcrew.c`, `pipeline.c`; `src/modules/job-manager/submit.c`.)

Nothing may be submitted while a fence is in progress: the fence would wait for that too.

Each broker has a job-ingest of its own. If the previous service was on another rank, jobs that it
sent may still be there, so the first fence is raised there, too.

The second job alone is a *flush*: the job manager answers when the events of its present
transaction are in the KVS (`src/modules/job-manager/event.c`), and so are all those before.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from typing import Any

import flux.job
from flux.constants import FLUX_JOB_NOVALIDATE
from flux.core.inner import lib

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.flux.steps import Step, Steps, run
from flux_ensemble.queues.flux.submit_rpc import signed

#: The unknown dependency scheme.
SCHEME = "ensemble-fence"

#: Errors if a rank has no job-ingest, or is gone: no jobs come from there any more.
_GONE = frozenset((errno.ENOSYS, errno.EHOSTUNREACH))

#: Pauses in seconds between looks at the backlogs of job-ingest, and the number of looks: these
#: take about ten seconds in all.
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.2
LOOKS = 50


def raise_fence(broker: Broker, elsewhere: list[int], report: Report) -> None:
    """Begin one fence.

    Args:
        broker: of the instance.
        elsewhere: other ranks where a fence is raised first; each is removed when that is done.
        report: receives None when the fence is back, or an error if it will not be: a refusal
            by a validator, or no response.
    """
    run(_fences(broker, elsewhere), report)


def flush(broker: Broker, report: Report) -> None:
    """Begin a flush.

    Args:
        broker: of the instance.
        report: receives None when all earlier events of jobs are in the KVS, or an error.
    """
    run(_flush(broker), report)


def _fences(broker: Broker, elsewhere: list[int]) -> Steps:
    while elsewhere:
        try:
            yield from _fence(broker, elsewhere[-1])
        except OSError as error:
            if error.errno not in _GONE:
                raise
        elsewhere.pop()
    yield from _fence(broker, lib.FLUX_NODEID_ANY)


def _fence(broker: Broker, rank: int) -> Steps:
    config = yield broker.response(broker.handle.rpc("config.get"))
    jobspec = json.dumps(fence_jobspec(config))
    yield _refusal(broker, jobspec, rank)
    yield from _until_idle(broker, rank)
    yield _refusal(broker, jobspec, rank)


def _flush(broker: Broker) -> Steps:
    config = yield broker.response(broker.handle.rpc("config.get"))
    jobspec = json.dumps(fence_jobspec(config))
    yield _refusal(broker, jobspec, lib.FLUX_NODEID_ANY, FLUX_JOB_NOVALIDATE)


def _refusal(broker: Broker, jobspec: str, rank: int, flags: int = 0) -> Step:
    """Submit a job that is refused; `flux.job.submit_async` does the same, but not for a rank."""
    request = {"J": signed(jobspec).decode(), "urgency": 0, "flags": flags}
    return broker.response(broker.handle.rpc("job-ingest.submit", request, rank), _check_refusal)


def _until_idle(broker: Broker, rank: int) -> Steps:
    """Wait until no job is with a validator or frobnicator, twice in a row."""
    idle, pause = 0, FIRST_PAUSE
    for _ in range(LOOKS):
        stats = yield broker.response(broker.handle.rpc("job-ingest.stats-get", {}, rank))
        backlog = sum(stage["backlog"] for stage in stats["pipeline"].values())
        idle = 0 if backlog else idle + 1
        if idle == 2:
            return
        if backlog:
            yield broker.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    raise OSError(errno.ETIMEDOUT, f"job-ingest is busy: {backlog} jobs are with its validators")


def fence_jobspec(config: Mapping[str, Any]) -> dict[str, Any]:
    """Make the jobspec of a fence.

    Args:
        config: the instance's configuration. If it has queues the job must be for one of
            them, or it gets no further than the frobnicators.
    """
    defaults = config.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})
    queues = config.get("queues", {})
    queue = {"queue": sorted(queues)[0]} if queues and "queue" not in defaults else {}
    core = {"type": "core", "count": 1}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [core]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {
                # A longer duration than the allocation has left would be refused for that reason.
                "duration": 1,
                "dependencies": [{"scheme": SCHEME, "value": "none"}],
                "job": {"name": SCHEME},
                **queue,
            },
            "user": {TAG_KEY: {"fence": True}},
        },
    }


def _check_refusal(future: Any) -> None:
    """Check that the job was refused, and by the job manager.

    Raises:
        OSError: something else happened.
    """
    try:
        job = future.get()["id"]
    except OSError as error:
        text = error.strerror or ""
        # The other text is that of a queue which takes no jobs (flux-core
        # `job-manager/queue.c`).
        if SCHEME in text or (text.startswith("job submission") and " is disabled" in text):
            return
        if error.errno == errno.EINVAL:
            text = f"the fence was refused before it got to the job manager: {text}"
            raise OSError(errno.EINVAL, text) from None
        raise
    raise OSError(errno.EINVAL, f"the fence was accepted, as job {flux.job.JobID(job).f58}")
