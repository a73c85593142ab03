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

import base64
import errno
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import flux.job
from flux.constants import FLUX_JOB_NOVALIDATE
from flux.core.inner import lib

from flux_ensemble.document.model import TAG_KEY
from flux_ensemble.members.flux.delivery import RESPONSE_SECONDS
from flux_ensemble.members.flux.pipeline import Report

if TYPE_CHECKING:
    from flux_ensemble.members.flux.queue import FluxQueue

#: The dependency scheme that nobody knows.
SCHEME = "ensemble-fence"

#: What Flux says where a rank has no job-ingest, or is gone: nothing comes from there any more.
_GONE = frozenset((errno.ENOSYS, errno.EHOSTUNREACH))

#: Pauses between looks at the backlogs of job-ingest, in seconds, and how often it looks: for
#: about ten seconds in all.
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.2
LOOKS = 50


def raise_fence(queue: FluxQueue, report: Report) -> None:
    """Begin one fence.

    Args:
        queue: where.
        report: gets None when it is back, or an error when it will not be: a refusal by a
            validator, or no response.
    """

    def back(error: Exception | None) -> None:
        if error is None or getattr(error, "errno", None) in _GONE:
            queue.elsewhere.pop()
            raise_fence(queue, report)
        else:
            report(error)

    if queue.elsewhere:
        fence = _Fence(queue, back, rank=queue.elsewhere[-1])
    else:
        fence = _Fence(queue, report)
    fence.begin(lambda: fence.submit(fence.look))


def flush(queue: FluxQueue, report: Report) -> None:
    """Begin a flush.

    Args:
        queue: where.
        report: gets None when all events that jobs had before this are in the KVS, or an error.
    """
    fence = _Fence(queue, report, novalidate=True)
    fence.begin(lambda: fence.submit(lambda: report(None)))


class _Fence:
    """The steps of a fence; an error in any of them is reported."""

    def __init__(
        self,
        queue: FluxQueue,
        report: Report,
        *,
        novalidate: bool = False,
        rank: int = lib.FLUX_NODEID_ANY,
    ) -> None:
        self._queue = queue
        self._report = report
        self._novalidate = novalidate
        self._rank = rank
        self._text = ""
        self._looks = 0
        self._empty = 0
        self._pause = FIRST_PAUSE

    def begin(self, then: Callable[[], None]) -> None:
        """Ask what queues there are, and make the jobspec."""

        def configured(config: Mapping[str, Any]) -> None:
            self._text = json.dumps(fence_jobspec(config))
            then()

        future = self._queue.handle.rpc("config.get")
        self._call(future, lambda future: future.get(), configured)

    def _call(
        self, future: Any, receive: Callable[[Any], Any], then: Callable[[Any], None]
    ) -> None:
        """Go on with what `receive` makes of a future, or report what it raises."""
        results: list[Any] = []

        def report(error: Exception | None) -> None:
            if error is None:
                then(results[0])
            else:
                self._report(error)

        self._queue.call(
            future, lambda future: results.append(receive(future)), report, RESPONSE_SECONDS
        )

    def submit(self, then: Callable[[], None]) -> None:
        """Submit a job, and go on when it is refused."""
        flags = FLUX_JOB_NOVALIDATE if self._novalidate else 0
        # As `flux.job.submit_async` does it, which knows no ranks.
        request = {"J": signed(self._text), "urgency": 0, "flags": flags}
        future = self._queue.handle.rpc("job-ingest.submit", request, self._rank)
        self._call(future, _check_refusal, lambda _: then())

    def look(self) -> None:
        """Ask job-ingest for its backlogs."""
        future = self._queue.handle.rpc("job-ingest.stats-get", {}, self._rank)
        self._call(future, lambda future: future.get(), self._looked)

    def _looked(self, stats: Mapping[str, Any]) -> None:
        backlog = sum(stage["backlog"] for stage in stats["pipeline"].values())
        self._looks += 1
        self._empty = 0 if backlog else self._empty + 1
        if self._empty == 2:
            self.submit(lambda: self._report(None))
        elif self._empty:
            self.look()
        elif self._looks < LOOKS:
            self._queue.loop.timer(self._pause, self.look)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            text = f"job-ingest is busy: {backlog} jobs are with its validators"
            self._report(OSError(errno.ETIMEDOUT, text))


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
                "duration": 60,
                "dependencies": [{"scheme": SCHEME, "value": "none"}],
                "job": {"name": SCHEME},
                **queue,
            },
            "user": {TAG_KEY: {"fence": True}},
        },
    }


def signed(jobspec: str) -> str:
    """A jobspec as it is submitted by the owner of the instance: see RFC 15, mechanism `none`."""
    header = f"version\0i1\0mechanism\0snone\0userid\0i{os.getuid()}\0"
    parts = [base64.b64encode(part.encode()).decode() for part in (header, jobspec)]
    return ".".join((*parts, "none"))


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
