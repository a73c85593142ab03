"""Plays rounds of steps on an instance of its own, and sees what comes of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hostile.clients import Answer, Client
from hostile.control import DOCUMENT, JOBS, NAME, Control, verified
from hostile.documents import LONG_SECONDS
from hostile.judge import Finding, FluxLog, faults_of, faults_of_status
from hostile.recipes import ENDS, GUEST, Step
from hostile.subject import Gone, Subject

#: Seconds in which requests are answered, more for each one of them and for each large document,
#: and those after which they are given up.
PROMPT, EACH, LARGE, NEVER = 1.0, 0.01, 4.0, 60.0

#: More seconds for answers that come when the queue has accepted jobs.
ACCEPT = {"ensemble.submit": 4.0, "ensemble.action": 4.0}

#: A document is large that has more bytes.
LARGE_BYTES = 64 * 1024

#: Where Flux's own services took longer meanwhile, a late answer is not the service's fault.
QUICK = 0.3

#: What is asked of Flux beside the service.
PINGS = ("kvs.ping", "job-manager.ping")

#: Seconds in which the service is ready again, in which ensembles end and are unloaded, and in
#: which one that has left a request open answers another.
PATIENCE, PROBE = 30.0, 3.0

#: What the service may grow by with nothing loaded, in bytes.
MOST_GROWTH = 200e6

#: Whom the clients are taken for: rank, user id, role mask. `signer` hands in the guest's jobs.
_CLIENTS: Mapping[str, tuple[int, int | None, int | None]] = {
    "owner": (0, None, None),
    "other": (0, None, None),
    "leaf": (1, None, None),
    "deaf": (0, None, None),
    "guest": (0, GUEST, 0x2),
    "stranger": (1, GUEST - 1, 0x2),
    "signer": (0, GUEST, None),
}


class Stage:
    """An instance with the service, the control ensemble, and clients.

    Attributes:
        over: it cannot be used any more.
        requests: how many were sent.
        rss: the most memory that the service has had at the end of a scene, in bytes.
    """

    def __init__(self) -> None:
        self.over = False
        self.requests = 0
        self.rss = 0
        self._subject = Subject()
        self._log = FluxLog(self._subject.log)
        self._jobs: deque[int] = deque(maxlen=50)
        self._waits: dict[tuple[str, int], tuple[Step, float]] = {}
        self._overdue: list[tuple[float, float, Step]] = []
        self._large = 0
        self._control = Control()
        try:
            self._watch = Client(self._subject.uris[0])
            self._journal = Client(self._subject.uris[0])
            submits = _json({"full": False, "allow": {"submit": 1}})
            self._journal.send("job-manager.events-journal", submits, streaming=True)
            self._clients = {name: self._open(name) for name in _CLIENTS}
            load = {"spec": DOCUMENT, "cwd": "/tmp", "environment": dict(os.environ)}
            self._reply("ensemble.load", load)
            self._settled = self.rss = self._subject.rss()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it all."""
        self._subject.close()

    def _open(self, name: str) -> Client:
        rank, userid, rolemask = _CLIENTS[name]
        return Client(self._subject.uris[rank], userid=userid, rolemask=rolemask)

    # -- what a caller does ---------------------------------------------------------------

    def play(self, steps: Iterable[Step]) -> list[Finding]:
        """Send the steps of a round, and await the answers; the faults that showed."""
        return self._guarded(self._play(steps))

    def look(self, seconds: float) -> list[Finding]:
        """Wait for what comes later; the faults that showed."""
        deadline = time.monotonic() + seconds
        findings: list[Finding] = []
        while not findings and not self.over and time.monotonic() < deadline:
            findings = self.play(())
            time.sleep(0.05)
        return findings

    def end_scene(self) -> list[Finding]:
        """Look at everything, and unload all but the control ensemble; the faults that showed."""
        return self._guarded(self._end_scene())

    def end(self) -> list[Finding]:
        """End the control ensemble, and check what it has done; the faults that showed."""
        return self._guarded(self._end())

    def _guarded(self, findings: Iterator[Finding]) -> list[Finding]:
        found: list[Finding] = []
        try:
            found.extend(findings)
        except (Gone, OSError) as error:
            self.over = True
            text = str(error) if isinstance(error, Gone) else f"the broker is gone: {error}"
            # Requests are handled in order, so the first one without an answer may be the cause.
            suspect = next(iter(self._waits.values()), (None, 0.0))[0]
            found.append(Finding("death", text, step=suspect))
        return [*found, *self._log.new()]

    # -- sending ------------------------------------------------------------------------

    def _play(self, steps: Iterable[Step]) -> Iterator[Finding]:
        self._large = 0
        for step in steps:
            if "do" in step:
                self._do(step)
            else:
                self._send(step)
        yield from self._await()

    def _send(self, step: Step) -> None:
        client = self._clients[step["client"]]
        payload = self._payload(step, client)
        streaming, noresponse = step.get("streaming", False), step.get("noresponse", False)
        t = time.monotonic()
        tag = client.send(step["topic"], payload, streaming=streaming, noresponse=noresponse)
        self.requests += 1
        follows = streaming and b'"follow": true' in (payload or b"")
        if not (noresponse or follows or step["client"] == "deaf" or step["topic"] in ENDS):
            self._waits[step["client"], tag] = step, t
        if step["topic"] == "ensemble.disconnect":
            # Streams of a client that has disconnected end without a word.
            self._forget(lambda asked: asked["client"] == step["client"] and asked.get("streaming"))
        if step["topic"] == "ensemble.load" and len(payload or b"") > LARGE_BYTES:
            self._large += 1

    def _forget(self, which: Callable[[Step], Any]) -> None:
        """Wait for no answer to some requests."""
        self._waits = {key: wait for key, wait in self._waits.items() if not which(wait[0])}

    def _payload(self, step: Step, client: Client) -> bytes | None:
        if step["payload"] is None:
            return None
        data: bytes = step["payload"].encode("utf-8", "surrogateescape")

        def job(found: re.Match[bytes]) -> bytes:
            return b"%d" % (self._jobs[int(found[1]) % len(self._jobs)] if self._jobs else 1)

        if b"@" in data:
            data = re.sub(rb'"@JOB(\d+)@"', job, data)
            data = data.replace(b'"@TAG@"', b"%d" % client.streamed)
            data = data.replace(b"@DIR@", str(self._subject.directory).encode())
        return data if step.get("raw") else data + b"\0"

    def _do(self, step: Step) -> None:
        name = step["client"]
        if step["do"] == "drop":
            self._forget(lambda asked: asked["client"] == name)
            self._clients[name].close()
            self._clients[name] = self._open(name)
            return
        self._waits.clear()
        if step["do"] == "kill":
            self._subject.kill()
        else:
            self._subject.load("reload")
        deadline = time.monotonic() + PATIENCE
        while json.loads(self._reply("ensemble.status", {}).text)["service"]["state"] != "ready":
            if time.monotonic() > deadline:
                raise Gone(f"the service is not ready {PATIENCE:g} s after a {step['do']}")
            time.sleep(0.05)

    # -- waiting ------------------------------------------------------------------------

    def _await(self) -> Iterator[Finding]:
        """Wait for all answers, and ask Flux itself meanwhile to see whether it is quick."""
        begun = looked = time.monotonic()
        starved = self._subject.starved()
        seconds = PROMPT + EACH * len(self._waits) + LARGE * self._large
        slowest = 0.0
        pings = {self._watch.send(topic, b"{}\0"): begun for topic in PINGS}
        while self._waits and time.monotonic() < begun + max(NEVER, 2 * seconds):
            for name, client in self._clients.items():
                if name != "deaf":
                    for answer in client.receive():
                        yield from self._take(name, answer, seconds)
            self._learn()
            for answer in self._watch.receive():
                slowest = max(slowest, answer.t - pings.pop(answer.tag, answer.t))
            if time.monotonic() > looked + 0.1:
                looked = time.monotonic()
                self._subject.check()
                pings |= {self._watch.send(topic, b"{}\0"): looked for topic in PINGS}
            fds = [client.fd for name, client in self._clients.items() if name != "deaf"]
            select.select(fds, [], [], 0.005)
        self._subject.check()
        starved = self._subject.starved() - starved
        slowest = max([slowest, *(time.monotonic() - t for t in pings.values())])
        late = [one for one in self._overdue if one[1] - starved > seconds]
        self._overdue.clear()
        if late and slowest < QUICK:
            _, took, step = min(late, key=lambda one: one[0])
            text = f"{step['topic']} took {took:.1f} s"
            yield Finding("late answer", text, vague=True, step=step)
        yield from self._unanswered(slowest, starved)

    def _take(self, name: str, answer: Answer, seconds: float) -> Iterator[Finding]:
        step, t = self._waits.pop((name, answer.tag), ({"topic": "ensemble.log"}, answer.t))
        topic = step["topic"]
        if topic.startswith("ensemble."):
            yield from faults_of(answer.errnum, answer.text, step)
            took = answer.t - t - ACCEPT.get(topic, 0.0)
            if took > seconds:
                self._overdue.append((t, took, step))

    def _learn(self) -> None:
        """Learn which jobs there are that take long enough to get memos."""
        for answer in self._journal.receive():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                told = json.loads(answer.text)
                system = told["jobspec"]["attributes"]["system"]
                if system["exec"]["test"]["run_duration"] == f"{LONG_SECONDS}s":
                    self._jobs.append(told["id"])

    def _unanswered(self, slowest: float, starved: float) -> Iterator[Finding]:
        """What still waits is given up; a service that answers nothing is of no more use."""
        steps = [step for step, _ in self._waits.values()]
        self._waits.clear()
        for step in steps:
            if step["topic"].startswith("ensemble."):
                text = (
                    f"{step['topic']} has none after {NEVER:g} s, in which Flux answered within "
                    f"{slowest:.1f} s and the service waited {starved:.1f} s for a processor"
                )
                yield Finding("no answer", text, vague=True, step=step)
                self._reply("ensemble.list", {}, PROBE)
                return

    def _reply(self, topic: str, payload: Mapping[str, Any], seconds: float = PATIENCE) -> Answer:
        """The answer to a request of the stage's own.

        Raises:
            Gone: there is none.
        """
        tag = self._watch.send(topic, _json(payload))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for answer in self._watch.receive():
                if answer.tag == tag:
                    return answer
            self._subject.check()
            select.select([self._watch.fd], [], [], 0.05)
        raise Gone(f"the service does not answer {topic} within {seconds:g} s")

    # -- the end of a scene ---------------------------------------------------------------

    def _status(self) -> Iterator[Finding]:
        answer = self._reply("ensemble.status", {})
        yield from faults_of(answer.errnum, answer.text, {"topic": "ensemble.status"})
        if not answer.errnum:
            yield from faults_of_status(answer.text)
            yield from self._control.progress(json.loads(answer.text))

    def _end_scene(self) -> Iterator[Finding]:
        yield from self._status()
        for job in self._jobs:
            cancel = {"id": job, "severity": 0, "type": "cancel"}
            self._watch.send("job-manager.raise", _json(cancel))
        self._jobs.clear()
        yield from self._unload_all()
        rss = self._subject.rss()
        self.rss = max(self.rss, rss)
        if rss > self._settled + MOST_GROWTH:
            self.over = True
            sizes = f"from {self._settled / 1e6:.0f} to {rss / 1e6:.0f} MB"
            yield Finding("memory", f"the service grew {sizes} with nothing loaded", vague=True)

    def _unload_all(self) -> Iterator[Finding]:
        deadline = time.monotonic() + PATIENCE
        last = "none"
        while time.monotonic() < deadline:
            answer = self._reply("ensemble.list", {})
            yield from faults_of(answer.errnum, answer.text, {"topic": "ensemble.list"})
            listed = json.loads(answer.text)["ensembles"] if not answer.errnum else []
            left = [one["name"] for one in listed if one["name"] != NAME]
            if not left and not answer.errnum:
                return
            for name in left:
                for op in ("cancel", "unload"):
                    answer = self._reply(f"ensemble.{op}", {"name": name})
                    yield from faults_of(answer.errnum, answer.text, {"topic": f"ensemble.{op}"})
                    last = f"{op}: {answer.text[:200].decode('utf-8', 'replace')}"
            time.sleep(0.02)
        self.over = True
        yield Finding("cannot be unloaded", f"ensembles are left; the last answer: {last}")

    def _end(self) -> Iterator[Finding]:
        self._reply("ensemble.rules", {"name": NAME, "id": "next", "enabled": False})
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._reply("ensemble.status", {"name": NAME})
            status = {} if answer.errnum else json.loads(answer.text)["ensembles"][0]
            if status and not status["jobs"]["active"] and status["state"] != "running":
                break
            if time.monotonic() > deadline:
                yield Finding("control", f"the control ensemble does not end: {status}")
                return
            time.sleep(0.05)
        metrics = json.loads(self._reply("ensemble.metrics", {"name": NAME}).text)
        yield from verified(self._subject.flux("python", str(JOBS), NAME), status, metrics)


def _json(value: Mapping[str, Any]) -> bytes:
    """A payload of the stage's own."""
    return json.dumps(value).encode() + b"\0"
