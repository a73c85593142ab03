"""The exporter says what the status says, to those who may ask, in no more series than allowed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_parser

from flux_ensemble.exporter.families import PREFIX, families
from flux_ensemble.exporter.server import ExporterError, listen, write_textfile
from flux_ensemble.k8s.health_port import HealthPort
from flux_ensemble.pages import MOST_WAITING
from flux_ensemble.tokens import TokenError, read_token

ROOT = Path(__file__).parents[3]

COUNTS = {
    "waiting": 2, "pending": 1, "running": 2, "submitted": 8, "finished": 5, "success": 4,
    "failed": 1, "canceled": 0, "timeout": 0, "attempts": 5, "gave-up": 0,
}  # fmt: skip
RULE = {
    "id": "rule-0", "trigger": "start", "action": "submit", "label": "echo", "enabled": True,
    "fired": 3, "repetitions": 1, "error": None,
}  # fmt: skip


def ensemble(name: str, **fields: Any) -> dict[str, Any]:
    made = {
        "name": name, "state": "running", "reason": "", "t_start": 100.5, "t_end": None,
        "groups": {"echo": COUNTS}, "rules": [RULE], "jobs": {}, "retries": 1, "errors": [],
    }  # fmt: skip
    return {**made, **fields}


POOLS = {
    "pool": {
        "min": 2, "max": 3, "ended": 4, "lost": 1,
        "members": [
            {"name": "pool.4", "state": "up", "reason": "", "nodes": 2, "cores": 16, "t_up": 110.0,
             "t_expires": 500.0, "jobs": 7},
            {"name": "pool.5", "state": "starting", "reason": "", "nodes": None, "cores": None,
             "t_up": None, "t_expires": None, "jobs": 0},
        ],
    },
}  # fmt: skip

NODES = {"node_cores_free": 2, "node_cores_up": 6, "node_up_count": 3, "node_free_count": 1}
QUEUE = {"sched": 4, "run": 3}

STATUS: dict[str, Any] = {
    "nodes": NODES,
    "queue": QUEUE,
    "instance": {"nodes": 3, "t_expires": 900.0, "scaler": None, "failure": None, "requests": []},
    "service": {
        "version": "0.1.0", "mode": "module", "pid": 1, "t_start": 50.0, "python": "3.11",
        "state": "ready", "events": 50, "commands": 9, "firings": 2,
        "perf": {"waiting": 0, "lag_mean_seconds": None, "lag_max_seconds": 0.25,
                 "cpu_seconds": 0.83, "rss_bytes": 61865984},
    },
    "members": {
        "default": {
            "t_expires": 900.0,
            "nodes": NODES,
            "queue": QUEUE,
        }
    },
    "ensembles": [
        ensemble("study", t_predicted=160.0, pools=POOLS),
        ensemble('odd"\n\\', state="completed", t_end=200.0),
    ],
}  # fmt: skip


def collect() -> Iterator[Any]:
    return families(STATUS)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of an OpenMetrics text, by name and labels."""
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[PREFIX + name, frozenset(labels.items())]


@contextmanager
def served(address: str, token_file: Path | None = None, **limits: float) -> Iterator[Any]:
    with listen(address, collect, token_file, **limits) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address
        finally:
            server.shutdown()
            thread.join()


class _UnixHttp(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def get(path: str, **headers: str) -> tuple[int, str, str]:
    connection = _UnixHttp(path)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_openmetrics_on_a_unix_socket_has_the_numbers_of_the_status(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with served(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        status, kind, text = get(str(path))
    assert not path.exists()
    assert status == 200
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    found = samples(text)
    group = {"ensemble": "study", "group": "echo"}
    assert value(found, "jobs_running", **group) == 2
    assert value(found, "jobs_submitted_total", **group) == 8
    assert value(found, "jobs_ended_total", outcome="failed", **group) == 1
    assert value(found, "rule_firings_total", ensemble="study", rule="rule-0") == 3
    assert value(found, "state", ensemble="study", **{f"{PREFIX}state": "running"}) == 1
    assert value(found, "start_time_seconds", ensemble='odd"\n\\') == 100.5
    assert value(found, "predicted_end_time_seconds", ensemble="study") == 160.0
    assert sum("predicted_end" in name for name, _ in found) == 1
    instance = {
        name.removeprefix(f"{PREFIX}instance_"): number
        for (name, labels), number in found.items()
        if name.startswith(f"{PREFIX}instance_")
    }
    assert instance == {
        "nodes": 3, "nodes_free": 1, "cores": 6, "cores_free": 2, "jobs_waiting": 4,
        "jobs_running": 3, "expiration_time_seconds": 900.0,
    }  # fmt: skip
    for name, number in instance.items():
        assert value(found, f"member_{name}", member="default") == number
    pool = {"ensemble": "study", "pool": "pool"}
    member = {**pool, "member": "pool.4"}
    assert value(found, "pool_member_nodes", **member) == 2
    assert value(found, "pool_member_jobs", **member) == 7
    assert value(found, "pool_member_expiration_time_seconds", **member) == 500.0
    up = {f"{PREFIX}pool_member_state": "up"}
    assert value(found, "pool_member_state", **member, **up) == 1
    assert value(found, "pool_member_state", **{**member, "member": "pool.5"}, **up) == 0
    assert sum("pool_member_cores" in name for name, _ in found) == 1
    assert value(found, "pool_members_ended_total", **pool) == 4
    assert value(found, "pool_members_lost_total", **pool) == 1
    assert value(found, "service_cpu_seconds_total") == 0.83
    assert value(found, "up") == 1
    assert not any("lag_mean" in name for name, _ in found)


def test_every_metric_has_a_help_our_prefix_and_labels_that_are_few(tmp_path: Path) -> None:
    allowed = {"ensemble", "group", "outcome", "rule", "pool", "member"}
    allowed |= {f"{PREFIX}state", f"{PREFIX}pool_member_state"}
    for family in families(STATUS):
        assert family.name.startswith(PREFIX)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            if family.name != f"{PREFIX}service":
                assert set(sample.labels) <= allowed, family.name


def test_prometheus_text_is_given_to_who_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with served(str(path)):
        _, kind, text = get(str(path), Accept="text/plain;version=0.0.4")
    assert kind.startswith("text/plain")
    assert "flux_ensemble_jobs_submitted_total" in text


def test_on_loopback_only_who_has_the_token_is_answered(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with served("localhost:0", file) as (host, port):
        token = file.read_text().strip()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        url = f"http://{host}:{port}/metrics"
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token}):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(urllib.request.Request(url, headers=header))
            assert caught.value.code == 401
            assert "flux_ensemble" not in caught.value.read().decode()
            caught.value.close()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as answer:
            assert f"{PREFIX}up 1.0" in answer.read().decode()
    assert read_token(file) == token


@pytest.mark.parametrize(
    ("address", "token", "said"),
    [
        ("0.0.0.0:0", True, "expected localhost"),
        ("localhost:0", False, "needs --token-file"),
        ("localhost", True, "expected HOST:PORT, or a path"),
        ("localhost:99999", True, "cannot listen on"),
        ("/nowhere/at/all.sock", False, "cannot listen on"),
    ],
)
def test_an_address_that_will_not_do_is_refused(
    tmp_path: Path, address: str, token: bool, said: str
) -> None:
    with pytest.raises(ExporterError, match=said):
        listen(address, collect, tmp_path / "token" if token else None)


def test_a_token_that_others_can_read_or_that_is_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a" * 40)
    file.chmod(0o644)
    with pytest.raises(TokenError, match="chmod 600"):
        read_token(file)
    file.write_text("short")
    file.chmod(0o600)
    with pytest.raises(TokenError, match="at least 16"):
        read_token(file)


def test_a_socket_that_nobody_listens_on_is_replaced_and_another_is_not(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with served(str(path)):
        assert get(str(path))[0] == 200
        with pytest.raises(ExporterError, match="somebody listens"):
            listen(str(path), collect, None)


def connected(address: Any, text: str = "") -> socket.socket:
    """A connection on which the beginning of a request has been sent."""
    client = socket.create_connection(address[:2], timeout=PATIENCE)
    client.sendall(text.encode())
    return client


def scraped(address: Any, token: str) -> str:
    host, port = address[:2]
    request = urllib.request.Request(f"http://{host}:{port}/metrics")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_a_client_that_never_ends_its_headers_keeps_no_scrape_waiting(tmp_path: Path) -> None:
    file = tmp_path / "token"
    # The time for a request is longer than anybody here waits.
    with (
        served("localhost:0", file, seconds=100 * PATIENCE) as address,
        connected(address, "GET /metrics HTTP/1.1\r\nA: b\r\n"),
    ):
        assert f"{PREFIX}up 1.0" in scraped(address, file.read_text().strip())


def test_a_request_that_comes_byte_by_byte_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    with (
        served("localhost:0", tmp_path / "token", seconds=0.2) as address,
        connected(address, "GET /metrics HTTP/1.1\r\nA: ") as slow,
    ):
        slow.settimeout(0.05)
        t_late = time.monotonic() + PATIENCE
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < t_late
                slow.send(b"b")
                with contextlib.suppress(TimeoutError):
                    assert slow.recv(1000) == b""
                    break


def test_connections_without_a_request_end_each_other_and_no_scrape(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with (
        served("localhost:0", file, seconds=100 * PATIENCE) as address,
        contextlib.ExitStack() as stack,
    ):
        idle = [stack.enter_context(connected(address)) for _ in range(MOST_WAITING + 5)]
        assert f"{PREFIX}up 1.0" in scraped(address, file.read_text().strip())
        # The scrape was one more that waited for a while.
        assert [one.recv(1000) for one in idle[:6]] == [b""] * 6


def test_a_client_that_does_not_read_its_page_keeps_nobody_waiting(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with served("localhost:0", file) as address:
        token = file.read_text().strip()
        asked = f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        with connected(address, asked):
            assert f"{PREFIX}up 1.0" in scraped(address, token)


def test_probes_are_answered_while_clients_never_end_their_headers() -> None:
    port = HealthPort(0, CollectorRegistry(), host="localhost")
    try:
        with contextlib.ExitStack() as stack:
            address = ("localhost", port.port)
            for _ in range(MOST_WAITING + 5):
                stack.enter_context(connected(address, "GET /healthz HTTP/1.1\r\n"))
            url = f"http://localhost:{port.port}/healthz"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                assert answer.read() == b"ok\n"
    finally:
        port.close()


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        # What is everybody's is to stay so.
        (0o1777, "(mode 1777): name a directory of yours"),
        (0o775, "(mode 0775): 'chmod go-w {}' ends that"),
    ],
)
def test_a_socket_where_others_could_take_its_place_is_refused(
    mode: int, remedy: str, tmp_path: Path
) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ExporterError, match="others can write in") as refusal:
        listen(str(tmp_path / "metrics.sock"), collect, None)
    assert remedy.format(tmp_path) in str(refusal.value)


def test_a_textfile_is_what_node_exporter_reads(tmp_path: Path) -> None:
    write_textfile(tmp_path / "a.prom", collect)
    found = {family.name: family for family in text_parser((tmp_path / "a.prom").read_text())}
    assert found[f"{PREFIX}jobs_submitted"].samples[0].value == 8
    assert os.listdir(tmp_path) == ["a.prom"]
    with pytest.raises(ExporterError, match=r"\.prom"):
        write_textfile(tmp_path / "a.txt", collect)


def test_series_are_bounded_and_those_left_out_are_counted() -> None:
    ended = [ensemble(f"old-{number}", t_end=200.0) for number in range(100)]
    status = {**STATUS, "ensembles": [*ended, ensemble("live")]}
    found = list(families(status, most_series=50))
    series = [one for family in found for one in family.samples if "ensemble" in one.labels]
    assert len(series) <= 50
    assert {one.labels["ensemble"] for one in series} > {"live"}
    (left_out,) = (family for family in found if family.name == f"{PREFIX}series_left_out")
    assert left_out.samples[0].value > 1000


def test_nobody_there_is_said_and_no_more() -> None:
    (up,) = families(None)
    assert (up.name, up.samples[0].value) == (f"{PREFIX}up", 0)


def test_the_command_serves_the_local_queue_until_it_is_told_to_end(tmp_path: Path) -> None:
    document = tmp_path / "a.yaml"
    document.write_text(
        "jobs: [{name: echo, command: 'true', count: 3}]\n"
        "rules: [{trigger: start, action: {name: submit, label: echo}}]\n"
    )
    command = [sys.executable, "-m", "flux_ensemble.cli.main"]
    local = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    subprocess.run([*command, "run", *local, str(document)], check=True, capture_output=True)
    path = str(tmp_path / "metrics.sock")
    exporter = [*command, "metrics-exporter", *local, "--listen", path]
    with subprocess.Popen(exporter, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert path in process.stderr.readline()
            found = samples(get(path)[2])
            assert (
                value(found, "jobs_ended_total", ensemble="a", group="echo", outcome="success") == 3
            )
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 0
    textfile = [*command, "metrics-exporter", *local, "--textfile", "a.prom", "--interval", "0"]
    subprocess.run(textfile, check=True, cwd=tmp_path)
    assert 'ensemble="a"' in (tmp_path / "a.prom").read_text()
    both = subprocess.run([*textfile, "--listen", path], capture_output=True, text=True)
    assert (both.returncode, "expected one of" in both.stderr) == (2, True)


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    dashboard = json.loads((ROOT / "etc" / "grafana" / "flux-ensemble.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [one["query"]["query"] for one in dashboard["templating"]["list"][1:]]
    found: dict[str, set[str]] = {}
    for family in families(STATUS):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for text in asked:
        names = set(re.findall(rf"{PREFIX}\w+", text))
        assert names <= {*found, f"{PREFIX}state", f"{PREFIX}service_lag_max_seconds"}, text
        for labels in re.findall(r"\{([^}]*)\}", text.replace("{{", "").replace("}}", "")):
            wanted = set(re.findall(r"(\w+)=", labels))
            assert all(wanted <= found[name] for name in names if name + "{" in text), text
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_page_names_every_metric() -> None:
    text = (ROOT / "docs" / "metrics-exporter.md").read_text()
    for family in families(STATUS):
        name = family.name.removeprefix(PREFIX)
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        assert f"`{name}{suffix}`" in text, name
