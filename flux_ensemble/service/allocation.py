"""Until when the allocation of the instance lasts, told to the ensembles to which it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_ensemble.members.flux.broker import Broker
from flux_ensemble.members.flux.errors import sentence
from flux_ensemble.runtime.ports import Handle

#: Seconds between looks: the time limit of an instance's job can be changed.
SPACING_SECONDS = 30.0

#: Seconds to wait for each response.
RESPONSE_SECONDS = 10.0


class Allocation:
    """Looks when the allocation expires, while that is wanted.

    Args:
        broker: of the Flux instance.
        changed: called after each look.
        log_error: writes a line to the service's log.

    Attributes:
        known: it has been looked at.
        t_expires: when it expires; None where it has no limit, or before it is known.
    """

    def __init__(
        self, broker: Broker, changed: Callable[[], None], log_error: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._changed = changed
        self._log_error = log_error
        self.known = False
        self.t_expires: float | None = None
        self._timer: Handle | None = None

    def watch(self) -> None:
        """Look now, and from time to time."""
        if self._timer is None:
            self._timer = self._broker.loop.timer(SPACING_SECONDS, self._look, SPACING_SECONDS)
            self._look()

    def rest(self) -> None:
        """Look no more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self.known = False

    def _look(self) -> None:
        future = self._broker.handle.rpc("resource.status", {}, nodeid=0)
        self._broker.call(future, self._receive, self._report, RESPONSE_SECONDS)

    def _receive(self, future: Any) -> None:
        # An R (RFC 20); 0 is no limit.
        self.t_expires = future.get()["R"]["execution"].get("expiration") or None

    def _report(self, error: Exception | None) -> None:
        if self._timer is None:
            return
        if error is None:
            self.known = True
            self._changed()
        else:
            self._log_error(f"cannot tell when the allocation expires: {sentence(error)}")
