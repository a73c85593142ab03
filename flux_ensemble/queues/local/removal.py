"""Removal of the files of a local run."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.queues.local.directory import Directory, open_directory
from flux_ensemble.queues.local.root import UnreadableError
from flux_ensemble.queues.local.state_dir import JOBS_SECONDS, LOOK_SECONDS, take_lock
from flux_ensemble.queues.local.states import States


def unload(states: States, root: Path, name: str, *, force: bool) -> str:
    """Remove the directory of an ensemble, with the output of its jobs.

    Args:
        states, root: the state directory.
        name: the ensemble.
        force: remove it even if its run was killed and could go on, or if it cannot be read.

    Returns:
        The state of the ensemble.

    Raises:
        RequestError: its run goes on, or was killed and `force` is False, or processes of its jobs
            are left.
        UnreadableError: it cannot be read, and `force` is False.
        StateError: there is no such ensemble, or it belongs to another user.
        OSError: it cannot be removed.
    """
    goes_on = f"ensemble {name!r} has not ended: cancel or terminate it first"
    state = "unreadable"
    try:
        status = states.status(name)
    except UnreadableError:
        if not force:
            raise
    else:
        state = status["state"]
        if state not in FINAL_STATES:
            raise RequestError(errno.EBUSY, goes_on)
        if states.is_interrupted(status) and not force:
            reason = f"ensemble {name!r} has not ended: {status['reason']}; --force removes it"
            raise RequestError(errno.EBUSY, reason)
    with ExitStack() as stack:
        top = stack.enter_context(open_directory(root))
        top.check_own()
        directory = stack.enter_context(top.enter(name))
        directory.check_own()
        killing = f"processes of jobs of {name!r} are still being killed: try again"
        for lock, seconds, still in (
            ("lock", LOOK_SECONDS, goes_on),
            ("jobs.lock", JOBS_SECONDS, killing),
        ):
            try:
                _lock(stack, directory, lock, seconds)
            except BlockingIOError:
                raise RequestError(errno.EBUSY, still) from None
        # Renamed first, so that no other command sees a part of it.
        hidden = f".{name}.unloaded"
        shutil.rmtree(hidden, ignore_errors=True, dir_fd=top.fd)
        os.rename(name, hidden, src_dir_fd=top.fd, dst_dir_fd=top.fd)
        shutil.rmtree(hidden, dir_fd=top.fd)
    return state


def _lock(stack: ExitStack, directory: Directory, name: str, seconds: float) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = directory.open(name, os.O_RDWR)
        stack.callback(os.close, fd)
        take_lock(directory, name, fd, seconds)
