"""The meaning of an error for a job that was sent: the one table that distinguishes errors.

    LOST     it is unknown whether the queue has the job; a fence decides whether it is sent again
    HELD     the queue does not have the job, and will take it later: it waits, and is sent again
    REFUSED  the queue does not have the job, and never will

Flux distinguishes most refusals by their text alone: those of the job manager and its plugins have
EINVAL, those of a frobnicator EPERM (flux-core 0.88, `job-ingest.c`, `flux-job-frobnicator.py`).
HELD is only for known refusals. If an error can come from several places, a fence is cheaper than a
job that runs twice.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from enum import Enum

from flux_ensemble.eventlog import UNWRITTEN


class Fate(Enum):
    """The state of a job that was sent; see the module."""

    LOST = "lost"
    HELD = "held"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kind of error.

    Args:
        name: of the kind, in reports.
        fate: the state of the job after such an error.
        errnos: the error numbers that it can have.
        text: the beginning of Flux's text; None matches any.
        advice: the remedy, for people.
        own: the error can be the fault of this one job, so the job is not sent for ever.
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


#: The kinds of errors; the first that matches counts.
KINDS = (
    # flux-core, `job-manager/queue.c`.
    _kind(
        "disabled", Fate.HELD, errno.EINVAL,
        text=r"job submission( to \S+)? is disabled: ",
        advice="enable it with 'flux queue enable' and the queue's name, or --all",
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
        "away", Fate.LOST, errno.ENOSYS,
        text=r"No service matching job-ingest\.",
        advice="load it with 'flux module load job-ingest'",
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
    # ENOSPC also if a validator has much to read (flux-core, `job-ingest/worker.c`).
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
    # Errors of job-ingest when a validator died, or when it could not read the job manager's
    # response; EPIPE when a validator is about to die (flux-core, `worker.c` and `pipeline.c`).
    _kind(
        "broken", Fate.LOST, errno.EPROTO, errno.EPIPE, own=True,
        advice="a validator or frobnicator of job-ingest dies; 'flux dmesg' may say why",
    ),
)  # fmt: skip


class NotOnDiskError(OSError):
    """The KVS cannot be put on disk, which jobs wait for with `durability: strict`."""


#: The remedy if the KVS cannot be written, and the kind of such errors.
UNWRITTEN_ADVICE = "'flux ensemble doctor' examines the KVS and its disk"
NOT_ON_DISK = Refusal(UNWRITTEN, Fate.LOST, frozenset(), advice=UNWRITTEN_ADVICE)

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
    >>> refusal(NotOnDiskError(errno.EIO, "no disk")).name
    'unwritten'
    """
    if not isinstance(error, OSError):
        return REFUSED
    if isinstance(error, NotOnDiskError):
        return NOT_ON_DISK
    text = error.strerror or ""
    for kind in KINDS:
        if error.errno in kind.errnos and (kind.text is None or kind.text.match(text)):
            return kind
    return REFUSED


def is_lost(error: Exception) -> bool:
    """Return whether an error leaves it unknown that the queue has the job."""
    return refusal(error).fate is Fate.LOST


def is_held(error: Exception) -> bool:
    """Return whether the queue does not have the job, and will take it later."""
    return refusal(error).fate is Fate.HELD
