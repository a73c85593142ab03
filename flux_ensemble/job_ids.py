"""Ids of submitted jobs, with the members that the jobs are on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: The largest id (RFC 19).
MAX_ID = (1 << 64) - 1


class JobIds(list[int]):
    """The ids of submitted jobs.

    Args:
        answer: the response to `ensemble.submit` or `ensemble.action`.

    Attributes:
        members: for an ensemble with members, the name of each job's member, in the order of the
            ids, which are then not unique; else empty.
        waiting: number of further jobs that wait until a member has room for them.

    >>> ids = JobIds({"ids": [17, 17], "members": ["pool.0", "pool.1"], "waiting": 3})
    >>> ids, ids.members, ids.waiting
    ([17, 17], ['pool.0', 'pool.1'], 3)
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(answer.get("ids", ()))
        self.members: list[str] = list(answer.get("members", ()))
        self.waiting: int = answer.get("waiting", 0)


def shown(id: int, context: Mapping[str, Any], jobid: Callable[[int], str]) -> str:
    """Return a job as people see it: its id, after its member if it has one.

    Args:
        id: of the job on its member, or its key.
        context: what is said of it, with the name of its member.
        jobid: gives the text of an id.

    >>> shown(17, {"member": "pool.3"}, str), shown(17, {}, str)
    ('pool.3:17', '17')
    """
    text = jobid(id & MAX_ID)
    member = context.get("member")
    return text if member is None else f"{member}:{text}"
