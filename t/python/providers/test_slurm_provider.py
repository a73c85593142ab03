"""Members in a simulated Slurm that loses answers: each starts once, and none is forgotten."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest

from flux_ensemble.queues.nested.provider import JobName, Started
from flux_ensemble.queues.nested.shape import MemberTag, Program, Shape, Size
from flux_ensemble.queues.providers.slurm.job import describe, mark
from flux_ensemble.queues.providers.slurm.provider import SlurmProvider
from flux_ensemble.runtime.command import CommandResult

HOME = "12.5"


def shape(ordinal: int, **keys: Any) -> Shape:
    tag = MemberTag("study", 1, f"hpc.{ordinal}", ordinal, 1)
    return Shape(tag, HOME, Size(1), {"PATH": "/bin", "FLUX_URI": "local:///x"}, "/work", **keys)


class Timers:
    """A loop whose time is that of a simulation."""

    def __init__(self) -> None:
        self.t = 0.0
        self._next = count()
        self._waiting: list[tuple[float, int, Handle]] = []

    def now(self) -> float:
        return self.t

    def timer(self, after: float, callback: Callable[[], None], every: float = 0.0) -> Handle:
        handle = Handle(callback)
        heapq.heappush(self._waiting, (self.t + after, next(self._next), handle))
        return handle

    def reader(self, fd: int, callback: Callable[[], None]) -> Handle:
        raise NotImplementedError

    def run(self, until: float) -> None:
        while self._waiting and self._waiting[0][0] <= until:
            self.t, _, handle = heapq.heappop(self._waiting)
            if not handle.over:
                handle.callback()
        self.t = until


class Handle:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.over = False

    def cancel(self) -> None:
        self.over = True


class Slurm:
    """Answers the commands of a provider; with a probability, wrongly, late or not at all.

    Attributes:
        starts: how often a job with a tag was released.
    """

    def __init__(self, loop: Timers, random: Random, faults: float, holds: bool = True) -> None:
        self.loop, self.random, self.faults, self.holds = loop, random, faults, holds
        self.jobs: dict[str, dict[str, str]] = {}
        self.starts: Counter[str] = Counter()
        self.refusal: str | None = None
        self._ids = count(100)

    def run(
        self,
        loop: Timers,
        words: Sequence[str],
        done: Callable[[CommandResult], None],
        *,
        environment: Mapping[str, str] | None = None,
        script: str = "",
        limit: float = 0.0,
    ) -> None:
        after = self.random.uniform(0.05, 0.5)
        fault = self.random.random() < self.faults
        how = self.random.choice(("refused", "lost", "late"))
        act = getattr(self, f"_{words[0]}")
        if not fault:
            self.loop.timer(after, lambda: done(act(words)))
        elif how == "refused":
            trouble = CommandResult(
                "", "sbatch: error: Unable to contact slurm controller (connect)"
            )
            self.loop.timer(after, lambda: done(trouble))
        else:
            # It is done, at once or a good while after it was given up, and nobody knows.
            pause = after if how == "lost" else self.random.uniform(1.0, 20.0)
            self.loop.timer(pause, lambda: act(words))
            self.loop.timer(
                after, lambda: done(CommandResult("", "did not end in time", late=True))
            )

    def _sbatch(self, words: Sequence[str]) -> CommandResult:
        if self.refusal is not None:
            return CommandResult("", self.refusal)
        (comment,) = [word[10:] for word in words if word.startswith("--comment=")]
        assert {"--hold", "--no-requeue"} <= set(words)
        job = str(next(self._ids))
        self.jobs[job] = {"comment": comment, "state": "PENDING", "reason": "JobHeldUser"}
        if not self.holds:
            self._start(job)
        return CommandResult(f"{job};cluster\n")

    def _start(self, job: str) -> None:
        entry = self.jobs[job]
        if entry["state"] == "PENDING" and entry["reason"] == "JobHeldUser":
            self.starts[entry["comment"]] += 1
            entry["reason"] = "Priority"
            self.loop.timer(self.random.uniform(0.1, 5.0), lambda: self._runs(job))

    def _runs(self, job: str) -> None:
        entry = self.jobs[job]
        if entry["state"] == "PENDING":
            entry["state"], entry["reason"] = "RUNNING", "None"
            entry["told"] = f" ssh://n1/run/{job}"

    def _scontrol(self, words: Sequence[str]) -> CommandResult:
        assert words[1] == "release"
        if words[2] not in self.jobs:
            return CommandResult("", "Invalid job id specified")
        self._start(words[2])
        return CommandResult("")

    def _scancel(self, words: Sequence[str]) -> CommandResult:
        if words[-1] not in self.jobs:
            return CommandResult(
                "", "scancel: error: Kill job error on job id 7: Invalid job id specified"
            )
        self.end(words[-1], "CANCELLED")
        return CommandResult("")

    def end(self, job: str, state: str) -> None:
        if self.jobs[job]["state"] in ("PENDING", "RUNNING"):
            self.jobs[job].update(state=state, reason="None")

    def _squeue(self, words: Sequence[str]) -> CommandResult:
        lines = [
            f"{job}|{entry['state']}|N/A|{entry['reason']}|"
            f"{entry['comment']}{entry.get('told', '')}"
            for job, entry in self.jobs.items()
        ]
        return CommandResult("\n".join(["7|RUNNING|N/A|None|somebody's | own", *lines]))

    def alive(self, comment: str) -> list[str]:
        return [
            job
            for job, entry in self.jobs.items()
            if entry["comment"] == comment and entry["state"] in ("PENDING", "RUNNING")
        ]


class Member:
    """A member that writes down what it is told."""

    def __init__(self, shape: Shape) -> None:
        self.tag = shape.tag
        self.job: JobName | None = None
        self.unwanted = self.asked_to_end = False
        self.told: list[str] = []
        self.waiting: list[str] = []
        self.outage = False

    def waits(self, error: Exception) -> None:
        self.waiting.append(str(error))

    def submitted(self, job: JobName) -> None:
        self.job = job
        self.told.append("submitted")

    def refused(self, reason: str) -> None:
        self.told += ["refused", reason]

    def began(self) -> None:
        self.told.append("began")

    def reached(self, uri: str) -> None:
        self.told.append(uri)

    def broke(self, reason: str, outage: bool = False) -> None:
        self.told.append(reason)
        self.outage = outage

    def expires(self, t_expires: float | None) -> None:
        raise NotImplementedError

    def over(self) -> None:
        self.told.append("over")

    def give_up(self, reason: str) -> None:
        self.told.append(reason)


class World:
    """A service with members in Slurm, which can die, and what it has written down."""

    def __init__(self, seed: int = 0, faults: float = 0.0, holds: bool = True) -> None:
        self.random = Random(seed)
        self.loop = Timers()
        self.slurm = Slurm(self.loop, self.random, faults, holds)
        self.written: dict[int, str] = {}
        self.said: list[str] = []
        self.members: dict[int, Member] = {}
        self.asked: set[int] = set()
        self.begin()

    def begin(self) -> None:
        self.provider = SlurmProvider(self.loop, self.said.append, self.slurm.run)

    def start(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            self.asked.add(ordinal)
            one = shape(ordinal)
            member: Started = self.member(ordinal)
            life = self.provider

            def written(
                job: str, then: Callable[[], None], ordinal: int = ordinal, life: Any = life
            ) -> None:
                def durable() -> None:
                    if self.provider is life:
                        self.written[ordinal] = job
                        then()

                self.loop.timer(self.random.uniform(0.0, 1.0), durable)

            self.provider.start(member, self.provider.describe(one), written)

    def member(self, ordinal: int) -> Member:
        member = self.members[ordinal] = Member(shape(ordinal))
        return member

    def die(self) -> None:
        """The service dies, and another one begins."""
        self.provider.close()
        self.begin()
        for ordinal in self.asked:
            if ordinal in self.written:
                self.provider.find(self.member(ordinal), HOME, self.written[ordinal])
            else:
                self.start(ordinal)

    def run(self, seconds: float) -> None:
        self.loop.run(self.loop.t + seconds)


def comment(ordinal: int) -> str:
    return mark(shape(ordinal).tag, HOME)


def test_a_member_is_submitted_held_and_reached() -> None:
    world = World()
    world.start(1)
    world.run(20.0)
    assert world.members[1].told == ["submitted", "began", "ssh://n1/run/100"]
    assert world.written == {1: "100"}


def test_why_it_waits() -> None:
    world = World()
    world.slurm._runs = lambda job: None  # type: ignore[method-assign]
    world.start(1)
    world.run(20.0)
    assert world.provider.why("100") == "waits in Slurm: Priority"
    assert world.provider.why("101") is None


def test_it_ends_and_its_end_is_told_when_slurm_says_so() -> None:
    world = World()
    world.start(1)
    world.run(20.0)
    ends: list[Exception | None] = []
    world.provider.end("100", "not needed", ends.append)
    world.run(5.0)
    assert ends == [None]
    assert world.members[1].told[3:] == ["its job in Slurm is CANCELLED", "over"]
    # One that is over is no error.
    world.slurm.jobs.clear()
    world.provider.end("100", "not needed", ends.append)
    world.run(5.0)
    assert ends == [None, None]


@pytest.mark.parametrize("away", [True, False])
def test_one_that_ended_while_no_service_was_there_is_said_to_be_of_an_outage(away: bool) -> None:
    world = World()
    world.start(1)
    world.run(20.0)
    if away:
        world.slurm.end("100", "FAILED")
    world.die()
    world.run(20.0)
    world.slurm.end("100", "FAILED")
    world.run(20.0)
    assert world.members[1].told[-2:] == ["its job in Slurm is FAILED", "over"]
    assert world.members[1].outage is away


def test_a_job_that_slurm_has_forgotten_is_over() -> None:
    world = World()
    world.start(1)
    world.run(20.0)
    world.slurm.jobs.clear()
    world.run(1.0)
    assert "over" not in world.members[1].told, "a controller that has just begun lists few"
    world.run(10.0)
    assert world.members[1].told[-1] == "over"


@pytest.mark.parametrize(
    "refusal",
    [
        "sbatch: error: invalid partition specified: nowhere",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition",
    ],
)
def test_a_refusal_is_told(refusal: str) -> None:
    world = World()
    world.slurm.refusal = refusal
    world.start(1)
    world.run(5.0)
    assert world.members[1].told == ["refused", f"Slurm refuses its job: {refusal}"]


def test_a_controller_that_is_away_is_waited_for() -> None:
    world = World()
    world.slurm.refusal = (
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
    )
    world.start(1)
    world.run(60.0)
    assert world.members[1].told == []
    assert world.members[1].waiting
    world.slurm.refusal = None
    world.run(20.0)
    assert world.members[1].told[-1] == "ssh://n1/run/100"


def test_one_that_is_not_wanted_any_more_is_not_submitted() -> None:
    world = World()
    world.start(1)
    world.members[1].unwanted = True
    world.run(10.0)
    assert not world.slurm.jobs
    assert world.members[1].told == ["it is not needed any more"]


def test_a_service_that_died_before_the_release_releases() -> None:
    world = World()
    world.slurm._scontrol = lambda words: CommandResult("", "down")  # type: ignore[method-assign]
    world.start(1)
    world.run(10.0)
    assert not world.slurm.starts
    del world.slurm._scontrol
    world.die()
    world.run(20.0)
    assert world.members[1].told == ["submitted", "began", "ssh://n1/run/100"]


def lives(seed: int, faults: float = 0.2, holds: bool = True) -> World:
    """A few members, while answers are lost and the service dies a few times."""
    world = World(seed, faults, holds)
    world.start(1, 2, 3)
    for _ in range(world.random.randrange(6)):
        world.run(world.random.uniform(0.0, 8.0))
        world.die()
    world.slurm.faults = 0.0
    world.run(100.0)
    return world


@pytest.mark.parametrize("seed", range(300))
def test_each_starts_once_whatever_dies(seed: int) -> None:
    world = lives(seed)
    for ordinal in (1, 2, 3):
        assert world.slurm.starts[comment(ordinal)] == 1
        assert world.slurm.alive(comment(ordinal)) == [world.written[ordinal]]
        assert world.members[ordinal].told[-1] == f"ssh://n1/run/{world.written[ordinal]}"


def test_without_the_hold_some_start_twice() -> None:
    twice = [seed for seed in range(100) if max(lives(seed, holds=False).slurm.starts.values()) > 1]
    assert twice


def test_what_sbatch_is_given() -> None:
    job = describe(
        shape(3, options={"partition": "batch", "contiguous": True, "reboot": False}, prefix="x-")
    )
    assert job["arguments"] == [
        "--parsable",
        "--hold",
        "--no-requeue",
        f"--comment={comment(3)}",
        "--job-name=x-study:hpc.3",
        "--chdir=/work",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--exclusive",
        "--partition=batch",
        "--contiguous",
    ]
    assert job["environment"] == {"PATH": "/bin"}


def test_the_parts_of_nodes_and_the_time() -> None:
    tag = MemberTag("a", 1, "p.0", 1, 1)
    job = describe(Shape(tag, HOME, Size(2, 4, 1, 90.5), {}, "/"))
    assert job["arguments"][6:] == [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gpus-per-node=1",
        "--time=1:31",
    ]


def test_a_worker_is_a_batch_script_with_its_credentials_and_needs_no_flux() -> None:
    job = describe(shape(3, program=Program.WORKER, credentials='{"key": "secret"}'))
    assert '{"key": "secret"}\nEND\n' in job["script"]
    assert "flux_ensemble.service.worker" in job["script"]
    assert "srun" not in job["script"]
    assert not any("secret" in word for word in job["arguments"])


def test_a_worker_without_a_home_is_refused() -> None:
    with pytest.raises(ValueError, match="call a home without Flux"):
        describe(shape(3, program=Program.WORKER))
