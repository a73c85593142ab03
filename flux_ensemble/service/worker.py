"""A worker that calls its home over TLS: for the job of a member that is no job of Flux.

    flux_ensemble.service.worker <CREDENTIALS ──dial──► Wire ──► Contact ──► TaskQueue ──► processes
    flux_ensemble.service.worker CREDENTIALS    in a container: that has an environment of its own

Its credentials (`service.home.Kept.credentials`) say where its home is, and open nothing else. A
worker without a home starts nothing, finishes what it runs, and keeps what it has to report; after
`patience` seconds it ends. Its tasks end with it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.queues.local.binding import GPU_VARIABLES, Binding
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.nested.link import FORMAT
from flux_ensemble.queues.nested.listener import Facts
from flux_ensemble.queues.nested.shape import CORES, SECONDS
from flux_ensemble.queues.nested.tails import Tails
from flux_ensemble.runtime.ports import Handle
from flux_ensemble.runtime.signals import signal_pipe
from flux_ensemble.service.contact import Contact, serve_tasks
from flux_ensemble.service.conversation import ANSWER_SECONDS
from flux_ensemble.service.task_queue import TaskQueue
from flux_ensemble.service.wire import (
    HANDSHAKE_SECONDS,
    HOME_NAME,
    QUIET_SECONDS,
    Wire,
    tls_context,
    why,
)

#: Seconds between two calls: at first, and at most.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

#: Seconds that the end of a task by SIGTERM is kept: what ends the job of the worker kills all of
#: its processes at once, and that is no outcome of a task.
DOUBT_SECONDS = 2.0

#: Seconds between two looks for how long there was no home.
_LOOK_SECONDS = 1.0

#: Errors with which every further call would be refused, too.
_FOR_GOOD = frozenset((errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EPROTO))


class Dial(threading.Thread):
    """A call of the home: a connection with its handshake, which may block.

    Args:
        loop: calls back.
        credentials: the worker's.
        done: receives the socket, or why there is none.
    """

    def __init__(
        self,
        loop: LocalLoop,
        credentials: Mapping[str, Any],
        done: Callable[[ssl.SSLSocket | str], None],
    ) -> None:
        super().__init__(daemon=True)
        self._credentials = credentials
        self._done = done
        self._result: ssl.SSLSocket | str = ""
        self._told, self._tell = socket.socketpair()
        self._reader = loop.reader(self._told.fileno(), self._over)
        self.start()

    def run(self) -> None:
        """Try each address of the home."""
        try:
            self._result = self._call()
        finally:
            self._tell.send(b".")

    def _call(self) -> ssl.SSLSocket | str:
        parts = (self._credentials[name].encode() for name in ("ca", "cert", "key"))
        context = tls_context(ssl.PROTOCOL_TLS_CLIENT, *parts)
        port, reasons = self._credentials["port"], []
        for address in self._credentials["addresses"]:
            try:
                # Wrapped, the socket belongs to another object, and is not closed here.
                with socket.create_connection((address, port), HANDSHAKE_SECONDS) as plain:
                    # Delays of the network's own would add up over many short messages.
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock = context.wrap_socket(plain, server_hostname=HOME_NAME)
                sock.setblocking(False)
            except OSError as error:
                reasons.append(f"{address}:{port}: {why(error)}")
            else:
                return sock
        return "; ".join(reasons)

    def _over(self) -> None:
        self._reader.cancel()
        self._told.close()
        self._tell.close()
        self._done(self._result)


class Worker:
    """A worker.

    Args:
        loop: runs it.
        credentials: see `service.home.Kept.credentials`.
        facts, binding: its resources.
        tails: receives the last lines of failed tasks.
        here: see `service.contact.Contact`.
    """

    def __init__(
        self,
        loop: LocalLoop,
        credentials: Mapping[str, Any],
        facts: Facts,
        binding: Binding,
        tails: Tails,
        here: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._here = here
        tails.send = self._keep_tail
        #: The last output of failed tasks that no home has been sent.
        self._unsent: list[tuple[int, str]] = []
        self._loop = loop
        self._credentials = credentials
        self._tasks = TaskQueue(
            loop, facts, binding, partial(self.end, 1), tails, doubt=DOUBT_SECONDS
        )
        self._wire: Wire | None = None
        self._contact: Contact | None = None
        self._answers: deque[Callable[[Mapping[str, Any] | Exception], None]] = deque()
        self._pause = FIRST_PAUSE
        self._retry: Handle | None = None
        self._code: int | None = None
        self._trouble = ""
        self._greeted = False
        self._t_home = time.monotonic()

    def run(self) -> int:
        """Serve until the worker is to end; return the exit code."""
        look = self._loop.timer(_LOOK_SECONDS, self._look, _LOOK_SECONDS)
        self._dial()
        try:
            self._loop.run(lambda: self._code is not None)
        finally:
            look.cancel()
            self._hang_up()
            self._tasks.close()
        return self._code or 0

    def end(self, code: int, reason: str = "") -> None:
        """End the worker; what its tasks do from now on is not reported."""
        if self._code is None:
            self._code = code
            self._tasks.silence()
            if reason:
                _print(reason)

    def _look(self) -> None:
        """End it if there was no home for too long."""
        if self._contact is not None:
            self._t_home = time.monotonic()
        patience = self._credentials["patience"]
        if time.monotonic() - self._t_home > patience:
            self.end(1, f"its home was away for {patience:g} seconds: it ends ({self._trouble})")

    def _keep_tail(self, task: int, text: str) -> None:
        self._unsent.append((task, text))
        self._send_tails()

    def _send_tails(self) -> None:
        if self._wire is not None and self._contact is not None:
            for tail in self._unsent:
                self._wire.put({"tail": tail})
            self._unsent.clear()

    # -- the connection ------------------------------------------------------------------------

    def _dial(self) -> None:
        self._retry = None
        Dial(self._loop, self._credentials, self._dialed)

    def _dialed(self, result: ssl.SSLSocket | str) -> None:
        if isinstance(result, str):
            self._fail(f"cannot reach its home: {result}")
            return
        self._wire = Wire(
            self._loop,
            result,
            opened=lambda names: None,
            taken=self._taken,
            lost=self._fail,
            silence=ANSWER_SECONDS,
            shaken=True,
        )
        attach = {**self._credentials["tag"], "version": __version__, "format": FORMAT}
        if not self._greeted:
            # Later on a worker is kept, whatever becomes of the clocks.
            attach["clock"] = time.time()
        self._wire.put({"attach": attach})

    def _hang_up(self) -> None:
        self._answers.clear()
        if self._contact is not None:
            self._contact.close()
            self._contact = None
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _fail(self, reason: str) -> None:
        """Note that there is no home, and call again in a while."""
        if self._code is not None:
            return
        if reason != self._trouble:
            self._trouble = reason
            _print(f"{reason}; calling again")
        self._hang_up()
        self._tasks.rest()
        if self._retry is None:
            self._retry = self._loop.timer(self._pause, self._dial)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _over(self, code: int, reason: str = "") -> None:
        """End the contact, and with it the worker unless it is to call again."""
        if code:
            # Deferred, because this can run within the contact.
            self._loop.timer(0.0, partial(self._fail, reason))
        else:
            self.end(0, reason)

    # -- messages ------------------------------------------------------------------------------

    def _taken(self, message: Mapping[str, Any]) -> None:
        if "message" in message:
            if self._contact is None:
                self._greet()
            assert self._contact is not None
            self._contact.take(message["message"])
        elif "answer" in message and self._answers:
            self._answers.popleft()(message["answer"])
        elif "error" in message:
            self._refused(*message["error"])

    def _greet(self) -> None:
        self._greeted = True
        if self._trouble:
            _print("its home is there again")
        self._trouble = ""
        self._pause = FIRST_PAUSE
        self._tasks.go_on()
        serve = serve_tasks(self._tasks)
        self._contact = Contact(
            self._loop, self._send, serve, "", self._over, self._here, QUIET_SECONDS
        )
        self._send_tails()

    def _refused(self, number: int, reason: str) -> None:
        if self._contact is not None:
            self._fail(f"the contact is over: {reason}")
        elif number == errno.EPROTONOSUPPORT:
            self.end(1, reason)
        elif number in _FOR_GOOD:
            self.end(0, reason)
        else:
            self._fail(reason)

    def _send(
        self,
        message: Mapping[str, Any],
        answered: Callable[[Mapping[str, Any] | Exception], None],
    ) -> None:
        if self._wire is not None:
            self._answers.append(answered)
            self._wire.put({"report": message})


def _print(text: str) -> None:
    print(f"flux-ensemble: {text}", file=sys.stderr, flush=True)


def resources(environment: Mapping[str, str]) -> tuple[Facts, Binding]:
    """Return what a worker in a job of Slurm has, or in a container.

    Args:
        environment: of the job. Where Slurm binds nothing, it says at least how many CPUs of a
            node are the job's.
    """
    cores = sorted(os.sched_getaffinity(0))
    count = len(cores)
    if environment.get(CORES, "").isdecimal():
        # A container has so much time on all cores, unless it has some for itself.
        count = max(1, min(count, int(environment[CORES])))
        cores = cores if count == len(cores) else []
    told = environment.get("SLURM_CPUS_ON_NODE", "")
    if told.isdecimal():
        cores = cores[: max(1, int(told))]
        count = len(cores)
    gpus = next((environment[name] for name in GPU_VARIABLES if environment.get(name)), "")
    ends = environment.get("SLURM_JOB_END_TIME", "")
    names = gpus.split(",") if gpus else []
    t_expires = float(ends) if ends.isdecimal() else None
    if environment.get(SECONDS):
        t_expires = time.time() + float(environment[SECONDS])
    return Facts(1, count, len(names), t_expires), Binding(cores, names)


def own_place(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the tasks of a container have in place of what their home has.

    >>> own_place({"PATH": "/bin", "FLUX_ENSEMBLE_CORES": "2"})["environment"]
    {'PATH': '/bin'}
    """
    cwd = os.getcwd()
    own = {key: text for key, text in environment.items() if key not in (CORES, SECONDS)}
    # Of the file only the directory is read, from which paths in the document lead.
    return {"environment": own, "cwd": cwd, "file": os.path.join(cwd, "document")}


def main() -> int:
    """Run a worker whose credentials are its standard input, or a file that is named."""
    here: Mapping[str, Any] = {}
    if len(sys.argv) > 1:
        with open(sys.argv[1], "rb") as file:
            credentials = json.loads(file.read())
        here = own_place(os.environ)
    else:
        credentials = json.loads(sys.stdin.buffer.read())
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    loop = LocalLoop()
    tails = Tails(sys.stdout.fileno())
    worker = Worker(loop, credentials, *resources(os.environ), tails, here)
    with signal_pipe((signal.SIGTERM, signal.SIGINT)) as read:

        def end() -> None:
            os.read(read, 64)
            worker.end(1, "its job is ended")

        loop.reader(read, end)
        if os.environ.get(SECONDS):
            seconds = float(os.environ[SECONDS])
            loop.timer(seconds, lambda: worker.end(1, f"its time of {seconds:g} seconds is up"))
        return worker.run()


if __name__ == "__main__":
    sys.exit(main())
