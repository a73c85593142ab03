"""Append-only files of lines, and readers for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

#: Longest line in bytes. The largest document fits into one line.
MAX_LINE = 32 << 20


class Lines:
    """An append-only file of lines: each is written completely or not at all.

    The file is unbuffered, so a line is in it when `append` returns. After an error nothing more is
    written, so only the last line can be incomplete.

    Args:
        fd: the file, open for appending; closed with this.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size
        self._error: OSError | None = None

    def append(self, line: bytes) -> None:
        """Write a line, including its newline.

        Raises:
            OSError: it cannot be written, or an earlier one could not.
        """
        if self._error is not None:
            raise self._error
        try:
            # Nearly always complete at once.
            written = os.write(self._fd, line)
            if written < len(line):
                write_all(self._fd, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            self._error = error
            raise
        self._size += len(line)

    def cut(self, size: int) -> None:
        """Shorten the file.

        Raises:
            OSError: the file cannot be shortened.
        """
        os.ftruncate(self._fd, size)
        self._size = size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file with their newlines; an incomplete last line is left out.

    Raises:
        ValueError: a line is longer than any valid one.
        OSError: the file cannot be read.
    """
    while line := file.readline(MAX_LINE + 1):
        if not line.endswith(b"\n"):
            if len(line) > MAX_LINE:
                raise ValueError(f"expected a line of at most {MAX_LINE} bytes")
            return
        yield line


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; on a nearly full disk write(2) may write only a part.

    Raises:
        OSError: a part or all of it cannot be written.
    """
    left = memoryview(data)
    while left:
        written = os.write(fd, left)
        left = left[written:]
