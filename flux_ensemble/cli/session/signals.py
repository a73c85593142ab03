"""Signals that end what a command waits for: a callback from its loop, at once."""

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
    """Calls `callback` with its number from the reactor of a Flux handle when a signal comes.

    Not with Flux's signal watchers: those block a signal in this thread only.
    """
    with signal_pipe(numbers) as read:

        def drain(*_: Any) -> None:
            for number in os.read(read, 64):
                callback(number)

        with handle.fd_watcher_create(read, drain):
            yield
