"""What is said of a request that is refused, and what is read of one: bounded, whatever came."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from rpc_servers import PATIENCE, Log, known_channel, known_client, serving, table

from flux_ensemble.k8s.grpc import instances, server
from flux_ensemble.k8s.grpc.backend import DryRun
from flux_ensemble.k8s.grpc.client import RpcError
from flux_ensemble.k8s.grpc.errors import SENTENCE_BYTES, RequestProblem
from flux_ensemble.k8s.grpc.peers import client_of, endpoint
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2, predecessors_pb2_grpc
from flux_ensemble.k8s.grpc.requests import check_plain, json_object

#: Texts that a sentence may quote, and which are long as they are sent, or cannot be.
LONG = {
    "letters": "x" * (1 << 20),
    "of three bytes": "€" * 50_000,
    "of four bytes": "\U0001f600" * 50_000,
    "percent signs": "%" * 50_000,
    "zeros": "\0" * 50_000,
    "lines": "a\n" * 50_000,
    "half a character": "\ud800" * 50_000,
    "just too long": "x" * (SENTENCE_BYTES - 1) + "é",
}


def sent_size(sentence: str) -> int:
    """The size of a sentence as gRPC sends it, in bytes."""
    return len(quote(sentence, safe="".join(map(chr, range(32, 127))).replace("%", "")))


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_sentence_is_clipped_to_what_can_be_sent(text: str) -> None:
    sentence = str(RequestProblem(grpc.StatusCode.UNKNOWN, text))
    assert sentence.endswith(" [...]")
    assert SENTENCE_BYTES - 12 < sent_size(sentence) <= SENTENCE_BYTES + 6
    begin = sentence.removesuffix(" [...]")
    assert text.encode(errors="backslashreplace").decode().startswith(begin)


def test_a_sentence_that_can_be_sent_is_as_it_is() -> None:
    for text in ("no", "größer", "x" * SENTENCE_BYTES, ""):
        assert str(RequestProblem(grpc.StatusCode.UNKNOWN, text)) == text


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_long_sentence_arrives_with_its_status_code(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(instances, "Client", Log)
    monkeypatch.setattr(Log, "refusal", f"the request is bad: {text}")
    with (
        serving(None, table(("alpha",), has_flux=True)) as target,
        known_client(target, timeout=PATIENCE) as client,
        pytest.raises(RpcError, match=r"^the request is bad: (.|\s)* \[\.\.\.\]$") as caught,
    ):
        client.submit("hello", "echo")
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def predecessor() -> Iterator[Any]:
    with serving(DryRun()) as target, known_channel(target) as channel:
        yield predecessors_pb2_grpc.EnsembleOperatorStub(channel)


@pytest.mark.parametrize("field", ["member", "name", "action", "payload"])
@pytest.mark.parametrize("text", ["x" * (3 << 20), "€" * (1 << 20), "\0" * (3 << 20)])
def test_long_fields_of_the_predecessors_are_refused_in_a_short_sentence(
    predecessor: Any, field: str, text: str
) -> None:
    fields = {"member": "minicluster", "name": "alpha", "action": "grow", "payload": ""}
    request = predecessors_pb2.ActionRequest(**{**fields, field: text})
    response = predecessor.RequestAction(request, timeout=PATIENCE)
    assert response.status == predecessors_pb2.Response.ERROR
    assert sent_size(json.loads(response.payload)["error"]) <= SENTENCE_BYTES + 6


def test_a_long_key_in_a_payload_is_refused_in_a_short_sentence(predecessor: Any) -> None:
    payload = json.dumps({"ensemble": "a", "group": "b", "y" * (3 << 20): 1})
    request = predecessors_pb2.ActionRequest(
        member="flux", name="alpha", action="submit", payload=payload
    )
    error = json.loads(predecessor.RequestAction(request, timeout=PATIENCE).payload)["error"]
    assert error.startswith("payload of submit: unknown key 'yyy")
    assert len(error) <= SENTENCE_BYTES + 6


def test_a_message_that_is_too_large_is_not_sent_again() -> None:
    with serving(DryRun()) as target, known_client(target, timeout=PATIENCE) as client:
        t_begin = time.monotonic()
        for ask in (
            lambda: client.status("x" * (5 << 20)),
            lambda: client.submit("a", "b", params={"x": ["y" * (5 << 20)]}),
        ):
            with pytest.raises(RpcError, match="larger than max") as caught:
                ask()
            assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        # It would go on for all of its time.
        assert time.monotonic() - t_begin < PATIENCE


DEEP = '{"x":' * 200 + "1" + "}" * 200

NOT_PLAIN = {
    "infinite": ('{"x": [1, 1e999]}', "params.x[1]: expected a finite number, not inf"),
    "minus infinite": ('{"x": {"y": -1e999}}', "params.x.y: expected a finite number, not -inf"),
    "65 bits": (
        '{"x": 18446744073709551616}',
        "params.x: expected a number of at most 64 bits, not 18446744073709551616",
    ),
    "64 bits without a sign": (
        '{"x": 9223372036854775808}', "expected a number of at most 64 bits, not 9223372036854775",
    ),
    "many digits": ('{"x": 1' + "0" * 4000 + "}", "expected a number of at most 64 bits, not 100"),
    "too many digits": ('{"x": 1' + "0" * 5000 + "}", "params is not JSON"),
    "half a character": (
        '{"x": "\\ud800"}', "params.x: expected text of Unicode, not '\\ud800'",
    ),
    "half a character in a key": (
        '{"\\udfff": 1}', "params: key: expected text of Unicode, not '\\udfff'",
    ),
    "deep": (DEEP, "params is nested more than 100 deep"),
    "very deep": ("[" * 100_000, "params is not JSON"),
    "very deep and long": ('{"x":' * 100_001, "params has more than 100000 values"),
    "many": ('{"x": [' + "1," * 100_000 + "1]}", "params has more than 100000 values"),
    "NaN": ('{"x": NaN}', "params is not JSON (NaN is no number of JSON)"),
    "Infinity": ('{"x": -Infinity}', "params is not JSON (-Infinity is no number of JSON)"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_values_that_flux_cannot_take_are_refused_by_their_key(
    monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.setattr(instances, "Client", Log)
    with (
        serving(None, table(("alpha",), has_flux=True)) as target,
        known_channel(target) as channel,
    ):
        stub = api.EnsembleServiceStub(channel)
        action = pb.EnsembleAction(name="a", action=text)
        for ask, what in (
            (lambda: stub.Submit(pb.SubmitRequest(ensemble="a", group="b", params=text)), "params"),
            (lambda: stub.Action(pb.ActionRequest(ensemble=action)), "action"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                ask()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert sentence.replace("params", what) in caught.value.details()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('"count": 1e999', "count"),
        ('"count": 100000000000000000000', "count"),
        ('"params": {"x": [1e999]}', "params.x[0]"),
        ('"params": "\\udead"', "params"),
    ],
)
def test_payloads_of_the_predecessors_are_checked_too(
    monkeypatch: pytest.MonkeyPatch, given: str, key: str
) -> None:
    monkeypatch.setattr(instances, "Client", Log)
    payload = f'{{"ensemble": "a", "group": "b", {given}}}'
    request = predecessors_pb2.ActionRequest(
        member="flux", name="alpha", action="submit", payload=payload
    )
    with (
        serving(None, table(("alpha",), has_flux=True)) as target,
        known_channel(target) as channel,
    ):
        stub = predecessors_pb2_grpc.EnsembleOperatorStub(channel)
        error = json.loads(stub.RequestAction(request).payload)["error"]
    assert error.startswith(f"{key}: expected ")


def test_values_that_flux_can_take_are_let_pass() -> None:
    text = '{"a": [1.5, -9223372036854775808, 9223372036854775807, true, null, "ä\\ud83d\\ude00"]}'
    check_plain(json_object(text, "params"), "params")
    check_plain(None, "count")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2", True),
        ("ipv4:127.0.0.1:1", "ipv4:127.0.0.2:1", False),
        ("ipv6:%5B::ffff:127.0.0.1%5D:1", "ipv4:127.0.0.1:2", True),
        ("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8::ffff:2%5D:1", True),
        ("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8:0:1::1%5D:1", False),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "ipv6:%5Bfe80::2%25eth0%5D:1", True),
        ("ipv6:[::1]:1", "ipv6:%5B::1%5D:2", True),
    ],
)
def test_a_client_without_a_certificate_is_an_address_or_a_network(
    one: str, other: str, same: bool
) -> None:
    ends = endpoint(one), endpoint(other)
    assert ends[0] != ends[1]
    clients = [client_of(end[0]) for end in ends if end is not None]
    assert (clients[0] == clients[1]) is same


@pytest.mark.parametrize("name", ["", "unknown", "unix:", "unix:/run/x", "ipv4:", "ipv4:1.2.3.4"])
def test_a_connection_without_an_address_has_no_end(name: str) -> None:
    assert endpoint(name) is None


def test_a_sparing_log_has_a_few_of_a_kind_and_says_how_many_it_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    t_now = 1000.0
    monkeypatch.setattr(server.time, "monotonic", lambda: t_now)
    log = logging.Logger("sparing")
    log.addFilter(server.LogLimit())
    log.addHandler(caplog.handler)
    for minute in range(2):
        t_now += 61 * minute
        for _ in range(25):
            try:
                raise ValueError("bad\n" * 1000)
            except ValueError:
                log.exception("it is %s", "so")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 20
    assert all(line.startswith("it is so (ValueError: bad bad") for line in lines)
    assert [line.endswith("; 15 more like it were left out") for line in lines].index(True) == 10
    assert not any("\n" in line or len(line) > 600 for line in lines)
    assert not any(record.exc_info for record in caplog.records)
