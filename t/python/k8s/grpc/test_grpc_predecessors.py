"""The predecessors' protocol, spoken by a client that knows nothing of our code.

Its messages are made here, from the names and numbers that ensemble-python and the
ensemble-operator use, in a pool of their own: what is tested is what goes over the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from patience import PATIENCE
from rpc_servers import Failing, serving

from flux_ensemble.k8s.grpc.backend import Contended, DryRun, Unavailable

PACKAGE = "convergedcomputing.org.grpc.v1"
UNSPECIFIED, SUCCESS, ERROR, DENIED, EXISTS = range(5)


def classes() -> dict[str, Any]:
    """The three messages, as classes."""
    string = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    enum = descriptor_pb2.FieldDescriptorProto.TYPE_ENUM
    file = descriptor_pb2.FileDescriptorProto(
        name="ensemble-service.proto", package=PACKAGE, syntax="proto3"
    )
    fields = {
        "StatusRequest": {"member": 1, "name": 2},
        "ActionRequest": {"member": 1, "name": 2, "action": 3, "payload": 4},
        "Response": {"payload": 1},
    }
    for message, numbers in fields.items():
        one = file.message_type.add(name=message)
        for name, number in numbers.items():
            one.field.add(name=name, number=number, type=string, label=1)
    response = file.message_type[2]
    kinds = response.enum_type.add(name="ResultType")
    for number, name in enumerate(["UNSPECIFIED", "SUCCESS", "ERROR", "DENIED", "EXISTS"]):
        kinds.value.add(name=name, number=number)
    kind = f".{PACKAGE}.Response.ResultType"
    response.field.add(name="status", number=4, type=enum, type_name=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in fields
    }


MESSAGES = classes()


class Predecessor:
    """Their client: it opens a channel, sends one request, and looks at the status."""

    def __init__(self, target: str) -> None:
        self._target = target

    def action(self, name: str, action: str, payload: Any, member: str = "miniclusters") -> Any:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        request = MESSAGES["ActionRequest"](member=member, name=name, action=action, payload=text)
        return self._send("RequestAction", request)

    def status(self, name: str, member: str = "minicluster") -> Any:
        return self._send("RequestStatus", MESSAGES["StatusRequest"](member=member, name=name))

    def _send(self, method: str, request: Any) -> Any:
        with grpc.insecure_channel(self._target) as channel:
            call = channel.unary_unary(
                f"/{PACKAGE}.EnsembleOperator/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=MESSAGES["Response"].FromString,
            )
            return call(request, timeout=PATIENCE)


@pytest.fixture
def client() -> Iterator[Predecessor]:
    """A client of a dry run with the clusters alpha and beta, of 1 to 5 nodes."""
    with serving(DryRun(1, 5), ("alpha", "beta")) as target:
        yield Predecessor(target)


#: What ensemble-python puts into every payload.
THEIRS = {"version": "v1alpha2", "group": "flux-framework.org"}


def size(client: Predecessor, name: str = "alpha") -> int:
    nodes: int = json.loads(client.status(name).payload)["size"]["nodes"]
    return nodes


def test_grow_and_shrink_change_the_size(client: Predecessor) -> None:
    grown = client.action("alpha", "grow", {**THEIRS, "grow": 3})
    assert (grown.status, json.loads(grown.payload)) == (SUCCESS, {"before": 1, "size": 4})
    shrunk = client.action("alpha", "shrink", {**THEIRS, "shrink": 2})
    assert (shrunk.status, json.loads(shrunk.payload)) == (SUCCESS, {"before": 4, "size": 2})
    assert (size(client), size(client, "beta")) == (2, 1)


def test_a_change_is_of_one_node_by_default(client: Predecessor) -> None:
    assert client.action("alpha", "grow", THEIRS).status == SUCCESS
    assert client.action("alpha", "grow", {**THEIRS, "grow": None}).status == SUCCESS
    assert client.action("alpha", "grow", "").status == SUCCESS
    assert size(client) == 4


def test_a_shrink_may_be_given_as_a_negative_number(client: Predecessor) -> None:
    client.action("alpha", "grow", {"grow": 4})
    client.action("alpha", "shrink", {"shrink": -2})
    assert size(client) == 3


def test_a_change_stops_at_the_bounds_and_is_then_denied(client: Predecessor) -> None:
    assert client.action("alpha", "grow", {"grow": 100}).status == SUCCESS
    assert size(client) == 5
    denied = client.action("alpha", "grow", {"grow": 1})
    assert denied.status == DENIED
    assert json.loads(denied.payload) == {
        "error": "cluster 'alpha' cannot grow: its size is 5, and its maximum is 5"
    }


def test_status_is_json_with_what_is_known(client: Predecessor) -> None:
    response = client.status("alpha")
    assert response.status == SUCCESS
    payload = json.loads(response.payload)
    assert payload["size"] == {"nodes": 1, "minimum": 1, "maximum": 5}
    assert "no connection to the Flux instance of cluster 'alpha'" in payload["flux_error"]
    # The name before is there for one release.
    assert payload["cluster"] == payload["member"] == "alpha"


@pytest.mark.parametrize("kind", ["minicluster", "miniclusters", "flux"])
def test_the_types_of_clusters_that_the_predecessors_have_are_known(
    client: Predecessor, kind: str
) -> None:
    assert client.status("alpha", kind).status == SUCCESS


BAD = {
    "no JSON": ("alpha", "grow", "{grow: 1", "payload is not JSON"),
    "no number of JSON": ("alpha", "grow", '{"grow": NaN}', "payload is not JSON"),
    "no object": ("alpha", "grow", [1], "payload must be a JSON object, not '[1]'"),
    "deep": ("alpha", "grow", "[" * 100_000, "payload is not JSON"),
    "zero": ("alpha", "grow", {"grow": 0}, "expected a number of nodes, 1 or more, not 0"),
    "zero shrink": ("alpha", "shrink", {"shrink": 0}, "1 or more, not 0"),
    "negative": ("alpha", "grow", {"grow": -2}, "expected a number of nodes, 1 or more, not -2"),
    "fraction": ("alpha", "grow", {"grow": 1.5}, "1 or more, not 1.5"),
    "text": ("alpha", "shrink", {"shrink": "2"}, "1 or more, not '2'"),
    "boolean": ("alpha", "grow", {"grow": True}, "1 or more, not True"),
    "huge": ("alpha", "shrink", {"shrink": 10**30}, "cannot shrink"),
    "group": ("alpha", "grow", {"group": "apps"}, "group: expected 'flux-framework.org'"),
    "version": ("alpha", "grow", {"version": "v1"}, "version: expected 'v1alpha2', not 'v1'"),
    "action": ("alpha", "dance", {}, "unknown action 'dance' (actions: grow, shrink, submit)"),
    "no action": ("alpha", "", {}, "unknown action ''"),
    "cluster": ("nobody", "grow", {}, "no cluster is named 'nobody' (clusters: alpha, beta)"),
    "no cluster": ("", "grow", {}, "the request names no cluster (clusters: alpha, beta)"),
    "no name": ("a b", "grow", {}, "'a b' is not a cluster's name"),
    "submit without": ("alpha", "submit", {}, "ensemble: expected a string, not None"),
    "submit more": (
        "alpha", "submit", {"ensemble": "a", "group": "b", "x": 1}, "unknown key 'x' (keys: "
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "action", "payload", "sentence"), BAD.values(), ids=BAD)
def test_bad_input_is_answered_with_an_error_and_its_sentence(
    client: Predecessor, name: str, action: str, payload: Any, sentence: str
) -> None:
    response = client.action(name, action, payload)
    assert response.status in (ERROR, DENIED)
    assert sentence in json.loads(response.payload)["error"]
    assert size(client) == 1


def test_an_unknown_type_of_cluster_is_an_error(client: Predecessor) -> None:
    for response in (client.status("alpha", "pod"), client.action("alpha", "grow", {}, "pod")):
        assert response.status == ERROR
        assert "unknown type of cluster 'pod'" in json.loads(response.payload)["error"]


@pytest.mark.parametrize("fault", [Unavailable("it is down"), Contended("try again")])
def test_a_back_end_that_fails_is_an_error(fault: Exception) -> None:
    with serving(Failing(fault)) as target:
        response = Predecessor(target).action("alpha", "grow", {})
        assert (response.status, json.loads(response.payload)) == (ERROR, {"error": str(fault)})
        assert Predecessor(target).action("alpha", "grow", {}).status == SUCCESS


def test_a_fault_of_the_program_is_an_error_too(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Failing(ZeroDivisionError("by zero"))) as target:
        response = Predecessor(target).action("alpha", "grow", {})
    assert response.status == ERROR
    assert "failed (ZeroDivisionError: by zero)" in json.loads(response.payload)["error"]
    assert "a request failed" in caplog.text


def test_without_a_back_end_scaling_is_denied() -> None:
    with serving(None) as target:
        response = Predecessor(target).action("alpha", "grow", {})
    assert response.status == DENIED
    assert "runs without --backend" in json.loads(response.payload)["error"]
