"""The providers of a service, or of a home: each is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flux_ensemble.document.keys.provider import pool_providers
from flux_ensemble.provider_list import part
from flux_ensemble.queues.nested.provider import Provider
from flux_ensemble.queues.providers.bounds import BoundedProvider
from flux_ensemble.runtime.ports import Loop


class SiteProviders(dict[str, Provider]):
    """The providers, by the names that documents have for them.

    Each is asked within bounds, but those that are `given`.

    Args:
        loop: of the service.
        log_error: writes a line to the service's log.
        given: those that there are already.
        directory: of the run, for its user alone; None for a service, which has several.

    Raises:
        UnavailableError: one that is asked for cannot be made here.
    """

    def __init__(
        self,
        loop: Loop,
        log_error: Callable[[str], None],
        given: dict[str, Provider],
        directory: Path | None = None,
    ) -> None:
        super().__init__(given)
        self._loop = loop
        self._log_error = log_error
        self._directory = directory

    def __missing__(self, name: str) -> Provider:
        provider: Provider = part(name, "provider").make(
            self._loop, self._log_error, self._directory
        )
        site = pool_providers()[name].site
        self[name] = BoundedProvider(provider, site, self._loop, self._log_error)
        return self[name]

    def close(self) -> None:
        """Follow nothing any more; the members go on."""
        for provider in self.values():
            provider.close()
