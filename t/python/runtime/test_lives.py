"""What many jobs did alike, from the driver to the log."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import (
    FakeHost,
    FakeOutput,
)

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.encoding import dumps
from flux_ensemble.engine.commands import DrainMember, EndMember, StartMember, SubmitJobs
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    LIFE,
    TICKS,
    CommandDone,
    Event,
    JobsAlike,
    MemberUp,
    Started,
)
from flux_ensemble.engine.records import encode
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.runtime.driver import Driver
from flux_ensemble.runtime.durability.chunks import beside
from flux_ensemble.runtime.durability.replay import Facts, replay
from flux_ensemble.runtime.ports import Done

IDENTITY = "'lives', run 1"

SPEC = load_mapping(
    {
        "name": "lives",
        "members": [{"name": "pool", "count": 2, "service": "child"}],
        "jobs": [{"name": "sim", "command": "true", "count": 40}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
    }
)


class Pool:
    """Starts members at once."""

    def start(self, command: StartMember, done: Done) -> None:
        done(CommandDone(1000.0, command.id))

    def drain(self, command: DrainMember, done: Done) -> None:
        done(CommandDone(1000.0, command.id))

    def end(self, command: EndMember, done: Done) -> None:
        done(CommandDone(1000.0, command.id))


class Run:
    """An ensemble whose jobs live as told, each message with those that were sent since the last.

    Args:
        together: they may be handled in one step.
    """

    def __init__(self, together: bool) -> None:
        self.engine = Engine(SPEC)
        self.engine.stats.keep_values()
        self.engine.records.keep()
        host = FakeHost(fleet=Pool())
        self.member, self.store, self.output = host.queue, host.kept, FakeOutput()
        self.wal = host.log_of(self, IDENTITY)
        self.tapped: list[tuple[Event, int]] = []
        self.asked = 0
        driver = Driver(
            self.engine,
            host,
            self.output,
            lambda event, commands: self.tapped.append((event, len(commands))),
            self.wal,
        )
        driver.post(Started(1000.0))
        for ordinal in (1, 2):
            driver.post(MemberUp(1000.0, f"pool.{ordinal - 1}", ordinal, 1, 4))
        while self.member.submitted:
            sent = list(self.member.submitted)
            self.member.submitted.clear()
            alike = [lives_of(command) for command in sent]
            driver.post_several(alike, self._wanted, together=together)
        self.wal.checkpoint()

    def _wanted(self, event: Event) -> Event:
        self.asked += 1
        return event

    def snapshot(self) -> dict[str, Any]:
        return {"engine": dump(self.engine), "facts": Facts().to_json()}

    def take_beside(self) -> str:
        jobs = self.engine.records.take()
        return beside(self.engine.stats.take_values(), dumps(encode(jobs)) if jobs else None)


def lives_of(command: SubmitJobs) -> JobsAlike:
    """The jobs of a command, each of which is over before the next one begins."""
    steps, indices = ([first, *[1] * (command.count - 1)] for first in (100, command.first))
    begin = (2000 + 3 * command.first) * TICKS
    submits = [begin, *[3 * TICKS] * (command.count - 1)]
    seconds = (0.125, 0.5, 1.5, 0.125)
    later = [[int(one * TICKS)] * command.count for one in seconds]
    return JobsAlike(
        2002.25 + 3 * (command.first + command.count - 1),
        command.ordinal,
        LIFE,
        steps,
        [submits, *later],
        [command.group, command.rule, command.firing],
        indices,
        {"userid": 1},
        [[TICKS // 4] * command.count, "0"],
        [list(range(command.count)), [9000] * command.count],
    )


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    return Run(together=True), Run(together=False)


def test_all_comes_to_the_same_as_of_jobs_that_are_handled_one_by_one(
    runs: tuple[Run, Run],
) -> None:
    together, singly = runs
    assert not together.output.errors
    assert (together.asked, singly.asked) == (0, 40)
    assert together.engine.state == "completed"
    assert dumps(dump(together.engine)) == dumps(dump(singly.engine))
    assert together.store.values == singly.store.values
    tapped = [
        (one, 0) if isinstance(event, JobsAlike) else (event, commands)
        for event, commands in together.tapped
        for one in (event.each() if isinstance(event, JobsAlike) else (event,))
    ]
    assert [event for event, _ in tapped] == [event for event, _ in singly.tapped]


def test_a_replay_of_the_log_comes_to_the_same(runs: tuple[Run, Run]) -> None:
    together, _ = runs
    replayed = replay(SPEC, IDENTITY, None, [], together.store.lines)
    assert dumps(dump(replayed.engine)) == dumps(dump(together.engine))
