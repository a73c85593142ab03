"""A trace has a span for the ensemble, each firing and each job, as a collector receives it."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from reports import SWEEP, simulated

from flux_ensemble.exporter import traces as module
from flux_ensemble.exporter.traces import TraceError, Traces, send


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """A collector on loopback: its address, and the spans that it has received."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    received.extend(scope.spans)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {
        one.key.removeprefix("flux_ensemble."): getattr(one.value, one.value.WhichOneof("value"))
        for one in span.attributes
    }


def traces() -> Traces:
    made = simulated(SWEEP)
    return Traces(made.status, made.entries, made.jobs, made.now)


def test_each_firing_and_each_job_is_a_span_below_what_brought_it_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BATCH", 20)
    status = simulated(SWEEP).status
    with collector() as (endpoint, received):
        count = send(traces().batches(), endpoint)
    assert count == len(received) == 1 + status["firings"] + status["jobs"]["total"]
    assert len({span.trace_id for span in received}) == 1
    by_id = {span.span_id: span for span in received}
    assert len(by_id) == count
    (root,) = (span for span in received if not span.parent_span_id)
    assert root.name == "study"
    jobs = [span for span in received if "outcome" in attributes(span)]
    for span in jobs:
        about, parent = attributes(span), by_id[span.parent_span_id]
        assert attributes(parent)["rule"] == about["rule"]
        assert attributes(parent)["firing"] == about["firing"]
        assert parent.parent_span_id == root.span_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert (span.status.code == 2) == (about["outcome"] in ("failed", "timeout"))
        assert [event.name for event in span.events] == ["alloc", "start"]
    failed = sum(span.status.code == 2 for span in jobs)
    assert failed == sum(group["failed"] + group["timeout"] for group in status["groups"].values())
    (sim,) = (span for span in jobs if attributes(span).get("id") == 1)
    assert attributes(sim)["params.t"] == 280
    assert isinstance(attributes(sim)["memo.fom"], float)


def test_sent_again_the_spans_are_the_same() -> None:
    ids = []
    for _ in range(2):
        with collector() as (endpoint, received):
            send(traces().batches(), endpoint)
            ids.append([(span.trace_id, span.span_id) for span in received])
    assert ids[0] == ids[1]


def test_a_collector_that_refuses_is_an_error_of_one_sentence() -> None:
    with collector(status=400) as (endpoint, _), pytest.raises(TraceError, match="did not take"):
        send(traces().batches(), endpoint)
    with pytest.raises(TraceError, match="expected a URL"):
        send(traces().batches(), "localhost:4318")


def test_the_command_sends_a_local_run(tmp_path: Path) -> None:
    document = tmp_path / "a.yaml"
    document.write_text(
        "jobs: [{name: echo, command: 'true', count: 3}]\n"
        "rules: [{trigger: start, action: {name: submit, label: echo}}]\n"
    )
    command = [sys.executable, "-m", "flux_ensemble.cli.main"]
    local = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    subprocess.run([*command, "run", *local, str(document)], check=True, capture_output=True)
    export = [*command, "export", "a", *local, "--to", "otlp", "--endpoint"]
    with collector() as (endpoint, received):
        done = subprocess.run([*export, endpoint], capture_output=True, text=True)
    assert (done.stdout, done.stderr, len(received)) == ("5 spans sent\n", "", 5)
    wrong = subprocess.run([*export, "x", "a.csv"], capture_output=True, text=True)
    assert (wrong.returncode, "no FILE" in wrong.stderr) == (2, True)
