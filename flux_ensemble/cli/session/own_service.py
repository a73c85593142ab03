"""The service as a process of `run` itself: `run --serve`, for a Flux that cannot load it.

Flux before 0.84 has no broker modules in Python. The service then runs as `flux ensemble serve`,
from before the document is loaded until the command ends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from flux_ensemble.cli.common import Failure
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.deploy.service_start import MODULES_SINCE, parse_version

#: Seconds within which the service has to begin, and to end.
_BEGIN_SECONDS = 60.0
_END_SECONDS = 30.0


def is_needed(client: Client) -> bool:
    """Return True if the Flux of this client is too old to load the service."""
    return parse_version(str(client.handle.attr_get("version"))) < MODULES_SINCE


@contextlib.contextmanager
def serving(client: Client) -> Iterator[None]:
    """Run the service, unless one answers already.

    Raises:
        Failure: it ends, or does not answer in time.
    """
    if _answers(client):
        yield
        return
    child = subprocess.Popen([sys.executable, "-m", "flux_ensemble.cli.main", "serve"])
    try:
        t_end = time.monotonic() + _BEGIN_SECONDS
        while not _answers(client):
            if child.poll() is not None:
                raise Failure(f"the ensemble service has ended with exit code {child.returncode}")
            if time.monotonic() > t_end:
                raise Failure(f"the ensemble service did not begin within {_BEGIN_SECONDS:g} s")
            time.sleep(0.1)
        yield
    finally:
        child.terminate()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _answers(client: Client) -> bool:
    try:
        client.list()
    except EnsembleError:
        return False
    return True
