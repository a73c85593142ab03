"""Plays the services of many members: `simulated_children.py NAME MEMBERS RATE MARK...`.

Each of them attaches to the service of the instance, is asked to submit jobs, and tells what these
do, by the classes by which the service of a real member does. But there is no member: jobs are
numbers, and each member "runs" RATE of them a second, each for a tenth of a second. What a real
member is told and tells besides, to follow more events, to cancel, to end, does not come up.

Prints how many jobs have ended when that is as many as a MARK says, and ends with the last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402

from flux_ensemble.engine.codec import command_from_json, to_json  # noqa: E402
from flux_ensemble.engine.commands import SubmitJobs  # noqa: E402
from flux_ensemble.engine.events import CommandDone  # noqa: E402
from flux_ensemble.queues.flux.broker import Broker  # noqa: E402
from flux_ensemble.queues.flux.stream import StreamingRequest  # noqa: E402
from flux_ensemble.queues.nested.jobspec import member_tag  # noqa: E402
from flux_ensemble.queues.nested.link import FORMAT  # noqa: E402
from flux_ensemble.queues.nested.service_handle import brief  # noqa: E402
from flux_ensemble.service.conversation import ANSWER_SECONDS, Conversation  # noqa: E402

#: Seconds between two times that a member looks which of its jobs have ended, and that jobs run.
TURN, RUNS = 0.2, 0.1

#: Seconds between two lots of members that look, so that they do so in turn.
TICK = 0.02

#: Cores of a member, which has one node.
CORES = 48

#: What the id of a job has in the bits below its milliseconds (RFC 19).
_ID_BITS = 24


class Children:
    """All of them.

    Args:
        handle: of the enclosing instance.
        tag: of the first member.
        members: how many there are.
        rate: how many jobs each of them runs in a second.
        marks: see above.
    """

    def __init__(
        self, handle: Any, tag: Mapping[str, Any], members: int, rate: float, marks: list[int]
    ) -> None:
        self.handle = handle
        self.broker = Broker(handle, self.fail)
        self.rate = rate
        self.ended = 0
        self._marks = marks
        self._number = 0
        pool = tag["member"].rpartition(".")[0]
        self._children = [
            Child(self, {**tag, "member": f"{pool}.{number}", "ordinal": number + 1})
            for number in range(members)
        ]
        self._turns = max(1, round(TURN / TICK))
        self._turn = 0

    def run(self) -> None:
        """Play, until so many jobs have ended as the last mark says."""
        self.broker.loop.timer(TICK, self._tick, TICK)
        self.handle.reactor_run()

    def fail(self, error: BaseException) -> None:
        """Something went wrong: end."""
        raise SystemExit(f"simulated_children.py: {error!r}")

    def next_id(self) -> int:
        """The id of the next job."""
        self._number += 1
        return int(1000 * time.monotonic()) << _ID_BITS | self._number % (1 << _ID_BITS)

    def _tick(self) -> None:
        for child in self._children[self._turn :: self._turns]:
            self.ended += child.turn()
        self._turn = (self._turn + 1) % self._turns
        while self._marks and self.ended >= self._marks[0]:
            del self._marks[0]
            print(self.ended, flush=True)
        if not self._marks:
            self.handle.reactor_stop()


class Child:
    """The service of one member."""

    def __init__(self, children: Children, tag: Mapping[str, Any]) -> None:
        self._children = children
        self._talk: Conversation | None = None
        self._jobs: deque[tuple[int, float]] = deque()
        self._credit = 0.0
        request = {**tag, "version": __version__, "format": FORMAT}
        inbox = children.broker.inbox
        StreamingRequest(
            children.handle, inbox, "ensemble.attach", request, self._told, self._refused
        )

    def _refused(self, stream: StreamingRequest, error: OSError) -> None:
        self._children.fail(error)

    def _told(self, stream: StreamingRequest, text: str) -> None:
        message = json.loads(text)
        if self._talk is None:
            self._talk = Conversation(
                self._children.broker.loop,
                partial(self._send, message["contact"]),
                self._asked,
                lambda: len(self._jobs),
                lambda code, reason: self._children.fail(OSError(reason)),
            )
        self._talk.take(message)

    def _send(
        self, contact: str, message: Mapping[str, Any], answered: Callable[..., None]
    ) -> None:
        broker, payload = self._children.broker, {"contact": contact, **message}
        future = broker.handle.rpc("ensemble.report", payload)
        broker.call(future, answered, seconds=ANSWER_SECONDS)

    def _asked(self, item: list[Any]) -> None:
        kind, *rest = item
        assert self._talk is not None
        if kind == "load":
            self._talk.say("caught-up")
            self._talk.say("facts", 1, CORES, 0, None)
            self._talk.say("up", 0)
        elif kind == "hold":
            self._talk.held.seconds = rest[0]
        elif kind == "submit":
            self._submit(*rest)

    def _submit(self, number: int, value: Mapping[str, Any], known: list[Any]) -> None:
        command, ids = command_from_json(value), []
        assert isinstance(command, SubmitJobs)
        assert self._talk is not None
        for index in range(command.first, command.first + command.count):
            id = self._children.next_id()
            ids.append(id)
            tag = [command.group, command.rule, command.firing, index]
            now = time.time()
            self._jobs.append((id, now))
            submit = {"userid": os.getuid(), "urgency": 16, "flags": 0, "version": 1}
            self._talk.event(id, now - 0.002, "submit", submit, tag)
            self._talk.event(id, now, "validate", {})
        outcome = CommandDone(time.time(), command.id, {"ids": ids})
        self._talk.outcome(["outcome", number, to_json(brief(command, outcome))])

    def turn(self) -> int:
        """See which jobs have ended; returns how many."""
        talk, jobs, now = self._talk, self._jobs, time.time()
        if talk is None:
            return 0
        self._credit = min(self._credit, 1.0) + self._children.rate * TURN
        count = min(int(self._credit), len(jobs))
        self._credit -= count
        for number in range(count):
            id, t = jobs.popleft()
            talk.held.ended()
            t_end = max(t + RUNS, now) + number / 1e5
            place = {"t_alloc": t_end - RUNS - 0.01, "ranks": "0"}
            talk.event(id, t_end - RUNS, "start", place)
            talk.event(id, t_end, "finish", {"status": 0})
            talk.event(id, t_end + 0.005, "clean", {})
        return count


def main(name: str, members: int, rate: float, marks: list[int]) -> None:
    """Play the services of the members of an ensemble."""
    handle = flux.Flux()
    constraint = {"name": [f"{name}:pool.0"]}
    found = handle.rpc("job-list.list", {"max_entries": 1, "attrs": [], "constraint": constraint})
    lookup = {"id": found.get()["jobs"][0]["id"], "keys": ["jobspec"], "flags": 0}
    jobspec = json.loads(handle.rpc("job-info.lookup", lookup).get()["jobspec"])
    tag = member_tag(jobspec)
    assert tag is not None
    Children(handle, tag.dump(), members, rate, marks).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), [int(mark) for mark in sys.argv[4:]])
