"""The broker module: the service inside the broker, as `flux module load` runs it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from flux.brokermod import BrokerModule

from flux_ensemble.service.service import Service


class EnsembleModule(BrokerModule):
    """A thin shell around `Service`.

    Args:
        handle: the module's Flux handle.
        log: writes a line to Flux's log: syslog level, text.
    """

    def __init__(self, handle: Any, log: Callable[[int, str], None]) -> None:
        super().__init__(handle)
        self._service = Service(handle, mode="module", log=log, name=self.name)

    def run(self) -> None:
        """Serve until the broker shuts the module down.

        A module that was loaded by hand is not removed by the instance's rc3, and gets
        SIGTERM when the broker exits. Dying of it would make `flux start` exit 1.
        """
        terminated = self.handle.signal_watcher_create(signal.SIGTERM, lambda *_: self.stop())
        try:
            with terminated:
                super().run()
        finally:
            self._service.close()
