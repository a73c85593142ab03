"""Clients that send anything, against a gRPC service in a process of its own.

    python t/fuzz/fuzz_grpc.py --seconds 300
    flux start python t/fuzz/fuzz_grpc.py --seconds 300

An input is a call with bytes that are no message, or nearly one; a message with odd values, or
with odd JSON in it; a call that is broken off; or a connection on which no gRPC is spoken, or
nearly so. It goes to a server in plaintext, or to one with TLS that lets nobody in. Under
`flux start` requests go on to the ensemble service of the instance, if one is loaded.

A finding is the end of a server, a traceback in its log, memory that grows by more than 200 MB,
a request that is not answered, or one that is answered later than after a second; the latter
only where it is so again, because the machine may be busy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# It comes first: `import grpc` in this directory would be this file.
import fuzzing

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "helpers"))

import json
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc
import http2
from certificates import Authority
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from rpc_servers import TOKEN, known_channel

from flux_ensemble.k8s.grpc.protocol import ensemble_pb2 as pb
from flux_ensemble.k8s.grpc.protocol import predecessors_pb2 as theirs

#: A request is not answered at all when it takes so long, and late when it takes the latter.
PATIENCE_SECONDS = 30.0
LATE_SECONDS = 1.0

#: How much memory a server may take more than in the beginning.
GROWTH = 200e6

#: How often the servers are looked at, in inputs.
LOOK = 25

TYPED = "/flux_ensemble.v1.EnsembleService"
PREDECESSORS = "/convergedcomputing.org.grpc.v1.EnsembleOperator"
HEALTH = "/grpc.health.v1.Health"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

SIZE = pb.StatusRequest(cluster="alpha", size_only=True).SerializeToString()

#: A request of each method, to be changed.
REQUESTS = {
    f"{TYPED}/Status": pb.StatusRequest(cluster="alpha", ensemble="hello"),
    f"{TYPED}/Submit": pb.SubmitRequest(
        cluster="alpha", ensemble="hello", group="echo", count=2, params='{"x": [1, "a"]}'
    ),
    f"{TYPED}/Action": pb.ActionRequest(
        cluster="beta",
        ensemble=pb.EnsembleAction(name="hello", action='{"name": "cancel", "label": "echo"}'),
    ),
    f"{TYPED}/Log": pb.LogRequest(cluster="alpha", ensemble="hello", events=True),
    f"{TYPED}/Metrics": pb.MetricsRequest(cluster="alpha", ensemble="hello"),
    f"{TYPED}/Pause": pb.PauseRequest(cluster="alpha", ensemble="hello"),
    f"{TYPED}/Resume": pb.ResumeRequest(cluster="alpha", ensemble="hello"),
    f"{TYPED}/Load": pb.LoadRequest(
        cluster="alpha",
        document="jobs: [{name: a, command: true}]",
        name="loaded",
        cwd="/tmp",
        environment={"PATH": "/bin"},
    ),
    f"{TYPED}/Report": pb.ReportRequest(
        cluster="alpha", nodes=pb.Nodes(node_up_count=2), queue=pb.Queue(run=1, inactive=0)
    ),
    f"{PREDECESSORS}/RequestStatus": theirs.StatusRequest(member="minicluster", name="alpha"),
    f"{PREDECESSORS}/RequestAction": theirs.ActionRequest(
        member="flux", name="beta", action="submit", payload='{"ensemble": "a", "group": "b"}'
    ),
    f"{HEALTH}/Check": health_pb2.HealthCheckRequest(service="flux_ensemble.v1.EnsembleService"),
    f"{HEALTH}/Watch": health_pb2.HealthCheckRequest(),
    REFLECTION: reflection_pb2.ServerReflectionRequest(
        file_containing_symbol="flux_ensemble.v1.EnsembleService"
    ),
}

TEXTS = [
    "", "\0", "a\0b", "alpha", "beta", "nobody", "default/alpha", "alpha/", "../alpha", "%00",
    "\n", "\x1b[2J", "ä€\U0001f600", "\u202e", "\ufeff", "-1", "0", "1e999", "null", "%s%n%d{0}",
    "' OR 1=1 --", "${HOME}", "x" * 253, "x" * 254, "x" * 5000, "é" * 5000, "x" * (1 << 20),
    "\0" * (1 << 20), "€" * (1 << 20),
]  # fmt: skip

NUMBERS = [0, 1, -1, 2, 127, 128, 2**31 - 1, -(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63)]

ODD_JSON = [
    "", " ", "null", "true", "1", '"a"', "[]", "{}", "{", "[", "{]", '{"a"', '{"a":}', "NaN",
    '{"x": NaN}', '{"x": Infinity}', '{"x": -Infinity}', '{"x": 1e999}', '{"x": [-1e999]}',
    '{"x": 1e-999}', '{"x": 18446744073709551616}', '{"x": -9223372036854775809}',
    '{"x": ' + "9" * 4000 + "}", '{"x": ' + "9" * 100_000 + "}", '{"x": 0.' + "1" * 100_000 + "}",
    "[" * 10_000, '{"x":' * 10_000, '{"x":' * 500 + "1" + "}" * 500, "[" * 900 + "]" * 900,
    '{"x": "\\ud800"}', '{"\\udfff": 1}', '{"x": "\\u0000"}', '{"x": "' + "a" * (1 << 20) + '"}',
    '{"x": [' + "1," * 90_000 + "1]}", '{"x": [' + "[]," * 500_000 + "[]]}",
    '{"x": 1, "x": 2}', '{"": {"": {"": ""}}}', "\ufeff{}", '{"x": 1} {}', "{'x': 1}",
    '{"name": "submit", "label": "echo", "count": 1e999}', '{"name": {"x": 1}}',
    '{"name": "scale", "to": 1e300}', '{"name": "custom", "function": "x"}',
    '{"grow": 1}', '{"grow": -1}', '{"grow": 1e999}', '{"grow": true}', '{"grow": "1"}',
    '{"shrink": 1}', '{"grow": 99999999999999999999999}', '{"grow": 1, "group": {"a": [1]}}',
    '{"ensemble": "\\udead", "group": "b"}', '{"ensemble": "a", "group": "b", "count": [1]}',
    '{"ensemble": "a", "group": "b", "params": {"x": [[[[1e999]]]]}}',
]  # fmt: skip

PATHS = [
    b"/", b"", b"a", b"//", b"/a/b/c", b"/\xff\xfe", b"/flux_ensemble.v1.EnsembleService/\xff",
    b"/flux_ensemble.v1.EnsembleService/Status\0", b"/" + b"a" * 6000, b"*", b"\0",
    b"/flux_ensemble.v1.EnsembleService/status", b"http://a/b", b"/%2e%2e/Status",
]  # fmt: skip

HEADERS = [
    (b"grpc-timeout", b"99999999H"), (b"grpc-timeout", b"0n"), (b"grpc-timeout", b"-1S"),
    (b"grpc-timeout", b"1X"), (b"grpc-timeout", b"1m"), (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"what"), (b"content-type", b"text/html"), (b"content-type", b"\xff"),
    (b"x", b"\xff\xfe"), (b"x-bin", b"!!!"), (b"x\xff", b"a"), (b"X", b"a"), (b"", b"a"),
    (b":method", b"GET"), (b":method", b"\xff"), (b":authority", b"\xff\0"), (b":odd", b"a"),
    (b"te", b""), (b"host", b"a"), (b"content-length", b"-1"), (b"x", b"y" * 9000),
    (b"grpc-message", b"%zz"), (b"user-agent", b"a" * 4000), (b"connection", b"close"),
]  # fmt: skip


class Finding(Exception):
    """Something that must not be."""


def _token(directory: Path) -> Path:
    """A file with the token that clients in plaintext present."""
    file = directory / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    return file


class Server:
    """`flux ensemble grpc start` in a process of its own.

    Args:
        directory: for its log.
        files: of TLS: options of the command; none: plaintext.
    """

    def __init__(self, directory: Path, *files: str) -> None:
        self._log = directory / ("tls.log" if files else "plain.log")
        self._read = 0
        # Without an instance: a URI that nothing is tried for.
        at = "" if "FLUX_URI" in os.environ else "=none:"
        command = "import sys; from flux_ensemble.cli.main import main; main(sys.argv[1:])"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", command, "grpc", "start", "--port", "0"),
                    *("--backend", "dry-run", "--cluster", f"alpha{at}", "--cluster", f"beta{at}"),
                    *(files or ("--token-file", str(_token(directory)))),
                    "--allow-load",
                ],
                stderr=log,
            )
        t_end = time.monotonic() + 60
        while not (found := re.search(r"localhost:(\d+)", self._log.read_text())):
            if self.process.poll() is not None or time.monotonic() > t_end:
                raise Finding(f"the server does not start: {self._log.read_text()}")
            time.sleep(0.05)
        self.target = f"localhost:{found[1]}"
        self.first_rss = 0.0

    def memory(self, what: str = "VmRSS") -> float:
        """Its memory in bytes: now, or the most with "VmHWM"."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * float(status.partition(f"{what}:")[2].split()[0])

    def look(self) -> None:
        """Looks whether it is well.

        Raises:
            Finding: it is not.
        """
        if self.process.poll() is not None:
            raise Finding(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
        written = self.log()
        if "Traceback" in written:
            raise Finding(f"a traceback in the log:\n{written[-4000:]}")
        if written.count("\n") > 60 + 6 * LOOK:
            raise Finding(f"{written.count(chr(10))} lines in the log:\n{written[-1000:]}")
        memory = self.memory()
        self.first_rss = self.first_rss or memory
        if memory - self.first_rss > GROWTH:
            raise Finding(f"the memory grew from {self.first_rss:.3g} to {memory:.3g} bytes")

    def log(self) -> str:
        """What has come to its log since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            data = log.read()
        self._read += len(data)
        return data.decode(errors="replace")

    def close(self) -> None:
        """Ends it; it is to end by itself.

        Raises:
            Finding: it does not.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Finding("the server did not end by itself") from None


class Fuzzer:
    """Sends inputs.

    Args:
        plain: the server in plaintext.
        closed: the server with TLS, for which there is no certificate.
    """

    def __init__(self, plain: Server, closed: Server) -> None:
        self._plain = plain
        self._closed = closed
        self._channel = known_channel(plain.target)
        # With a connection of its own: what others do to theirs is no matter.
        alone = [("grpc.use_local_subchannel_pool", 1)]
        self._control = grpc.insecure_channel(plain.target, alone)
        self.kinds: dict[Callable[[random.Random], None], int] = {
            self.mutated_bytes: 5,
            self.fields: 5,
            self.json: 5,
            self.broken_off: 2,
            self.burst: 1,
            self.paths: 1,
            self.frames: 3,
            self.garbage: 2,
            self.handshake: 1,
        }

    def once(self, chance: random.Random) -> None:
        """Sends one input, and sees to it that the server answers another client.

        Raises:
            Finding: it does not, or is late.
        """
        (kind,) = chance.choices([*self.kinds], [*self.kinds.values()])
        state = chance.getstate()
        # Once more, because the machine may be busy.
        for attempt in range(3):
            chance.setstate(state)
            kind(chance)
            begin = time.monotonic()
            try:
                self._control.unary_unary(f"{TYPED}/Status")(SIZE, timeout=PATIENCE_SECONDS)
            except grpc.RpcError as error:
                raise Finding(f"after {kind.__name__}: {error.details()}") from None
            took = time.monotonic() - begin
            if took < LATE_SECONDS:
                return
            print(f"after {kind.__name__}: {took:.1f} s (attempt {attempt})", flush=True)
        raise Finding(f"after {kind.__name__} another request took {took:.1f} s")

    def mutated_bytes(self, chance: random.Random) -> None:
        """Bytes that are no message, or nearly one."""
        method = chance.choice([*REQUESTS])
        self._call(method, mutated(chance, REQUESTS[method].SerializeToString()))

    def fields(self, chance: random.Random) -> None:
        """A message with odd values."""
        method = chance.choice([*REQUESTS])
        request = type(REQUESTS[method]).FromString(REQUESTS[method].SerializeToString())
        for _ in range(chance.randint(1, 3)):
            set_field(chance, request)
        self._call(method, request.SerializeToString())

    def json(self, chance: random.Random) -> None:
        """Odd JSON where JSON is expected."""
        text = chance.choice(ODD_JSON)
        if chance.random() < 0.5:
            text = json.dumps(json_value(chance, 0))
        if chance.random() < 0.3:
            text = mutated(chance, text.encode()).decode(errors="replace")
        action = chance.choice(["grow", "shrink", "submit", "submit", "dance"])
        text = text[: 3 << 20]
        method, request = chance.choice([
            (f"{TYPED}/Submit", pb.SubmitRequest(ensemble="a", group="b", params=text)),
            (f"{TYPED}/Action", pb.ActionRequest(
                cluster="alpha", ensemble=pb.EnsembleAction(name="hello", action=text))),
            (f"{PREDECESSORS}/RequestAction", theirs.ActionRequest(
                member="flux", name="alpha", action=action, payload=text)),
        ])  # fmt: skip
        if method.endswith("Submit"):
            request.cluster = "alpha"  # type: ignore[attr-defined]
        self._call(method, request.SerializeToString())

    def broken_off(self, chance: random.Random) -> None:
        """A call that is left in the middle."""
        with http2.Http2(self._plain.target) as client, suppress(OSError):
            for _ in range(chance.randint(1, 8)):
                method = chance.choice([*REQUESTS])
                data = REQUESTS[method].SerializeToString()
                stream = client.call(method, None if chance.random() < 0.5 else data)
                part = http2.message(data)[: chance.randint(0, len(data))]
                match chance.randrange(5):
                    case 0:
                        code = struct.pack(">I", chance.choice([0, 8, 2**32 - 1]))
                        client.socket.sendall(http2.frame(http2.RST_STREAM, 0, stream, code))
                    case 1:
                        client.socket.sendall(http2.frame(http2.DATA, 0, stream, part))
                    case 2:
                        end = http2.END_STREAM
                        client.socket.sendall(http2.frame(http2.DATA, end, stream, part))
                    case 3:
                        list(client.frames(seconds=0.02))
            if chance.random() < 0.3:
                reset(client.socket)

    def burst(self, chance: random.Random) -> None:
        """Many calls at once, some of which are given up."""
        calls = []
        for _ in range(chance.randint(2, 150)):
            method = chance.choice([one for one in REQUESTS if one != REFLECTION])
            call = self._channel.unary_stream(method)
            timeout = chance.choice([0.001, 0.01, 0.1, PATIENCE_SECONDS])
            calls.append(call(REQUESTS[method].SerializeToString(), timeout=timeout))
        for call in calls:
            if chance.random() < 0.3:
                call.cancel()
        for call in calls:
            with suppress(grpc.RpcError):
                list(call)

    def paths(self, chance: random.Random) -> None:
        """Methods and headers that are none."""
        with http2.Http2(self._plain.target, timeout=PATIENCE_SECONDS) as client:
            headers = dict(chance.sample(HEADERS, chance.randint(0, 2)))
            path = chance.choice([*PATHS, f"{TYPED}/Status".encode()])
            with suppress(OSError):
                client.call(path, SIZE, headers=headers)
                list(client.frames(seconds=0.02))

    def frames(self, chance: random.Random) -> None:
        """Nearly HTTP/2."""
        with socket.create_connection(self._address(self._plain), PATIENCE_SECONDS) as one:
            with suppress(OSError):
                one.sendall(http2.PREFACE + b"".join(odd_frames(chance)))
                one.settimeout(0.02)
                while one.recv(65536):
                    pass
            if chance.random() < 0.3:
                reset(one)

    def garbage(self, chance: random.Random) -> None:
        """Something else altogether."""
        data = chance.choice([
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /flux_ensemble.v1.EnsembleService/Status HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\0\x05abcde",
            b"", b"\0", b"\r\n" * 1000, b"\xff" * 100_000, b"GET /" + b"a" * 100_000,
            chance.randbytes(chance.randint(1, 3000)), http2.PREFACE,
            http2.PREFACE + chance.randbytes(chance.randint(1, 3000)),
        ])  # fmt: skip
        with socket.create_connection(self._address(self._plain), PATIENCE_SECONDS) as one:
            with suppress(OSError):
                one.sendall(data)
                one.settimeout(0.01)
                one.recv(65536)
            if chance.random() < 0.3:
                reset(one)

    def handshake(self, chance: random.Random) -> None:
        """Something that is no TLS, or nearly so, or has no certificate."""
        address = self._address(self._closed)
        with socket.create_connection(address, PATIENCE_SECONDS) as one, suppress(OSError):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            if chance.random() < 0.4:
                with context.wrap_socket(one) as wrapped:
                    wrapped.sendall(http2.PREFACE + http2.frame(http2.SETTINGS))
                    wrapped.settimeout(0.05)
                    wrapped.recv(1000)
                return
            sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
            with suppress(ssl.SSLWantReadError):
                context.wrap_bio(received, sent).do_handshake()
            one.sendall(mutated(chance, sent.read()))
            one.settimeout(0.02)
            one.recv(65536)

    def _call(self, method: str, data: bytes) -> None:
        """One call.

        Raises:
            Finding: it is not answered, or the answer is late, each time that it is tried.
        """
        for _ in range(3):
            begin = time.monotonic()
            try:
                if method == REFLECTION:
                    for _ in self._channel.stream_stream(method)(
                        iter([data]), timeout=PATIENCE_SECONDS
                    ):
                        pass
                else:
                    for _ in self._channel.unary_stream(method)(data, timeout=PATIENCE_SECONDS):
                        pass
            except grpc.RpcError as error:
                code, details = error.code(), error.details() or ""
                if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) or (
                    code is grpc.StatusCode.DEADLINE_EXCEEDED
                ):
                    raise Finding(f"{method}: {code.name} {details[:500]}") from None
            if time.monotonic() - begin < LATE_SECONDS:
                return
        raise Finding(f"{method}: the answer took {time.monotonic() - begin:.1f} s")

    def _address(self, server: Server) -> tuple[str, int]:
        host, _, port = server.target.rpartition(":")
        return host, int(port)


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Bytes with a few changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(changed))
        match chance.randrange(7):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at : at + chance.randint(1, 8)]
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3:
                changed[at:at] = changed[: chance.randint(0, 40)]
            case 4:
                changed[at:at] = b"\xff" * chance.randint(1, 12)
            case 5:
                changed[at:at] = b"\x0a" + b"\xff\xff\xff\xff\x07"
            case _:
                del changed[at:]
    return bytes(changed)


def set_field(chance: random.Random, request: Any) -> None:
    """Sets any field of a message, or of one in it, to an odd value."""
    fields = [*request.DESCRIPTOR.fields]
    field = chance.choice(fields)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(request, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
    elif field.message_type is not None:
        set_field(chance, getattr(request, field.name))
    elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = chance.choice(TEXTS)
        setattr(request, field.name, text if field.type == field.TYPE_STRING else text.encode())
    elif field.type == field.TYPE_BOOL:
        # Logs are not followed: nothing would end them.
        if field.name != "follow":
            setattr(request, field.name, chance.random() < 0.5)
    else:
        with suppress(ValueError):
            setattr(request, field.name, chance.choice(NUMBERS))


def json_value(chance: random.Random, depth: int) -> object:
    """A value of JSON that nobody expects."""
    kind = chance.randrange(8 if depth < 5 else 6)
    if kind == 6:
        return [json_value(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    if kind == 7:
        keys = [*TEXTS[:20], "name", "label", "count", "params", "ensemble", "group", "grow"]
        return {
            chance.choice(keys): json_value(chance, depth + 1) for _ in range(chance.randint(0, 5))
        }
    return [
        None,
        chance.random() < 0.5,
        chance.choice(NUMBERS) * chance.choice([1, 1, 3]),
        chance.choice([0.5, 1e308, float("inf"), float("nan"), -0.0]),
        chance.choice(TEXTS[:20]),
        chr(chance.randrange(0xD800, 0xE000)),
    ][kind]


def odd_frames(chance: random.Random) -> Iterator[bytes]:
    """Frames of HTTP/2, most of which make no sense there."""
    yield http2.frame(http2.SETTINGS, payload=b"".join(
        struct.pack(">HI", chance.randint(0, 9), chance.choice([0, 1, 2**14, 2**31, 2**32 - 1]))
        for _ in range(chance.choice([0, 1, 3, 100]))
    ))  # fmt: skip
    for _ in range(chance.randint(1, 30)):
        one = http2.frame(
            chance.choice([*range(10), chance.randrange(256)]),
            chance.choice([0, 1, 4, 5, 8, 32, 0x2D, 255]),
            chance.choice([0, 1, 1, 1, 2, 3, 5, 2**31 - 1]),
            chance.choice([
                b"", bytes(4), bytes(8), b"\xff" * 4, chance.randbytes(chance.randint(0, 200)),
                b"\x82\x87\x84", b"\x40\x0a" + b"a" * 200, b"\x3f" + b"\xff" * 10,
            ]),
        )  # fmt: skip
        yield mutated(chance, one) if chance.random() < 0.2 else one


def reset(connection: socket.socket) -> None:
    """Lets a connection end without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def main() -> int:
    """Runs until the budget is used up."""
    options = fuzzing.arguments(__doc__)
    findings, most = 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = Authority(directory).issue("server")
        tls = ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
        servers = [Server(directory), Server(directory, *tls, "--tls-ca", str(files.ca))]
        budget = fuzzing.Budget(options)
        fuzzer = Fuzzer(*servers)
        for number in budget:
            try:
                fuzzer.once(random.Random(f"{options.seed} {number}"))
                if number % LOOK == 0:
                    for server in servers:
                        server.look()
            except Finding as finding:
                findings += 1
                print(f"seed {options.seed}, input {number}: {finding}", flush=True)
                if findings >= options.findings or servers[0].process.poll() is not None:
                    break
        most = max(server.memory("VmHWM") for server in servers if server.process.poll() is None)
        for server in servers:
            try:
                server.look()
                server.close()
            except Finding as finding:
                findings += 1
                print(f"seed {options.seed}, at the end: {finding}", flush=True)
                server.process.kill()
    return budget.close("grpc", findings, rss=most)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.exit(main())
