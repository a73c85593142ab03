"""Ids of jobs that were submitted, with where the jobs are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class JobIds(list[int]):
    """The ids of jobs that were submitted.

    Args:
        answer: the response to `ensemble.submit` or `ensemble.action`.

    Attributes:
        members: of an ensemble with members the name of the one that each job is on, in the order
            of the ids, which are not unique then; else empty.
        waiting: how many more of the jobs wait until a member has room for them.

    >>> ids = JobIds({"ids": [17, 17], "members": ["pool.0", "pool.1"], "waiting": 3})
    >>> ids, ids.members, ids.waiting
    ([17, 17], ['pool.0', 'pool.1'], 3)
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(answer.get("ids", ()))
        self.members: list[str] = list(answer.get("members", ()))
        self.waiting: int = answer.get("waiting", 0)
