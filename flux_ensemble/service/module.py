"""The broker module: the service inside the broker, as run by `flux module load`."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from flux.brokermod import BrokerModule

from flux_ensemble.queues.flux.loop import FluxLoop, guard
from flux_ensemble.queues.flux.relay import NUDGE_SECONDS, nudge
from flux_ensemble.service.service import Service


class EnsembleModule(BrokerModule):
    """A thin shell around `Service`.

    Args:
        handle: the module's Flux handle.
        log: writes a line to Flux's log: syslog level, text.
    """

    def __init__(self, handle: Any, log: Callable[[int, str], None]) -> None:
        super().__init__(handle)
        self._service = Service(handle, mode="module", log=log, stop=self.stop, name=self.name)

    def run(self) -> None:
        """Serve until the broker shuts the module down, or another service has taken over.

        A module that was loaded by hand is not removed by the instance's rc3, and receives SIGTERM
        when the broker exits. If it died of that, `flux start` would exit with 1.

        Raises:
            OSError: EBUSY, another service drives the ensembles. A module may fail before it has
                begun to run; later, a failure would end the instance.
        """
        if self._service.over is not None:
            self._service.close()
            raise OSError(errno.EBUSY, self._service.over)
        terminated = self.handle.signal_watcher_create(signal.SIGTERM, lambda *_: self.stop())
        loop = FluxLoop(self.handle, guard(self._service.unexpected))
        nudges = loop.timer(NUDGE_SECONDS, partial(nudge, self.handle), every=NUDGE_SECONDS)
        try:
            with terminated:
                super().run()
        finally:
            nudges.cancel()
            self._service.close()
