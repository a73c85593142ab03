"""The outcomes of submissions: an entry of the eventlog, and replies to requests with the job ids.

The jobs that are sent at once for a request may take several commands, to several members. The
reply waits for the outcomes of these. It does not wait for jobs without room, which are sent later:
it only reports their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.engine.commands import Reply
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of, split
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.pending import Pending


class SubmissionResults:
    """Handles the outcomes of one engine's submissions."""

    def __init__(self, core: Core, members: Members | None) -> None:
        self._core = core
        self._members = members

    def accepted(self, pending: Pending, keys: Iterable[int]) -> None:
        """Handle the outcome of a command that submits jobs: log it, and reply to its request.

        Args:
            pending: the command, which was taken from the table before.
            keys: the keys of the accepted jobs.
        """
        firing, origin = pending.firing, pending.origin
        if firing is None:
            return
        if origin.request is not None:
            self._answer(origin.request, firing, keys)
        if not firing.waiting and not firing.outstanding and firing.trial is None:
            jobs = firing.stop - firing.first
            self._core.record(
                eventlog.Outcome(rule=origin.rule, firing=origin.number, ok=True, jobs=jobs)
            )

    def _answer(self, request: int, firing: Firing, keys: Iterable[int]) -> None:
        """Reply to a request once all commands sent for it have an outcome."""
        firing.answered = True
        firing.accepted = [*(firing.accepted or ()), *keys]
        if not firing.unanswered:
            self._reply(request, firing)

    def unsent(self, request: int) -> None:
        """Reply to a request that was handled if there was no room for any of its jobs."""
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
