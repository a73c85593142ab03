"""An ensemble as a trace of OpenTelemetry: a span for itself, for each firing and for each job.

    log, jobs ──spans──► batches ──OTLP over HTTP──► collector

Ids of traces and spans are derived from their subjects, so sending an ensemble twice makes no
duplicates. A job that has not ended has no span.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from flux_ensemble import __version__, eventlog

#: Number of spans of one request.
BATCH = 500

_PREFIX = "flux_ensemble."
_BAD = ("failed", "timeout")


class TraceError(Exception):
    """The spans cannot be sent; the text is one sentence."""


class _Ids(IdGenerator):
    """Ids derived from the subject of a span, which `of` sets before the span is started."""

    def __init__(self, *trace: object) -> None:
        self._trace = trace
        self._span: tuple[object, ...] = ()

    def of(self, *span: object) -> None:
        """Set the subject of the next span."""
        self._span = span

    def generate_trace_id(self) -> int:
        return _number(16, *self._trace)

    def generate_span_id(self) -> int:
        return _number(8, *self._trace, *self._span)


def _number(size: int, *parts: object) -> int:
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1


class _Collected(SpanProcessor):
    """A store of spans that have ended, until they are sent."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class Traces:
    """Makes the spans of one ensemble.

    Args:
        status: as in `ensemble.status`.
        entries: its log.
        jobs: as in `ensemble.jobs`.
        now: the time, for an ensemble that has not ended, in epoch seconds.

    Attributes:
        active: number of jobs without a span, because they have not ended.
    """

    def __init__(
        self,
        status: Mapping[str, Any],
        entries: Iterable[Mapping[str, Any]],
        jobs: Iterable[Mapping[str, Any]],
        now: float,
    ) -> None:
        self.active = 0
        self._status = status
        self._entries = entries
        self._jobs = jobs
        self._now = now
        self._ids = _Ids(status["name"], status["t_start"])
        self._collected = _Collected()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(
                {"service.name": "flux-ensemble", "service.version": __version__}
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._collected)
        self._tracer = provider.get_tracer("flux_ensemble", __version__)

    def batches(self) -> Iterator[list[ReadableSpan]]:
        """Yield the spans in batches, parents first."""
        status = self._status
        begin = self._now if status["t_start"] is None else status["t_start"]
        end = self._now if status["t_end"] is None else status["t_end"]
        root = self._span(
            ("ensemble",), status["name"], begin, None,
            {"name": status["name"], "state": status["state"], "reason": status.get("reason", "")},
        )  # fmt: skip
        if status["state"] == "failed":
            root.set_status(Status(StatusCode.ERROR, ""))
        root.end(_nanoseconds(max(begin, end)))
        firings: dict[tuple[str, int], Span] = {}
        for span in self._firings(root):
            firings[span.attributes[f"{_PREFIX}rule"], span.attributes[f"{_PREFIX}firing"]] = span  # type: ignore[index]
            yield from self._take(BATCH)
        for job in self._jobs:
            if job["outcome"] is None or job["t_end"] is None:
                self.active += 1
                continue
            self._job(job, firings.get((job["rule"], job["firing"]), root))
            yield from self._take(BATCH)
        yield from self._take(1)

    def _take(self, least: int) -> Iterator[list[ReadableSpan]]:
        spans = self._collected.spans
        if len(spans) >= least:
            self._collected.spans = []
            yield spans

    def _firings(self, root: Span) -> Iterator[Span]:
        """Yield a span for each firing, from its start to its outcome."""
        open_: dict[tuple[str, int], tuple[Span, float]] = {}
        for stored in self._entries:
            t, entry = stored["timestamp"], eventlog.read(stored)
            if isinstance(entry, eventlog.Fire):
                key, action = (entry.rule, entry.firing), entry.action
                span = self._span(
                    ("firing", *key), f"{entry.rule}: {action['name']}", t, root,
                    {"rule": entry.rule, "firing": entry.firing, "trigger": entry.trigger,
                     "action": action["name"], "group": action.get("label")},
                )  # fmt: skip
                open_[key] = span, t
            elif (
                isinstance(entry, eventlog.Failable)
                and (key := (entry.rule, entry.firing)) in open_
            ):
                span, begin = open_.pop(key)
                if not entry.ok:
                    span.set_status(Status(StatusCode.ERROR, str(entry.reason)))
                span.end(_nanoseconds(max(begin, t)))
                yield span
        for span, begin in open_.values():
            span.end(_nanoseconds(begin))
            yield span

    def _job(self, job: Mapping[str, Any], parent: Span) -> None:
        where = (job["member"],) if "member" in job else ()
        keys = ("id", "name", "group", "rule", "firing", "index", "attempt", "nnodes", "ranks")
        attributes = {key: job[key] for key in (*keys, "outcome", "returncode")}
        attributes["member"] = job.get("member")
        attributes["exception.type"] = job["exception"]["type"]
        for kind in ("params", "memo"):
            attributes.update((f"{kind}.{key}", value) for key, value in job[kind].items())
        note = job["exception"]["note"] or job["outcome"]
        span = self._span(
            ("job", *where, job["id"]), job["name"], job["t_submit"], parent, attributes
        )
        if job["outcome"] in _BAD:
            span.set_status(Status(StatusCode.ERROR, note))
        for name, t in (("alloc", job["t_alloc"]), ("start", job["t_run"])):
            if t is not None:
                span.add_event(name, timestamp=_nanoseconds(t))
        span.end(_nanoseconds(max(job["t_submit"], job["t_end"])))

    def _span(
        self,
        key: tuple[object, ...],
        name: str,
        begin: float,
        parent: Span | None,
        attributes: Mapping[str, Any],
    ) -> Span:
        self._ids.of(*key)
        span = self._tracer.start_span(
            name,
            context=None if parent is None else set_span_in_context(parent),
            start_time=_nanoseconds(begin),
            attributes={
                _PREFIX + key: _attribute(value)
                for key, value in attributes.items()
                if value is not None
            },
        )
        assert isinstance(span, Span)
        return span


def _nanoseconds(t: float) -> int:
    return round(t * 1e6) * 1000


def _attribute(value: Any) -> Any:
    """Convert a value to a type that attributes can have."""
    if isinstance(value, int) and value.bit_length() > 63:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def send(
    batches: Iterable[list[ReadableSpan]],
    endpoint: str | None,
    make: Callable[..., SpanExporter] | None = None,
) -> int:
    """Send spans to a collector.

    Args:
        batches: the spans.
        endpoint: the collector's address; None: that of OTEL_EXPORTER_OTLP_ENDPOINT.
        make: makes the exporter; default: OTLP over HTTP.

    Returns:
        The number of spans.

    Raises:
        TraceError: the collector cannot be reached, or refuses the spans.
    """
    if make is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        make = OTLPSpanExporter
    url = None if endpoint is None else _traces_of(endpoint)
    exporter = make() if url is None else make(endpoint=url)
    count = 0
    try:
        for batch in batches:
            if exporter.export(batch) is not SpanExportResult.SUCCESS:
                where = url or "the collector"
                raise TraceError(f"{where} did not take the spans: is an OTLP collector there?")
            count += len(batch)
    finally:
        exporter.shutdown()
    return count


def _traces_of(endpoint: str) -> str:
    """Return the URL for traces: the path is that of OTLP, unless the endpoint has one.

    >>> _traces_of("http://localhost:4318"), _traces_of("http://localhost:4318/x")
    ('http://localhost:4318/v1/traces', 'http://localhost:4318/x')
    """
    scheme, _, rest = endpoint.partition("://")
    if scheme not in ("http", "https") or not rest:
        raise TraceError(f"--endpoint {endpoint}: expected a URL such as http://localhost:4318")
    return endpoint if "/" in rest.rstrip("/") else f"{endpoint.rstrip('/')}/v1/traces"
