"""The process of a worker on this machine, which outlasts the home that has started it.

    home ──► file, made and locked ──► worker, with the file as its output ──► what starts its tasks
                                           └──── all of them hold the lock ────┘

The kernel keeps the lock until the last process that has the file as its output is gone, whatever
ends them and in whatever order. So a home that goes on knows what lives, and nothing that is
written down can be wrong about it. Tasks end with what starts them (`queues.local.supervisor`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flux_ensemble.queues.local.binding import GPU_VARIABLES
from flux_ensemble.texts import bounded

_MODULE = "flux_ensemble.service.worker"

#: Bytes at the end of the output of a worker in which its last words are looked for.
_LAST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """A part of this machine.

    Args:
        cores: their numbers, as for `os.sched_setaffinity`.
        gpus: their names, as in `GPU_VARIABLES`.
    """

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()


def named_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the GPUs that programs may use.

    >>> named_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}), named_gpus({})
    (('0', '1'), ())
    """
    names = next((environment[name] for name in GPU_VARIABLES if environment.get(name)), "")
    return tuple(names.split(",")) if names else ()


class WorkerProcess:
    """A worker, by the file that has its output.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._child: int | None = None

    def start(self, credentials: str, environment: Mapping[str, str], part: Part) -> None:
        """Start it. The file must not be that of a worker that lives.

        Args:
            credentials: its standard input.
            environment: of it.
            part: what it has of this machine.

        Raises:
            OSError: it cannot be started.
        """
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        # A file of that name is of an earlier run.
        self._path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        gpus = dict.fromkeys(GPU_VARIABLES, ",".join(part.gpus)) if part.gpus else {}
        with (
            _closed(os.open(self._path, flags, 0o600)) as output,
            _closed(_file(credentials)) as given,
        ):
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = os.sched_getaffinity(0)
            os.sched_setaffinity(0, part.cores)
            try:
                self._child = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-P", "-m", _MODULE],
                    {**environment, **gpus},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, given, 0),
                        (os.POSIX_SPAWN_DUP2, output, 1),
                        (os.POSIX_SPAWN_DUP2, output, 2),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
                )
            finally:
                os.sched_setaffinity(0, own)

    def lives(self) -> bool:
        """Return whether something of it may still run."""
        if self._child is not None:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._child, os.WNOHANG)[0]:
                    self._child = None
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        with _closed(file):
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def began(self) -> bool:
        """True if it was started, or was about to be."""
        return self._path.exists()

    def part(self) -> Part | None:
        """Return what it has of this machine; None if that is not known now."""
        for pid in self._processes():
            with contextlib.suppress(OSError):
                entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
                pairs = (entry.partition("=") for entry in entries.split("\0"))
                gpus = named_gpus({name: value for name, _, value in pairs})
                return Part(tuple(sorted(os.sched_getaffinity(pid))), gpus)
        return None

    def kill(self, number: int) -> None:
        """Send a signal to it; its tasks end with it."""
        for pid in self._processes():
            with contextlib.suppress(OSError), _closed(os.pidfd_open(pid)) as process:
                # The id may be that of another process meanwhile, and from here on cannot be.
                if self._is(pid):
                    signal.pidfd_send_signal(process, number)

    def last_words(self) -> str:
        """Return the last line that it has printed for people; "" if there is none."""
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        # What failed tasks wrote is there, too, as JSON.
        said = [line for line in lines if line.strip() and not line.startswith("{")]
        return bounded(said[-1].removeprefix("flux-ensemble: ")) if said else ""

    def _processes(self) -> Iterator[int]:
        """Yield the id of its process, if that lives."""
        return (int(name) for name in os.listdir("/proc") if name.isdigit() and self._is(int(name)))

    def _is(self, pid: int) -> bool:
        try:
            if not os.path.samefile(f"/proc/{pid}/fd/2", self._path):
                return False
            return _MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False


@contextlib.contextmanager
def _closed(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _file(text: str) -> int:
    """Return a file in memory with a text, to be read from the beginning."""
    fd = os.memfd_create("credentials")
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def taken(whole: Part, held: Sequence[Part], cores: int | None, gpus: int) -> Part | None:
    """Return a part of this machine that nobody holds; None if too little is free.

    Who asks for more than there is gets all.

    Args:
        whole: the machine.
        held: the parts that are taken.
        cores: how many; None for the machine alone, with all that it has.
        gpus: how many.

    >>> machine = Part((0, 1, 2, 3), ("0",))
    >>> taken(machine, [Part((0, 1))], 2, 1)
    Part(cores=(2, 3), gpus=('0',))
    >>> taken(machine, [Part((0, 1))], 8, 0) is None, taken(machine, [], None, 0) == machine
    (True, True)
    """
    if cores is None:
        return None if held else whole
    free = [core for core in whole.cores if not any(core in part.cores for part in held)]
    left = [gpu for gpu in whole.gpus if not any(gpu in part.gpus for part in held)]
    cores, gpus = min(cores, len(whole.cores)), min(gpus, len(whole.gpus))
    if len(free) < cores or len(left) < gpus:
        return None
    return Part(tuple(free[:cores]), tuple(left[:gpus]))
