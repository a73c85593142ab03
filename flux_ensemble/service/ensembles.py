"""One loaded ensemble: its engine and driver, its log, and the requests it owes answers.

An ensemble is *live* until it has ended and none of its jobs is active any more; its log
is closed then. When something that must not happen did, its engine is not asked any more:
it is "failed" unless it had ended before, and `errors` says what happened.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flux_ensemble.engine.commands import Finish, Record, Reply
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, Request, Started
from flux_ensemble.members.base import Caller, ClosingTap, Driver, Loop, Member
from flux_ensemble.members.recovery import Recovered
from flux_ensemble.service.log import Log
from flux_ensemble.service.requests import RequestError
from flux_ensemble.spec.model import Spec

#: Ended ensembles that are kept for status, and errors that are kept for each ensemble.
KEPT_ENDED = 100
KEPT_ERRORS = 20

#: Takes the result of a request, or why it was refused.
Answer = Callable[[Mapping[str, Any] | RequestError], None]


class Ensemble:
    """A loaded ensemble, and the host of its driver.

    Args:
        spec: its document.
        run: a number that tells it from others of its name.
        cwd: the directory it was loaded from.
        member: where its jobs go.
        loop: for timers and the time.
        custom: starts its worker process.
        log_error: writes a line to the service's log.
        changed: called when it may have ended, or may need other job events.
        recorder: takes down all that it does, if given.

    Attributes:
        stopped: why its engine is not asked any more, or None.
        errors: what went wrong inside the service on its account, oldest first.
        firings: how often its rules have fired.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        run: int,
        cwd: str,
        member: Member,
        loop: Loop,
        custom: Callable[[Ensemble], Caller],
        log_error: Callable[[str], None],
        changed: Callable[[Ensemble], None],
        recorder: ClosingTap | None = None,
    ) -> None:
        self.name = spec.name
        self.run = run
        self.cwd = cwd
        self.member = member
        self.engine = Engine(spec)
        self.log = Log()
        self.stopped: str | None = None
        self.errors: list[str] = []
        self.firings = 0
        self._loop = loop
        self._log_error = log_error
        self._changed = changed
        self._live = True
        self._t_failed: float | None = None
        self._answers: dict[int, Answer] = {}
        self._last_request = 0
        self._needs = (frozenset[str](), False)
        self._recorder = recorder
        self._driver = Driver(self.engine, member, loop, lambda: custom(self), self, recorder)

    # -- state --------------------------------------------------------------------

    @property
    def state(self) -> str:
        """As SPEC has it: running, paused, ending, completed, failed or canceled."""
        return self.engine.state if self._t_failed is None else "failed"

    @property
    def reason(self) -> str:
        """Why it is in its state, where there is something to say."""
        return self.engine.reason if self._t_failed is None else self.stopped or ""

    @property
    def ended(self) -> bool:
        """It is in a final state; jobs of it may still be active."""
        return self._t_failed is not None or self.engine.ended

    @property
    def live(self) -> bool:
        """Something of it may still happen."""
        return self._live

    @property
    def needs(self) -> tuple[frozenset[str], bool]:
        """The job events that it needs, and whether it needs those of other jobs too."""
        return self.engine.wants_events, self.engine.wants_foreign

    @property
    def commands(self) -> int:
        """How many commands of it have been performed."""
        return self._driver.commands

    def status(self) -> dict[str, Any]:
        """Its entry in the response to `ensemble.status`."""
        status = self.engine.status()
        if self._t_failed is not None:
            status.update(state=self.state, reason=self.reason, t_end=self._t_failed)
        return {**status, "directory": self.cwd, "errors": list(self.errors)}

    def summary(self) -> dict[str, Any]:
        """Its entry in the response to `ensemble.list`."""
        status = self.status()
        return {
            **{key: status[key] for key in ("name", "state", "reason", "t_start", "t_end")},
            "active": status["jobs"]["active"],
            "waiting": status["jobs"]["waiting"],
            "finished": sum(group["finished"] for group in status["groups"].values()),
        }

    # -- what goes in -------------------------------------------------------------

    def start(self) -> None:
        """The queue is being watched: begin."""
        self._driver.post(Started(self._loop.now()))

    def go_on(self, recovered: Recovered) -> None:
        """Go on where a run was killed; `engine` has taken in the events of that run."""
        self.firings = self.engine.firings
        for command in recovered.commands(self._loop.now()):
            self._driver.perform(command)
        for event in recovered.events(self.engine, self._loop.now()):
            self.job_event(event)

    def job_event(self, event: JobEvent) -> None:
        """A job did something."""
        if event.tag is not None:
            self.member.seen(event.tag, event.job)
        if self.log.wants_events:
            self.log.job_event(event.t, event.job, event.name, event.context)
        if event.name in self.engine.wants_events:
            self._driver.post(event)

    def ask(self, op: str, args: Mapping[str, Any], answer: Answer) -> None:
        """Put a request to the engine."""
        if self.stopped is not None:
            reason = f"ensemble {self.name!r} takes no requests any more: {self.stopped}"
            answer(RequestError(errno.EAGAIN, reason))
            return
        self._last_request += 1
        self._answers[self._last_request] = answer
        self._driver.post(Request(self._loop.now(), self._last_request, op, args))

    def fail(self, reason: str, detail: str = "") -> None:
        """It cannot go on, for a reason outside of its engine.

        Args:
            reason: one sentence.
            detail: more text for `errors`.
        """
        self._note(f"{reason}\n{detail}".rstrip())
        if self.stopped is not None:
            return
        self.stopped = reason
        if not self.engine.ended:
            self._t_failed = self._loop.now()
            self.log.append(self._t_failed, "finish", {"state": "failed", "reason": reason})
        self._driver.close()
        if self._live:
            self._retire()
            self._changed(self)

    def close(self, number: int, reason: str) -> None:
        """Take it down; whoever waits for an answer gets this error."""
        self._driver.close()
        self._retire(RequestError(number, reason))

    # -- what comes out: the driver's host ------------------------------------------

    def record(self, entry: Record) -> None:
        """Keep an entry of the eventlog."""
        if entry.name == "fire":
            self.firings += 1
        self.log.append(entry.t, entry.name, entry.context)

    def reply(self, reply: Reply) -> None:
        """Answer a request."""
        answer = self._answers.pop(reply.request, None)
        if answer is None:
            return
        if reply.errno is None:
            answer(reply.result)
        else:
            answer(RequestError(getattr(errno, reply.errno, errno.EINVAL), reply.reason))

    def finish(self, finish: Finish) -> None:
        """The engine has ended; `settled` sees to the rest when its jobs are gone."""

    def settled(self) -> None:
        """An event has been handled."""
        if self.engine.ended and self.engine.idle and self._live:
            self._retire()
            self._changed(self)
        elif self._needs != self.needs:
            self._needs = self.needs
            self._changed(self)

    def broken(self, error: Exception) -> None:
        """The engine, or what performs its commands, raised an exception."""
        self.fail(
            f"internal error: {error!r}",
            "".join(traceback.format_exception(error)),
        )

    # -- helpers ------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self.errors = [*self.errors, text][-KEPT_ERRORS:]
        for line in text.splitlines():
            self._log_error(f"{self.name}: {line}")

    def _retire(self, error: RequestError | None = None) -> None:
        self._live = False
        if self._recorder is not None:
            self._recorder.close()
        answers, self._answers = self._answers, {}
        error = error or RequestError(errno.EAGAIN, f"ensemble {self.name!r} has ended")
        for answer in answers.values():
            answer(error)
        self.log.close()


class Ensembles:
    """The ensembles of the service, by name, oldest first."""

    def __init__(self) -> None:
        self._all: dict[str, Ensemble] = {}

    def __iter__(self) -> Iterator[Ensemble]:
        return iter(list(self._all.values()))

    def get(self, name: str) -> Ensemble:
        """The ensemble of a name.

        Raises:
            RequestError: ENOENT.
        """
        if name not in self._all:
            known = ", ".join(self._all) or "none"
            raise RequestError(errno.ENOENT, f"no ensemble named {name!r} (ensembles: {known})")
        return self._all[name]

    def find(self, name: str, run: int) -> Ensemble | None:
        """The ensemble of a name, if it is that run of it."""
        found = self._all.get(name)
        return found if found is not None and found.run == run else None

    def add(self, ensemble: Ensemble) -> None:
        """Add an ensemble, as the newest."""
        self._all.pop(ensemble.name, None)
        self._all[ensemble.name] = ensemble

    def remove(self, ensemble: Ensemble) -> None:
        """Drop an ensemble."""
        del self._all[ensemble.name]

    def surplus(self) -> list[Ensemble]:
        """The oldest of the ended ones that are more than are kept."""
        ended = [one for one in self._all.values() if one.ended and not one.live]
        return ended[: max(0, len(ended) - KEPT_ENDED)]
