"""What is tried: a Flux instance of two brokers with the service, started, killed, measured."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from instance import Instance

from flux_ensemble.bindings import module_arguments, module_path

#: The service must not take the machine with it: it gets no more memory than this, in bytes.
MOST_MEMORY = 6 << 30

#: A line of a broker in what an instance writes to standard error.
_BROKER = re.compile(r"^\w+ \d+ [\d:.]+ UTC \d+ |^[\w-]+\.\w+\[\d+\]:|^flux-start")

_CONFIG = """
[exec.testexec]
allow-guests = true
[ensemble]
allow-guest-status = true
"""


class Gone(Exception):
    """The service or the whole instance is gone, or stuck."""


class Subject:
    """An instance, and the service as a broker module in it.

    Attributes:
        directory: where its files are, and odd ones for the service to be sent to.
        log: the file that has Flux's log.
        uris: of the brokers, by rank.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.log = self.directory / "flux.log"
        os.mkfifo(self.directory / "fifo")
        (self.directory / "latin").write_bytes(b"\xe9\xff\0")
        self._instance = Instance(self.directory, config=_CONFIG)
        self._started = False
        self._broker = 0
        self._pid = 0
        self._fd = -1
        try:
            self._instance.start(
                ["--test-size=2", "--test-exit-timeout=0.1s", f"-Slog-filename={self.log}",
                 "-Sbroker.module-nopanic=1"]
            )  # fmt: skip
            self._started = True
            self._broker = int(self._instance.flux("getattr", "broker.pid"))
            leaf = self._instance.flux("exec", "-r1", "flux", "getattr", "local-uri")
            self.uris = (self._instance.uri, leaf.strip())
            self.load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it all, whatever hangs."""
        for pid in self._modules():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._fd >= 0:
            # Where the broker is gone, the module is nobody's child.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            os.close(self._fd)
            self._fd = -1
        if self._started:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self._instance.crash()
            self._started = False
        shutil.rmtree(self.directory, ignore_errors=True)

    def flux(self, *arguments: str) -> str:
        """What a command of Flux prints.

        Raises:
            Gone: it fails, or does not come to an end.
        """
        try:
            return self._instance.flux(*arguments)
        except (RuntimeError, subprocess.SubprocessError) as error:
            raise Gone(f"{error}: {self._last_words()}") from None

    # -- the service --------------------------------------------------------------------

    def load(self, verb: str = "load") -> None:
        """Load the module, or `reload` it.

        Raises:
            Gone: that fails.
        """
        self.flux("module", verb, str(module_path()), *module_arguments())
        self._pid = max(self._modules(), default=0)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(ProcessLookupError):
            self._fd = os.pidfd_open(self._pid)
            resource.prlimit(self._pid, resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        self.check()

    def kill(self) -> None:
        """Kill the module, and load it again when the broker has taken note."""
        signal.pidfd_send_signal(self._fd, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(line.startswith("ensemble ") for line in self.flux("module", "list").split("\n")):
            if time.monotonic() > deadline:
                raise Gone("the broker has not noticed that the module was killed")
            time.sleep(0.05)
        self.load()

    def check(self) -> None:
        """See whether the service is there.

        Raises:
            Gone: it is not.
        """
        if self._fd < 0 or select.select([self._fd], [], [], 0)[0]:
            raise Gone(f"the service has died: {self._last_words()}")

    def rss(self) -> int:
        """The memory that the service has now, in bytes."""
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
            return pages * resource.getpagesize()
        return 0

    def starved(self) -> float:
        """How many seconds the service has ever waited for a processor (sched(7))."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def _modules(self) -> list[int]:
        """The processes of the module: children of the broker that run its file."""
        found = []
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self._broker}/task").iterdir():
                for child in (task / "children").read_text().split():
                    command = Path(f"/proc/{child}/cmdline").read_bytes()
                    if str(module_path()).encode() in command:
                        found.append(int(child))
        return found

    def _last_words(self) -> str:
        """What the module wrote last to standard error, or else a broker."""
        said = self._instance.said() or ["nothing was said"]
        own = [line for line in said if not _BROKER.search(line)]
        return (own or said)[-1]
