"""Back ends: the arithmetic of sizes, the dry run, and MiniClusters on an API in memory."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kubernetes_api import Api, failure
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from patience import PATIENCE

from flux_ensemble.k8s.api_server import connect
from flux_ensemble.k8s.grpc.backend import (
    BackendError,
    BadSize,
    Contended,
    DryRun,
    Grant,
    Refused,
    Size,
    Unavailable,
    UnknownCluster,
    target,
)
from flux_ensemble.k8s.minicluster import Kubernetes, MiniCluster

NAME = "default/mini"

SIZES = st.integers(-3, 12)


def soon() -> float:
    return time.monotonic() + PATIENCE


@given(nodes=SIZES, minimum=st.integers(1, 9), more=st.integers(0, 9), by=SIZES)
def test_a_change_goes_its_way_and_stays_within_the_bounds(
    nodes: int, minimum: int, more: int, by: int
) -> None:
    assume(by)
    now = Size(nodes, minimum, minimum + more)
    try:
        size = target("a", now, by=by)
    except Refused:
        beyond = nodes >= now.maximum if by > 0 else nodes <= now.minimum
        assert beyond
    else:
        assert now.minimum <= size <= now.maximum
        assert (size - nodes) * by > 0


@given(nodes=SIZES, minimum=st.integers(1, 9), more=st.integers(0, 9), to=st.integers(1, 12))
def test_a_size_is_clamped_and_asking_for_it_twice_is_asking_once(
    nodes: int, minimum: int, more: int, to: int
) -> None:
    now = Size(nodes, minimum, minimum + more)
    try:
        size = target("a", now, to=to)
    except Refused:
        assert not now.minimum <= to <= now.maximum
        return
    assert now.minimum <= size <= now.maximum or size == nodes
    if size == to:
        assert target("a", Size(size, now.minimum, now.maximum), to=to) == size


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_1_makes_no_sense(size: int) -> None:
    with pytest.raises(BadSize, match=f"a size must be 1 or more, not {size}"):
        target("a", Size(1, 1, 2), to=size)


def test_the_dry_run_remembers_a_size_for_each_cluster(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    backend = DryRun(2, 4)
    assert backend.scale("a", deadline=soon(), by=9) == Grant(2, 4)
    assert backend.size("a", soon()) == Size(4, 2, 4)
    assert backend.size("b", soon()) == Size(2, 2, 4)
    assert "the size of cluster 'a' would change from 2 to 4" in caplog.text


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [((0, 4), "minimum size of 0: expected 1 or more"), ((5, 4), "of 5, above its maximum of 4")],
)
def test_bounds_that_make_no_sense_are_refused(bounds: tuple[int, int], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        DryRun(*bounds)


@pytest.fixture
def api() -> Api:
    """An API with one MiniCluster of 2 nodes that can have 1 to 4."""
    api = Api()
    api.put(NAME, {"size": 2, "minSize": 1, "maxSize": 4})
    return api


@pytest.fixture
def backend(api: Api) -> Kubernetes:
    return Kubernetes(api.client())


def test_a_minicluster_is_changed_through_its_scale(api: Api, backend: Kubernetes) -> None:
    assert backend.scale(NAME, deadline=soon(), by=1) == Grant(2, 3)
    assert backend.size(NAME, soon()) == Size(3, 1, 4)
    path = "/apis/flux-framework.org/v1alpha2/namespaces/default/miniclusters/mini"
    assert api.calls == [f"GET {path}", f"PUT {path}/scale", f"GET {path}"]


def test_a_size_is_clamped_to_the_miniclusters_bounds(api: Api, backend: Kubernetes) -> None:
    assert backend.scale(NAME, deadline=soon(), by=10) == Grant(2, 4)
    assert backend.scale(NAME, deadline=soon(), by=-10) == Grant(4, 1)
    assert backend.scale(NAME, deadline=soon(), to=99) == Grant(1, 4)
    assert api.writes == [4, 1, 4]


def test_at_the_bound_it_is_refused_and_nothing_is_written(api: Api, backend: Kubernetes) -> None:
    api.change(NAME, size=4)
    with pytest.raises(Refused, match="cannot grow: its size is 4, and its maximum is 4"):
        backend.scale(NAME, deadline=soon(), by=1)
    assert not api.writes


def test_a_size_that_is_refused_is_told_of_once(api: Api, backend: Kubernetes) -> None:
    def refused(by: int) -> None:
        with pytest.raises(Refused):
            backend.scale(NAME, deadline=soon(), by=by)

    api.change(NAME, size=4)
    refused(1)
    refused(2)
    (event,) = api.events
    assert event["involvedObject"]["kind"] == "MiniCluster"
    assert (event["type"], event["reason"]) == ("Warning", "ResizeRefused")
    assert event["message"].endswith("its size is 4, and its maximum is 4")
    # Another reason is another event, and is told of what the MiniCluster belongs to.
    owner = {"apiVersion": "a/v1", "kind": "Ensemble", "name": "e", "uid": "u", "controller": True}
    api.resources[NAME]["metadata"] |= {"ownerReferences": [owner], "deletionTimestamp": "now"}
    refused(-1)
    assert api.events[1]["involvedObject"] == {
        "apiVersion": "a/v1",
        "kind": "Ensemble",
        "name": "e",
        "namespace": "default",
        "uid": "u",
    }
    # Without the right to it there is no event, and the answer is the same.
    api.events_allowed = False
    api.change(NAME, size=4)
    api.resources[NAME]["metadata"]["uid"] = "other"
    refused(1)
    assert len(api.events) == 2


def test_the_size_that_it_has_is_granted_and_not_written(api: Api, backend: Kubernetes) -> None:
    assert backend.scale(NAME, deadline=soon(), to=2) == Grant(2, 2)
    assert not api.writes


def test_names_without_a_namespace_are_of_the_clients_own(backend: Kubernetes) -> None:
    assert backend.canonical("mini") == NAME
    assert backend.canonical("other/mini") == "other/mini"


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"size": 2}, {}, Size(2, 1, 2)),
        ({"size": 2, "minSize": 0, "maxSize": 0}, {}, Size(2, 1, 2)),
        ({"size": 2, "maxSize": 6}, {"maximumSize": 4}, Size(2, 1, 4)),
        ({"size": 2, "maxSize": 3}, {"maximumSize": 4}, Size(2, 1, 3)),
        ({"size": 2}, {"maximumSize": 4}, Size(2, 1, 4)),
        ({}, {}, Size(1, 1, 1)),
    ],
)
def test_a_bound_that_is_not_set_is_the_operators(
    api: Api, backend: Kubernetes, spec: dict[str, int], status: dict[str, int], expected: Size
) -> None:
    api.put(NAME, spec, status)
    assert backend.size(NAME, soon()) == expected


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"size": 2, "minSize": 5, "maxSize": 4}, "minimum size of 5, above its maximum of 4"),
        ({"size": 2, "minSize": -1, "maxSize": 4}, "minimum size of -1"),
        ({"size": 2, "minSize": "1"}, "a minSize of '1': expected a number"),
    ],
)
def test_bounds_of_a_minicluster_that_make_no_sense_are_refused(
    api: Api, backend: Kubernetes, spec: dict[str, object], sentence: str
) -> None:
    api.put(NAME, spec)
    with pytest.raises(Refused, match=sentence):
        backend.scale(NAME, deadline=soon(), to=2)
    assert not api.writes


def test_a_conflict_is_tried_again_with_the_size_of_then(api: Api, backend: Kubernetes) -> None:
    def grow_first(name: str) -> None:
        api.before_write = lambda name: None
        api.change(name, size=3)

    api.before_write = grow_first
    assert backend.scale(NAME, deadline=soon(), by=1) == Grant(3, 4)
    assert api.writes == [4]


def test_a_conflict_is_tried_again_with_the_bounds_of_then(api: Api, backend: Kubernetes) -> None:
    def lower_first(name: str) -> None:
        api.before_write = lambda name: None
        api.change(name, maxSize=3)

    api.before_write = lower_first
    assert backend.scale(NAME, deadline=soon(), to=4) == Grant(2, 3)
    assert api.writes == [3]


def test_a_change_of_anything_is_a_conflict(api: Api, backend: Kubernetes) -> None:
    changes = iter([{"tasks": 3}, {"minSize": 2}])

    def change(name: str) -> None:
        api.change(name, **next(changes, {}))
        if api.resources[name]["spec"].get("minSize") == 2:
            api.before_write = lambda name: None

    api.before_write = change
    assert backend.scale(NAME, deadline=soon(), by=1) == Grant(2, 3)
    assert len([call for call in api.calls if call.startswith("PUT")]) == 3


def test_conflicts_without_an_end_are_given_up(
    api: Api, backend: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_ensemble.k8s.minicluster._BACKOFF_SECONDS", 0.001)
    api.before_write = lambda name: api.change(name)
    with pytest.raises(Contended, match="others changed it at the same time"):
        backend.scale(NAME, deadline=soon(), by=1)
    assert not api.writes


def test_after_the_deadline_nothing_is_written(api: Api, backend: Kubernetes) -> None:
    with pytest.raises(Contended):
        backend.scale(NAME, deadline=time.monotonic(), by=1)
    assert not api.writes


@settings(max_examples=settings().max_examples // 2)  # each makes an HTTP client
@given(
    start=st.integers(0, 12),
    changes=st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 9), SIZES), max_size=3),
    by=SIZES,
    to=st.none() | SIZES,
)
@example(start=2, changes=[(0, 0, 2)], by=-1, to=None)
def test_no_size_outside_of_the_bounds_is_ever_written(
    start: int, changes: list[tuple[int, int, int]], by: int, to: int | None
) -> None:
    api = Api()
    api.put(NAME, {"size": start, "minSize": 1, "maxSize": 5})
    left = list(changes)

    def interfere(name: str) -> None:
        if left:
            minimum, maximum, size = left.pop(0)
            api.change(name, minSize=minimum, maxSize=maximum, size=size)

    api.before_write = interfere
    try:
        Kubernetes(api.client()).scale(NAME, deadline=soon(), to=to, by=by if to is None else None)
    except BackendError:
        assert not api.writes
    spec = api.resources[NAME]["spec"]
    # Without a `maxSize` it may shrink alone.
    most = spec["maxSize"] or max(start, *(size for _, _, size in changes))
    for size in api.writes:
        assert max(spec["minSize"], 1) <= size <= most


def test_a_minicluster_that_is_not_there_is_named(backend: Kubernetes) -> None:
    with pytest.raises(UnknownCluster, match="there is no MiniCluster 'default/nobody'"):
        backend.size("default/nobody", soon())


def test_a_minicluster_that_goes_away_before_the_write_is_named(
    api: Api, backend: Kubernetes
) -> None:
    api.before_write = lambda name: api.resources.clear()
    with pytest.raises(UnknownCluster, match="there is no MiniCluster"):
        backend.scale(NAME, deadline=soon(), by=1)


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        (httpx2.ConnectError("refused"), Unavailable, "server does not answer: refused"),
        (httpx2.ReadTimeout("timed out"), Unavailable, "server does not answer: timed out"),
        (failure(500, "InternalError", "etcd is down"), Unavailable, "HTTP status 500: etcd"),
        (failure(429, "TooManyRequests", "slow down"), Unavailable, "HTTP status 429: slow"),
        (failure(403, "Forbidden", "no rule"), Refused, "does not let this service .*: no rule"),
        (failure(401, "Unauthorized", "who"), Refused, "does not let this service .*: who"),
        (failure(422, "Invalid", "too many"), Refused, "refuses MiniCluster .*: too many"),
        (httpx2.Response(502, text="<html>"), Unavailable, "HTTP status 502"),
        (httpx2.Response(503), Unavailable, "HTTP status 503 with 0 bytes of no content type"),
        (httpx2.Response(502, content=b"{", headers=JSON), Unavailable, "HTTP status 502 with 1"),
        (httpx2.Response(200, html="<html>sign in"), Unavailable, "of text/html.*cannot be read"),
        (httpx2.Response(200, content=b"", headers=JSON), Unavailable, "which cannot be read"),
        (httpx2.Response(200, content=b"{", headers=JSON), Unavailable, "which cannot be read"),
        (
            httpx2.Response(404, text="404 page not found"),
            Refused,
            "Flux Operator is not installed",
        ),
        (ConfigError("exec plugin returned 1"), Unavailable, "no credentials .*: exec plugin"),
        (FileNotFoundError(2, "No such file"), Unavailable, "no credentials .*: .*No such file"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_of_the_api_server_has_its_sentence(
    api: Api,
    backend: Kubernetes,
    fault: object,
    kind: type[BackendError],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flux_ensemble.k8s.minicluster._FORBIDDEN_SECONDS", 0)
    monkeypatch.setattr("flux_ensemble.k8s.minicluster._FORBIDDEN_FINAL_SECONDS", 0)
    api.fault = fault  # type: ignore[assignment]
    for ask in (
        lambda: backend.size(NAME, soon()),
        lambda: backend.scale(NAME, deadline=soon(), by=1),
    ):
        with pytest.raises(kind, match=sentence):
            ask()


def test_without_a_cluster_the_sentence_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(
        BackendError, match=r"there is no Kubernetes cluster to talk to .*KUBECONFIG"
    ):
        Kubernetes()


@pytest.mark.parametrize("code", [401, 403])
def test_an_api_server_that_has_just_started_is_asked_again(
    api: Api, backend: Kubernetes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recover(seconds: float) -> None:
        api.fault = None

    monkeypatch.setattr("flux_ensemble.k8s.minicluster.time.sleep", recover)
    api.fault = failure(code, "Forbidden", "RBAC: clusterrole not found")
    assert backend.scale(NAME, deadline=soon(), by=1) == Grant(2, 3)
    # Between the reading and the writing, too.

    def forbid(name: str) -> None:
        api.before_write = lambda name: None
        api.fault = failure(code, "Forbidden", "RBAC: clusterrole not found")

    api.before_write = forbid
    assert backend.scale(NAME, deadline=soon(), by=1) == Grant(3, 4)


def test_what_is_forbidden_is_not_refused_for_good_before_a_minute_is_over(
    api: Api, backend: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a cluster whose API server starts slowly would never get its size."""
    clock = [1000.0]
    module = "flux_ensemble.k8s.minicluster"
    monkeypatch.setattr(f"{module}._FORBIDDEN_SECONDS", 0)
    monkeypatch.setattr(f"{module}.time.monotonic", lambda: clock[0])
    forbidden = failure(403, "Forbidden", "no rule")

    def ask(t: float, kind: type[BackendError]) -> None:
        clock[0] = t
        with pytest.raises(kind, match="does not let this service"):
            backend.scale(NAME, deadline=9999, by=1)

    api.fault = forbidden
    ask(1000, Unavailable)
    ask(1059, Unavailable)
    ask(1061, Refused)
    # One that was allowed meanwhile has another minute.
    api.fault = None
    backend.size(NAME, 9999)
    api.fault = forbidden
    ask(1062, Unavailable)


def test_a_minicluster_that_is_being_deleted_keeps_its_size(api: Api, backend: Kubernetes) -> None:
    api.resources[NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for by in (1, -1):
        with pytest.raises(Refused, match="is being deleted"):
            backend.scale(NAME, deadline=soon(), by=by)
    assert not api.writes
    assert backend.size(NAME, soon()) == Size(2, 1, 4)


def test_requests_are_not_in_the_log(
    api: Api, backend: Kubernetes, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("httpx2").setLevel(logging.NOTSET)
    caplog.set_level(logging.INFO)
    config = KubeConfig.from_server("http://127.0.0.1:9", namespace="default")
    config.users, config.contexts["default"].user = {"u": User()}, "u"
    connect(config).close()
    backend.size(NAME, soon())
    assert "HTTP Request" not in caplog.text


PLUGIN = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/%s, command: %s}}}]
"""


def test_a_program_for_credentials_of_v1_is_run(
    api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "plugin"
    program.write_text('#!/bin/sh\necho \'{"status": {"token": "secret"}}\'\n')
    program.chmod(0o755)
    (tmp_path / "config").write_text(PLUGIN % ("v1", program))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    client = connect()
    with pytest.raises(httpx2.ConnectError):
        # It gets as far as the connection: the program has given its token.
        client.get(MiniCluster, "mini")
    client.close()


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program", "/bin/true"])
def test_a_program_for_credentials_that_fails_has_its_sentence(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(PLUGIN % ("v1beta1", program))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    backend = Kubernetes()
    with pytest.raises(Unavailable, match="there are no credentials for the Kubernetes API server"):
        backend.size(NAME, soon())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "while parsing"),
        ("[]", "has no attribute"),
        ("{clusters: []}", "contexts.* is missing"),
        (PLUGIN.replace("user: u}", "user: nobody}") % ("v1", "x"), "nobody.* is missing"),
        (PLUGIN % ("v1alpha9", "x"), ""),
    ],
)
def test_a_configuration_that_cannot_be_used_has_its_sentence(
    config: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    if not sentence:
        # It is the first request that needs the credentials.
        with pytest.raises(Unavailable, match="v1alpha9 not implemented"):
            Kubernetes().size(NAME, soon())
        return
    with pytest.raises(BackendError, match=f"(?s)no Kubernetes cluster to talk to .*{sentence}"):
        Kubernetes()


def test_a_service_account_without_the_address_of_the_cluster_has_its_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("token", "namespace"):
        (tmp_path / name).write_text("x")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    original = KubeConfig.from_service_account
    monkeypatch.setattr(
        KubeConfig, "from_service_account", lambda service_account: original(tmp_path)
    )
    with pytest.raises(BackendError, match=r"KUBERNETES_SERVICE_HOST.* is missing"):
        Kubernetes()


#: Threads that read what lightkube has not read in this process before, again and again.
READ_AT_ONCE = """
import importlib, sys, threading
import httpx2
from lightkube.core import decoders, internal_models
from lightkube.core.generic_client import BasicRequest
from lightkube.generic_resource import create_namespaced_resource
from flux_ensemble.k8s.api_server import _Requests

sys.setswitchinterval(1e-6)
kind = create_namespaced_resource("a.b", "v1", "A", "as")
status, body = (409, {"kind": "Status", "code": 409, "message": "x", "details": {"name": "a"}})
page = {"items": [{"metadata": {"name": "a"}}], "metadata": {"resourceVersion": "7"}}
requests = _Requests.__new__(_Requests)

def answer(status, body):
    return httpx2.Response(status, json=body, request=httpx2.Request("GET", "http://a"))

def read(barrier):
    barrier.wait()
    try:
        if sys.argv[1] == "refusal":
            _Requests.raise_for_status(answer(status, body))
        else:
            request = BasicRequest("GET", "", params={}, response_type=kind)
            assert requests.handle_response("list", answer(200, page), request)[1] == "7"
    except httpx2.HTTPStatusError as error:
        assert error.status.code == 409

for _ in range(100):
    importlib.reload(internal_models.meta_v1)
    importlib.reload(decoders)
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(barrier,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize("what", ["refusal", "list"])
def test_threads_may_read_the_first_answers_of_an_api_server_at_once(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ_AT_ONCE, what], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
