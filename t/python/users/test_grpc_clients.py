"""What each kind of client of `grpc start` may do: everybody, its user, and who shows the token."""

from __future__ import annotations

import errno
import json
import stat
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from patience import PATIENCE
from rpc_servers import known_channel, known_client, serving, table
from second_user import second_user

from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.k8s.grpc import instances
from flux_ensemble.k8s.grpc.backend import DryRun
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2, predecessors_pb2_grpc
from flux_ensemble.k8s.grpc.server import ServerError

#: A status of the instance, with what is nobody's business.
STATUS = {
    "nodes": {"node_up_count": 2},
    "queue": {"run": 1},
    "service": {"version": "1.2.3", "pid": 17, "unreadable": {"b": "secret damage"}},
    "instance": {"uri": "secret uri"},
    "members": {},
    "ensembles": [
        {
            "name": "a",
            "state": "running",
            "reason": "secret reason",
            "t_start": 1.0,
            "t_end": None,
            "groups": {"g": {"submitted": 1}},
            "jobs": {"total": 1},
            "rules": [{"id": "secret rule"}],
            "errors": ["secret traceback"],
            "directory": "/secret",
            "best": [{"name": "top", "params": {"p": "secret parameter"}}],
            "searches": [{"id": "secret search"}],
            "waits": [{"text": "secret cause"}],
        }
    ],
}

ANONYMOUS = "clients that do not say who they are can read the status and change sizes only"


class Flux:
    """An ensemble service in the place of Flux's that notes what it is asked to do."""

    asked: ClassVar[list[str]] = []

    def __init__(self, uri: str | None) -> None:
        pass

    def wait_for(self, seconds: float) -> None:
        """The answer is there at once."""

    def send(self, op: str, payload: Any) -> Flux:
        Flux.asked.append(op)
        return self

    def get(self) -> Any:
        return {
            "ids": [1],
            "firing": 1,
            "name": "a",
            "state": "paused",
            **deepcopy(STATUS),
        }


@pytest.fixture(autouse=True)
def flux(monkeypatch: pytest.MonkeyPatch) -> type[Flux]:
    monkeypatch.setattr(instances, "Client", Flux)
    monkeypatch.setattr(Flux, "asked", [])
    return Flux


def members() -> Any:
    return table(("alpha",), has_flux=True)


#: Requests for which a client has to say who it is.
CLOSED: dict[str, Callable[[RpcClient], Any]] = {
    "submit": lambda client: client.submit("a", "g", params={"x": ["; touch /tmp/owned"]}),
    "an action": lambda client: client.action("a", {"name": "submit", "label": "g"}),
    "metrics": lambda client: client.metrics("a"),
    "pause": lambda client: client.pause("a"),
    "resume": lambda client: client.resume("a"),
    "the log": lambda client: list(client.log("a")),
    "load": lambda client: client.load("jobs: []", cwd="/", environment={"LD_PRELOAD": "/x.so"}),
}


@pytest.mark.parametrize("ask", CLOSED.values(), ids=CLOSED)
@pytest.mark.parametrize("token", [None, "the token of the service"])
def test_who_does_not_say_who_it_is_has_nothing_done_in_flux(
    ask: Callable[[RpcClient], Any], token: str | None
) -> None:
    with (
        serving(DryRun(), members(), token=token) as target,
        RpcClient(target, timeout=PATIENCE) as client,
        pytest.raises(RpcError, match=ANONYMOUS) as caught,
    ):
        ask(client)
    assert (caught.value.code, caught.value.refused) == (grpc.StatusCode.UNAUTHENTICATED, True)
    assert Flux.asked == []


def test_who_does_not_say_who_it_is_reads_the_status_and_changes_sizes() -> None:
    with serving(DryRun(1, 5), members()) as target:
        with RpcClient(target, timeout=PATIENCE) as client:
            assert client.grow(2).size == 3
            assert client.status().size.nodes == 3
        with grpc.insecure_channel(target) as channel:
            stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
            request = predecessors_pb2.ActionRequest(
                member="minicluster", name="alpha", action="shrink", payload='{"shrink": 1}'
            )
            assert stub.RequestAction(request).status == predecessors_pb2.Response.SUCCESS
    assert set(Flux.asked) == {"status"}


def test_who_does_not_say_who_it_is_sees_of_a_status_what_guests_of_the_instance_do() -> None:
    with serving(None, members()) as target:
        with RpcClient(target, timeout=PATIENCE) as client:
            status = client.status()
        with grpc.insecure_channel(target) as channel:
            stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
            request = predecessors_pb2.StatusRequest(member="flux", name="alpha")
            response = stub.RequestStatus(request)
    assert "secret" not in str(status)
    assert (status.ensembles[0].name, status.ensembles[0].groups["g"].submitted) == ("a", 1)
    assert (status.nodes.node_up_count, status.queue.run, status.service.pid) == (2, 1, 0)
    assert "secret" not in response.payload
    told = json.loads(response.payload)
    assert told["service"] == {"version": "1.2.3"}
    assert told["ensembles"] == [
        {
            "name": "a",
            "state": "running",
            "t_start": 1.0,
            "t_end": None,
            "groups": {"g": {"submitted": 1}},
            "jobs": {"total": 1},
        }
    ]


def test_who_has_the_token_sees_all_of_a_status() -> None:
    with serving(None, members()) as target:
        with known_client(target, timeout=PATIENCE) as client:
            (ensemble,) = client.status().ensembles
        with known_channel(target) as channel:
            stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
            request = predecessors_pb2.StatusRequest(member="flux", name="alpha")
            told = json.loads(stub.RequestStatus(request).payload)
    assert (ensemble.reason, ensemble.directory) == ("secret reason", "/secret")
    assert told["ensembles"] == STATUS["ensembles"]


def test_an_instance_that_is_out_of_reach_is_told_to_everybody(
    flux: type[Flux], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Flux) -> Any:
        raise EnsembleError(errno.ENOSYS, "the ensemble service is not loaded")

    monkeypatch.setattr(flux, "get", gone)
    with (
        serving(DryRun(1, 5), members()) as target,
        RpcClient(target, timeout=PATIENCE) as client,
    ):
        assert "is not loaded" in client.status().flux_error


def test_the_predecessors_submit_is_denied_to_who_does_not_say_who_it_is() -> None:
    request = predecessors_pb2.ActionRequest(
        member="flux", name="alpha", action="submit", payload='{"ensemble": "a", "group": "g"}'
    )
    with serving(None, members()) as target:
        with grpc.insecure_channel(target) as channel:
            stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
            response = stub.RequestAction(request)
        assert response.status == predecessors_pb2.Response.DENIED
        assert ANONYMOUS in response.payload
        assert Flux.asked == []
        with known_channel(target) as channel:
            stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
            assert stub.RequestAction(request).status == predecessors_pb2.Response.SUCCESS
    assert Flux.asked == ["submit"]


def test_another_token_is_refused_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("not the token of the service")
    (tmp_path / "token").chmod(0o600)
    with (
        serving(DryRun(), members()) as target,
        RpcClient(target, token_file=tmp_path / "token", timeout=PATIENCE) as client,
        pytest.raises(RpcError, match="another token") as caught,
    ):
        client.status()
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("key", ["environment", "workdir", "attributes"])
def test_what_makes_jobs_run_something_else_is_for_services_that_load_documents(key: str) -> None:
    action = {"name": "submit", "label": "g", key: {} if key != "workdir" else "/tmp"}
    with serving(None, members()) as target, known_client(target, timeout=PATIENCE) as client:
        with pytest.raises(RpcError, match=f"{key!r} can make jobs run commands") as caught:
            client.action("a", action)
        assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
        assert client.action("a", {"name": "submit", "label": "g", "nodes": 2})["firing"] == 1
    assert Flux.asked == ["action"]
    with (
        serving(None, members(), allow_load=True) as target,
        known_client(target, timeout=PATIENCE) as client,
    ):
        assert client.action("a", action)["firing"] == 1


# -- the socket -------------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[Path]:
    """A directory that everybody can enter and nobody else can make files in; its path is short."""
    with tempfile.TemporaryDirectory(prefix="fe-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_user_may_do_everything_by_the_socket(own: Path) -> None:
    path = own / "grpc 100%.sock"
    with serving(DryRun(), members(), socket=path, port=None, token=None, allow_load=True):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        with RpcClient(f"unix:{path}", timeout=PATIENCE) as client:
            assert client.grow().size == 2
            for ask in (one for name, one in CLOSED.items() if name != "the log"):
                ask(client)
    assert {"submit", "action", "metrics", "pause", "resume", "load"} <= set(Flux.asked)
    assert not path.exists()


def test_another_user_cannot_connect_to_the_socket(own: Path) -> None:
    path = own / "grpc.sock"
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with second_user() as other, serving(None, members(), socket=path, port=None):
        refused = other.run_python(connect, str(path))
    assert refused.returncode == 1
    assert "PermissionError: [Errno 13] Permission denied" in refused.stderr


def test_a_socket_that_others_could_replace_or_that_is_in_use_is_refused(own: Path) -> None:
    path = own / "grpc.sock"
    with serving(None, members(), socket=path, port=None):
        with (
            pytest.raises(ServerError, match="somebody listens"),
            serving(None, members(), socket=path, port=None),
        ):
            pass
        assert path.exists()
    own.chmod(0o1777)
    with (
        pytest.raises(ServerError, match="others can write in"),
        serving(None, members(), socket=path, port=None),
    ):
        pass
    with (
        pytest.raises(ServerError, match="at most 107 bytes"),
        serving(None, members(), socket=_long(own), port=None),
    ):
        pass


def _long(directory: Path) -> Path:
    own = directory / ("x" * 100)
    own.mkdir(mode=0o700)
    return own / "grpc.sock"
