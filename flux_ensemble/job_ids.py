"""Ids of submitted jobs, with the members that the jobs are on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
