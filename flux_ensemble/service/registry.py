"""The ensembles of the service, by name."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.runtime.ensemble import Ensemble

#: Number of ended ensembles that are kept for status.
KEPT_ENDED = 100


class Ensembles:
    """The ensembles of the service, by name, oldest first."""

    def __init__(self) -> None:
        self._all: dict[str, Ensemble] = {}
        #: Why stored ensembles could not be restored, by name.
        self.unreadable: dict[str, str] = {}
        #: Progress of the ensembles that are still to be restored, by name.
        self.coming: dict[str, str] = {}

    def __iter__(self) -> Iterator[Ensemble]:
        return iter(list(self._all.values()))

    def get(self, name: str) -> Ensemble:
        """Return the ensemble of a name.

        Raises:
            RequestError: ENOENT; EIO if it is stored and could not be restored; EAGAIN if it is not
                restored yet.
        """
        if name not in self._all and name in self.unreadable:
            raise RequestError(
                errno.EIO, f"ensemble {name!r} cannot be read: {self.unreadable[name]}"
            )
        if name not in self._all and name in self.coming:
            raise RequestError(
                errno.EAGAIN, f"ensemble {name!r} is being recovered: {self.coming[name]}"
            )
        if name not in self._all:
            known = ", ".join(self._all) or "none"
            raise RequestError(errno.ENOENT, f"no ensemble named {name!r} (ensembles: {known})")
        return self._all[name]

    def find(self, name: str, run: int) -> Ensemble | None:
        """Return the ensemble of a name, if it is that run of it."""
        ensemble = self._all.get(name)
        return ensemble if ensemble is not None and ensemble.run == run else None

    def add(self, ensemble: Ensemble) -> None:
        """Add an ensemble as the newest."""
        self._all.pop(ensemble.name, None)
        self._all[ensemble.name] = ensemble

    def remove(self, ensemble: Ensemble) -> None:
        """Drop an ensemble."""
        del self._all[ensemble.name]

    def surplus(self) -> list[Ensemble]:
        """Return the oldest of the ended ensembles, beyond the number that is kept."""
        ended = [
            ensemble for ensemble in self._all.values() if ensemble.ended and not ensemble.live
        ]
        return ended[: max(0, len(ended) - KEPT_ENDED)]
