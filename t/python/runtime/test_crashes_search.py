"""Searches in a world in which services die: no point is lost, and none is there twice.

The parameters of a run whose services were killed are those of one that was not, for samplers
whose points follow from what they are told.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from crashes import IDENTITY, Job, Luck, Service, World
from play import search_state
from test_crashes import BAD_LUCK, crashing

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.features.search.outcomes import violated
from flux_ensemble.runtime.durability import wal as wal
from flux_ensemble.runtime.durability.replay import replay
from flux_ensemble.scalars import as_text

pytest.importorskip("optuna")

#: Of the search, and how many slots it has; of "stop", trials are stopped early;
#: "generator" is one of the user's; "given" and "queue" have points that are tried first.
#: of "more", a user has the search go on when it has ended, and of "among" while it runs.
KINDS = {
    "random": 5, "qmc": 5, "tpe": 1, "stop": 5, "generator": 1, "given": 1, "queue": 5, "more": 1,
    "grid": 5, "hyperband": 5, "threshold": 5, "repeats": 5, "partial": 1, "conditional": 1,
    "constrained": 5, "subject": 1, "warm": 1,
}  # fmt: skip
POINTS = [{"x": number / 16, "k": number % 9 + 1} for number in range(7)]
#: Of which the sampler chooses the rest, in turns with whole ones.
PARTIAL = [point if place % 3 else {"k": point["k"]} for place, point in enumerate(POINTS)]
#: What others have found.
TOLD = [{"x": n / 16, "k": n % 9 + 1, "loss": (n / 16 - 0.3) ** 2} for n in range(16)]
HYPERBAND = {"policy": "hyperband", "step": "epoch", "eta": 2, "to": 4}
THRESHOLD = {"policy": "threshold", "step": "epoch", "from": 2, "upper": 0.6}
OTHERS: dict[str, dict[str, Any]] = {
    "stop": {"sampler": "random", "stop": {"policy": "asha", "step": "epoch", "eta": 2}},
    "hyperband": {"sampler": "random", "stop": HYPERBAND},
    "threshold": {"sampler": "random", "stop": THRESHOLD},
    "repeats": {"sampler": "random", "repeats": 3, "aggregate": "median"},
    "generator": {"generator": "generators:Kept", "batch": 4},
    "given": {"sampler": "tpe", "points": POINTS},
    "queue": {"sampler": "qmc", "points": POINTS},
    "partial": {"sampler": "tpe", "points": PARTIAL},
    "more": {"sampler": "tpe"},
    "warm": {"sampler": "tpe", "warm-start": {"trials": TOLD}},
    "grid": {
        "sampler": "grid",
        "variables": {"x": [0.25, 0.5, 0.75], "k": {"low": 1, "high": 9, "integer": True}},
    },
    "among": {"sampler": "qmc"},
    "subject": {"sampler": "tpe", "subject-to": ["loss <= 0.04", "loss >= k / 1000"]},
    "conditional": {
        "sampler": "tpe",
        "variables": {
            "x": {"low": 0, "high": 1},
            "k": {"low": 1, "high": 9, "integer": True, "when": "x > 0.3"},
        },
        "where": "x < 0.9",
    },
    "constrained": {
        "sampler": "qmc",
        "variables": {
            "x": {"low": 0, "high": 1},
            "k": {"low": 1, "high": 9, "integer": True, "when": "x > 0.3"},
        },
        "where": ["x < 0.9", "k != 4"],
        "points": [{"x": 0.125}, {"k": 5, "x": 0.5}, {"x": 0.625}],
    },
}

#: The points of a generator are dropped once, when the last trial of a batch is still to come.
REFRESH = {
    "trigger": "metric",
    "when": "search.hpo.trials == 11",
    "action": {"name": "refresh", "label": "hpo"},
}
TRIALS = 20

#: What a user asks for, and how many trials there are then.
MORE = {"more": 4, "points": POINTS}
FURTHER = {"more": 11, "among": 11}


def document(sampler: str) -> dict[str, Any]:
    return {
        "name": "test",
        "seed": 7,
        "search": [
            {
                "id": "hpo",
                "group": "a",
                "variables": {
                    "x": {"low": 0, "high": 1},
                    "k": {"low": 1, "high": 9, "integer": True},
                },
                "minimize": "loss",
                **OTHERS.get(sampler, {"sampler": sampler}),
                "trials": TRIALS,
                "parallel": KINDS.get(sampler, 5),
                "on-failure": "retry" if sampler == "qmc" else "skip",
                "failures": TRIALS,
            }
        ],
        "jobs": [
            {"name": "a", "command": "true {x} {k}"},
            {"name": "b", "command": "true {x}", "params": {"x": 0}},
        ],
        "rules": [
            {"trigger": "start", "action": {"name": "search", "label": "hpo"}},
            {
                "trigger": "search-done",
                "action": {
                    "name": "submit",
                    "label": "b",
                    "params": {"x": "{search.hpo.best.x}"},
                    **({"repetitions": "unlimited"} if sampler == "more" else {}),
                },
            },
            *([REFRESH] if sampler == "generator" else []),
        ],
    }  # fmt: skip


class Learning(World):
    """Jobs publish a loss that follows from their parameters, and so does which of them fail."""

    def _finish(self, job: Job) -> None:
        if job.over:
            return
        x, fails = 0.0, False
        if job.tag.group == "a":
            x, fails = float(parameters(job)[0]), parameters(job)[1] == "5"
            # Of a trial with several jobs each has its own value, and the last one fails.
            fails = fails or job.tag.index == 2
            self.post(job, "memo", {"loss": (x - 0.3) ** 2 + job.tag.index})
        job.outcome = "failed" if fails else "success"
        self.post(job, "finish", {"status": 256 if fails else 0})
        self._clean(job)


class Epochs(Learning):
    """Jobs publish their loss after each of three epochs."""

    def _start(self, job: Job) -> None:
        if not job.over:
            self.post(job, "start")
            self._epoch(job, 1 if job.tag.group == "a" else 4)

    def _epoch(self, job: Job, number: int) -> None:
        if job.over:
            return
        if number > 3:
            self._finish(job)
            return
        loss = (float(parameters(job)[0]) - 0.3) ** 2 + 1 / number
        self.post(job, "memo", {"epoch": number, "loss": loss})
        self.clock.after(self.random.uniform(0.02, 0.2), lambda: self._epoch(job, number + 1))


WORLDS = {kind: Epochs for kind in KINDS if "stop" in OTHERS.get(kind, {})}

#: The state of a trial by the outcome of its job.
STATES = {"success": "complete", "failed": "failed", "canceled": "pruned"}


def parameters(job: Job) -> list[str]:
    command: list[str] = job.jobspec["tasks"][0]["command"]
    return command[1:]


def run(world: World, sampler: str) -> World:
    """Until the ensemble has ended."""
    world.begin_service()
    for _ in range(200_000):
        service = world.service
        if service is not None and service.recovery.ready:
            ensemble = next(iter(service.ensembles), None)
            if ensemble is None:
                service.load(document(sampler))
            elif sampler in FURTHER and not world.asked and due(ensemble, sampler):
                ask(world, ensemble)
            elif not ensemble.live:
                return world
        assert world.clock.step(), "nothing happens any more, and the ensemble has not ended"
    raise AssertionError("no end")


def due(ensemble: Any, sampler: str) -> bool:
    """Whether the user asks for more trials now, and has not been heard yet."""
    state = search_state(ensemble.engine, "hpo")
    if state.more:
        return False
    return not ensemble.live if sampler == "more" else len(state.trials.ended) > 8


def ask(world: World, ensemble: Any) -> None:
    """A user asks for more trials, and asks again if the service dies before it answers."""
    world.asked, epoch = True, world.epoch
    ensemble.extend("search", MORE, lambda _: None)

    def look() -> None:
        world.asked = False

    world.clock.after(0.5, look)
    assert epoch == world.epoch


def points(world: World, sampler: str) -> dict[int, list[str]]:
    """The parameters of each trial, after the checks."""
    assert isinstance(world.service, Service)
    (ensemble,) = world.service.ensembles
    assert ensemble.state == "completed", ensemble.reason
    state = search_state(ensemble.engine, "hpo")
    # Every trial has ended once, as its job did.
    assert (state.state, state.reason) == ("done", "trials")
    total = TRIALS + FURTHER.get(sampler, 0)
    assert sorted(state.trials.ended) == list(range(total))
    tags = Counter(job.tag for job in world.jobs.values())
    assert set(tags.values()) == {1}, "a tag is there twice"
    trials = {job.tag.firing: job for job in world.jobs.values() if job.tag.rule == "search:hpo"}
    assert sorted(trials) == list(range(total))
    repeats = state.search.repeats
    assert Counter(
        job.tag.firing for job in world.jobs.values() if job.tag.rule == "search:hpo"
    ) == (dict.fromkeys(trials, repeats))
    if repeats > 1:
        for number, job in trials.items():
            trial = state.trials.all[number]
            assert parameters(job) == [str(value) for value in trial.params]
            x, fails = trial.params[0], trial.params[1] == 5
            assert trial.state == ("failed" if fails else "complete")
            assert trial.value == (None if fails else pytest.approx((x - 0.3) ** 2 + 0.5))
    for number, job in trials.items() if repeats == 1 else ():
        trial = state.trials.all[number]
        assert parameters(job) == [as_text(value) for value in trial.params]
        # One that failed before its cancellation reached it was stopped all the same.
        states = {STATES[job.outcome or ""], *["pruned"] * (job.outcome == "failed")}
        if trial.violations:
            states = {"infeasible" if violated(trial.violations) else "complete"}
        assert trial.state in states
    for number, point in enumerate(OTHERS.get(sampler, {}).get("points", ())):
        found = dict(zip(("x", "k"), parameters(trials[number]), strict=True))
        assert found | {name: str(value) for name, value in point.items()} == found
    if sampler in FURTHER:
        # Each is tried once.
        tried = Counter(map(tuple, map(parameters, trials.values())))
        assert all(tried[tuple(map(str, point.values()))] == 1 for point in POINTS)
    assert sampler != "subject" or state.trials.counts["infeasible"] > 3
    assert sampler not in WORLDS or state.trials.counts["pruned"] > 3
    # What `on-failure: retry` runs again has the parameters of its trial.
    again = [job for job in world.jobs.values() if job.tag.rule == "retry"]
    failed = [parameters(job) for job in trials.values() if job.outcome == "failed"]
    assert Counter(map(tuple, map(parameters, again))) == Counter(
        {tuple(one): 3 for one in failed} if sampler == "qmc" else {}
    )
    last = [job for job in world.jobs.values() if job.tag.group == "b"]
    assert len(last) == (2 if sampler == "more" else 1)
    assert float(parameters(last[-1])[0]) == state.trials.best[0].params[0]
    # The log from the beginning, which needs no sampler, comes to the same.
    while world.clock.step():
        pass
    lines = "".join(world.texts["test"]).splitlines(keepends=True)
    whole = replay(load_mapping(document(sampler)), IDENTITY, None, (), lines)
    assert dump(whole.engine) == dump(ensemble.engine)
    return {number: parameters(job) for number, job in trials.items()}


@pytest.fixture(autouse=True)
def short_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots, many in each run."""
    monkeypatch.setattr(wal, "SNAPSHOT_EVENTS", 40)
    monkeypatch.setattr(wal, "SNAPSHOT_RATIO", 10**9)


@pytest.mark.parametrize("sampler", KINDS)
def test_a_run_that_is_killed_again_and_again_has_the_points_of_one_that_is_not(
    sampler: str,
) -> None:
    learning = WORLDS.get(sampler, Learning)
    expected = points(run(learning(1, Luck()), sampler), sampler)
    kills = 0
    for seed in range(2, 5):
        world = learning(seed, BAD_LUCK if seed % 2 else Luck())
        crashing(world, (0.02, 0.1, 0.4)[seed % 3], 20)
        assert points(run(world, sampler), sampler) == expected, f"seed {seed}"
        kills += world.epoch - 1
    assert kills > 15


def test_points_that_a_user_adds_meanwhile_are_tried_once_whatever_dies() -> None:
    for seed in range(2, 6):
        world = Learning(seed, BAD_LUCK if seed % 2 else Luck())
        crashing(world, (0.02, 0.1, 0.4)[seed % 3], 20)
        assert len(points(run(world, "among"), "among")) == TRIALS + 11, f"seed {seed}"


def test_a_crash_at_every_commit_is_survived() -> None:
    whole = run(Learning(1, Luck()), "random")
    expected = points(whole, "random")
    for number in range(1, whole.commits, 9):
        world = Learning(1, Luck())

        def strike(world: World = world, number: int = number) -> None:
            if world.commits == number and world.service is not None:
                world.kill()

        world.on_commit = strike
        assert points(run(world, "random"), "random") == expected, f"commit {number}"
