"""Loading a document on the Flux reactor, even if the service dies before it has answered.

Flux answers for a module that has died, but not for a process, so the current service is asked for
its age. The ensemble may have been loaded, and continue; else it is loaded once more.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.session.reconnect import ask, ask_whether_died
from flux_ensemble.client.errors import failure
from flux_ensemble.client.reconnect import AWAY
from flux_ensemble.run_names import can_be_named

if TYPE_CHECKING:
    from flux_ensemble.client import Client

#: The name of an ensemble, and when it began.
Known = tuple[str, float | None]


class Load:
    """A request to load a document.

    Args:
        client: a client on whose handle the reactor runs.
        request: its payload.
        name: of the ensemble.
        others: the ensembles that existed before.
        loaded: called with the name when it is loaded.
        absent: called when the service has died, and the next one does not have the ensemble.
        away: called while there is no service.
    """

    def __init__(
        self,
        client: Client,
        request: Mapping[str, Any],
        name: str,
        others: Collection[Known],
        *,
        loaded: Callable[[str], None],
        absent: Callable[[], None],
        away: Callable[[], None],
    ) -> None:
        self._client = client
        self._request = request
        self._name = name
        self._others = frozenset(others)
        self._loaded = loaded
        self._absent = absent
        self._away = away
        self._t_sent = 0.0
        self._lost = False
        self._looking = False
        self._over = False

    def send(self) -> None:
        """Send the request."""
        self._lost = False
        self._t_sent = time.monotonic()
        self._client.send("load", self._request).then(self._on_answer)

    def look(self) -> None:
        """Check whether the request will be answered, or its result.

        To be called from time to time.
        """
        if self._looking:
            return
        self._looking = True
        if self._lost:
            ask(self._client, "list", {}, self._on_list)
        else:
            ask_whether_died(self._client, self._t_sent, self._on_died)

    def _on_answer(self, future: Any) -> None:
        try:
            name = future.get()["name"]
        except OSError as exc:
            error = failure(exc, "load")
            if error.errno != errno.EHOSTUNREACH:
                raise error from exc
            self._lost = True
            self._away()
        else:
            self._end(name)

    def _end(self, name: str) -> None:
        if not self._over:
            self._over = True
            self._loaded(name)

    def _on_died(self, died: bool | None) -> None:
        self._looking = False
        if self._over:
            return
        if died is None:
            self._away()
        elif died:
            self._lost = True
            self.look()

    def _on_list(self, future: Any) -> None:
        self._looking = False
        if self._over:
            return
        try:
            there = {(one["name"], one["t_start"]) for one in future.get()["ensembles"]}
        except OSError as exc:
            if exc.errno not in AWAY:
                raise failure(exc, "list") from exc
            self._away()
            return
        new = [name for name, _ in there - self._others if can_be_named(name, self._name)]
        if new:
            self._end(max(new, key=len))
        else:
            self._absent()
