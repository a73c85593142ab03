"""The typed service and what surrounds it: bounds, health, reflection, where it may listen."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from rpc_servers import PATIENCE, Failing, Held, known_channel, known_client, serving, table

from flux_ensemble.k8s.grpc import instances
from flux_ensemble.k8s.grpc.admission import AdmittedCall, Bound, Limits
from flux_ensemble.k8s.grpc.backend import Backend, DryRun, Refused, Unavailable
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.operations import Operations
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
from flux_ensemble.k8s.grpc.server import SERVICES, ServerError, is_loopback


@pytest.fixture
def stub() -> Iterator[api.EnsembleServiceStub]:
    """A stub of a dry run with the clusters alpha and beta, of 1 to 5 nodes."""
    with (
        serving(DryRun(1, 5), ("alpha", "beta")) as target,
        known_channel(target) as channel,
    ):
        yield api.EnsembleServiceStub(channel)


def scale(**size: int) -> pb.ActionRequest:
    return pb.ActionRequest(cluster="alpha", scale=pb.Scale(**size))


def failure(method: Any, request: Any, timeout: float | None = PATIENCE) -> tuple[Any, str]:
    """The status code and the details of a request that must fail."""

    def ask() -> None:
        # A stream fails when it is read.
        for _ in method(request, timeout=timeout):
            pass

    with pytest.raises(grpc.RpcError) as caught:
        ask()
    return caught.value.code(), caught.value.details()


def test_a_size_is_changed_to_a_number_and_by_a_number(stub: Any) -> None:
    assert stub.Action(scale(to=3)).scaled == pb.Scaled(before=1, size=3)
    assert stub.Action(scale(by=1)).scaled == pb.Scaled(before=3, size=4)
    assert stub.Action(scale(by=-2)).scaled == pb.Scaled(before=4, size=2)
    assert stub.Action(scale(to=2)).scaled == pb.Scaled(before=2, size=2)


def test_what_is_granted_is_clamped_to_the_bounds(stub: Any) -> None:
    assert stub.Action(scale(to=99)).scaled.size == 5
    assert stub.Action(scale(by=-99)).scaled.size == 1


BAD: dict[str, tuple[str, Any, grpc.StatusCode, str]] = {
    "size below 1": (
        "Action", scale(to=0), grpc.StatusCode.INVALID_ARGUMENT, "a size must be 1 or more, not 0",
    ),
    "change of 0": (
        "Action", scale(by=0), grpc.StatusCode.INVALID_ARGUMENT, "change of size must not be 0",
    ),
    "beyond the bounds": (
        "Action", scale(by=-1), grpc.StatusCode.FAILED_PRECONDITION, "its minimum is 1",
    ),
    "no size": ("Action", scale(), grpc.StatusCode.INVALID_ARGUMENT, "scale.to or scale.by"),
    "no action": (
        "Action", pb.ActionRequest(cluster="alpha"), grpc.StatusCode.INVALID_ARGUMENT,
        "the request has no scale or ensemble",
    ),
    "action that is no JSON": (
        "Action",
        pb.ActionRequest(cluster="alpha", ensemble=pb.EnsembleAction(name="a", action="{")),
        grpc.StatusCode.INVALID_ARGUMENT, "action is not JSON",
    ),
    "params that are no object": (
        "Submit", pb.SubmitRequest(cluster="alpha", ensemble="a", group="b", params="[1]"),
        grpc.StatusCode.INVALID_ARGUMENT, "params must be a JSON object, not '[1]'",
    ),
    "no group": (
        "Submit", pb.SubmitRequest(cluster="alpha", ensemble="a"),
        grpc.StatusCode.INVALID_ARGUMENT, "the request has no group",
    ),
    "no ensemble": (
        "Log", pb.LogRequest(cluster="alpha"), grpc.StatusCode.INVALID_ARGUMENT, "no ensemble",
    ),
    "unknown cluster": (
        "Status", pb.StatusRequest(cluster="nobody"), grpc.StatusCode.NOT_FOUND,
        "no cluster is named 'nobody' (clusters: alpha, beta)",
    ),
    "no cluster": (
        "Status", pb.StatusRequest(), grpc.StatusCode.INVALID_ARGUMENT, "names no cluster",
    ),
    "no Flux": (
        "Submit", pb.SubmitRequest(cluster="alpha", ensemble="a", group="b"),
        grpc.StatusCode.FAILED_PRECONDITION, "--cluster NAME=URI gives it one",
    ),
    "no Flux to log": (
        "Log", pb.LogRequest(cluster="alpha", ensemble="a"),
        grpc.StatusCode.FAILED_PRECONDITION, "--cluster NAME=URI gives it one",
    ),
    "no ensemble to pause": (
        "Pause", pb.PauseRequest(cluster="alpha"), grpc.StatusCode.INVALID_ARGUMENT, "no ensemble",
    ),
    "no Flux to resume in": (
        "Resume", pb.ResumeRequest(cluster="alpha", ensemble="a"),
        grpc.StatusCode.FAILED_PRECONDITION, "--cluster NAME=URI gives it one",
    ),
    "metrics of an unknown cluster": (
        "Metrics", pb.MetricsRequest(cluster="nobody", ensemble="a"), grpc.StatusCode.NOT_FOUND,
        "no cluster is named 'nobody'",
    ),
    "load where no client may": (
        "Load", pb.LoadRequest(cluster="alpha", document="jobs: []", cwd="/"),
        grpc.StatusCode.PERMISSION_DENIED, "'grpc start --allow-load' does",
    ),
    "load into an unknown cluster": (
        "Load", pb.LoadRequest(cluster="nobody", document="jobs: []", cwd="/"),
        grpc.StatusCode.NOT_FOUND, "no cluster is named 'nobody'",
    ),
    "report of an unknown cluster": (
        "Report", pb.ReportRequest(cluster="nobody"), grpc.StatusCode.NOT_FOUND,
        "no cluster is named 'nobody'",
    ),
    "large message": (
        "Status", pb.StatusRequest(cluster="a" * (5 << 20)),
        grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "request_", "code", "sentence"), BAD.values(), ids=BAD)
def test_bad_input_has_its_code_and_sentence(
    stub: Any, method: str, request_: Any, code: grpc.StatusCode, sentence: str
) -> None:
    given, details = failure(getattr(stub, method), request_)
    assert (given, sentence in details) == (code, True), details


def test_an_empty_name_is_the_only_cluster() -> None:
    with serving(DryRun(), ("alpha",)) as target, known_channel(target) as channel:
        assert api.EnsembleServiceStub(channel).Status(pb.StatusRequest()).cluster == "alpha"


def test_a_size_that_is_out_of_reach_is_left_out_of_status_with_the_reason() -> None:
    clusters = ("alpha",)
    for fault in (Unavailable("it is down"), Refused("minimum above maximum")):
        with (
            serving(Failing(fault), clusters) as target,
            known_channel(target) as channel,
        ):
            # Nothing else is known of this cluster: it has no Flux instance either.
            code, details = failure(
                api.EnsembleServiceStub(channel).Status, pb.StatusRequest(cluster="alpha")
            )
        assert code is grpc.StatusCode.UNAVAILABLE
        assert str(fault) in details


@pytest.mark.parametrize("method", ["Status", "Action"])
def test_a_request_ends_at_the_clients_deadline_though_the_back_end_hangs(method: str) -> None:
    held = Held()
    with serving(held) as target, known_channel(target) as channel:
        stub = api.EnsembleServiceStub(channel)
        request = scale(by=1) if method == "Action" else pb.StatusRequest(size_only=True)
        code, _ = failure(getattr(stub, method), request, timeout=0.3)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        held.release.set()


def test_a_request_without_a_deadline_gets_one() -> None:
    held = Held()
    limits = Limits(default_seconds=0.3)
    with serving(held, limits=limits) as target, known_channel(target) as channel:
        stub = api.EnsembleServiceStub(channel)
        code, details = failure(stub.Action, scale(by=1), timeout=None)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "in time" in details or "not done within 0.3 seconds" in details
        held.release.set()


def test_a_deadline_that_is_too_far_is_drawn_nearer() -> None:
    held = Held()
    with (
        serving(held, limits=Limits(most_seconds=0.3)) as target,
        known_channel(target) as channel,
    ):
        code, _ = failure(api.EnsembleServiceStub(channel).Action, scale(by=1))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        held.release.set()


def test_more_requests_than_allowed_are_refused_and_health_still_answers() -> None:
    held = Held()
    with (
        serving(held, limits=Limits(requests=Bound(2, 2, 2))) as target,
        known_channel(target) as channel,
        ThreadPoolExecutor(2) as pool,
    ):
        stub = api.EnsembleServiceStub(channel)
        open_ = [pool.submit(stub.Action, scale(by=1), timeout=PATIENCE) for _ in range(2)]
        for _ in open_:
            assert held.entered.acquire(timeout=PATIENCE)
        code, details = failure(stub.Action, scale(by=1))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "has 2 requests open, which is all it takes" in details
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == 1
        held.release.set()
        assert [one.result(PATIENCE).scaled.size for one in open_] == [2, 2]
        assert stub.Action(scale(by=1)).scaled.size == 2


def test_the_server_stops_though_a_call_of_the_back_end_hangs() -> None:
    held = Held()
    with serving(held) as target, known_channel(target) as channel:
        stub = api.EnsembleServiceStub(channel)
        call = stub.Action.future(scale(by=1), timeout=PATIENCE)
        assert held.entered.acquire(timeout=PATIENCE)
        call.cancel()
    # `serving` has waited for its end.
    assert any(thread.name.startswith("the back end") for thread in threading.enumerate())
    held.release.set()


def test_clients_that_leave_just_when_their_answer_comes_are_no_errors_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Both sides have the deadline: some of the answers meet a request that is over.
    for _ in range(6):
        held = Held()
        with serving(held) as target, known_channel(target) as channel:
            action = api.EnsembleServiceStub(channel).Action
            calls = [action.future(scale(by=1), timeout=0.05 + 0.002 * n) for n in range(40)]
            codes = {call.exception().code() for call in calls}
            held.release.set()
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_health_knows_both_services(stub: Any) -> None:
    with serving(DryRun()) as target, known_channel(target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", *SERVICES):
            assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == 1
        code, _ = failure(health.Check, health_pb2.HealthCheckRequest(service="other"))
        assert code is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services_and_their_files() -> None:
    with serving(DryRun()) as target, known_channel(target) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        listed = next(reflection.ServerReflectionInfo(iter([request])))
        names = {service.name for service in listed.list_services_response.service}
        assert {*SERVICES, "grpc.health.v1.Health"} <= names
        for name in SERVICES:
            request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)
            found = next(reflection.ServerReflectionInfo(iter([request])))
            assert found.file_descriptor_response.file_descriptor_proto


def test_plaintext_for_other_machines_has_to_be_written_out() -> None:
    with (
        pytest.raises(ServerError, match="can be reached from other machines"),
        serving_at("0.0.0.0"),
    ):
        pass
    with serving_at("0.0.0.0", insecure=True):
        pass


def test_documents_are_loaded_for_clients_that_say_who_they_are() -> None:
    with (
        pytest.raises(ServerError, match="--allow-load is for clients that say who they are"),
        serving(DryRun(), allow_load=True, insecure=True, token=None),
    ):
        pass
    with (
        serving(DryRun(), allow_load=True, insecure=True) as target,
        known_channel(target) as channel,
    ):
        load = api.EnsembleServiceStub(channel).Load
        code, details = failure(load, pb.LoadRequest(document="jobs: []", cwd="/"))
        assert (code, "gives it one" in details) == (grpc.StatusCode.FAILED_PRECONDITION, True)


class Asked:
    """A connection to an ensemble service that notes what it is asked."""

    requests: ClassVar[list[tuple[str, Any]]] = []
    answers: ClassVar[dict[str, Any]] = {
        "metrics": {"n": {"a-fom": 3}, "mean": {"a-fom": None}},
        "pause": {"state": "paused"},
        "resume": {"state": "running"},
        "load": {"name": "demo", "state": "running"},
        "status": {
            "ensembles": [
                {
                    "name": "demo",
                    "groups": {"a": {"attempts": 7, "gave-up": 2, "interrupted": 3}},
                    "members": {},
                    "pools": {
                        "pool": {
                            "min": 1,
                            "max": 2,
                            "runs": "tasks",
                            "ended": 3,
                            "lost": 1,
                            "members": [
                                {
                                    "name": "pool.3",
                                    "state": "starting",
                                    "reason": "",
                                    "nodes": None,
                                    "cores": None,
                                    "t_up": None,
                                    "t_expires": None,
                                    "jobs": 0,
                                    "job": 2**60 + 1,
                                    "uri": None,
                                }
                            ],
                        }
                    },
                }
            ],
        },
        "submit": {"ids": [17, 17], "members": ["pool.0", "pool.1"], "waiting": 3},
        "action": {"firing": 4, "ids": [17], "members": ["pool.0"], "waiting": 0},
    }

    def __init__(self, *, uri: str | None) -> None:
        self._answer: Any = None

    def send(self, op: str, payload: Any, *, stream: bool = False) -> Asked:
        self.requests.append((op, payload))
        self._answer = json.loads(json.dumps(self.answers[op]))
        return self

    def wait_for(self, seconds: float) -> None:
        """It is there."""

    def get(self) -> Any:
        return self._answer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[RpcClient]:
    """A client of a service whose cluster answers what `Asked` does."""
    monkeypatch.setattr(instances, "Client", Asked)
    monkeypatch.setattr(Asked, "requests", [])
    clusters = table(("alpha",), has_flux=True)
    with (
        serving(None, clusters, allow_load=True, insecure=True) as target,
        known_client(target, timeout=PATIENCE) as client,
    ):
        yield client


def test_metrics_pause_and_resume_are_the_requests_of_the_ensemble_service(
    asked: RpcClient,
) -> None:
    assert asked.metrics("demo") == Asked.answers["metrics"]
    assert (asked.pause("demo"), asked.resume("demo")) == ("paused", "running")
    assert Asked.requests == [(op, {"name": "demo"}) for op in ("metrics", "pause", "resume")]


def test_a_document_is_loaded_as_it_is_sent(asked: RpcClient) -> None:
    text = "jobs: [{name: a, command: 'true'}]"
    assert asked.load(text, cwd="/scratch", environment={"LANG": "C"}, name="demo") == "demo"
    payload = {"text": text, "name": "demo", "cwd": "/scratch", "environment": {"LANG": "C"}}
    assert Asked.requests == [("load", payload)]
    asked.load(text, cwd="/scratch", environment={"LANG": "C"}, name="demo", workers=2)
    assert Asked.requests[1] == ("load", {**payload, "workers": 2})


def test_a_path_that_is_not_absolute_is_refused(asked: RpcClient) -> None:
    with pytest.raises(RpcError, match="cwd: expected an absolute path, not 'here'"):
        asked.load("jobs: []", cwd="here", environment={})
    assert Asked.requests == []


def test_the_status_has_the_attempts_and_the_jobs_that_gave_up(asked: RpcClient) -> None:
    (ensemble,) = asked.status().ensembles
    counts = ensemble.groups["a"]
    assert (counts.attempts, counts.gave_up, counts.interrupted) == (7, 2, 3)


def test_the_status_has_the_clusters_of_an_ensemble(asked: RpcClient) -> None:
    (ensemble,) = asked.status().ensembles
    pool = ensemble.pools["pool"]
    assert (pool.min, pool.max, pool.runs, pool.ended, pool.lost) == (1, 2, "tasks", 3, 1)
    (cluster,) = pool.members
    assert (cluster.name, cluster.state, cluster.job) == ("pool.3", "starting", 2**60 + 1)
    assert not cluster.HasField("nodes")


def test_who_submits_is_told_the_cluster_of_each_job(asked: RpcClient) -> None:
    ids = asked.submit("demo", "a")
    assert (ids, ids.members, ids.waiting) == ([17, 17], ["pool.0", "pool.1"], 3)
    assert asked.action("demo", {"name": "submit", "label": "a"}) == Asked.answers["action"]


def test_a_port_that_is_taken_is_refused() -> None:
    with serving(DryRun()) as target:
        port = int(target.rpartition(":")[2])
        with pytest.raises(ServerError, match=f"cannot listen at localhost:{port}"):
            serving(DryRun(), port=port).__enter__()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_what_other_machines_cannot_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def serving_at(host: str, *, backend: Backend | None = None, insecure: bool = False) -> Any:
    return serving(backend, host=host, insecure=insecure)


def test_a_status_that_is_given_up_at_once_leaves_nothing_behind() -> None:
    async def main() -> None:
        operations = Operations(table(("alpha",)), DryRun())
        call = AdmittedCall(
            time.monotonic() + PATIENCE, RequestProblem(grpc.StatusCode.UNKNOWN, ""), None
        )
        status = asyncio.create_task(operations.status(call, "alpha", None))
        # By then its parts are about to begin.
        await asyncio.sleep(0)
        status.cancel()
        await asyncio.wait([status])
        operations.close()

    asyncio.run(main())
    # What was never awaited is a warning, and a warning is an error in these tests.
    gc.collect()
