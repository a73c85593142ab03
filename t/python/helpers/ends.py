"""The end of scripts that start servers and processes: these end with them."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def unwind_at_signals() -> None:
    """Have SIGTERM and SIGHUP leave all contexts, as Ctrl-C does; another one cuts none short."""
    chosen = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: FrameType | None) -> None:
        for one in (*chosen, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for one in chosen:
        signal.signal(one, end)
