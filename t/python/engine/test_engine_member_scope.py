"""Rules with `scope: member`: their turns, metrics and jobs are those of one member."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.commands import (
    CancelJobs,
    Command,
    Effect,
    Record,
    StartMember,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    CommandDone,
    Event,
    JobEvent,
    MemberDraining,
    MemberEnded,
    MemberLost,
    MemberUp,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make, ordinal_of
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.engine.status import status
from flux_ensemble.metrics.paths import MetricPath

UNLIMITED = {"repetitions": "unlimited"}


def rule(trigger: str, action: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trigger": trigger, "scope": "member", "action": action, **more}


class World:
    """An engine, and what its members were sent, of which each numbers its jobs from 1.

    Args:
        rules: besides the one that submits group `a`.
        members: how many of the first pool there are, all of them up.
        pools: the pools, if there is not `pool` alone.
        cores: of each member.
        **more: keys of the document, in place of others.
    """

    def __init__(
        self,
        *rules: dict[str, Any],
        members: int = 2,
        pools: Any = None,
        cores: int = 2,
        **more: Any,
    ) -> None:
        start = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
        self.spec = load_mapping(
            {
                "name": "test",
                "finish": "never",
                "logging": {"heartbeat": "5s"},
                "members": pools or [{"name": "pool", "count": {"min": members, "max": 9}}],
                "jobs": [
                    {"name": "a", "command": "a", "count": 40},
                    {"name": "check", "command": "check"},
                ],
                "rules": [start, *rules],
                **more,
            }
        )
        self._cores = cores
        self.engine = Engine(self.spec)
        self.engine.stats.keep_values()
        self.values: list[Any] = []
        self.t = 0.0
        self.records: list[Record] = []
        #: The jobs of each member that are there, with whether they run.
        self.jobs: dict[int, dict[int, tuple[Tag, bool]]] = {}
        self._last: Counter[int] = Counter()
        self.sent: list[SubmitJobs] = []
        self.handle(Started(0.0))
        for ordinal in range(1, members + 1):
            self.up(ordinal)

    def handle(self, event: Event) -> list[Command]:
        commands = self.engine.handle(event)
        self.engine.check()
        self.records += [one for one in commands if isinstance(one, Record)]
        submits = [one for one in commands if isinstance(one, SubmitJobs)]
        self.sent += submits
        for submit in submits:
            for index in range(submit.first, submit.first + submit.count):
                self._show(submit, index)
        for command in commands:
            if isinstance(command, Effect):
                self.handle(CommandDone(self.t, command.id, {}))
        return commands

    def _show(self, command: SubmitJobs, index: int) -> None:
        ordinal = command.ordinal
        self._last[ordinal] += 1
        key = make(ordinal, self._last[ordinal])
        tag = Tag(command.group, command.rule, command.firing, index)
        self.jobs[ordinal][key] = tag, False
        self.handle(JobEvent(self.t, key, "submit", {}, tag))
        self.handle(JobEvent(self.t, key, "validate", {}))

    def up(self, ordinal: int) -> None:
        self.jobs[ordinal] = {}
        self.handle(MemberUp(self.t, f"pool.{ordinal - 1}", ordinal, 1, self._cores, 0, None))

    def start(self, key: int) -> None:
        ordinal = ordinal_of(key)
        self.jobs[ordinal][key] = self.jobs[ordinal][key][0], True
        self.handle(JobEvent(self.t, key, "start", {}))

    def ends(self, key: int, status: int) -> list[Command]:
        del self.jobs[ordinal_of(key)][key]
        commands = self.handle(JobEvent(self.t, key, "finish", {"status": status << 8}))
        return commands + self.handle(JobEvent(self.t, key, "clean", {}))

    def run(self, ordinal: int, status: int = 0, group: str = "a") -> list[Command]:
        """The next job of a group on a member runs for two seconds."""
        jobs = self.jobs[ordinal]
        key = next(key for key, (tag, running) in jobs.items() if tag.group == group)
        self.start(key)
        self.t += 2
        return self.ends(key, status)

    def fired(self, id: str) -> list[str]:
        """The members that a rule fired for, in order."""
        fires = [one.context for one in self.records if one.name == "fire"]
        return [one["cause"]["member"] for one in fires if one["rule"] == id]

    def checks(self) -> list[int]:
        """The numbers of the members that jobs of `check` were sent to, in order."""
        return [one.ordinal for one in self.sent if one.group == "check"]

    def again(self) -> None:
        """Go on with an engine that was restored from a snapshot."""
        self.values.append(self.engine.stats.take_values())
        state = json.loads(json.dumps(dump(self.engine)))
        values = json.loads(json.dumps(self.values))
        restored = restore(self.spec, state, values)
        assert dump(restored) == dump(self.engine)
        self.engine = restored
        self.engine.stats.keep_values()


CHECK = {"name": "submit", "label": "check", "urgency": 20}


def test_failures_on_a_member_trigger_its_own_rule_and_its_job_runs_there() -> None:
    world = World(
        rule("job-fail", {**CHECK, "repetitions": 2}, id="r", group="a", when="count.a.failed > 1")
    )
    world.run(1, status=1)
    world.run(2, status=1)
    assert world.fired("r") == []
    world.run(2, status=1)
    assert (world.fired("r"), world.checks()) == (["pool.1"], [2])
    world.again()
    for _ in range(3):
        world.run(2, status=1)
    world.run(1, status=1)
    # Each member has its own repetitions.
    assert world.fired("r") == ["pool.1", "pool.1", "pool.0"]
    assert world.checks() == [2, 2, 1]
    (report,) = [one for one in status(world.engine)["rules"] if one["id"] == "r"]
    assert (report["fired"], report["members"]) == (3, {"pool.0": 1, "pool.1": 2})


def test_statistics_are_of_the_member_and_a_reset_forgets_its_own() -> None:
    world = World(
        rule(
            "metric",
            {"name": "reset", "label": "a-duration", **UNLIMITED},
            id="r",
            name="n.a-duration",
            when=2,
        )
    )
    world.run(1)
    world.run(2)
    world.again()
    assert world.fired("r") == []
    world.run(1)
    assert world.fired("r") == ["pool.0"]
    own, path = world.engine.stats.of_members, MetricPath("n", "a", "duration")
    assert [own.lookup(name, path) for name in ("pool.0", "pool.1")] == [0, 1]
    assert world.engine.stats.lookup(path) == 3
    world.again()
    world.run(2)
    assert world.fired("r") == ["pool.0", "pool.1"]


def test_memos_and_times_of_a_member_are_known_in_conditions_and_in_actions() -> None:
    when = 'max["a-loss"] > 3 and time.elapsed >= 0 and count.a.success >= 1'
    action = {"name": "terminate", "reason": "{max['a-loss']} here, {count.a.success} jobs"}
    world = World(rule("job-success", action, group="a", when=when))
    for ordinal, loss in ((1, 2), (2, 5)):
        key = next(iter(world.jobs[ordinal]))
        world.start(key)
        world.handle(JobEvent(world.t, key, "memo", {"loss": loss}))
        world.ends(key, 0)
    assert world.engine.reason.startswith("5 here, 1 jobs")


def test_a_cancel_is_of_the_jobs_of_the_member_also_of_those_that_show_later() -> None:
    world = World(rule("job-fail", {"name": "cancel", "label": "a", **UNLIMITED}, group="a"))
    others = set(world.jobs[2])
    mine = set(world.jobs[1])
    commands = world.run(1, status=1)
    canceled = [one for one in commands if isinstance(one, CancelJobs)]
    assert {key for one in canceled for key in one.jobs} == mine - {min(mine)}
    assert not others & {key for one in canceled for key in one.jobs}
    # What is sent and has not shown is cancelled when it does.
    world = World()
    world.engine.members.known[1].flying["rule-0", 0, 39] = 1  # type: ignore[union-attr]
    member = world.engine.members.known[1]  # type: ignore[union-attr]
    member.unwanted.add(("rule-0", 0, 39))
    assert member.withdrew(("rule-0", 0, 39))
    assert not member.withdrew(("rule-0", 0, 39))


def test_heartbeats_look_at_each_member_that_is_up_and_at_the_ages_of_its_jobs() -> None:
    world = World(
        rule("metric", CHECK, id="old", name="max.a-running", when="> 60"),
        rule("heartbeat", {"name": "reset", "label": "a", **UNLIMITED}, id="beat"),
        jobs=[{"name": "a", "command": "a", "count": 3}, {"name": "check", "command": "check"}],
    )
    first = next(iter(world.jobs[2]))
    world.start(first)
    world.t += 100
    world.handle(TimerFired(world.t, "heartbeat"))
    assert world.fired("beat") == ["pool.0", "pool.1"]
    assert (world.fired("old"), world.checks()) == (["pool.1"], [2])


def test_each_member_that_comes_up_gets_its_job_and_one_that_replaces_another_too() -> None:
    world = World(
        rule("member-up", CHECK, id="r"),
        {"trigger": "member-lost", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
    )
    assert world.checks() == [1, 2]
    world.handle(MemberLost(world.t, "pool.0", 1, "gone"))
    world.handle(MemberEnded(world.t, "pool.0", 1, "gone"))
    # The job that was bound to it is over; nothing is kept of the member.
    assert world.engine.stats.counts["check"]["canceled"] == 1
    assert set(world.engine.rules.states["r"].turns) == {"pool.1"}
    world.again()
    world.up(3)
    assert (world.fired("r"), world.checks()) == (["pool.0", "pool.1", "pool.2"], [1, 2, 3])


def test_jobs_that_wait_for_a_member_are_dropped_when_it_drains_and_none_is_asked_for_later() -> (
    None
):
    many = {**CHECK, "count": 30, "repetitions": "unlimited"}
    world = World(rule("job-fail", many, group="a"))
    world.run(1, status=1)
    assert world.engine.workload.busy_of("check") == 30
    sent = len(world.jobs[1])
    world.again()
    world.handle(MemberDraining(world.t, "pool.0", 1, "it drains", ends=False))
    (dropped,) = [one.context for one in world.records if one.name == "jobs-dropped"]
    assert dropped["group"] == "check"
    assert dropped["reason"].endswith("were to run on pool.0 alone, which takes no more jobs")
    # What was sent runs there or not at all; what another job asks for there is denied.
    assert world.engine.workload.busy_of("check") <= sent
    before = len(world.checks())
    for key in [key for key, (tag, _) in world.jobs[1].items() if tag.group == "a"][:1]:
        world.start(key)
        world.ends(key, 1)
    assert len(world.checks()) == before
    denied = [one.context for one in world.records if one.name == "outcome"][-1]
    assert denied["reason"] == "member pool.0 is draining"


def test_a_job_that_is_bound_is_retried_on_its_member_and_never_elsewhere() -> None:
    jobs = [
        {"name": "a", "command": "a", "count": 4},
        {"name": "check", "command": "check", "retries": 3},
    ]
    world = World(rule("member-up", CHECK), jobs=jobs)
    world.run(1, status=1, group="check")
    assert world.checks() == [1, 2, 1]
    world.handle(MemberLost(world.t, "pool.0", 1, "gone"))
    world.handle(MemberEnded(world.t, "pool.0", 1, "gone"))
    assert world.checks() == [1, 2, 1]
    counts = world.engine.stats.counts["check"]
    assert (counts["failed"], counts["canceled"], counts["finished"]) == (1, 1, 1)


def test_a_submission_that_the_member_cannot_take_is_not_made_and_the_log_says_why() -> None:
    for more, sentence in (
        ({"cores": 4}, "member pool.0 is too small for the job, or does not last long enough"),
        ({"member": "big"}, "jobs of group 'check' do not run on member pool.0"),
        # One of them is small enough, and the other one is not.
        (
            {"params": {"n": [1, 4]}, "cores": "{n}"},
            "member pool.0 is too small for the job, or does not last long enough",
        ),
    ):
        jobs = [
            {"name": "a", "command": "a", "count": 4},
            {"name": "check", "command": "check", **more},
        ]
        pools = [{"name": "pool"}, {"name": "big", "nodes": 8}]
        world = World(rule("member-up", CHECK, name="pool"), pools=pools, members=1, jobs=jobs)
        assert world.checks() == []
        denied = [one.context for one in world.records if one.name == "outcome"]
        assert [one["reason"] for one in denied if "reason" in one] == [sentence]


def test_an_ensemble_ends_when_the_rules_of_all_members_have_run() -> None:
    jobs = [{"name": "a", "command": "a"}, {"name": "check", "command": "check"}]
    world = World(rule("heartbeat", CHECK, id="r"), jobs=jobs, finish="idle")
    world.run(1)
    assert world.engine.acting
    world.handle(TimerFired(world.t, "heartbeat"))
    world.run(1, group="check")
    world.run(2, group="check")
    assert (world.fired("r"), world.engine.state) == (["pool.0", "pool.1"], "completed")


def test_an_update_of_a_group_is_of_its_jobs_on_all_members_where_its_rule_is_of_none() -> None:
    urgent = {"name": "update", "label": "a", "urgency": 20}
    for scope, members in (({"scope": "member"}, {2}), ({}, {1, 2})):
        world = World({"trigger": "job-fail", "group": "a", "action": urgent, **scope})
        commands = world.run(2, status=1)
        (update,) = [one for one in commands if isinstance(one, UpdateJobs)]
        assert {ordinal_of(key) for key in update.jobs} == members


def test_growth_without_a_pool_is_of_the_instance_in_documents_with_members_too() -> None:
    world = World({"trigger": "job-fail", "group": "a", "action": {"name": "grow", "value": 2}})
    commands = world.run(1, status=1)
    assert not [one for one in commands if isinstance(one, StartMember)]
    outcome = [one.context for one in world.records if one.name == "outcome"][-1]
    assert outcome["reason"].startswith("the size of the instance is fixed")


def test_documents_without_such_rules_are_dumped_as_before() -> None:
    world = World({"trigger": "job-fail", "group": "a", "action": CHECK})
    world.run(1, status=1)
    text = json.dumps(dump(world.engine))
    for word in ("member_counts", "unwanted", "turns", '"bound"'):
        assert word not in text
    assert not world.engine.stats.of_members.sizes()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "fail", "fail", "beat", "drain", "lose", "again"]),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_rules_and_jobs_stay_with_their_member(
    steps: list[tuple[str, int]],
) -> None:
    repetitions = 3
    world = World(
        rule("job-fail", {**CHECK, "repetitions": repetitions}, id="r", when="count.a.failed >= 1"),
        rule("metric", {"name": "cancel", "label": "check"}, id="m", when="n['a-duration'] > 2"),
        {"trigger": "member-lost", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
        {"trigger": "member-draining", "action": {"name": "grow", "label": "pool", **UNLIMITED}},
    )
    ran: Counter[tuple[int, str]] = Counter()
    for kind, choice in steps:
        members = world.engine.members
        assert members is not None
        for member in list(members.known.values()):
            if member.state == "starting":
                world.up(member.ordinal)
        ordinals = [one.ordinal for one in members.known.values() if one.state == "up"]
        ordinal = ordinals[choice % len(ordinals)]
        name = f"pool.{ordinal - 1}"
        world.t += 1
        if kind in ("run", "fail") and any(
            tag.group == "a" for tag, _ in world.jobs[ordinal].values()
        ):
            world.run(ordinal, status=int(kind == "fail"))
            ran[ordinal, kind] += 1
        elif kind == "beat":
            world.handle(TimerFired(world.t, "heartbeat"))
        elif kind == "drain":
            world.handle(MemberDraining(world.t, name, ordinal, "it ends", ends=False))
            world.handle(MemberEnded(world.t, name, ordinal, "it has ended"))
        elif kind == "lose":
            world.handle(MemberLost(world.t, name, ordinal, "it was lost"))
            world.handle(MemberEnded(world.t, name, ordinal, "it was lost"))
        elif kind == "again":
            world.again()
        own = world.engine.stats.of_members
        for member in members.known.values():
            of_a = MetricPath("count", "a", "failed")
            assert own.lookup(member.name, of_a) == ran[member.ordinal, "fail"]
            of_a = MetricPath("n", "a", "duration")
            assert own.lookup(member.name, of_a) == ran[member.ordinal, "run"]
        gone = {f"pool.{number - 1}" for number in world.jobs} - {
            member.name for member in members.known.values()
        }
        states = world.engine.rules.states.values()
        assert not any(gone & set(state.turns) for state in states)
        assert not any(group.partition("@")[2] in gone for group, _, _ in own.sizes())
    times = Counter(world.fired("r"))
    assert all(number <= repetitions for number in times.values())
    # Each job of a firing was sent to its member, and nowhere else.
    fires = [one.context for one in world.records if one.name == "fire"]
    of_firing = {one["firing"]: one["cause"]["member"] for one in fires if one["rule"] == "r"}
    for command in world.sent:
        if command.rule == "r":
            assert of_firing[command.firing] == f"pool.{command.ordinal - 1}"


def test_the_same_history_gives_the_same_commands_byte_for_byte() -> None:
    texts = []
    for restores in (False, True):
        failed = rule("job-fail", {**CHECK, **UNLIMITED}, when="mean['a-pending'] >= 0")
        world = World(failed, cores=4)
        commands: list[Command] = []
        for number in range(12):
            commands += world.run(1 + number % 2, status=number % 3)
            if restores:
                world.again()
        texts.append([encode(command) for command in commands])
    assert texts[0] == texts[1]
