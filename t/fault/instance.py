"""A private Flux instance of one broker that a test may stop, crash and start again.

It has many more cores than the machine, so that thousands of jobs run at once; their
jobspecs ask for mock execution (`workloads.MOCK`), which runs no process. The initial
program ends with its standard input, so the instance ends with whoever started it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: Seconds in which an instance is up, or a command of Flux is done.
PATIENCE = 180

_CONFIG = """
[resource]
noverify = true
[[resource.config]]
hosts = "{host}"
cores = "0-{last}"
"""

_CORES = 4096

#: Cores of a node of several brokers, unless told.
NODE_CORES = 4

_PROGRAM = 'echo "$FLUX_URI" "$FLUX_START_URI" && flux getattr broker.pid && exec cat'

#: What a shell of the user or another instance around this one must not change.
_KEPT = ("FLUX_EXEC_PATH", "FLUX_EXEC_PATH_PREPEND", "FLUX_PYTHONPATH_ORG")


#: What the shells of jobs read first where cores are fake.
_UNBOUND = """\
shell.options["cpu-affinity"] = "off"
source ("{default}")
"""


def _builtin(name: str) -> str:
    """Return where Flux was installed with something."""
    words = ["flux", "config", "builtin", name]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


class Instance:
    """An instance.

    Args:
        directory: where its files go.
        statedir: it keeps its state there, and starts again with it.
        config: more TOML for the broker.
        cores: how many fake ones it has.
        brokers: how many it has; several are nodes, as are those of instances in it.
        node_cores: how many fake ones each of several nodes has.

    Attributes:
        uri: where it is to be reached.
    """

    def __init__(
        self,
        directory: Path,
        *,
        statedir: bool = False,
        config: str = "",
        cores: int = _CORES,
        brokers: int = 1,
        node_cores: int = NODE_CORES,
    ) -> None:
        self.directory = directory
        self._brokers = brokers
        #: What jobs that are instances need of its environment.
        self.nested = {"TMPDIR": str(directory)}
        self._statedir = directory / "state" if statedir else None
        self._log = directory / "broker.log"
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FLUX_") or name in _KEPT
        }
        if brokers > 1:
            # What hwloc, and with it each broker, takes a node for.
            self.nested["HWLOC_SYNTHETIC"] = f"core:{node_cores} pu:1"
        self._environment |= self.nested
        self._options: list[str] = []
        conf = directory / "conf"
        conf.mkdir()
        fake = _CONFIG.format(host=socket.gethostname(), last=cores - 1) if brokers == 1 else ""
        (conf / "fault.toml").write_text(fake + config)
        if brokers > 1:
            # A shell that is to bind its job to a core that is not there ends.
            initrc = conf / "initrc.lua"
            initrc.write_text(_UNBOUND.format(default=_builtin("shell_initrc")))
            self._options.append(f"-Sconf.shell_initrc={initrc}")
        if self._statedir is not None:
            self._statedir.mkdir()
        self._process: subprocess.Popen[str] | None = None
        self._broker = 0
        self.uri = ""
        self._starter = ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that are to reach it."""
        return self._environment | {"FLUX_URI": self.uri}

    def start(self, options: Sequence[str] = (), *, keep_jobs: bool = False) -> None:
        """Start it.

        Args:
            options: more options of `flux start`.
            keep_jobs: a stop does not cancel the jobs that run.

        Raises:
            RuntimeError: it does not come up.
        """
        state = [] if self._statedir is None else [f"-Sstatedir={self._statedir}"]
        environment = dict(self._environment)
        if keep_jobs:
            environment["FLUX_DISABLE_JOB_CLEANUP"] = "t"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                ["flux", "start", f"--test-size={self._brokers}",
                 f"--config-path={self.directory / 'conf'}", *state, *self._options, *options,
                 "sh", "-c", _PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=environment, cwd=self.directory,
            )  # fmt: skip
        assert self._process.stdout is not None
        self.uri, _, self._starter = self._process.stdout.readline().strip().partition(" ")
        pid = self._process.stdout.readline().strip()
        if not pid:
            raise RuntimeError(f"the Flux instance does not start:\n{self._end()}")
        self._broker = int(pid)

    def stop(self) -> int:
        """End it as a user would; returns its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.kill(self._broker, signal.SIGKILL)
            process.wait(PATIENCE)
            raise RuntimeError(f"the Flux instance does not end:\n{self._end()}") from None
        finally:
            process.stdout.close()

    def crash(self) -> None:
        """Kill the broker."""
        os.kill(self._broker, signal.SIGKILL)
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.wait(PATIENCE)
        process.stdin.close()
        process.stdout.close()

    def kill_broker(self, rank: int) -> None:
        """Kill the broker of a rank that is not the first; it does not come back."""
        import flux  # most tests with an instance need no bindings

        flux.Flux(self._starter).rpc("start.kill", {"rank": rank, "signum": signal.SIGKILL}).get()

    def flux(self, *arguments: str) -> str:
        """What a command of Flux prints.

        Raises:
            RuntimeError: it fails.
        """
        done = subprocess.run(
            ["flux", *arguments],
            env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        if done.returncode:
            command = " ".join(["flux", *arguments])
            raise RuntimeError(f"{command} exits with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def said(self) -> list[str]:
        """The lines that brokers wrote to standard error; errors that were logged are there."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    def _end(self) -> str:
        return "\n".join(self.said()[-20:])
