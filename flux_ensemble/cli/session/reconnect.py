"""Waiting, on the Flux reactor, for the return of a service that went away.

`run`, `watch`, `wait` and `log --follow` follow logs by streams, which end with an error when the
service dies or is removed. They continue when it is back, that is, answers `list`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.client.errors import failure, is_unloaded
from flux_ensemble.client.reconnect import AWAY, LOOK_TIMEOUT, Outage

if TYPE_CHECKING:
    from flux_ensemble.client import Client, EnsembleError


class Late:
    """A replacement for the future of a request that was not answered in time."""

    def get(self) -> Any:
        """Raise that error."""
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def ask(
    client: Client, op: str, payload: Mapping[str, Any], answered: Callable[[Any], None]
) -> None:
    """Send a request; `answered` receives its future, or a `Late` after `LOOK_TIMEOUT`.

    With Flux's own time limit, the late response would be delivered to another request.
    """
    waits = True

    def answer(future: Any) -> None:
        nonlocal waits
        if waits:
            waits = False
            timer.stop()
            timer.destroy()
            answered(future)

    client.send(op, payload).then(answer)
    timer = client.handle.timer_watcher_create(LOOK_TIMEOUT, lambda *_: answer(Late()))
    timer.start()


def ask_whether_died(client: Client, t_sent: float, told: Callable[[bool | None], None]) -> None:
    """Find whether the service that received a request has died: see `Client.response`.

    Args:
        client: that sent the request.
        t_sent: when it was sent, by the monotonic clock.
        told: receives the result; None if nobody answers.
    """
    t_asked = time.monotonic()

    def answered(future: Any) -> None:
        try:
            age = future.get().get("age")
        except OSError as exc:
            if is_unloaded(exc):
                told(True)
            else:
                told(None if exc.errno in AWAY else False)
        else:
            told(age is not None and age < t_asked - t_sent)

    ask(client, "claim", {}, answered)


class ServiceAbsence:
    """An absence of the service, which may occur repeatedly.

    Args:
        client: a client on whose handle the reactor runs.
        back: called when the service is back.
        given_up: called when it is not waited for any longer, with the error that it answered with,
            or None if the time is up.
    """

    def __init__(
        self,
        client: Client,
        *,
        back: Callable[[], None],
        given_up: Callable[[EnsembleError | None], None],
    ) -> None:
        self._client = client
        self._back = back
        self._given_up = given_up
        self._outage: Outage | None = None
        self._timer: Any = None
        self._t_start: float | None = None

    @property
    def lasts(self) -> bool:
        """The service is away."""
        return self._outage is not None

    def begin(self) -> None:
        """Report that the service went away, and look for it."""
        if self._outage is None:
            self._outage = Outage()
            _say("the ensemble service went away; waiting for it to come back")
            self._wait()

    def heard(self, service: Mapping[str, Any]) -> None:
        """Process the service's report on itself: another service means that it was away meanwhile.

        The first report has to be requested before a log is.

        Args:
            service: `service` of the response to `ensemble.status`.
        """
        before, self._t_start = self._t_start, service.get("t_start")
        if before not in (None, self._t_start):
            self.begin()

    def missed(self) -> None:
        """Note that the service did not answer: the next one that does may be another one."""
        self._t_start = 0.0

    def end(self) -> None:
        """Stop looking for the service."""
        self._outage = None
        self._t_start = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _wait(self) -> None:
        assert self._outage is not None
        pause = self._outage.next_pause()
        if pause is None:
            self.end()
            self._given_up(None)
            return
        self._timer = self._client.handle.timer_watcher_create(pause, self._look)
        self._timer.start()

    def _look(self, *_: Any) -> None:
        ask(self._client, "list", {}, self._on_answer)

    def _on_answer(self, future: Any) -> None:
        try:
            future.get()
        except OSError as exc:
            if not self.lasts:
                return
            if exc.errno in AWAY:
                self._wait()
            else:
                self.end()
                self._given_up(failure(exc, "list"))
            return
        if self.lasts:
            self.end()
            _say("the ensemble service is back")
            self._back()


def _say(text: str) -> None:
    click.echo(f"flux-ensemble: {text}", err=True)
