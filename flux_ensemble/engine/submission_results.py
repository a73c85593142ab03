"""What comes of submitting jobs: an entry of the eventlog, and replies to requests, with the ids.

What is sent for a request at once can be several commands, to several members. What had to wait
for room is sent later, and the reply does not wait for that: it says how many jobs those are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flux_ensemble.engine.commands import Reply
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of, split
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.pending import Pending


class Submitted:
    """What comes of the commands of one engine that submit jobs."""

    def __init__(self, core: Core, members: Members | None) -> None:
        self._core = core
        self._members = members

    def accepted(self, pending: Pending, keys: Iterable[int]) -> None:
        """A command that submits jobs has an outcome: these were accepted.

        Args:
            pending: the command, which is not in the table any more.
            keys: of the jobs.
        """
        firing, origin = pending.firing, pending.origin
        if firing is None:
            return
        if origin.request is not None:
            self._answer(origin.request, firing, keys)
        if not firing.waiting and not firing.outstanding and firing.trial is None:
            jobs = firing.stop - firing.first
            self._core.record("outcome", rule=origin.rule, firing=origin.number, ok=True, jobs=jobs)

    def _answer(self, request: int, firing: Firing, keys: Iterable[int]) -> None:
        """Reply to a request once all that was sent for it has an outcome."""
        firing.answered = True
        firing.accepted = [*(firing.accepted or ()), *keys]
        if not firing.unanswered:
            self._reply(request, firing)

    def unsent(self, request: int) -> None:
        """A request was handled: reply if there is no room yet for any of its jobs."""
        if self._members is None:
            return
        for firing in self._core.workload.firings:
            if firing.request == request and not (firing.outstanding or firing.answered):
                firing.answered = True
                self._reply(request, firing)
                return

    def _reply(self, request: int, firing: Firing) -> None:
        keys = firing.accepted or []
        firing.accepted = None
        result: dict[str, Any] = {"ids": keys, "firing": firing.number}
        if self._members is not None:
            result["ids"] = [split(key)[1] for key in keys]
            result["members"] = [self._members.name_of(ordinal_of(key)) for key in keys]
            result["waiting"] = firing.waiting
        self._core.emit(Reply(request, result))
