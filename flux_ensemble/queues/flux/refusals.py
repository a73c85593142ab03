"""What an error says of a job that was sent: the one table by which errors are told apart.

    LOST     whether the queue has the job is unknown; a fence tells, and it is sent again if not
    HELD     the queue does not have the job, and will take it later: it waits, and is sent again
    REFUSED  the queue does not have the job, and never will

Flux tells most refusals apart by their text alone: what the job manager and its plugins refuse
has EINVAL, what a frobnicator refuses EPERM (flux-core 0.88, `job-ingest.c`,
`flux-job-frobnicator.py`). HELD is only what is known to be a refusal. Where an error can come from
anywhere, a fence is cheaper than a job that runs twice.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What became of a job that was sent; see the module."""

    LOST = "lost"
    HELD = "held"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of error.

    Args:
        name: of the kind, in reports.
        fate: what it says of the job.
        errnos: the errors that it can have.
        text: what Flux says, from the beginning; None is anything.
        advice: what ends it, for people.
        own: it can be the doing of this one job, so that it is not sent for ever.
    """

    name: str
    fate: Fate
    errnos: frozenset[int]
    text: re.Pattern[str] | None = None
    advice: str = ""
    own: bool = False


def _kind(
    name: str, fate: Fate, *errnos: int, text: str = "", advice: str = "", own: bool = False
) -> Refusal:
    pattern = re.compile(text, re.DOTALL) if text else None
    return Refusal(name, fate, frozenset(errnos), pattern, advice, own)


#: The kinds of errors; of several that fit the first one counts.
KINDS = (
    # flux-core, `job-manager/queue.c`.
    _kind(
        "disabled", Fate.HELD, errno.EINVAL,
        text=r"job submission( to \S+)? is disabled: ",
        advice="'flux queue enable' with the queue's name, or --all, ends this",
    ),
    # flux-core, the frobnicator `defaults`. A site can configure one at any time.
    _kind(
        "no-queue", Fate.HELD, errno.EPERM, errno.EINVAL,
        text=r"no queue specified",
        advice="give the group a 'queue' ('flux queue list' has them), or configure a default one",
    ),
    # flux-accounting, `mf_priority.cpp`.
    _kind(
        "limit", Fate.HELD, errno.EINVAL,
        text=r"(user|association) has max active jobs|.*max_active_jobs",
        advice="other jobs of the user have to end first; 'max-active' in the document avoids it",
    ),
    _kind(
        "away", Fate.LOST,
        errno.ENOSYS, errno.EHOSTUNREACH, errno.ECONNRESET,
        advice="job-ingest or job-manager is not loaded: see 'flux module list'",
    ),
    _kind(
        "silent", Fate.LOST, errno.ETIMEDOUT,
        advice="job-ingest does not respond; 'flux module stats job-ingest' tells how busy it is",
    ),
    # ENOSPC also where a validator has much to read (flux-core, `job-ingest/worker.c`).
    _kind(
        "full", Fate.LOST, errno.ENOSPC, errno.EDQUOT, errno.EFBIG,
        advice="make room on the disk of the instance's statedir or rundir",
    ),
    _kind(
        "busy", Fate.LOST,
        errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENOMEM, errno.ENOBUFS, errno.EMFILE,
        errno.ENFILE,
        advice="the broker is short of something; 'flux dmesg' may say of what",
    ),
    # What job-ingest says when a validator died, and when it could not read what the job manager
    # said; EPIPE when a validator is about to die (flux-core, `worker.c` and `pipeline.c`).
    _kind(
        "broken", Fate.LOST, errno.EPROTO, errno.EPIPE, own=True,
        advice="a validator or frobnicator of job-ingest dies; 'flux dmesg' may say why",
    ),
)  # fmt: skip

#: Everything else.
REFUSED = Refusal("refused", Fate.REFUSED, frozenset())


def refusal(error: Exception) -> Refusal:
    """Find the kind of an error.

    >>> refusal(OSError(errno.EINVAL, "job submission to batch is disabled: maintenance")).fate
    <Fate.HELD: 'held'>
    >>> refusal(OSError(errno.EINVAL, "unknown queue")).fate
    <Fate.REFUSED: 'refused'>
    >>> refusal(OSError(errno.ENOSYS, "no such service")).name
    'away'
    """
    if not isinstance(error, OSError):
        return REFUSED
    text = error.strerror or ""
    for kind in KINDS:
        if error.errno in kind.errnos and (kind.text is None or kind.text.match(text)):
            return kind
    return REFUSED


def is_lost(error: Exception) -> bool:
    """The error does not say whether the queue has the job."""
    return refusal(error).fate is Fate.LOST


def is_held(error: Exception) -> bool:
    """The queue does not have the job, and will take it later."""
    return refusal(error).fate is Fate.HELD
