"""Signals that end a command's wait: they call back from its loop, at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from flux_ensemble.runtime.signals import signal_pipe


@contextmanager
def signals(
    handle: Any, numbers: Collection[signal.Signals], callback: Callable[[int], None]
) -> Iterator[None]:
    """Call `callback` from the reactor of a Flux handle with the number of each signal.

    Flux's signal watchers are not used: they block a signal in this thread only.
    """
    with signal_pipe(numbers) as read:

        def drain(*_: Any) -> None:
            for number in os.read(read, 64):
                callback(number)

        with handle.fd_watcher_create(read, drain):
            yield
