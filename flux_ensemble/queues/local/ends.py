"""Files of which only the end is kept, while somebody still appends to them."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

#: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of linux/falloc.h.
_HOLE = 0x02 | 0x01


def free_beginning(path: str | os.PathLike[str], most: int) -> None:
    """Free the disk space of all but the end of a file to which somebody may append.

    The file keeps its size, so nothing that is written meanwhile is lost. Where the file system
    has no holes (fallocate(2)), the file is shortened; then something can be.

    Args:
        path: the file.
        most: bytes of the end that are kept.

    Raises:
        OSError: the file cannot be written.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size - most
        if size > 0 and _fallocate()(fd, _HOLE, 0, size) < 0:
            end = os.pread(fd, most, size)
            os.ftruncate(fd, 0)
            os.write(fd, end)
    finally:
        os.close(fd)


@cache
def _fallocate() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    # musl has the one name alone, whose offsets have 64 bits everywhere.
    function = getattr(library, "fallocate64", None) or library.fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function
