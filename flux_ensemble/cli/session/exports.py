"""Exports of an ensemble to other tools.

export --to optuna ──► its searches, as studies in a file
export --to otlp   ──► its ended parts, as a trace, to a collector of OpenTelemetry
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from flux_ensemble.cli.common import USAGE, Failure, naming
from flux_ensemble.extras import install_command
from flux_ensemble.feature_list import parts
from flux_ensemble.files import replacing
from flux_ensemble.results.sources import source_of

if TYPE_CHECKING:
    from flux_ensemble.results.hosts import Target


def write_studies(target: Target, name: str, path: Path, *, force: bool) -> str:
    """Write the searches to a file, which appears only when it is complete.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
        path: the file.
        force: replace an existing file.

    Returns:
        The message about the file.

    Raises:
        Failure: Optuna is missing, there is no search, or the file cannot be written.
    """
    try:
        found = parts("studies")
    except ImportError:
        raise Failure(f"--to optuna needs Optuna: {install_command('search')}") from None
    if not found:
        raise Failure("--to optuna: this installation has no searches")
    (studies,), (history,) = found, parts("history")
    if path.suffix.lower() not in studies.SUFFIXES:
        listed = ", ".join(studies.SUFFIXES)
        raise Failure(f"{path}: expected a file that ends in one of: {listed}", USAGE)
    if path.exists() and not force:
        raise Failure(f"{path} exists: --force replaces it")
    try:
        with naming(target, name):
            searches = history.logged_searches(target.log(name))
            jobs = list(target.jobs(name, interrupted=True))
        with replacing(path) as beside:
            written = studies.write(beside, name, searches, jobs)
    except history.StudyError as error:
        raise Failure(f"{name}: {error}") from None
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None
    told = ", ".join(
        f"{count} trial{'s'[: count != 1]} of search {id!r}" for id, count in written.items()
    )
    return f"{told} written to {path}"


def send_trace(client: Target, name: str, endpoint: str | None) -> str:
    """Send the ended parts of an ensemble.

    Args:
        client: the host of the ensemble.
        name: the ensemble.
        endpoint: the collector's address; None: that of the environment.

    Returns:
        The message about the result.

    Raises:
        Failure: packages are missing, or the collector does not accept the spans.
    """
    try:
        from flux_ensemble.exporter.traces import TraceError, Traces, send
    except ImportError:
        raise Failure(f"--to otlp needs OpenTelemetry: {install_command('otlp')}") from None
    # An unreachable collector is reported in one sentence below.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with naming(client, name):
        source = source_of(client, name)
    traces = Traces(source.status, source.entries, source.jobs, source.now)
    try:
        count = send(traces.batches(), endpoint)
    except TraceError as error:
        raise Failure(str(error)) from None
    left = f"; {traces.active} active jobs are not among them" if traces.active else ""
    return f"{count} span{'s'[: count != 1]} sent{left}"
