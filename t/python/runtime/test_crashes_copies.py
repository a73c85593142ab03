"""Jobs with copies in a world in which services die: each piece of work counts once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from crashes import IDENTITY, Job, Luck, Service, World
from test_crashes import BAD_LUCK, crashing, run

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.runtime.durability import wal as wal
from flux_ensemble.runtime.durability.replay import replay

JOBS = 30

#: Of these the first job hangs for about as long as it takes until a copy is through, so that now
#: one is first, now the other; and of one it fails.
HANGING = range(0, JOBS, 5)
FAILING = 10

DOCUMENT: dict[str, Any] = {
    "name": "test",
    "jobs": [
        {"name": "a", "command": "true {n}", "params": {"n": {"range": [0, JOBS]}}},
        {"name": "b", "command": "true {n}", "params": {"n": -1}},
        {"name": "c", "command": "true"},
    ],
    "use": [{"algorithm": "stragglers", "group": "a", "ends": 5, "factor": 2, "every": "300ms"}],
    "rules": [
        {"id": "begin", "trigger": "start", "action": {"name": "submit", "label": "a"}},
        {
            "id": "follow",
            "trigger": "job-success",
            "group": "a",
            "action": {
                "name": "submit",
                "label": "b",
                "params": "trigger",
                "repetitions": "unlimited",
            },
        },
        {
            "id": "idle",
            "trigger": "idle",
            "group": "a",
            "action": {"name": "submit", "label": "c", "repetitions": "unlimited"},
        },
    ],
}


class Hanging(World):
    """A few jobs hang where they run first."""

    def _start(self, job: Job) -> None:
        if job.over:
            return
        self.post(job, "start")
        hangs = job.tag.rule == "begin" and job.tag.index in HANGING
        least, most = (1.0, 4.0) if hangs else (0.1, 0.3)
        self.clock.after(self.random.uniform(least, most), lambda: self._finish(job))

    def _finish(self, job: Job) -> None:
        if not job.over:
            failed = job.tag.rule == "begin" and job.tag.index == FAILING
            job.outcome = "failed" if failed else "success"
            self.post(job, "finish", {"status": 256 if failed else 0})
            self._clean(job)


def check(world: World) -> int:
    """Each piece of work has succeeded once; returns how many copies there were."""
    assert isinstance(world.service, Service)
    (ensemble,) = world.service.ensembles
    assert ensemble.state == "completed", ensemble.reason
    tags = Counter(job.tag for job in world.jobs.values())
    assert set(tags.values()) == {1}, "a tag is there twice"
    engine = ensemble.engine
    counts = engine.stats.counts["a"]
    # One that fails before it has a copy is finished, and nothing follows.
    assert counts["finished"] == JOBS
    assert counts["success"] in (JOBS, JOBS - 1)
    followed = Counter(
        job.jobspec["tasks"][0]["command"][1] for job in world.jobs.values() if job.tag.group == "b"
    )
    assert set(followed.values()) == {1}
    assert {*map(str, range(JOBS))} - followed.keys() <= {str(FAILING)}
    assert len(followed) == counts["success"]
    assert engine.rules.states["idle"].fired == 1
    assert "copies" not in dump(engine)["state"]
    copies = [job for job in world.jobs.values() if job.tag.rule == "stragglers-copy"]
    while world.clock.step():
        pass
    lines = "".join(world.texts["test"]).splitlines(keepends=True)
    whole = replay(load_mapping(DOCUMENT), IDENTITY, None, (), lines)
    assert dump(whole.engine) == dump(engine)
    return len(copies)


@pytest.fixture(autouse=True)
def short_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots, many in each run."""
    monkeypatch.setattr(wal, "SNAPSHOT_EVENTS", 40)
    monkeypatch.setattr(wal, "SNAPSHOT_RATIO", 10**9)


def test_each_piece_of_work_counts_once_though_services_are_killed() -> None:
    assert check(run(Hanging(1, Luck()), DOCUMENT)) > 1
    copies = kills = 0
    for seed in range(2, 8):
        world = Hanging(seed, BAD_LUCK if seed % 2 else Luck())
        crashing(world, (0.05, 0.2, 0.5)[seed % 3], 20)
        copies += check(run(world, DOCUMENT))
        kills += world.epoch - 1
    assert copies > 5
    assert kills > 30
