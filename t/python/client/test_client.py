"""The client: what it sends, what it makes of failures, and how it reads a log."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.client import Client, EnsembleError, user_context
from flux_ensemble.client import connection as module
from flux_ensemble.client import reconnect as outage
from flux_ensemble.client.client import PAGE
from flux_ensemble.client.errors import failure
from flux_ensemble.client.reconnect import FIRST_PAUSE, GROWTH
from flux_ensemble.client.topics import TOPICS


class Future:
    """A future whose responses are known: values, or exceptions to raise."""

    def __init__(self, responses: list[Any]) -> None:
        self._responses = responses

    def get(self) -> Any:
        response = self._responses[0]
        if isinstance(response, Exception):
            raise response
        return response

    def wait_for(self, timeout: float) -> None:
        if isinstance(self._responses[0], TimeoutError):
            raise OSError(errno.ETIMEDOUT, "Connection timed out")

    def is_ready(self) -> bool:
        return not isinstance(self._responses[0], TimeoutError)

    def reset(self) -> None:
        del self._responses[0]


class Handle:
    """A Flux handle that answers each request with the next of its responses."""

    def __init__(self, *responses: Any) -> None:
        self.sent: list[tuple[str, Any, int]] = []
        self._responses = list(responses)
        self.following = False
        self.t_start = 1.0

    def rpc(self, topic: str, payload: Any, flags: int = 0, nodeid: int = 0) -> Future:
        # A log is what has a list of responses.
        reads = self.following or isinstance(next(iter(self._responses), None), list)
        if topic == "ensemble.status" and reads:
            return Future([{"service": {"t_start": self.t_start}}])
        self.following = topic == "ensemble.log"
        self.sent.append((topic, payload, flags))
        response = self._responses.pop(0)
        return Future(response if isinstance(response, list) else [response])


@pytest.fixture(autouse=True)
def _no_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client on a handle that is given needs the constants of Flux only."""
    constants = types.SimpleNamespace(FLUX_RPC_STREAMING=4)
    monkeypatch.setattr(module, "require_flux", lambda: None)
    monkeypatch.setitem(sys.modules, "flux", types.SimpleNamespace(constants=constants))
    monkeypatch.setitem(sys.modules, "flux.constants", constants)


def finish(state: str) -> dict[str, Any]:
    return {"timestamp": 2.0, "name": "finish", "context": {"state": state, "reason": "because"}}


START = {"timestamp": 1.0, "name": "start", "context": {}}
NO_MORE = OSError(errno.ENODATA, "No data available")


def test_load_sends_text_or_a_mapping_and_nothing_that_was_not_given() -> None:
    handle = Handle({"name": "a", "state": "running"}, {"name": "b", "state": "running"})
    client = Client(handle)
    assert client.load("jobs: []", file="a.yaml", cwd="/", environment={})["name"] == "a"
    client.load({"jobs": []}, name="b", cwd="/", environment={"A": "1"})
    assert [sent[:2] for sent in handle.sent] == [
        (
            "ensemble.load",
            {"text": "jobs: []", "cwd": "/", "environment": {}, "file": "a.yaml"},
        ),
        (
            "ensemble.load",
            {"spec": {"jobs": []}, "cwd": "/", "environment": {"A": "1"}, "name": "b"},
        ),
    ]


def test_each_method_sends_its_topic() -> None:
    handle = Handle(*[{"state": "running", "ids": [7], "ensembles": []} for _ in range(12)])
    client = Client(handle)
    assert client.submit("a", "g", count=2, params={"x": 1}) == [7]
    assert client.list() == []
    client.status()
    client.status("a")
    client.metrics("a")
    client.pause("a")
    client.resume("a")
    client.terminate("a", cancel=True)
    client.cancel("a", "g")
    client.unload("a")
    client.set_rule("a", "r", enabled=False)
    client.action("a", {"name": "terminate"})
    assert [sent[:2] for sent in handle.sent] == [
        ("ensemble.submit", {"name": "a", "group": "g", "count": 2, "params": {"x": 1}}),
        ("ensemble.list", {}),
        ("ensemble.status", {}),
        ("ensemble.status", {"name": "a"}),
        ("ensemble.metrics", {"name": "a"}),
        ("ensemble.pause", {"name": "a"}),
        ("ensemble.resume", {"name": "a"}),
        ("ensemble.terminate", {"name": "a", "cancel": True}),
        ("ensemble.cancel", {"name": "a", "group": "g"}),
        ("ensemble.unload", {"name": "a"}),
        ("ensemble.rules", {"name": "a", "id": "r", "enabled": False}),
        ("ensemble.action", {"name": "a", "action": {"name": "terminate"}}),
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "expected a finite number, not nan"),
        (float("inf"), "expected a finite number, not inf"),
        ({1, 2}, "expected plain data, not {1, 2}: write a list"),
        (b"bytes", "expected plain data, not b'bytes'"),
        ("\ud800", "expected UTF-8 text, not a lone surrogate"),
        (10**5000, "expected an integer of at most 64 bits"),
    ],
    ids=["nan", "infinity", "set", "bytes", "surrogate", "digits"],
)
def test_what_cannot_be_sent_is_refused_with_its_key(value: Any, reason: str) -> None:
    client = Client(Handle())
    asked = {
        "submit: params.x[1]": lambda: client.submit("a", "g", params={"x": [1, value]}),
        "action: action.params.x": lambda: client.action("a", {"params": {"x": value}}),
        "load: spec.seed": lambda: client.load({"seed": value}, cwd="/", environment={}),
        "load: scaler.grace": lambda: client.load(
            "", cwd="/", environment={}, scaler={"grace": value}
        ),
    }
    for where, ask in asked.items():
        with pytest.raises(EnsembleError) as caught:
            ask()
        assert caught.value.errno == errno.EINVAL
        assert str(caught.value) == f"ensemble.{where}: {reason}"


def test_values_of_python_are_sent_as_those_of_documents_are() -> None:
    numpy = pytest.importorskip("numpy")
    handle = Handle(*[{"state": "running", "ids": [7]} for _ in range(5)])
    client = Client(handle)
    client.submit("a", "g", count=numpy.int64(2), params={"x": numpy.float32(0.5)})
    client.submit("a", "g", params={"x": range(3), "file": Path("in.dat")})
    client.action("a", {"name": "submit", "params": {"x": numpy.arange(2)}})
    client.search("a", more=numpy.int64(3), points=[{"x": numpy.bool_(True)}])
    client.load({"jobs": [{"name": "a", "count": numpy.int64(1)}]}, cwd="/", environment={})
    sent = [payload for _, payload, *_ in handle.sent]
    assert sent[0] == {"name": "a", "group": "g", "count": 2, "params": {"x": 0.5}}
    assert sent[1]["params"] == {"x": {"range": [0, 3, 1]}, "file": "in.dat"}
    assert sent[2]["action"]["params"] == {"x": [0, 1]}
    assert sent[3] == {"name": "a", "more": 3, "points": [{"x": True}]}
    assert sent[4]["spec"] == {"jobs": [{"name": "a", "count": 1}]}


def test_a_table_among_values_is_told_how_to_give_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(EnsembleError) as caught:
        Client(Handle()).submit("a", "g", params=pandas.DataFrame({"x": [1], "y": [2]}))
    assert str(caught.value) == (
        "ensemble.submit: params: expected plain data, not a DataFrame: write its columns as "
        "lists, such as {'x': list(df['x'])}"
    )


def test_an_error_of_a_client_has_no_other_error_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOENT, "Unable to connect to Flux: socket was not found")

    client = Client(Handle(OSError(errno.ENOENT, "no ensemble named 'a'")))
    monkeypatch.setitem(sys.modules, "flux", types.SimpleNamespace(Flux=refuse))
    for mistake in (Client, lambda: client.status("a")):
        with pytest.raises(EnsembleError) as caught:
            mistake()
        told = "".join(traceback.format_exception(caught.value))
        assert "another exception" not in told
        assert "direct cause" not in told


def test_what_nests_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EnsembleError, match="expected at most 64 levels of mappings and lists"):
        Client(Handle()).submit("a", "g", params={"x": endless})


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("file", ": rename it, or reach it by a link"),
        ("cwd", ": rename it, or run this in another directory"),
        ("name", ""),
    ],
)
def test_a_name_that_is_not_utf8_is_said_with_what_to_do(key: str, advice: str) -> None:
    given: dict[str, Any] = {"cwd": "/", "environment": {}, key: os.fsdecode(b"caf\xe9")}
    with pytest.raises(EnsembleError) as caught:
        Client(Handle()).load("jobs: []", **given)
    assert caught.value.errno == errno.EINVAL
    reason = rf"{key}: 'caf\udce9' is not UTF-8 text, and Flux takes no other{advice}"
    assert str(caught.value) == f"ensemble.load: {reason}"


def test_every_method_refuses_a_name_that_is_not_utf8() -> None:
    client, name = Client(Handle()), os.fsdecode(b"\xff")
    for ask in (
        lambda: client.status(name),
        lambda: client.metrics(name),
        lambda: client.submit(name, "g"),
        lambda: client.submit("a", name),
        lambda: list(client.log(name)),
        lambda: client.wait(name),
        lambda: client.pause(name),
        lambda: client.resume(name),
        lambda: client.terminate(name),
        lambda: client.cancel(name),
        lambda: client.cancel("a", name),
        lambda: client.unload(name),
        lambda: client.set_rule("a", name, enabled=True),
        lambda: client.action("a", {"name": name}),
    ):
        with pytest.raises(EnsembleError) as caught:
            ask()
        assert caught.value.errno == errno.EINVAL


def test_the_context_of_a_load_is_this_process_and_what_utf8_can_carry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAIN", "value")
    monkeypatch.setenv("BYTES", "\udcff")
    context = user_context()
    assert context["cwd"] == str(tmp_path)
    assert context["environment"]["PLAIN"] == "value"
    assert "BYTES" not in context["environment"]


def test_log_yields_entries_until_there_are_no_more() -> None:
    handle = Handle([START, finish("completed"), NO_MORE])
    names = [entry["name"] for entry in Client(handle).log("a", follow=True)]
    assert names == ["start", "finish"]
    assert handle.sent == [("ensemble.log", {"name": "a", "follow": True, "events": False}, 4)]


def test_wait_ends_at_the_end_of_the_ensemble() -> None:
    client = Client(Handle([START, finish("failed"), NO_MORE]))
    assert client.wait("a") == {"name": "a", "state": "failed", "reason": "because"}


DIED = OSError(errno.EHOSTUNREACH, "No route to host")
ABSENT = OSError(errno.ENOSYS, "No service matching ensemble.list is registered")


def test_a_log_is_followed_on_when_the_service_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    handle = Handle([START, DIED], ABSENT, {"ensembles": []}, [START, finish("completed"), NO_MORE])
    names = [entry["name"] for entry in Client(handle).log("a", follow=True)]
    assert names == ["start", "finish"]
    assert [payload.get("skip") for topic, payload, _ in handle.sent if "log" in topic] == [None, 1]
    assert slept == [FIRST_PAUSE, FIRST_PAUSE * GROWTH]


NO_KEEPER = OSError(errno.ENOSYS, "No service matching ensemble-keeper.stats-get is registered")


@pytest.mark.parametrize(
    "claim", [{"age": 0.0}, OSError(errno.ENOSYS, "No service matching ensemble.claim")]
)
def test_a_request_that_a_process_died_of_is_an_error(claim: Any) -> None:
    client = Client(Handle(TimeoutError(), NO_KEEPER, claim))
    with pytest.raises(EnsembleError, match="the ensemble service went away"):
        client.pause("a")


@pytest.mark.parametrize("claim", [{"age": 1e9}, {}, OSError(errno.EPERM, "not the owner")])
def test_a_request_is_waited_for_as_long_as_the_service_may_be_there(claim: Any) -> None:
    handle = Handle(NO_KEEPER, claim)
    assert not Client(handle).has_died(0.0)
    assert [topic for topic, _, _ in handle.sent] == [
        "ensemble-keeper.stats-get",
        "ensemble.claim",
    ]


def test_a_keeper_tells_how_old_the_service_is() -> None:
    for age, died in ((0.0, True), (1e9, False)):
        assert Client(Handle({"age": age})).has_died(0.0) is died


def test_wait_raises_when_the_service_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "PATIENCE", 0.0)
    with pytest.raises(EnsembleError, match=r"did not come back .* 'a' had not ended"):
        Client(Handle([START, DIED])).wait("a")


def test_wait_raises_when_the_time_is_up_while_the_service_is_away() -> None:
    with pytest.raises(TimeoutError, match="'a' has not ended in time"):
        Client(Handle([START, DIED])).wait("a", timeout=0.0)


def test_a_service_that_comes_back_without_the_ensemble_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    unknown = OSError(errno.ENOENT, "no ensemble named 'a'")
    client = Client(Handle([START, DIED], {"ensembles": []}, [unknown]))
    with pytest.raises(EnsembleError, match="came back without ensemble 'a'"):
        client.wait("a")


def test_a_log_that_is_not_followed_is_an_error_when_the_service_dies() -> None:
    with pytest.raises(EnsembleError, match="the ensemble service went away"):
        list(Client(Handle([START, DIED])).log("a"))


def test_wait_raises_when_the_time_is_up() -> None:
    client = Client(Handle([START, TimeoutError()]))
    with pytest.raises(TimeoutError, match="'a' has not ended in time"):
        client.wait("a", timeout=1)


def test_wait_raises_when_the_ensemble_is_unloaded() -> None:
    client = Client(Handle([START, NO_MORE]))
    with pytest.raises(EnsembleError, match="'a' was unloaded before it ended"):
        client.wait("a")


def test_a_refusal_has_the_errno_and_the_sentence_of_the_service() -> None:
    client = Client(Handle(OSError(errno.ENOENT, "no ensemble named 'a'")))
    with pytest.raises(EnsembleError) as caught:
        client.status("a")
    assert caught.value.errno == errno.ENOENT
    assert str(caught.value) == "no ensemble named 'a'"


@pytest.mark.parametrize(
    ("number", "text", "sentence"),
    [
        (errno.ENOSYS, "No service matching ensemble.list is registered", "is not loaded"),
        (errno.ENOSYS, "Function not implemented", "does not know the request ensemble.list"),
        (errno.EHOSTUNREACH, "No route to host", "the ensemble service went away"),
        (errno.ECONNRESET, "Connection reset by peer", "the connection to Flux was lost"),
        (errno.EAGAIN, "ensemble 'a' is paused", "^ensemble 'a' is paused$"),
    ],
)
def test_failures_say_what_happened(number: int, text: str, sentence: str) -> None:
    with pytest.raises(EnsembleError, match=sentence):
        raise failure(OSError(number, text), "list")


def test_without_an_instance_there_is_a_sentence_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOENT, "Unable to connect to Flux: socket was not found")

    monkeypatch.setitem(sys.modules, "flux", types.SimpleNamespace(Flux=refuse))
    monkeypatch.delenv("FLUX_URI", raising=False)
    with pytest.raises(EnsembleError, match="`flux start` begins one"):
        Client()
    monkeypatch.setenv("FLUX_URI", "local:///nowhere")
    with pytest.raises(EnsembleError, match="no Flux instance at FLUX_URI 'local:///nowhere'"):
        Client()


def test_jobs_come_page_by_page() -> None:
    pages = [
        [{"jobs": [{"id": 1}]}, {"jobs": [], "next": 7, "dropped": 0}, NO_MORE],
        [{"jobs": [{"id": 2}, {"id": 3}]}, {"jobs": [], "next": None, "dropped": 4}, NO_MORE],
    ]
    handle = Handle(*pages)
    jobs = Client(handle).jobs("a", filter="job.returncode != 0", group="g")
    assert [job["id"] for job in jobs] == [1, 2, 3]
    assert jobs.dropped == 4
    asked = {"name": "a", "filter": "job.returncode != 0", "group": "g", "count": PAGE}
    assert [payload for _, payload, _ in handle.sent] == [
        {**asked, "after": 0},
        {**asked, "after": 7},
    ]


def test_the_last_jobs_are_one_request() -> None:
    last: dict[str, Any] = {"jobs": [], "next": None, "dropped": 2, "total": 90, "left_out": 3}
    answers = [{"jobs": [{"id": 7}]}, {"jobs": [{"id": 8}, {"id": 9}]}, last, NO_MORE]
    handle = Handle([*answers], answers)
    jobs = Client(handle).jobs("a", last=2)
    assert [job["id"] for job in jobs] == [8, 9]
    assert (jobs.total, jobs.dropped, jobs.left_out) == (90, 2, 3)
    assert list(Client(handle).jobs("a", last=2, interrupted=True)) == list[Any](
        [{"id": 8}, {"id": 9}]
    )
    assert [payload for _, payload, _ in handle.sent] == [
        {"name": "a", "last": 2},
        {"name": "a", "last": 2, "interrupted": True},
    ]


@pytest.mark.parametrize("chosen", [{}, {"group": "g"}])
def test_all_jobs_are_read_where_the_service_does_not_know_the_last_ones(
    chosen: dict[str, Any],
) -> None:
    unknown = [{"jobs": [], "next": None, "dropped": 0, "total": None}, NO_MORE]
    rows = [{"id": id, "rule": "r", "firing": id} for id in (1, 2, 3)]
    every = [{"jobs": rows}, {"jobs": [], "next": None, "dropped": 0}, NO_MORE]
    handle = Handle(*([every] if chosen else [unknown, every]))
    jobs = Client(handle).jobs("a", last=2, **chosen)
    assert [job["id"] for job in jobs] == [2, 3]
    assert jobs.total == 3


def test_the_service_takes_as_many_last_jobs_as_the_client_requests() -> None:
    assert TOPICS["jobs"].fields["last"].maximum >= PAGE
    with pytest.raises(EnsembleError, match="last: expected 1 or more jobs, not 0"):
        Client(Handle()).jobs("a", last=0)


def test_jobs_that_cannot_be_had_are_an_error_with_a_sentence() -> None:
    handle = Handle([OSError(errno.ENOENT, "no ensemble named 'a'")])
    with pytest.raises(EnsembleError, match="no ensemble named 'a'"):
        list(Client(handle).jobs("a"))
