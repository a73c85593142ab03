"""Memos of Flux jobs, sent by Flux's C library.

A job that publishes one value should pay neither for a process, which takes 10 ms, nor for the
import of Flux's Python bindings, which takes 100 ms. The functions that are called here have been
in libflux-core.so.2 as long as it has had that name (flux_open(3), flux_rpc(3)).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

#: The library by its interface, which other versions of Flux have as well.
_LIBRARY = "libflux-core.so.2"

#: FLUX_NODEID_ANY of flux/core.h.
_ANY_NODE = 0xFFFFFFFF

#: The types of the arguments of each function, behind that of its result.
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "flux_open": (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int),
    "flux_job_id_parse": (ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64)),
    "flux_rpc": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                 ctypes.c_uint32, ctypes.c_int),
    "flux_rpc_get": (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    "flux_future_error_string": (ctypes.c_char_p, ctypes.c_void_p),
    "flux_future_destroy": (None, ctypes.c_void_p),
}  # fmt: skip


class _Own(threading.local):
    """The connection of a thread: a handle of Flux belongs to one thread of one process."""

    handle: int | None = None
    process = 0


_own = _Own()


def send(job: str, memo: bytes) -> bool:
    """Send a memo to the job manager of the instance that a job is in.

    Args:
        job: the job's id, as FLUX_JOB_ID has it.
        memo: an object of JSON.

    Returns:
        False if the library is not found.

    Raises:
        OSError: the memo was not accepted.
    """
    library = _library()
    if library is None:
        return False
    id = ctypes.c_uint64()
    if library.flux_job_id_parse(job.encode(), ctypes.byref(id)) < 0:
        raise OSError(ctypes.get_errno(), f"FLUX_JOB_ID is no job id: {job!r}")
    request = b'{"id": %d, "volatile": false, "memo": %s}' % (id.value, memo)
    future = library.flux_rpc(_handle(library), b"job-manager.memo", request, _ANY_NODE, 0)
    if not future:
        raise _error()
    try:
        if library.flux_rpc_get(future, None) < 0:
            error = _error()
            said = library.flux_future_error_string(future)
            raise OSError(error.errno, said.decode(errors="replace")) if said else error
    finally:
        library.flux_future_destroy(future)
    return True


def _handle(library: ctypes.CDLL) -> int:
    if _own.handle is None or _own.process != os.getpid():
        # That of a parent process is left alone: what is sent on it is the parent's.
        _own.handle = library.flux_open(None, 0)
        _own.process = os.getpid()
        if _own.handle is None:
            raise _error()
    return _own.handle


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


@cache
def _library() -> ctypes.CDLL | None:
    places = [_LIBRARY]
    command = shutil.which("flux")
    if command is not None:
        root = os.path.dirname(os.path.dirname(os.path.realpath(command)))
        places += [os.path.join(root, directory, _LIBRARY) for directory in ("lib", "lib64")]
    for place in places:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(place, use_errno=True)
            for name, (result, *arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
    return None
