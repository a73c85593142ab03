"""Removing what a local run has left in files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.members.local.directory import Directory, open_directory
from flux_ensemble.members.local.state_dir import no_locks
from flux_ensemble.members.local.states import States


def unload(states: States, root: Path, name: str, *, force: bool) -> str:
    """Remove the directory of an ensemble, with the output of its jobs.

    Args:
        states, root: the state directory.
        name: the ensemble.
        force: also if its run was killed and could go on.

    Returns:
        The state that the ensemble was in.

    Raises:
        RequestError: its run goes on, or was killed and `force` is False, or processes of its jobs
            are left.
        StateError: there is no such ensemble, or it is another user's.
        OSError: it cannot be removed.
    """
    status = states.status(name)
    if states.is_killed(status) and not force:
        raise RequestError(
            errno.EBUSY,
            f"the run of {name!r} was killed and can go on with 'run --resume': --force forgets it",
        )
    with ExitStack() as stack:
        top = stack.enter_context(open_directory(root))
        top.check_own()
        directory = stack.enter_context(top.enter(name))
        directory.check_own()
        for lock, still in (
            ("lock", f"ensemble {name!r} has not ended: cancel or terminate it first"),
            ("jobs.lock", f"processes of jobs of {name!r} are still being killed: try again"),
        ):
            try:
                _lock(stack, directory, lock)
            except BlockingIOError:
                raise RequestError(errno.EBUSY, still) from None
        # At once, so that no other command sees a part of it.
        hidden = f".{name}.unloaded"
        shutil.rmtree(hidden, ignore_errors=True, dir_fd=top.fd)
        os.rename(name, hidden, src_dir_fd=top.fd, dst_dir_fd=top.fd)
        shutil.rmtree(hidden, dir_fd=top.fd)
    state: str = status["state"]
    return state


def _lock(stack: ExitStack, directory: Directory, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = directory.open(name, os.O_RDWR)
        stack.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            raise no_locks(directory, name, error) from None
