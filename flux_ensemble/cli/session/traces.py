"""Export of an ensemble to a collector of OpenTelemetry: `export --to otlp`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.session.sources import source_of

if TYPE_CHECKING:
    from flux_ensemble.cli.session.target import Target


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
        raise Failure("--to otlp needs OpenTelemetry: pip install 'flux-ensemble[otlp]'") from None
    # An unreachable collector is reported in one sentence below.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    source = source_of(client, name)
    traces = Traces(source.status, source.entries, source.jobs, source.now)
    try:
        count = send(traces.batches(), endpoint)
    except TraceError as error:
        raise Failure(str(error)) from None
    left = f"; {traces.active} active jobs are not among them" if traces.active else ""
    return f"{count} span{'s'[: count != 1]} sent{left}"
