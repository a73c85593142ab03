"""Requests to a run on the local queue, from other processes of its user.

While its ensemble goes on, a run listens on the UNIX socket `control` in the directory of the
ensemble; only its user can look up names there:

    command ──"pause {"name": "study"}"──► Control ──► Ensemble.ask
            ◄──{"result": {...}}, or {"errno": 2, "reason": "..."}──

A connection has one request, a line each way, and the requests are those of the service
(docs/rpc.md). `queues.local.contact` is the other end. A request counts only while its sender waits
for the answer: a run that was stopped meanwhile does not perform it later, when nobody expects it
any more.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.client.topics import TOPICS
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.faults import ENDINGS
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.runtime.answers import Answer
from flux_ensemble.runtime.ensemble import Ensemble

#: The socket, in the directory of an ensemble.
SOCKET = "control"

#: Largest request in bytes.
MAX_REQUEST = 4 << 20

#: Most requests that are open at the same time.
MAX_OPEN = 64

#: Seconds that a request may take to arrive, and that its sender may take to read the answer.
PATIENCE = 10.0

#: Seconds before the rest of an answer is sent, and before accepting again after an error.
_RETRY_SECONDS, _PAUSE_SECONDS = 0.01, 1.0

_CHUNK = 1 << 16

#: Checks the payload of a request: see `service.requests.protocol.parse`.
Parse = Callable[[str, str], dict[str, Any]]


def address(directory: Directory) -> str:
    """Return the socket's path through the descriptor of its directory; it is always short."""
    return f"/proc/self/fd/{directory.fd}/{SOCKET}"


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end (unix(7), `SO_PEERCRED`)."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, user


class Handler:
    """The answers of a run to requests.

    Args:
        ensemble: its ensemble.
        describer: describes its jobs.
        write: writes the status and the jobs that have ended to their files, so that whoever
            reads them after an answer finds what it was about.
        rewrite: writes all jobs that have ended to their file once more.
        now: returns the time.
        parse: checks a payload.
        output: reads the end of what a job of a worker wrote, of a member and by its id there; None
            if there are no members.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        describer: Describer,
        write: Callable[[], None],
        rewrite: Callable[[], None],
        now: Callable[[], float],
        parse: Parse,
        output: Callable[[str, int, Callable[[str | Exception | None], None]], None] | None = None,
    ) -> None:
        self._output = output
        self._ensemble = ensemble
        self._describer = describer
        self._write = write
        self._rewrite = rewrite
        self._now = now
        self._parse = parse

    def __call__(self, line: bytes, answer: Answer) -> None:
        """Answer a request, now or later.

        Raises:
            RequestError: the request is refused.
        """
        try:
            op, _, text = line.decode().partition(" ")
        except UnicodeDecodeError:
            raise RequestError(errno.EPROTO, "a request is UTF-8 text") from None
        if op not in TOPICS or not TOPICS[op].local:
            raise RequestError(errno.ENOSYS, f"a local run does not know the request {op[:60]!r}")
        payload = self._parse(op, text)
        name = payload.pop("name")
        if name != self._ensemble.name:
            raise RequestError(errno.ENOENT, f"no ensemble named {name!r} runs here")
        if op == "jobs":
            answer({"jobs": self._active()})
        elif op == "rerun":
            self._rerun(payload, answer)
        elif op == "output":
            self._read(payload, answer)
        elif op == "search":
            self._ensemble.extend(op, payload, lambda result: self._answer(op, result, answer))
        else:
            self._ensemble.ask(op, payload, lambda result: self._answer(op, result, answer))

    def _read(self, payload: Mapping[str, Any], answer: Answer) -> None:
        """Answer with the end of what a job of a worker wrote."""
        if self._output is None:
            raise RequestError(errno.EINVAL, f"ensemble {self._ensemble.name!r} has no members")

        def read(output: str | Exception | None) -> None:
            failed = isinstance(output, Exception)
            answer(RequestError(errno.EIO, str(output)) if failed else {"output": output})

        self._output(payload["member"], payload["id"], read)

    def _rerun(self, payload: Mapping[str, Any], answer: Answer) -> None:
        """Run jobs again; their earlier attempts are then written once more, as such."""
        ensemble = self._ensemble
        self._write()
        choice = ensemble.choice(self._describer, payload)
        choice.all(self._now())

        def ran(result: Mapping[str, Any] | RequestError) -> None:
            if not isinstance(result, RequestError) and result.get("reopened") is not None:
                self._rewrite()
            answer(result)

        ensemble.rerun(choice, ran, dry_run=payload.get("dry_run", False))

    def _active(self) -> list[JobRow]:
        """Return the active jobs; those that have ended are written to their file first."""
        self._write()
        now, jobs = self._now(), self._ensemble.engine.workload.jobs
        return [
            self._describer.describe(job, now) for job in jobs.values() if job.firing is not None
        ]

    def _answer(self, op: str, result: Any, answer: Answer) -> None:
        self._write()
        answer(self._shaped(op, result))

    def _shaped(self, op: str, result: Any) -> Any:
        """Return a result in the form that the service gives it."""
        if isinstance(result, RequestError) or op in ("rules", "action", "search"):
            return result
        if op == "submit":
            return {"ids": result["ids"]}
        return {**result, "state": self._ensemble.state}


class Control:
    """A socket for requests.

    Args:
        directory: of the ensemble, whose lock is held.
        loop: of the run.
        handle: answers a request, or raises `RequestError`.

    Raises:
        StateError: the socket's name is taken by something else.
        OSError: the socket cannot be made here.
    """

    def __init__(
        self, directory: Directory, loop: LocalLoop, handle: Callable[[bytes, Answer], None]
    ) -> None:
        self.loop = loop
        self.handle = handle
        self._directory = directory
        self._open: dict[_Connection, None] = {}
        self._pause: Any = None
        remove(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(address(directory))
            self._socket.listen(MAX_OPEN)
            self._reader = loop.reader(self._socket.fileno(), self._accept)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Stop listening; open connections are closed without an answer."""
        if self._socket.fileno() < 0:
            return
        self._reader.cancel()
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        for connection in list(self._open):
            connection.close()
        with contextlib.suppress(StateError, OSError):
            remove(self._directory)

    def closed(self, connection: _Connection) -> None:
        """Forget a connection that is over."""
        self._open.pop(connection, None)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:
            # For instance too many open files: accepting again at once would be useless.
            self._reader.cancel()
            self._pause = self.loop.timer(_PAUSE_SECONDS, self._go_on)
            return
        connection.setblocking(False)
        if peer(connection)[1] != os.geteuid():
            connection.close()
            return
        taken = _Connection(self, connection)
        self._open[taken] = None
        if len(self._open) > MAX_OPEN:
            taken.refuse(RequestError(errno.EAGAIN, "too many requests at once: try again"))

    def _go_on(self) -> None:
        self._pause = None
        self._reader = self.loop.reader(self._socket.fileno(), self._accept)


class _Connection:
    """A request on a connection, with its answer."""

    def __init__(self, control: Control, connection: socket.socket) -> None:
        self._control = control
        self._socket = connection
        self._received = bytearray()
        self._unsent = bytearray()
        self._asked = False
        self._over = False
        self._retry: Any = None
        self._reader = control.loop.reader(connection.fileno(), self._readable)
        self._limit = control.loop.timer(PATIENCE, self.close)

    def close(self) -> None:
        """Close the connection."""
        if not self._over:
            self._over = True
            for handle in (self._reader, self._limit, self._retry):
                if handle is not None:
                    handle.cancel()
            self._socket.close()
            self._control.closed(self)

    def refuse(self, error: RequestError) -> None:
        """Answer with an error."""
        self._answer(error)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if self._asked:
            return
        self._received += data
        line, end, _ = self._received.partition(b"\n")
        if len(line) > MAX_REQUEST:
            self._asked = True
            self.refuse(RequestError(errno.EMSGSIZE, f"a request has at most {MAX_REQUEST} bytes"))
        elif end and not self._gone():
            self._asked = True
            self._limit.cancel()
            self._handle(bytes(line))

    def _gone(self) -> bool:
        """Return whether the sender has gone; if so, close the connection."""
        try:
            gone = not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            gone = True
        if gone:
            self.close()
        return gone

    def _handle(self, line: bytes) -> None:
        try:
            self._control.handle(line, self._answer)
        except RequestError as error:
            self.refuse(error)
        except ENDINGS:
            raise
        except BaseException as error:
            self.refuse(RequestError(errno.EIO, f"internal error: {error!r}"))

    def _answer(self, result: Mapping[str, Any] | RequestError) -> None:
        if self._over:
            return
        if isinstance(result, RequestError):
            value: Mapping[str, Any] = {"errno": result.errno, "reason": str(result)}
        else:
            value = {"result": result}
        self._unsent += json.dumps(value).encode() + b"\n"
        self._limit.cancel()
        self._limit = self._control.loop.timer(PATIENCE, self.close)
        self._write()

    def _write(self) -> None:
        self._retry = None
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent[:_CHUNK])]
        except BlockingIOError:
            self._retry = self._control.loop.timer(_RETRY_SECONDS, self._write)
            return
        except OSError:
            pass
        self.close()


def remove(directory: Directory) -> None:
    """Remove the socket of a run; a missing socket is no error.

    Raises:
        StateError: the socket's name is taken by something else.
        OSError: it cannot be removed.
    """
    try:
        found = os.stat(SOCKET, dir_fd=directory.fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StateError(
            f"{directory.path / SOCKET} is no socket of the local queue: remove it, or name "
            "another state directory with --state-dir"
        )
    os.unlink(SOCKET, dir_fd=directory.fd)
