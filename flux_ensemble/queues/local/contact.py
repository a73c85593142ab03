"""Requests to a run on the local queue: the other end of `queues.local.control`.

Only the user of a run can steer it; even root cannot do so in that user's place, since the
contents of a state directory are under the control of its owner.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flux_ensemble.client.payloads import sendable
from flux_ensemble.client.troubles import ways_on
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.queues.local.continuation import clause_of
from flux_ensemble.queues.local.control import SOCKET, address, peer
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.queues.local.states import States

#: Seconds to wait for the answer, and between two checks whether the run still goes on.
PATIENCE, _LOOK_SECONDS = 10.0, 0.5

#: Seconds that a run may take from its lock to its socket, since it loads custom functions first;
#: and seconds between two attempts to connect.
_BEGIN_SECONDS, _RETRY_SECONDS = 2.0, 0.05

#: Largest answer in bytes.
_MAX_ANSWER = 256 << 20

_CHUNK = 1 << 16


def ask(states: States, name: str, op: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the run of an ensemble, and wait for its answer.

    Args:
        states: the state directory.
        name: the ensemble.
        op: a request of the service, such as "pause".
        payload: of the request; keys with the value None are left out.

    Raises:
        RequestError: the run refuses it, does not go on, or does not answer.
        StateError: there is no such ensemble.
        OSError: its files cannot be read.
    """
    try:
        given = sendable(op, payload)
    except ValueError as error:
        raise RequestError(errno.EINVAL, str(error)) from None
    line = f"{op} {json.dumps({'name': name, **given})}\n".encode()
    with states.find(name, "status.json") as directory:
        _check_user(name, directory)
        with _connect(states, name, directory) as connection:
            return _Question(states, name, op, connection).ask(line)


def _check_user(name: str, directory: Directory) -> None:
    """Refuse to contact another user's run."""
    status = os.fstat(directory.fd)
    if status.st_uid != os.geteuid():
        reason = f"the run of {name!r} is user {status.st_uid}'s, who alone can steer it"
        raise RequestError(errno.EPERM, reason)
    directory.check_own()


def _connect(states: States, name: str, directory: Directory) -> socket.socket:
    give_up = time.monotonic() + _BEGIN_SECONDS
    while True:
        if not states.runs(directory):
            raise _over(states, name)
        found = None
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(SOCKET, dir_fd=directory.fd, follow_symlinks=False)
        if found is not None:
            if not stat.S_ISSOCK(found.st_mode):
                reason = f"{directory.path / SOCKET} is no socket of the local queue"
                raise RequestError(errno.EPERM, reason)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(PATIENCE)
            try:
                connection.connect(address(directory))
                return connection
            except (ConnectionRefusedError, FileNotFoundError):
                connection.close()
            except TimeoutError:
                connection.close()
                raise RequestError(errno.ETIMEDOUT, _silent(name, None)) from None
            except BaseException:
                connection.close()
                raise
        if time.monotonic() > give_up:
            raise RequestError(
                errno.EAGAIN,
                f"the run of {name!r} cannot be reached: it has just begun, or it is of a version "
                "or on a file system without a socket",
            )
        time.sleep(_RETRY_SECONDS)


class _Question:
    """A request on a connection, with its answer."""

    def __init__(self, states: States, name: str, op: str, connection: socket.socket) -> None:
        self._states = states
        self._name = name
        self._op = op
        self._connection = connection

    def ask(self, line: bytes) -> dict[str, Any]:
        pid, user = peer(self._connection)
        if user != os.geteuid():
            reason = f"user {user} answers in the place of the run of {self._name!r}"
            raise RequestError(errno.EPERM, reason)
        received = bytearray()
        self._connection.settimeout(_LOOK_SECONDS)
        try:
            self._send(line, pid)
            while not received.endswith(b"\n"):
                data = self._receive(pid)
                if not data:
                    raise _over(self._states, self._name, self._op)
                received += data
                if len(received) > _MAX_ANSWER:
                    raise ValueError("it is too long")
            answer = json.loads(received)
            if "errno" in answer:
                raise RequestError(int(answer["errno"]), str(answer["reason"]))
            result: dict[str, Any] = dict(answer["result"])
            return result
        except ConnectionResetError:
            raise _over(self._states, self._name, self._op) from None
        except (ValueError, KeyError, TypeError) as error:
            reason = f"the answer of the run of {self._name!r} is none: {error}"
            raise RequestError(errno.EPROTO, reason) from None

    def _send(self, line: bytes, pid: int) -> None:
        left = memoryview(line)
        give_up = time.monotonic() + PATIENCE
        while left:
            try:
                left = left[self._connection.send(left) :]
            except TimeoutError:
                self._check(pid, give_up)
            except (ConnectionResetError, BrokenPipeError):
                return  # the reason may have been received before

    def _receive(self, pid: int) -> bytes:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                return self._connection.recv(_CHUNK)
            except TimeoutError:
                self._check(pid, give_up)

    def _check(self, pid: int, give_up: float) -> None:
        """Return to go on waiting; raise if the run is stopped or the time is up."""
        if _is_stopped(pid):
            raise RequestError(
                errno.ETIMEDOUT,
                f"the run of {self._name!r} is stopped: 'kill -CONT {pid}' lets it go on, or 'fg' "
                "in its shell",
            )
        if time.monotonic() > give_up:
            raise RequestError(errno.ETIMEDOUT, _silent(self._name, pid))


def _silent(name: str, pid: int | None) -> str:
    process = "" if pid is None else f" (process {pid})"
    return f"the run of {name!r}{process} does not answer: nothing was done"


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by Ctrl-Z (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def _over(states: States, name: str, op: str | None = None) -> RequestError:
    """Make the error for a run that does not go on, and may not have performed `op`."""
    status: Any = states.status(name)
    before = "" if op is None else f" before it answered '{op}'"
    if states.is_interrupted(status):
        clause = clause_of(status.get("again"))
        reason = f"the run of {name!r} was interrupted{before or ' before it ended'}: {clause}"
        return RequestError(errno.EAGAIN, reason)
    if status["state"] in FINAL_STATES:
        ways = ways_on(status, states.command)
        reason = f"ensemble {name!r} has ended{before} ({status['state']}): {ways}"
        return RequestError(errno.EINVAL, reason)
    tells = states.command("status", name)
    reason = f"the run of {name!r} went away{before}: '{tells}' tells how it is"
    return RequestError(errno.EAGAIN, reason)
