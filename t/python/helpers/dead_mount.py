"""A file system that does not answer, until it is told to fail: FUSE that nobody serves."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MNT_DETACH = 2


@contextmanager
def dead_mount(path: Path) -> Iterator[Callable[[], None]]:
    """Mount it; skips the test where that is not allowed.

    Yields:
        What has it answer: with an error, each time.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    path.mkdir()
    try:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"needs /dev/fuse: {error.strerror}")
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"none", os.fsencode(path), b"fuse", 0, options):
        os.close(fd)
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    open_fds = [fd]

    def answer() -> None:
        while open_fds:
            os.close(open_fds.pop())

    try:
        yield answer
    finally:
        answer()
        libc.umount2(os.fsencode(path), _MNT_DETACH)
