"""A fence in Flux: when it is back, all that was submitted before it has shown in the journal.

A job with a dependency scheme that nobody knows goes the longest way that submissions take,
through the frobnicators and validators of job-ingest to the job manager, which refuses it and
keeps nothing of it. What the job manager was given before it, it has put into the journal before.

Frobnicators and validators work side by side, so jobs can overtake each other on the way. That
is why there are two such jobs: when the first is back, all that was submitted before has got to
job-ingest; then the fence waits until no job is with a validator or frobnicator; then the second
goes the rest of the way behind all of them. A job that passes from one to the other is with
neither for a moment, so twice in a row there must be none. (flux-core `src/modules/job-ingest`:
`workcrew.c`, `pipeline.c`; `src/modules/job-manager/submit.c`.)

Submit nothing while a fence is under way: it would wait for that too.

Each broker has a job-ingest of its own. Where the service before this one was on another rank, what
it sent may be there, so the first fence is raised there, too.

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

#: The dependency scheme that nobody knows.
SCHEME = "ensemble-fence"

#: What Flux says where a rank has no job-ingest, or is gone: nothing comes from there any more.
_GONE = frozenset((errno.ENOSYS, errno.EHOSTUNREACH))

#: Pauses between looks at the backlogs of job-ingest, in seconds, and how often it looks: for
#: about ten seconds in all.
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.2
LOOKS = 50


def raise_fence(broker: Broker, elsewhere: list[int], report: Report) -> None:
    """Begin one fence.

    Args:
        broker: where.
        elsewhere: other ranks where it is raised too, before; each is taken out when that is done.
        report: gets None when it is back, or an error when it will not be: a refusal by a
            validator, or no response.
    """
    run(_fences(broker, elsewhere), report)


def flush(broker: Broker, report: Report) -> None:
    """Begin a flush.

    Args:
        broker: where.
        report: gets None when all events that jobs had before this are in the KVS, or an error.
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
    """Submit a job that is refused, as `flux.job.submit_async` does it, which knows no ranks."""
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
    """The jobspec of a fence.

    Args:
        config: the instance's configuration. Where it has queues a job must be for one of
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
                # One that takes longer than the allocation lasts is refused for that.
                "duration": 1,
                "dependencies": [{"scheme": SCHEME, "value": "none"}],
                "job": {"name": SCHEME},
                **queue,
            },
            "user": {TAG_KEY: {"fence": True}},
        },
    }


def _check_refusal(future: Any) -> None:
    """Check that the job manager refused the job, and nobody before it.

    Raises:
        OSError: something else happened.
    """
    try:
        job = future.get()["id"]
    except OSError as error:
        text = error.strerror or ""
        # The other sentence is that of a queue which takes no jobs (flux-core
        # `job-manager/queue.c`).
        if SCHEME in text or (text.startswith("job submission") and " is disabled" in text):
            return
        if error.errno == errno.EINVAL:
            text = f"the fence was refused before it got to the job manager: {text}"
            raise OSError(errno.EINVAL, text) from None
        raise
    raise OSError(errno.EINVAL, f"the fence was accepted, as job {flux.job.JobID(job).f58}")
