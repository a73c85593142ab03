"""`flux-ensemble` in a process of its own that does not have to import it first.

Most of the time that a short run takes is that of its imports. So one process imports what a run
needs, and each run is a fork of it (multiprocessing's forkserver): a process with a fresh state of
its own, and none of the tests'.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any

#: What a local run imports. The forkserver imports this module, and with it those.
IMPORTED = (
    "flux_ensemble.cli.commands.run",
    "flux_ensemble.cli.display.views",
    "flux_ensemble.cli.session.local_run",
    "flux_ensemble.document.lint",
    "flux_ensemble.document.loading",
    "flux_ensemble.metrics.statistic_trial",
    "jsonschema",
    "yaml",
)

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload([__name__, *IMPORTED])


def _run(
    words: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    stdout: Connection,
    stderr: Connection,
) -> None:
    """In the fork: become the command."""
    from flux_ensemble.cli.main import main

    for number, pipe in ((1, stdout), (2, stderr)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["flux-ensemble", *words]
    try:
        main(list(words))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class WarmProcess(subprocess.Popen[str]):
    """As `subprocess.Popen` of `flux-ensemble` with these words; it is no child of this process.

    Args:
        words: the arguments of the command.
        cwd: its working directory.
        stdout: as for `subprocess.Popen`.
        environment: its environment; None is that of this process.
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: str | os.PathLike[str],
        stdout: int | IO[Any],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        super().__init__(
            list(words), cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True
        )  # fmt: skip

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, c2pread, c2pwrite, errread, errwrite = rest[4], *rest[11:15]
        pipes = [Connection(os.dup(fd), readable=False) for fd in (c2pwrite, errwrite)]
        self._warm = _forkserver.Process(
            target=_run, args=(args, os.fspath(cwd), dict(self._environment), *pipes)
        )
        self._warm.start()
        for pipe in pipes:
            pipe.close()
        for fd, other in ((c2pwrite, c2pread), (errwrite, errread)):
            if other != -1:
                os.close(fd)
        assert self._warm.pid is not None
        self.pid = self._warm.pid
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            self.returncode = self._warm.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._warm.join(timeout)
        if self._internal_poll() is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode
