"""`flux ensemble serve`, which dies at a moment: `dying_service.py MOMENT`.

MOMENT is `loaded`, when an ensemble has been loaded, and that is to be said; or a topic without
`ensemble.`, when such a request has come.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402

from flux_ensemble.runtime.answers import Answers  # noqa: E402
from flux_ensemble.service.requests.dispatch import Dispatcher  # noqa: E402
from flux_ensemble.service.serve import serve  # noqa: E402

moment = sys.argv[1]
_dispatch, _loaded = Dispatcher.dispatch, Answers.loaded


def die_at(now: str) -> None:
    """Die, if this is the moment."""
    if now == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def dispatch(self: Dispatcher, method: str, message: Any) -> None:
    """A request has come."""
    die_at(method)
    _dispatch(self, method, message)


def loaded(self: Answers, result: Mapping[str, Any]) -> None:
    """An ensemble has been loaded."""
    die_at("loaded")
    _loaded(self, result)


Dispatcher.dispatch = dispatch  # type: ignore[method-assign]
Answers.loaded = loaded  # type: ignore[method-assign]
serve(flux.Flux())
