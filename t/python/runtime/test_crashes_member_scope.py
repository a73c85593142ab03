"""Rules with `scope: member` where services are killed and members die: what is of one stays."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from member_world import World

from flux_ensemble.engine.codec import event_from_json
from flux_ensemble.engine.commands import Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.snapshot import dump

UNLIMITED = {"repetitions": "unlimited"}

#: Each member is prepared once, and gets two more jobs when two have succeeded there.
DOCUMENT: dict[str, Any] = {
    "name": "test",
    "members": [{"name": "pool", "count": {"min": 3, "max": 5}, "duration": "12s", "drain": "3s"}],
    "jobs": [
        {"name": "a", "command": "a {p}", "params": {"p": {"range": [0, 30]}}},
        {"name": "own", "command": "own"},
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {
            "id": "prepare",
            "trigger": "member-up",
            "scope": "member",
            "action": {"name": "submit", "label": "own", "urgency": 20},
        },
        {
            "id": "more",
            "trigger": "job-success",
            "group": "a",
            "scope": "member",
            "when": "count.a.success >= 2 and mean['a-duration'] > 0",
            "action": {"name": "submit", "label": "own", "urgency": 20, "repetitions": 2},
        },
        {"trigger": "member-draining", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
        {"trigger": "member-lost", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
    ],
}


def test_jobs_of_a_member_run_there_once_though_services_are_killed_and_members_die() -> None:
    crashes = losses = own = 0
    for seed in range(6):
        world = World(DOCUMENT, seed)
        world.run(crashes=6, mean=2.0)
        assert world.faults == []
        tags = Counter(job.tag for job in world.jobs)
        assert set(tags.values()) == {1}
        assert world.service is not None
        engine = world.service.engine
        assert engine.state == "completed", engine.reason
        counts = engine.stats.counts
        assert (counts["a"]["success"], counts["a"]["finished"]) == (30, 30)
        # What was bound to a member that is gone did not run elsewhere.
        assert counts["own"]["attempts"] == counts["own"]["finished"] == counts["own"]["submitted"]
        # The log alone leads to the same state, and says which member each firing was for.
        fresh, fires = Engine(world.spec), []
        for text in world.wal:
            for command in fresh.handle(event_from_json(json.loads(text))):
                if isinstance(command, Record) and command.name == "fire":
                    fires.append(command.context)
        assert dump(fresh) == dump(engine)
        mine = [one for one in fires if one["rule"] in ("prepare", "more")]
        times = Counter((one["rule"], one["cause"]["member"]) for one in mine)
        assert all(number <= {"prepare": 1, "more": 2}[rule] for (rule, _), number in times.items())
        of_firing = {(one["rule"], one["firing"]): one["cause"]["member"] for one in mine}
        for instance in world.instances.values():
            for job in instance.jobs.values():
                if job.tag.group == "own":
                    assert of_firing[job.tag.rule, job.tag.firing] == instance.name
                    own += 1
        crashes += world.crashes
        losses += world.losses
    assert min(crashes, losses, own) > 0
