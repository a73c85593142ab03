"""`flux ensemble serve`, which a memo `deadly` ends: `fatal_service.py`."""

from __future__ import annotations

import os
import signal
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402

from flux_ensemble.engine.engine import Engine  # noqa: E402
from flux_ensemble.service.serve import serve  # noqa: E402

_handle = Engine.handle


def handle(self: Engine, event: Any) -> Any:
    """Handle an event, or die of it as of a fault in compiled code."""
    if "deadly" in getattr(event, "context", ()):
        os.kill(os.getpid(), signal.SIGKILL)
    return _handle(self, event)


Engine.handle = handle  # type: ignore[method-assign]
serve(flux.Flux())
