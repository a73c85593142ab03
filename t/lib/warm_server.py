"""Runs commands of tests without the time that their imports take: `warm_server.py SOCKET`.

Most of what a short command costs is its imports, and the tests run thousands. So this process has
imported what they need, and each command is a fork of it, with the files, the directory, the
environment and the limits of the process that asks (warm_client.py). It says "ready" when it can be
asked, and ends with its standard input.

A process is taken for the real one, so it must not differ: whoever asks with other variables that
Python reads as it begins is told to begin a Python of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import marshal
import os
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from flux_ensemble.bindings import BindingsError, require_flux

# NumPy would have threads, and a fork has none of them.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

#: The commands of warm_client.py, by the module that has them.
FAMILIES = (
    *("run", "show", "search", "jobs", "logs", "control", "document", "simulate", "replay", "memo"),
)

#: What they import as they run.
IMPORTED = (
    *(f"flux_ensemble.cli.commands.{family}" for family in FAMILIES),
    "flux_ensemble.cli.display.views",
    "flux_ensemble.cli.main",
    "flux_ensemble.cli.session.follow",
    "flux_ensemble.cli.session.local_run",
    "flux_ensemble.document.lint",
    "flux_ensemble.document.loading",
    "flux_ensemble.queues.elastic.settings",
    "jsonschema",
    "river.stats",
)

#: What of Flux is imported too, and by its own commands, where there is such a module: that differs
#: between versions.
FLUX_IMPORTED = (
    *("flux.job", "fileinput", "flux.cli.run", "flux.cli.submit", "flux.queue"),
    *("flux.kvs", "flux.modprobe", "flux.subprocess", "flux.testing.fake_resources"),
    # Those that the broker starts: what validates jobs, and the scheduler.
    *("flux.job.validator", "flux.shape.parser", "flux.brokermod", "flux.proctitle"),
    *("flux.scheduler", "ctypes.util"),
    # The service, in the broker and beside it.
    *("flux_ensemble.service.module", "flux_ensemble.service.serve"),
    "flux_ensemble.queues.nested.member_job",
)

#: Begins of names of variables that Python or the loader reads as it begins.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_")

LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]

#: As warm_client.py sends it: the kind and the arguments of the command, its directory, its
#: environment, its umask, and the signals that it ignores.
Request = tuple[str, list[str], str, dict[bytes, bytes], int, list[int]]


def pmi_directory() -> bytes:
    """Where each job of Flux looks for the library by which MPI starts; empty without Flux."""
    with contextlib.suppress(ImportError):
        from flux.conf_builtin import conf_builtin_get

        return os.fsencode(Path(conf_builtin_get("pmi_library_path")).parent)
    return b""


def read_at_start(environment: dict[bytes, bytes], pmi: bytes) -> dict[bytes, bytes]:
    """The variables that matter before anything can be changed."""
    prefixes = tuple(map(os.fsencode, READ_AT_START))
    return {
        key: value
        for key, value in environment.items()
        if key.startswith(prefixes) and (key, value) != (b"LD_LIBRARY_PATH", pmi)
    }


class Server:
    """Forks a process for each connection, and tells it how that ended.

    Args:
        listener: where they come from.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.pmi = pmi_directory()
        self.own = read_at_start(dict(os.environb), self.pmi)
        self.children: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.woken, self.wakeup = socket.socketpair()
        for end in (self.woken, self.wakeup):
            end.setblocking(False)
        signal.set_wakeup_fd(self.wakeup.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.selector.register(self.woken, selectors.EVENT_READ, self.reap)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self.end)
        self.request: Request | None = None

    def serve(self) -> Request:
        """Serve, to the end of standard input.

        Returns:
            In a fork: what it is to do.
        """
        while True:
            for key, _ in self.selector.select():
                # What came before it in this round may have ended it, and another has its number.
                if self.selector.get_map().get(key.fd) is key:
                    key.data(key.fileobj)
                if self.request is not None:
                    return self.request

    def end(self, _: Any) -> None:
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        sys.exit(0)

    def accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        self.selector.register(connection, selectors.EVENT_READ, self.asked)

    def asked(self, connection: socket.socket) -> None:
        """A connection has sent its request, or is gone, and its process with it."""
        self.selector.unregister(connection)
        message, files = b"", list[int]()
        with contextlib.suppress(ConnectionResetError):
            message, files, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if not message:
            self.end_child(connection)
            return
        request: Request = marshal.loads(message)
        child = 0
        if read_at_start(request[3], self.pmi) == self.own:
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            child = os.fork()
            if child == 0:
                connection.close()
                self.become(request, files, struct.unpack("3i", peer)[0])
                return
        for file in files:
            os.close(file)
        with contextlib.suppress(OSError):  # its end is heard of next
            connection.send(marshal.dumps(child))
        if child:
            self.children[child] = connection
            self.selector.register(connection, selectors.EVENT_READ, self.asked)
        else:
            connection.close()

    def end_child(self, connection: socket.socket) -> None:
        """Who has asked was killed, and so is its fork: before another is begun in its place."""
        for child in [pid for pid, its in self.children.items() if its is connection]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            del self.children[child]
        connection.close()

    def reap(self, woken: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    return
                connection = self.children.pop(child)
                with contextlib.suppress(OSError):
                    connection.send(marshal.dumps(status))
                if connection.fileno() in self.selector.get_map():
                    self.selector.unregister(connection)
                connection.close()

    def become(self, request: Request, files: list[int], peer: int) -> None:
        """In the fork: be the process that has asked."""
        _, _, directory, environment, umask, ignored = request
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        self.selector.close()
        for end in (self.listener, self.woken, self.wakeup, *self.children.values()):
            end.close()
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
            os.close(file)
        sys.stdin, sys.stdout, sys.stderr = (
            reopened(sys.stdin, 0, "r"),
            reopened(sys.stdout, 1, "w"),
            reopened(sys.stderr, 2, "w"),
        )
        for file in files[3:]:
            # A broker's module has its connection under the number that its environment says.
            number = int(environment[b"FLUX_MODULE_URI"].removeprefix(b"fd://"))
            if file != number:
                os.dup2(file, number)
                os.close(file)
        for limit in LIMITS:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, resource.prlimit(peer, limit))
        os.umask(umask)
        os.chdir(directory)
        os.environb.clear()
        os.environb.update(environment)
        self.request = request


def reopened(stream: Any, number: int, mode: str) -> Any:
    """A standard stream of what the file is now, made as Python makes it."""
    # With PYTHONUNBUFFERED there is nothing between the text and the file.
    buffering = 0 if isinstance(stream.buffer, io.RawIOBase) else -1
    file = open(number, f"{mode}b", buffering, closefd=False)  # noqa: SIM115
    new = io.TextIOWrapper(file, encoding=stream.encoding, errors=stream.errors)
    if "w" in mode:
        new.reconfigure(line_buffering=stream.line_buffering, write_through=stream.write_through)
    return new


def main() -> None:
    """Serve; in a fork: be the command."""
    with contextlib.suppress(BindingsError):
        require_flux()
    for name in IMPORTED:
        import_module(name)
    for name in FLUX_IMPORTED:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(sys.argv[1])
    listener.listen(64)
    print("ready", flush=True)
    kind, arguments, *_ = Server(listener).serve()
    try:
        run(kind, arguments)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        leave(end.code or 0)
        raise
    leave(0)


def run(kind: str, arguments: list[str]) -> None:
    """In a fork: be the command."""
    if kind == "command":
        from flux_ensemble.cli.main import main as command

        sys.argv = [str(Path(sys.executable).with_name("flux-ensemble")), *arguments]
        command()
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


def leave(status: int) -> None:
    """End as Python does, but do not take apart what is shared: each page of it would be copied.

    It returns if not all can be written; Python has something to say about that.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
