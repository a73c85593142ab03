"""`watch` of a run on the local queue: its log and its status, from its files."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import ExitStack

from flux_ensemble.cli.common import EXIT_CODES, INTERRUPTED, drop_output
from flux_ensemble.cli.display.messages import announce
from flux_ensemble.cli.display.troubles import exit_code
from flux_ensemble.cli.display.views import EnsembleView, summarize
from flux_ensemble.cli.session.signals import signal_pipe
from flux_ensemble.queues.local.client import LOOK_SECONDS, LocalClient
from flux_ensemble.words import Span

#: Signals that end the command, but not the run.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def follow_locally(
    local: LocalClient, name: str, view: EnsembleView, fail_on: frozenset[str]
) -> int:
    """Follow a local run that continues, or has ended, from its first entry to its end.

    Args:
        local: the state directory.
        name: the ensemble.
        view: to print to.
        fail_on: kinds of troubles with which to exit 1: see `display.troubles`.

    Returns:
        The exit code.

    Raises:
        Failure: there is no such ensemble any more, or another run has taken its place.
    """
    with ExitStack() as stack:
        stack.callback(view.close)
        read = stack.enter_context(signal_pipe(SIGNALS))
        try:
            if not _follow(local, name, view, read):
                view.line((Span(f"   left {name!r} to its run", "warn"),))
                return INTERRUPTED
        except BrokenPipeError:
            drop_output()
            return INTERRUPTED
        (status,) = local.status(name)["ensembles"]
        metrics = local.metrics(name)
        summarize(view, status, metrics, local.command)
    return exit_code(status["state"], status, fail_on)


def _follow(local: LocalClient, name: str, view: EnsembleView, read: int) -> bool:
    """Print what happens until the run has reported its end; return False on a signal."""
    progress, final = 0.0, False
    for entry in local.follow(name, pause=0.0):
        if entry is not None:
            for line in announce(entry):
                view.line(line)
            continue
        if final:
            break
        (status,) = local.status(name)["ensembles"]
        final = status["state"] in EXIT_CODES
        if final:
            continue  # what it has written before that is read now
        if time.monotonic() >= progress:
            view.progress(status)
            progress = time.monotonic() + view.interval
        if select.select([read], [], [], LOOK_SECONDS)[0]:
            os.read(read, 64)
            return False
    return True
