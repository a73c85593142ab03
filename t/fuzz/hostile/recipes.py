"""Recipes: each makes the steps of one kind of abuse.

A step that sends a message is `{"client", "topic", "payload", "by"}`, where `by` is the recipe;
the payload is text with surrogate escapes, or None. More keys, where they are true: `raw` (no
NUL byte is put behind the payload, as Flux has it), `streaming`, `noresponse`, and `refused` (to
take the request on is a fault). In a payload `"@JOB3@"` becomes the id of a job, `"@TAG@"` the
matchtag of the client's last streaming request. Any other step is `{"do", "client", "by"}`.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.client.topics import TOPICS
from flux_ensemble.queues.nested.link import FORMAT
from hostile import documents
from hostile.values import GARBAGE, LONG, encode, garbled, mutated, odd, odd_text

Step = dict[str, Any]

OWNERS = ("owner", "other", "leaf")
GUESTS = ("guest", "stranger")

#: The user id of the client `guest`, and of the jobs that `signer` submits for it.
GUEST = 9999

#: Topics that are nobody's, and those that end streams.
UNKNOWN = ("ensemble.dance", "ensemble.%s%n", "ensemble.load.load", "ensemble.é", "ensemble.LOAD")
ENDS = ("ensemble.log-cancel", "ensemble.disconnect")

MEMOS: tuple[Any, ...] = (
    {"fom": 7}, {"fom": "9" * 400}, {"fom": "-" + "9" * 5000}, {"step": "%1999999999d"},
    {"fom": 7, "step": 10**18}, {"fom": 1e308, "step": -1}, {"a.b.c": 1}, {"a": {"b": {"c": 2}}},
    {"%s": "%n"}, {"fom": "nan"}, {"fom": "inf"}, {"fom": True}, {"fom": [1, [2]]}, {"": 1},
    {"fom": "x" * LONG}, {"x" * 10_000: 1}, {"duration": 1e300}, {"pending": -1}, {"step": "7"},
    {f"k{n}": n for n in range(300)}, {"fom": 5e-324}, {"count": 1, "mean": 2, "nodes": 3},
)  # fmt: skip


class Recipes:
    """Makes rounds of steps.

    Args:
        rng: decides all that is left to chance.

    Attributes:
        weights: how often each recipe is taken; a caller may change it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.begin(rng)
        self._names = [f"h{number}" for number in range(8)]
        self._made: dict[str, tuple[Callable[[], list[Step]], float]] = {
            "ask": (self.ask, 4), "mutate": (self.mutate, 6), "garble": (self.garble, 2),
            "garbage": (self.garbage, 2), "change": (self.change, 3),
            "text": (self.text, 2), "orders": (self.orders, 2),
            "record": (self.record, 0.7), "places": (self.places, 1), "scaler": (self.scaler, 1),
            "memo": (self.memo, 5), "raise": (self.exception, 2), "jobs": (self.jobs, 1.5),
            "guests": (self.guests, 1.5), "streams": (self.streams, 2), "leave": (self.leave, 1),
            "actions": (self.actions, 3), "numbers": (self.numbers, 3), "storm": (self.storm, 0.5),
            "size": (self.size, 0.2), "restart": (self.restart, 0.03),
            **{f"load {kind}": (partial(self.document, make), weight / 2)
               for kind, (make, weight) in documents.KINDS.items()},
        }  # fmt: skip
        self.weights = {name: weight for name, (_, weight) in self._made.items()}

    def round(self) -> list[Step]:
        """The steps of one round."""
        steps: list[Step] = []
        names = self._rng.choices(
            list(self.weights), list(self.weights.values()), k=self._rng.choice((1, 2, 4, 8))
        )
        if "restart" in names:
            names = ["restart"]
        for name in names:
            steps += [{**step, "by": name} for step in self._made[name][0]()]
        return steps

    def begin(self, rng: random.Random) -> None:
        """Begin a scene, in which this decides all that is left to chance."""
        self._rng = rng

    # -- parts ----------------------------------------------------------------------

    def _client(self) -> str:
        return self._rng.choice(OWNERS)

    def _name(self) -> str:
        return "nobody" if self._rng.random() < 0.03 else self._rng.choice(self._names)

    def _step(self, topic: str, payload: Any, client: str | None = None, **more: Any) -> Step:
        data = payload if payload is None or isinstance(payload, bytes) else encode(payload)
        return {
            "client": client or self._client(),
            "topic": topic if "." in topic else f"ensemble.{topic}",
            "payload": None if data is None else data.decode("utf-8", "surrogateescape"),
            **({"streaming": True} if topic in TOPICS and TOPICS[topic].streaming else {}),
            **more,
        }

    def _document(self, name: str) -> documents.Document:
        """One of any kind but `percent`."""
        kinds = [pair for kind, pair in documents.KINDS.items() if kind != "percent"]
        weights = [weight for _, weight in kinds]
        make = self._rng.choices([make for make, _ in kinds], weights)[0]
        return make(self._rng, name)

    def _load(self, document: documents.Document, **more: Any) -> Step:
        payload = {
            "spec": document,
            "cwd": "/tmp",
            "environment": {"PATH": "/usr/bin:/bin"},
            **more,
        }
        return self._step("load", payload)

    def _valid(self, method: str) -> dict[str, Any]:
        """A payload that is right for a topic."""
        rng = self._rng
        group = rng.choice(("quick", "long"))
        rules = ("begin", "wait", "more", "memo", "tick", "call")
        values: dict[str, Any] = {
            "name": self._name(), "group": group, "count": rng.choice((1, 2)), "skip": 0,
            "params": {}, "id": rng.choice(rules), "enabled": rng.random() < 0.5, "to": 2,
            "follow": rng.random() < 0.3, "events": rng.random() < 0.5, "text": "jobs: []",
            "failed": rng.random() < 0.5, "dry_run": rng.random() < 0.5,
            "search": "s", "more": 1, "points": [{"x": 1}],
            "cancel": rng.random() < 0.5, "cwd": "/tmp", "environment": {"A": "b"},
            "overrides": rng.choice(({}, {"nodes": 1, "duration": "1m"}, {"urgency": 20})),
            "last": rng.choice((1, 5)), "interrupted": rng.random() < 0.5,
            "rule": rng.choice(rules),
            "outcome": rng.choice(("success", "failed")), "after": 0,
            "reason": "enough", "run": rng.randrange(2**40), "member": "pool.0", "ordinal": 1,
            "epoch": rng.choice((0, 1, 7)), "contact": rng.choice(("1.1", "2.1", "7.0")),
            "version": rng.choice((__version__, "9")),
            "format": rng.choice((FORMAT, 0, 9)),
            "number": rng.choice((0, 1, 2)), "taken": rng.choice((0, 1)),
            "items": rng.choice(([], [["up", 1]], [["event"]], ["x"], [[7, {}]])),
            "filter": rng.choice(("returncode == 0", "job.params.x > 1", "runtime < 10")),
            "action": rng.choice(({"name": "submit", "label": group, "count": 1},
                                  {"name": "custom", "label": "f"},
                                  {"name": "cancel", "label": group},
                                  {"name": "update", "label": "long", "urgency": 3},
                                  {"name": "disable", "label": rng.choice(rules)})),
        }  # fmt: skip
        if method == "load":
            return {"spec": self._document(values["name"]), "file": "h.yaml", "cwd": "/tmp",
                    "environment": {"PATH": "/usr/bin:/bin"}}  # fmt: skip
        fields = TOPICS[method].fields
        return {
            key: values[key]
            for key, field in fields.items()
            if field.required or rng.random() < 0.5
        }

    # -- requests -------------------------------------------------------------------

    def ask(self) -> list[Step]:
        """A sound request."""
        method = self._rng.choice(list(TOPICS))
        return [self._step(method, self._valid(method))]

    def mutate(self) -> list[Step]:
        """A request that differs in some places from a sound one."""
        method = self._rng.choice(list(TOPICS))
        payload = mutated(self._rng, self._valid(method))
        more: dict[str, Any] = {}
        if self._rng.random() < 0.05:
            more = {"streaming": not TOPICS[method].streaming}
        if self._rng.random() < 0.05:
            more["noresponse"] = True
        return [self._step(method, payload, **more)]

    def garble(self) -> list[Step]:
        """A request whose bytes are changed."""
        method = self._rng.choice(list(TOPICS))
        return [self._step(method, garbled(self._rng, encode(self._valid(method))))]

    def garbage(self) -> list[Step]:
        """A payload that is no JSON object, to any topic."""
        topic = self._rng.choice((*TOPICS, *TOPICS, *UNKNOWN, *ENDS))
        data = self._rng.choice(GARBAGE)
        raw = self._rng.random() < 0.3
        return [self._step(topic, data, raw=raw, refused=bool(data) and topic in TOPICS)]

    def numbers(self) -> list[Step]:
        """Numbers that no JSON has, or that are large, where a number is right."""
        name, value = self._name(), odd(self._rng)
        params = {"x": self._rng.choice((value, [value, 1]))}
        action = {"name": "submit", "label": "swept", "params": params}
        return [
            self._rng.choice((
                self._step("submit", {"name": name, "group": "swept", "params": params}),
                self._step("submit", {"name": name, "group": "quick", "count": value}),
                self._step("action", {"name": name, "action": action}),
                self._step("log", {"name": name, "skip": value}),
                self._step("scale", {"to": value}),
            ))
        ]  # fmt: skip

    def actions(self) -> list[Step]:
        """Actions, custom ones among them, with odd arguments."""
        rng = self._rng
        action = self._valid("action")["action"]
        key = rng.choice(("label", "count", "params", "duration", "timeout", "cooldown", "urgency"))
        if rng.random() < 0.7:
            action = {**action, key: odd(rng)}
        return [self._step("action", {"name": self._name(), "action": action})]

    def guests(self) -> list[Step]:
        """Requests of guests, who may list and see the status."""
        method = self._rng.choice(list(TOPICS))
        payload = self._valid(method)
        if self._rng.random() < 0.5:
            payload = mutated(self._rng, payload)
        client = self._rng.choice(GUESTS)
        return [self._step(method, payload, client, refused=not TOPICS[method].guest)]

    # -- documents ------------------------------------------------------------------

    def document(self, make: documents.Maker) -> list[Step]:
        """A document of one kind."""
        return [self._load(make(self._rng, self._name()))]

    def change(self) -> list[Step]:
        """A document with changes."""
        return [self._load(documents.changed(self._rng, self._name()))]

    def text(self) -> list[Step]:
        """A document as text, which may be broken, of a file with an odd name."""
        text = documents.text_of(self._rng, self._document(self._name()))
        file = odd_text(self._rng) + self._rng.choice(("", ".yaml"))
        payload = {"text": text, "file": file, "cwd": "/tmp", "environment": {}}
        if self._rng.random() < 0.3:
            payload["name"] = odd_text(self._rng)
        return [self._step("load", payload)]

    def record(self) -> list[Step]:
        """A recording to an odd file, and the end of the ensemble."""
        name = self._name()
        paths = (*documents.FILES, "@DIR@/record", "/dev/null", "record", "@DIR@/no/record")
        load = self._load(documents.sound(self._rng, name), record=self._rng.choice(paths))
        return [load, *self._end(name, load["client"])]

    def places(self) -> list[Step]:
        """Odd directories and environments; no process can have some of them."""
        text = odd_text(self._rng)
        never = "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
        more, never = self._rng.choice((
            ({"cwd": "/" + text}, never),
            ({"environment": {"A": text}}, never),
            ({"environment": {text or "=": "a"}}, never),
            ({"environment": {"A" * 100: "a" * 15 * LONG}}, True),
            ({"environment": {f"A{n}": "a" * 50 for n in range(20_000)}}, False),
            ({"cwd": "/tmp/" + "a" * 15 * LONG}, True),
            ({"cwd": "@DIR@/fifo"}, False),
        ))  # fmt: skip
        document = documents.functions(self._rng, self._name())
        return [{**self._load(document, **more), "refused": never}]

    def scaler(self) -> list[Step]:
        """A scaler with odd settings."""
        file = self._rng.choice(documents.FILES)
        settings = self._rng.choice((
            {"scaler": "minicluster", "grpc-target": "localhost:1"},
            {"scaler": "minicluster", "grpc-target": "localhost:1", "tls-cert": file,
             "tls-key": file, "tls-ca": file},
            {"scaler": "instance", "start-broker": "true {host} {rank} {0}"},
            {"scaler": "instance", "start-broker": odd_text(self._rng)},
        ))  # fmt: skip
        if self._rng.random() < 0.7:
            settings = mutated(self._rng, settings)
        return [self._load(documents.sound(self._rng, self._name()), scaler=settings)]

    # -- orders ---------------------------------------------------------------------

    def _end(self, name: str, client: str) -> list[Step]:
        orders = self._rng.choice((
            ("terminate", "unload"), ("cancel", "unload"), ("unload",), ("terminate", "cancel"),
            ("pause", "cancel", "resume", "unload"), ("submit", "unload", "terminate", "unload"),
        ))  # fmt: skip
        payload = {"name": name}
        return [
            self._step(one, {**payload, "group": "quick"} if one == "submit" else payload, client)
            for one in orders
        ]

    def orders(self) -> list[Step]:
        """A load and the end of the ensemble at once, of one client or of several."""
        name = self._name()
        load = self._load(documents.sound(self._rng, name))
        steps = [load, *self._end(name, load["client"])]
        if self._rng.random() < 0.3:
            steps += [{**load, "client": self._client()}, *self._end(name, self._client())]
        if self._rng.random() < 0.2:
            self._rng.shuffle(steps)
        return steps

    def storm(self) -> list[Step]:
        """Many requests of all clients at once."""
        makers = (self.ask, self.ask, self.mutate, self.garbage, self.streams)
        return [step for _ in range(50) for step in self._rng.choice(makers)()]

    def streams(self) -> list[Step]:
        """Followers of a log, some of whom do not read, and the ends of streams."""
        client = self._rng.choice((*OWNERS, "deaf"))
        follow = {"name": self._name(), "follow": True, "events": True}
        tag: Any = self._rng.choice(("@TAG@", "@TAG@", odd(self._rng)))
        end = self._step(self._rng.choice(ENDS), {"matchtag": tag}, client, noresponse=True)
        return self._rng.choice((
            [self._step("log", follow, client)], [self._step("log", follow, client), end], [end],
            [self._step("log", follow, "deaf") for _ in range(20)],
            [self._step("log", follow, client), {**end, "client": self._rng.choice(GUESTS)}],
        ))  # fmt: skip

    def leave(self) -> list[Step]:
        """A client that disconnects with requests open."""
        client = self._rng.choice((*OWNERS, "deaf", *GUESTS))
        steps = [step for _ in range(3) for step in self._rng.choice((self.ask, self.change))()]
        steps += self.streams()
        return [*({**step, "client": client} for step in steps), {"do": "drop", "client": client}]

    # -- jobs -----------------------------------------------------------------------

    def _job(self) -> str:
        return f"@JOB{self._rng.randrange(50)}@"

    def memo(self) -> list[Step]:
        """Odd memos of jobs, of ensembles or not."""
        memo = self._rng.choice(MEMOS) if self._rng.random() < 0.8 else {"fom": odd(self._rng)}
        payload = {"id": self._job(), "memo": memo, "volatile": self._rng.random() < 0.2}
        return [self._step("job-manager.memo", payload, self._rng.choice((*OWNERS, "guest")))]

    def exception(self) -> list[Step]:
        """Exceptions with odd types and notes."""
        payload = {
            "id": self._job(),
            "severity": self._rng.choice((0, 0, 1, 7)),
            "type": self._rng.choice(("cancel", "timeout", "lost", odd_text(self._rng))),
            "note": odd_text(self._rng),
        }
        return [self._step("job-manager.raise", payload, self._rng.choice((*OWNERS, "guest")))]

    def jobs(self) -> list[Step]:
        """Jobs of the owner and of a guest, with odd names, and tags that nobody gave them."""
        rng = self._rng
        tag: Any = {"name": self._name(), "run": 1, "group": "quick", "rule": "begin",
                    "firing": 0, "index": 0}  # fmt: skip
        user: Any = rng.choice((None, {"ensemble": tag}, {"ensemble": mutated(rng, tag)}, odd(rng)))
        system = {
            "duration": 0,
            "exec": {"test": {"run_duration": rng.choice((f"{documents.LONG_SECONDS}s", "0.01s"))}},
        }
        if rng.random() < 0.5:
            system["job"] = {"name": odd_text(rng)}
        jobspec = {
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "task",
                           "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": system, **({} if user is None else {"user": user})},
        }  # fmt: skip
        guest = rng.random() < 0.6
        signed = _signed(encode(jobspec), GUEST if guest else os.getuid())
        payload = {"J": signed, "urgency": 16, "flags": 0}
        return [self._step("job-ingest.submit", payload, "signer" if guest else "owner")]

    # -- things that are done to the service ------------------------------------------

    def size(self) -> list[Step]:
        """Payloads at the bounds of what is taken on."""
        text = "a" * (16 * 1024 * 1024 - self._rng.choice((100, 0, -100)))
        method = self._rng.choice(("status", "load", "submit"))
        return [self._step(method, {"name": text, "cwd": "/tmp", "environment": {}})]

    def restart(self) -> list[Step]:
        """The module is reloaded, or killed and loaded."""
        return [{"do": self._rng.choice(("reload", "kill")), "client": "owner"}]


def _signed(data: bytes, userid: int) -> str:
    """A jobspec in the envelope that Flux takes from the owner (`sign-type` none)."""
    header = f"version\0i1\0userid\0i{userid}\0mechanism\0snone\0".encode()
    return ".".join((base64.b64encode(header).decode(), base64.b64encode(data).decode(), "none"))
