"""Submissions in progress when an ensemble was interrupted, and jobs that have disappeared.

A submission without an outcome may have reached the queue before the crash. Once the queue has
shown all that was sent, the engine knows which of its jobs it still expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flux_ensemble.engine.commands import Effect, SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, Tag
from flux_ensemble.engine.job_keys import make, split


def submitted(command: Effect) -> Iterator[Tag]:
    """Yield the tags of the jobs that a command submits."""
    if isinstance(command, SubmitJobs):
        for index in range(command.first, command.first + command.count):
            yield Tag(command.group, command.rule, command.firing, index)


def shown(engine: Engine, command: Effect) -> Iterator[tuple[Tag, int]]:
    """Yield the jobs of a submission that the queue has shown, each with its id.

    The id is 0 for a job that has ended in the meantime.
    """
    if isinstance(command, SubmitJobs):
        firing = engine.workload.firings.get(command.rule, command.firing)
        stop = command.first + command.count
        if firing is not None and not firing.seen.overlaps(command.first, stop):
            return
    tags = [tag for tag in submitted(command) if not engine.expects(tag)]
    if not tags:
        return
    active = {
        Tag(job.firing.group, job.firing.rule, job.firing.number, job.index): job.id
        for job in engine.workload.active(tags[0].group)
        if job.firing is not None
    }
    for tag in tags:
        yield tag, active.get(tag, 0)


def unseen(
    engine: Engine, t: float, commands: Iterable[Effect], ordinal: int
) -> Iterator[JobEvent]:
    """Yield the events that end jobs sent to a member, never seen there, and maybe gone since.

    Args:
        engine: of the ensemble.
        t: the time.
        commands: those that may have been performed before the interruption, and no later ones.
        ordinal: number of the member.
    """
    for command in commands:
        if isinstance(command, SubmitJobs) and command.ordinal == ordinal:
            for tag in filter(engine.expects, submitted(command)):
                yield from lost(t, make(ordinal, 0), tag)


def surplus(job: int, tag: Tag) -> str:
    """Return a sentence about a job that has the tag of another one.

    Args:
        job: its key.
        tag: of the job.
    """
    ordinal, id = split(job)
    where = f" of its member {ordinal}" if ordinal else ""
    return (
        f"job {id}{where} has the tag of another job of group {tag.group!r} (rule {tag.rule!r}, "
        f"firing {tag.firing}, index {tag.index})"
    )


def lost(t: float, job: int, tag: Tag | None = None) -> Iterator[JobEvent]:
    """Yield the events that end a job which the queue does not know any more.

    Args:
        t: the time.
        job: its id; 0 if that is unknown.
        tag: of a job that was never seen, else None.
    """
    if tag is not None:
        yield JobEvent(t, job, "submit", {}, tag)
    # For a job of which only `submit` was seen, this completes the submission.
    yield JobEvent(t, job, "validate")
    note = "the queue does not know the job any more; what became of it is unknown"
    yield JobEvent(t, job, "exception", {"type": "lost", "severity": 0, "note": note})
    yield JobEvent(t, job, "clean")
