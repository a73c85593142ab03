"""The server when clients do not do their part: what they hold, for how long, and who minds."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from http2 import END_STREAM, GOAWAY, INITIAL_WINDOW_SIZE, PREFACE, Http2
from rpc_servers import PATIENCE, TOKEN, Failing, Log, known_channel, known_client, serving, table

from flux_ensemble.k8s.grpc import instances
from flux_ensemble.k8s.grpc.admission import Bound, Limits
from flux_ensemble.k8s.grpc.backend import DryRun, Refused
from flux_ensemble.k8s.grpc.client import RpcClient, RpcError
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2

SERVICE = "/flux_ensemble.v1.EnsembleService"
STATUS = f"{SERVICE}/Status"
SIZE = pb.StatusRequest(cluster="alpha", size_only=True).SerializeToString()

#: The status code at the end of a call, as it is among the headers.
OK, CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED = (
    b"grpc-status" + bytes((len(code),)) + code for code in (b"0", b"1", b"4", b"8", b"12")
)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster with logs, in the place of Flux."""
    monkeypatch.setattr(instances, "Client", Log)
    return table(("alpha",), has_flux=True)


def size(target: str) -> int:
    """What another client sees of the server, which must answer it at once."""
    with known_client(target, timeout=PATIENCE) as client:
        return client.size().nodes


def until(holds: Callable[[], bool]) -> None:
    t_end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < t_end
        time.sleep(0.05)


def test_a_method_whose_name_is_no_unicode_is_unknown_and_the_server_goes_on() -> None:
    with serving(DryRun()) as target:
        for path in (SERVICE.encode() + b"/\xff\xfe", b"/\xff", b"\xff", b"/a/b\0c", b"/"):
            with Http2(target) as client:
                assert UNIMPLEMENTED in client.ended(client.call(path))
                assert OK in client.ended(client.call(STATUS, SIZE))
        assert size(target) == 1


def test_headers_that_are_no_unicode_are_a_line_in_the_log_and_not_for_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(DryRun()) as target, Http2(target) as client:
        for _ in range(30):
            stream = client.call(STATUS, SIZE, headers={b"x": b"\xff\xfe"})
            assert OK in client.ended(stream)
    assert 0 < len(caplog.records) <= 10
    assert not any(record.exc_info for record in caplog.records)
    assert "\n" not in caplog.records[0].getMessage()


def test_watches_of_the_health_are_not_there_and_hold_nothing() -> None:
    with serving(DryRun()) as target, known_channel(target) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        watches = [watch(health_pb2.HealthCheckRequest()) for _ in range(200)]
        assert {one.code() for one in watches} == {grpc.StatusCode.UNIMPLEMENTED}
        assert size(target) == 1


def test_streams_of_reflection_are_few_and_hold_no_place_of_requests() -> None:
    ended = threading.Event()

    def requests() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        ended.wait(PATIENCE)

    limits = Limits(reflections=Bound(32, 16, 8))
    with serving(DryRun(), limits=limits) as target, known_channel(target) as channel:
        info = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        # Beyond 100 the client itself holds them back.
        streams = [info(requests()) for _ in range(90)]
        until(lambda: sum(one.is_active() for one in streams) == 8)
        refused = {one.code() for one in streams if not one.is_active()}
        assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert size(target) == 1
        ended.set()


def test_a_stream_of_reflection_ends_when_its_time_is_up() -> None:
    ended = threading.Event()

    def requests() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        ended.wait(PATIENCE)

    limits = Limits(default_seconds=0.5)
    with serving(DryRun(), limits=limits) as target, known_channel(target) as channel:
        info = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        stream = info(requests())
        assert next(stream).list_services_response.service
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        ended.set()


CLIENT = """
import sys, time
import grpc
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import ensemble_pb2_grpc as api
stub = api.EnsembleServiceStub(grpc.insecure_channel(sys.argv[1]))
metadata = (("authorization", "Bearer " + sys.argv[3]),)
request = pb.LogRequest(cluster="alpha", ensemble="quiet", follow=True)
streams = [stub.Log(request, metadata=metadata) for _ in range(int(sys.argv[2]))]
for stream in streams:
    next(stream)
print("open", flush=True)
time.sleep(600)
"""


def test_streams_of_a_stopped_client_end_when_it_gives_no_sign_of_life(logs: Any) -> None:
    limits = Limits(streams=Bound(4, 4, 4), ping_seconds=1, pong_seconds=1)
    with (
        serving(None, logs, limits=limits) as target,
        known_client(target, timeout=PATIENCE) as mine,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, target, "4", TOKEN], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            with pytest.raises(RpcError, match="has 4 streams open") as caught:
                next(mine.log("quiet", follow=True))
            assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            process.send_signal(signal.SIGSTOP)

            def there_is_room() -> bool:
                try:
                    return bool(next(mine.log("quiet", follow=True)))
                except RpcError:
                    return False

            until(there_is_room)
        finally:
            process.kill()
            process.communicate()


def test_a_client_that_lives_keeps_its_quiet_stream(logs: Any) -> None:
    limits = Limits(ping_seconds=0.2, pong_seconds=5, idle_seconds=1, connection_seconds=1)
    with serving(None, logs, limits=limits) as target, Http2(target) as client:
        request = pb.LogRequest(cluster="alpha", ensemble="quiet", follow=True)
        stream = client.call(f"{SERVICE}/Log", request.SerializeToString())
        # Longer than anything that ends connections without calls.
        frames = list(client.frames(seconds=3))
        assert not any(one.stream == stream and one.flags & END_STREAM for one in frames)
        assert sum(one.kind == 6 for one in frames) > 3
        assert client.socket.getpeername()


def test_a_log_whose_client_does_not_read_is_ended(logs: Any) -> None:
    limits = Limits(streams=Bound(1, 1, 1), send_seconds=1)
    request = pb.LogRequest(cluster="alpha", ensemble="busy", follow=True).SerializeToString()
    with serving(None, logs, limits=limits) as target, Http2(target) as client:
        stream = client.call(f"{SERVICE}/Log", request)
        # It gives room for the first 64 KiB, and for no more.
        assert CANCELLED in client.ended(stream)
        again = client.call(f"{SERVICE}/Log", request)
        assert any(one.stream == again for one in client.frames())


def test_a_request_whose_client_takes_no_answer_is_ended() -> None:
    limits = Limits(requests=Bound(1, 1, 1), send_seconds=1)
    with (
        serving(DryRun(), limits=limits) as target,
        Http2(target, {INITIAL_WINDOW_SIZE: 0}) as client,
    ):
        assert CANCELLED in client.ended(client.call(STATUS, SIZE))
        assert size(target) == 1


def test_a_call_whose_request_does_not_come_is_ended() -> None:
    limits = Limits(requests=Bound(1, 1, 1), checks=Bound(1, 1, 1), default_seconds=1)
    with serving(DryRun(), limits=limits) as target, Http2(target) as client:
        for path in (STATUS, "/grpc.health.v1.Health/Check"):
            assert CANCELLED in client.ended(client.call(path, None))
        assert size(target) == 1


def test_the_deadline_of_a_client_whose_request_does_not_come_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server looks for slow clients the whole time, so it would always be the first to act.
    monkeypatch.setattr("flux_ensemble.k8s.grpc.calls._TICK_SECONDS", 0.0)
    with serving(DryRun()) as target:
        for _ in range(20):
            with Http2(target) as client:
                stream = client.call(STATUS, None, headers={b"grpc-timeout": b"50m"})
                assert DEADLINE_EXCEEDED in client.ended(stream)
        assert size(target) == 1


def test_a_connection_a_client_and_all_together_have_their_share() -> None:
    limits = Limits(requests=Bound(5, 4, 2), default_seconds=PATIENCE)
    refusals = {
        b"this connection has 2 requests open, which is all it may have": "127.0.0.1",
        b"this client has 4 requests open, which is all it may have": "127.0.0.1",
        b"the service has 5 requests open, which is all it takes": "127.0.0.3",
    }
    with serving(DryRun(), limits=limits) as target:
        address = f"127.0.0.1:{target.rpartition(':')[2]}"

        def held(source: str, calls: int) -> Http2:
            """A connection with calls whose request does not come."""
            client = Http2(address, source=source)
            client.call("/grpc.health.v1.Health/Check")
            for _ in range(calls):
                client.call(STATUS, None)
            # In their order: by now the calls have their places.
            client.ended(client.call("/grpc.health.v1.Health/Check"))
            return client

        clients = [held("127.0.0.1", 2)]
        for sentence, source in refusals.items():
            if b"connection" in sentence:
                end = clients[0].ended(clients[0].call(STATUS, SIZE))
            elif b"client" in sentence:
                clients.append(held(source, 2))
                with Http2(address, source=source) as client:
                    end = client.ended(client.call(STATUS, SIZE))
                # Another client is not concerned.
                with Http2(address, source="127.0.0.2") as client:
                    assert OK in client.ended(client.call(STATUS, SIZE))
            else:
                clients.append(held("127.0.0.2", 1))
                with Http2(address, source=source) as client:
                    end = client.ended(client.call(STATUS, SIZE))
            assert RESOURCE_EXHAUSTED in end
            assert sentence in end
        for client in clients:
            client.close()
        until(lambda: _answers(address))


def _answers(address: str) -> bool:
    with Http2(address) as client:
        return OK in client.ended(client.call(STATUS, SIZE))


def test_connections_on_which_nothing_comes_are_closed() -> None:
    with serving(DryRun(), limits=Limits(handshake_seconds=1)) as target:
        host, _, port = target.rpartition(":")
        for start in (b"", PREFACE[:9], b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01"):
            with socket.create_connection((host, int(port)), PATIENCE) as connection:
                connection.sendall(start)
                while _received(connection):
                    pass
        assert size(target) == 1


def test_a_handshake_of_tls_that_does_not_go_on_is_given_up(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with serving(
        DryRun(), limits=Limits(handshake_seconds=1), tls=authority.issue("server")
    ) as target:
        host, _, port = target.rpartition(":")
        for start in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n"):
            with socket.create_connection((host, int(port)), PATIENCE) as connection:
                connection.sendall(start)
                while _received(connection):
                    pass
        with RpcClient(target, cluster="alpha", tls=authority.issue_member("alpha")) as client:
            assert client.size().nodes == 1


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionError:
        return b""


def test_a_connection_without_calls_is_closed() -> None:
    with serving(DryRun(), limits=Limits(idle_seconds=1)) as target, Http2(target) as client:
        assert GOAWAY in client.closed()


def test_a_connection_takes_new_calls_for_a_time_only() -> None:
    with serving(DryRun(), limits=Limits(connection_seconds=1)) as target:
        with Http2(target) as client:
            open_ = client.call(STATUS, None)
            assert any(one.kind == GOAWAY for one in client.frames())
            # What has begun goes on.
            client.finish(open_, SIZE)
            assert OK in client.ended(open_)
        assert size(target) == 1


def test_there_are_so_many_connections_and_no_more() -> None:
    with serving(DryRun(), limits=Limits(connections=4)) as target:
        clients = [Http2(target) for _ in range(4)]
        for client in clients:
            assert OK in client.ended(client.call(STATUS, SIZE))
        with Http2(target) as client:
            assert client.closed() <= {4}
        for client in clients:
            client.close()
        assert size(target) == 1


def test_connections_of_one_client_are_not_all_there_are() -> None:
    # These clients answer no ping, and what a slow machine does to them is not the question here.
    limits = Limits(connections_of_client=8, handshake_seconds=600, ping_seconds=3600)
    with serving(DryRun(), limits=limits) as target, ExitStack() as stack:
        address = f"127.0.0.1:{target.rpartition(':')[2]}"
        busy = stack.enter_context(Http2(address))
        open_ = busy.call(STATUS, None)
        busy.ended(busy.call("/grpc.health.v1.Health/Check"))
        others = [stack.enter_context(Http2(address, source="127.0.0.2")) for _ in range(8)]
        for client in others:
            assert OK in client.ended(client.call(STATUS, SIZE))
        idle = [stack.enter_context(Http2(address)) for _ in range(20)]
        until(lambda: sum(_is_closed(client) for client in idle) == 13)
        # The connection with a call stays, and those of another client.
        busy.finish(open_, SIZE)
        assert OK in busy.ended(open_)
        for client in others:
            assert OK in client.ended(client.call(STATUS, SIZE))


def _is_closed(client: Http2) -> bool:
    client.socket.setblocking(False)
    try:
        while data := client.socket.recv(4096):
            assert data
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def test_a_connection_that_answers_no_ping_is_closed() -> None:
    limits = Limits(ping_seconds=1, pong_seconds=1)
    with serving(DryRun(), limits=limits) as target, Http2(target) as client:
        assert any(one.kind == 6 for one in client.frames(pong=False))
        # `frames` ends with the connection.


METHODS = {
    "Status": pb.StatusResponse,
    "Submit": pb.SubmitResponse,
    "Action": pb.ActionResponse,
    "Log": pb.LogEntry,
}


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x0a\x02\xff\xfe", b"\x00" * 99])
def test_bytes_that_are_no_message_are_refused_and_not_logged(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(DryRun()) as target, known_channel(target) as channel:
        for method in METHODS:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"{SERVICE}/{method}")(data, timeout=PATIENCE)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "the request is no flux_ensemble.v1." in caught.value.details()
        for method in ("RequestStatus", "RequestAction"):
            call = channel.unary_unary(
                f"/convergedcomputing.org.grpc.v1.EnsembleOperator/{method}",
                response_deserializer=predecessors_pb2.Response.FromString,
            )
            response = call(data, timeout=PATIENCE)
            assert response.status == predecessors_pb2.Response.ERROR
            assert "the request is no convergedcomputing.org" in response.payload
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/grpc.health.v1.Health/Check")(data, timeout=PATIENCE)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not caplog.records


def test_a_call_without_a_request_is_refused() -> None:
    with serving(DryRun()) as target, known_channel(target) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary(STATUS)(iter(()), timeout=PATIENCE)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == "the call has no request"


def test_clients_that_vanish_in_the_middle_leave_nothing_behind(logs: Any) -> None:
    limits = Limits(streams=Bound(4, 4, 4), requests=Bound(4, 4, 4))
    request = pb.LogRequest(cluster="alpha", ensemble="busy", follow=True).SerializeToString()
    with serving(DryRun(), logs, limits=limits) as target:
        for number in range(40):
            client = Http2(target)
            client.call(f"{SERVICE}/Log", request)
            client.call(STATUS, None)
            if number % 2:
                next(client.frames())
            client.close()

        def all_places_are_free() -> bool:
            with known_channel(target) as channel:
                stub = api.EnsembleServiceStub(channel)
                streams = [stub.Log(pb.LogRequest.FromString(request)) for _ in range(4)]
                try:
                    return all(next(stream).name for stream in streams)
                except grpc.RpcError:
                    return False
                finally:
                    for stream in streams:
                        stream.cancel()

        until(all_places_are_free)
        assert size(target) == 1


def test_what_is_refused_leaves_nothing_for_the_garbage_collector(logs: Any) -> None:
    requests = {
        STATUS: [b"\xff", b"", pb.StatusRequest(cluster="nobody").SerializeToString()],
        f"{SERVICE}/Submit": [
            pb.SubmitRequest(ensemble="a", group="b", params=params).SerializeToString()
            for params in ("{", "{}")
        ],
        f"{SERVICE}/Log": [b""],
        "/grpc.health.v1.Health/Check": [b"\x0a\x01x"],
    }

    def problems() -> int:
        return sum(type(one) is RequestProblem for one in gc.get_objects())

    with serving(Failing(*[Refused("no")] * 99), logs) as target, Http2(target) as client:
        gc.collect()
        gc.disable()
        before = problems()
        try:
            for path, datas in requests.items():
                for data in datas:
                    assert OK not in client.ended(client.call(path, data))
            # What has raised a problem holds the request: 4 MiB may wait for a collection.
            until(lambda: problems() <= before)
        finally:
            gc.enable()


def test_descriptors_of_closed_connections_are_given_back() -> None:
    with serving(DryRun()) as target:
        size(target)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            with Http2(target) as client:
                client.call(STATUS, None)
        until(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)
