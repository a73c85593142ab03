"""Names of submitted jobs for people: ids, preceded by members if there are some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flux_ensemble.job_ids import JobIds, shown
from flux_ensemble.report.texts import plural


def submitted_names(ids: Sequence[int], label: Callable[[int], str]) -> list[str]:
    """Return the names of jobs, from the result of `Client.submit` or the ids of a local run.

    >>> ids = JobIds({"ids": [17], "members": ["pool.3"]})
    >>> submitted_names(ids, str), submitted_names([17], str)
    (['pool.3:17'], ['17'])
    """
    members = ids.members if isinstance(ids, JobIds) and ids.members else [None] * len(ids)
    return [shown(id, {"member": member}, label) for id, member in zip(ids, members, strict=True)]


def waiting_text(ids: Sequence[int]) -> str:
    """Return a sentence about requested jobs that have no id yet; "" if there are none."""
    waiting = ids.waiting if isinstance(ids, JobIds) else 0
    verb = "waits" if waiting == 1 else "wait"
    return f"{plural(waiting, 'job')} {verb} until a member has room" if waiting else ""


def submitted_text(ids: Sequence[int], label: Callable[[int], str]) -> str:
    """Return a sentence about submitted jobs that names the first of them.

    >>> submitted_text([17, 18], str), submitted_text(JobIds({"waiting": 2}), str)
    ('2 jobs submitted: 17, 18', '0 jobs submitted; 2 jobs wait until a member has room')
    """
    names = submitted_names(ids, label)
    text = f"{plural(len(ids), 'job')} submitted"
    if names:
        text += f": {', '.join(names[:5])}" + ", ..." * (len(names) > 5)
    waiting = waiting_text(ids)
    return f"{text}; {waiting}" if waiting else text
