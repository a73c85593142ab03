"""Rate-limited logging, so that clients cannot fill the log."""

from __future__ import annotations

import logging
import time

#: Number of records of one place in the program that are logged per time span, in seconds.
_RECORDS = 10
_SECONDS = 60.0


class Sparing(logging.Filter):
    """A filter that passes a few records per place and minute, each as one line, no traceback.

    The first record of the next minute has the number of suppressed ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a record is logged."""
        place = record.pathname, record.lineno
        begin, count = self._counts.get(place, (time.monotonic(), 0))
        left_out = 0
        if time.monotonic() - begin > _SECONDS:
            left_out = max(0, count - _RECORDS)
            begin, count = time.monotonic(), 0
        self._counts[place] = begin, count + 1
        if count >= _RECORDS:
            return False
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text} ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        more = f"; {left_out} more like it were left out" if left_out else ""
        record.msg, record.args = _line(text) + more, ()
        record.exc_info = record.exc_text = None
        return True


def _line(text: str) -> str:
    """Return the text as one line of bounded length."""
    return text[:500].encode(errors="backslashreplace").decode().replace("\n", " ")
