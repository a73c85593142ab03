"""Starts the service without the time that it takes to import it: `standby.py [OPTION ...]`.

Each line on standard input is the URI of an instance; a process that serves it, as
`flux ensemble serve` does, is forked, and its id is printed. So a service that was killed is
back before the queue has come to rest, which is when duplicates would be made.

--no-fence              recovery does not wait for what the dead service sent: the negative
                        control, which must fail
--no-member-fence       a member that is lost counts as ended at once: another control
--hold                  no commit is sent while there is a file (`hold_of`)
--no-await              jobs are sent to members before it is durable where to: another control
--hold-moves            what a member is asked when it is drained takes as long as there is a file
--no-journal            what waits there has left when it is asked to: another control
--raise STATISTIC       that of River panics at the 80th value, in the engine's midst
--snapshot-events N     a snapshot after N events instead of thousands
--rest SECONDS          the journal is closed so long after the last job, instead of after seconds
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from scenario import hold_of

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
from river import stats  # noqa: E402

from flux_ensemble.engine.commands import CancelJobs, DrainMember, EndMember  # noqa: E402
from flux_ensemble.engine.events import JobEvent  # noqa: E402
from flux_ensemble.engine.member import MOVED  # noqa: E402
from flux_ensemble.queues.flux import queue as member  # noqa: E402
from flux_ensemble.queues.nested import commits, member_job  # noqa: E402
from flux_ensemble.runtime.durability import wal as wal  # noqa: E402
from flux_ensemble.service import fleet, needs  # noqa: E402
from flux_ensemble.service.serve import serve  # noqa: E402
from flux_ensemble.service.store import kvs  # noqa: E402

#: At which value the statistic of --raise panics: later than it is tried when a document is read.
_UNLUCKY = 80


class Panic(BaseException):
    """What compiled code raises; it is no `Exception`."""


def no_fence() -> None:
    """Have every fence back at once."""
    member.FluxQueue.fence = lambda self, done: done(None)  # type: ignore[method-assign]


def no_member_fence() -> None:
    """Have a member that is lost count as one of which nothing runs any more."""

    def fence(self: Any, job: int | str) -> None:
        self._conclude(fenced=False)

    member_job.MemberJob._fence = fence  # type: ignore[method-assign]


def no_await() -> None:
    """Have jobs of members sent at once."""

    def then(self: Any, work: Callable[[], None]) -> None:
        work()

    commits.Commits.then = then  # type: ignore[method-assign]


def hold_commits() -> None:
    """Send no commit while the service is to be held up, and so none of those after it."""
    commit = kvs.KvsStore.commit

    def held(self: Any, batches: Any, done: Any) -> None:
        if not hold_of(os.environ["FLUX_URI"]).exists():
            commit(self, batches, done)

    kvs.KvsStore.commit = held  # type: ignore[method-assign]


def hold_moves() -> None:
    """Have a member hear late that it drains, what is to leave it, and of its end."""
    drain, cancel, end = fleet.MemberFleet.drain, fleet.MemberFleet.cancel, fleet.MemberFleet.end

    def when_told(self: Any, work: Callable[[], None]) -> None:
        if hold_of(os.environ["FLUX_URI"], "moves").exists():
            self._site._broker.loop.timer(0.01, lambda: when_told(self, work))
        else:
            work()

    def late_drain(self: Any, command: DrainMember, done: Any) -> None:
        when_told(self, lambda: drain(self, command, done))

    def late_end(self: Any, command: EndMember, done: Any) -> None:
        when_told(self, lambda: end(self, command, done))

    def late_cancel(self: Any, command: CancelJobs, done: Any) -> None:
        if command.reason == MOVED:
            when_told(self, lambda: cancel(self, command, done))
        else:
            cancel(self, command, done)

    fleet.MemberFleet.drain = late_drain  # type: ignore[method-assign]
    fleet.MemberFleet.end = late_end  # type: ignore[method-assign]
    fleet.MemberFleet.cancel = late_cancel  # type: ignore[method-assign]


def no_journal() -> None:
    """Have a job that is to leave a member count as gone when that is asked to let it go."""
    cancel = fleet.MemberFleet.cancel

    def trusting(self: Any, command: CancelJobs, done: Any) -> None:
        cancel(self, command, done)
        if command.reason == MOVED:
            now, canceled = time.time(), {"type": "cancel", "severity": 0, "note": MOVED}
            for job in command.jobs:
                self.ensemble.job_event(JobEvent(now, job, "exception", canceled))
                self.ensemble.job_event(JobEvent(now, job, "clean", {}))

    fleet.MemberFleet.cancel = trusting  # type: ignore[method-assign]


def raise_in(statistic: str) -> None:
    """Have a statistic panic, also when its values come again."""
    kind = getattr(stats, statistic)
    update = kind.update

    def unlucky(one: Any, value: float) -> None:
        one.values_seen = getattr(one, "values_seen", 0) + 1
        if one.values_seen >= _UNLUCKY:
            raise Panic("no such luck")
        update(one, value)

    kind.update = unlucky


def child(uri: str) -> None:
    """Serve an instance to its end, or to ours."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ["FLUX_URI"] = uri
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    code = 1
    try:
        serve(flux.Flux(uri))
        code = 0
    except BaseException as error:
        print(f"serve: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def main() -> None:
    """Fork a service for each line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-fence", action="store_true")
    parser.add_argument("--no-member-fence", action="store_true")
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--no-await", action="store_true")
    parser.add_argument("--hold-moves", action="store_true")
    parser.add_argument("--no-journal", action="store_true")
    parser.add_argument("--raise", dest="unlucky")
    parser.add_argument("--snapshot-events", type=int)
    parser.add_argument("--rest", type=float, default=needs.REST_SECONDS)
    options = parser.parse_args()
    if options.no_fence:
        no_fence()
    if options.no_member_fence:
        no_member_fence()
    if options.hold:
        hold_commits()
    if options.no_await:
        no_await()
    if options.hold_moves:
        hold_moves()
    if options.no_journal:
        no_journal()
    if options.unlucky:
        raise_in(options.unlucky)
    if options.snapshot_events:
        wal.SNAPSHOT_EVENTS = options.snapshot_events
    needs.REST_SECONDS = options.rest
    # Children that are killed are reaped by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(line.strip())
        print(pid, flush=True)


if __name__ == "__main__":
    main()
