"""Properties of the engine under any legal history, found by Hypothesis."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from play import (
    CallCustom,
    CancelJobs,
    CommandDone,
    CommandFailed,
    JobEvent,
    Reply,
    Request,
    Scale,
    Started,
    StartTimer,
    StopTimer,
    SubmitJobs,
    Tag,
    TimerFired,
    UpdateJobs,
    submit,
)

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import command_from_json, encode, event_from_json, to_json
from flux_ensemble.engine.commands import Finish, Record
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import (
    Absent,
    AllocationChanged,
    AllocationEnding,
    Interrupted,
    MemberChanged,
    ShareChanged,
)
from flux_ensemble.engine.status import status
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES

#: event -> the events that may follow it in a job's life.
LIFE = {
    "submit": ("validate", "invalidate"),
    "validate": ("start", "exception", "clean"),
    "start": ("memo", "exception", "finish"),
    "memo": ("memo", "finish", "exception"),
    "exception": ("finish", "clean"),
    "finish": ("clean",),
    "clean": (),
    "invalidate": (),
}

TRIGGERS = st.sampled_from(
    [
        {"trigger": "start"},
        {"trigger": "job-submit"},
        {"trigger": "job-success", "group": "a"},
        {"trigger": "job-fail"},
        {"trigger": "job-memo", "when": "x > 0"},
        {"trigger": "job-clean", "scope": "queue"},
        {"trigger": "metric", "name": "count.a.finished", "when": "> 1"},
        {"trigger": "metric", "name": "mean.b-duration", "when": "> 0"},
        {"trigger": "metric", "name": "n.b-x", "when": "== 0"},
        {"trigger": "metric", "when": "n['a-x'] + n['b-pending'] >= 2"},
        {"trigger": "metric", "when": "count.a.success + count.b.success >= 2"},
        {"trigger": "heartbeat"},
        {"trigger": "idle"},
        {"trigger": "idle", "name": "b"},
        {"trigger": "idle", "name": "b", "by": ["p"]},
        {"trigger": "timer", "every": 5},
        {"trigger": "job-running", "group": "b", "when": "not job.copied"},
        {"trigger": "job-running", "every": 5},
        {"trigger": "metric", "name": "nodes.free", "when": "> 1"},
        {"trigger": "metric", "when": "queue['pending-nodes'] > nodes.free"},
        {"trigger": "metric", "name": "share.queue", "when": "< 1"},
        {"trigger": "scale-done"},
        {"trigger": "scale-denied"},
        {"trigger": "scale-denied", "name": "r1"},
        {"trigger": "job-gave-up"},
        {"trigger": "metric", "name": "count.b.gave-up", "when": ">= 1"},
        {"trigger": "metric", "when": "count.b.attempts > count.b.finished"},
        {"trigger": ["job-fail", "job-timeout"], "group": ["a", "b"]},
        {"trigger": "job-finish", "group": "b", "when": "job.returncode == 1 or job.params.p > 1"},
        {"trigger": "job-start", "when": "job.attempt > 0 and count.a.submitted > 0"},
        {
            "trigger": "drift",
            "name": "b-x",
            "detector": {"page-hinkley": {"min-instances": 1, "delta": 0, "threshold": 0.1}},
        },
        {
            "trigger": "anomaly",
            "name": "b-duration",
            "detector": {"quantile": {"q": 0.5, "warm-up": 1, "mode": "both"}},
            "when": "job.params.p > 0",
        },
    ]
)
#: Most choices let the ensemble go on, so that histories get somewhere.
ACTIONS = st.sampled_from(
    [
        submit("a"),
        submit("b", count=3),
        {"name": "custom", "label": "f"},
        {"name": "enable", "label": "r0"},
        {"name": "disable", "label": "r0"},
        {"name": "update", "label": "b", "urgency": 20},
        {"name": "grow"},
        {"name": "grow", "value": 3},
        {"name": "shrink"},
        {"name": "shrink", "value": 2},
        {"name": "reset", "label": "b-duration"},
        {"name": "reset", "label": "a"},
    ]
    * 3
    + [
        {"name": "cancel", "label": "a"},
        {"name": "cancel"},
        {"name": "terminate"},
        {"name": "terminate", "cancel": True},
    ]
)
#: Of rules that a job triggers. Some have no value, or one that does not fit.
JOB_ACTIONS = st.sampled_from(
    [
        submit("b", params="trigger"),
        submit("b", params={"p": "{job.index + 1}"}, nodes="{job.nnodes + 1}"),
        submit("b", params={"p": ["x{job.id}", "{job.attempt}"]}, environment={"A": "{{}}"}),
        submit("a", count="{job.attempt}", duration="{job.duration * 2}"),
        submit("a", params={}, queue="{count.b.success / count.b.failed}"),
        {"name": "cancel", "jobs": "trigger"},
        {"name": "copy"},
        {"name": "copy", "jobs": "trigger"},
        {"name": "update", "jobs": "trigger", "duration": "{job.duration + 60}"},
        {"name": "update", "label": "b", "urgency": "{job.urgency * 2}"},
        {"name": "grow", "value": "{job.nnodes}"},
        {"name": "custom", "label": "f"},
    ]
)
RETRIES = st.sampled_from(
    [
        0,
        1,
        2,
        {"times": 2, "on": ["failed", "timeout"], "with": {"duration": "{job.duration * 2}"}},
        {"times": 2, "after": 5, "factor": 1e300, "with": {"nodes": "{job.nnodes + 1}"}},
        {"times": 1, "on": ["canceled", "job.returncode == 1"], "after": 1},
        {"times": 3, "with": {"cores": "{1 / job.attempt}"}},
    ]
)
METRICS = st.sampled_from(
    [
        [],
        [{"of": "b-x", "by": ["p"]}],
        [
            {"of": "b-duration", "by": ["p"]},
            {"name": "longest", "statistic": "max", "of": "finished"},
            {"best": {"name": "top", "of": "b-x"}},
        ],
    ]
)
REPETITIONS = st.sampled_from([1, 2, 5, "unlimited"])
PREDICTIONS = st.sampled_from(
    [
        {},
        {"predict": ["p"]},
        {"predict": ["p"], "order": "longest-first", "max-active": 2},
        {"predict": ["p", "q"], "order": "longest-first"},
        {"predict": [], "order": "longest-first", "max-active": 1},
    ]
)
#: A rule that only a document with one of these can have.
FORESEEN = {
    "trigger": "job-success",
    "group": "b",
    "when": "job.predicted > 1 or time.remaining < 5",
    "action": submit("b", params={"p": ["{job.predicted}", 3, -1, 0]}, repetitions="unlimited"),
}
REQUESTS = st.sampled_from(
    [
        ("submit", {"group": "b"}),
        ("submit", {"group": "a", "count": 90}),
        ("pause", {}),
        ("resume", {}),
        ("rules", {"id": "r0", "enabled": True}),
        ("rules", {"id": "r0", "enabled": False}),
        ("action", {"action": {"name": "cancel", "label": "b"}}),
        ("action", {"action": {"name": "custom", "label": "f"}}),
        ("action", {"action": submit("a")}),
        ("action", {"action": {"name": "grow"}}),
        ("action", {"action": {"name": "reset", "label": "a-x"}}),
    ]
    * 5
    + [
        ("cancel", {"group": "a"}),
        ("cancel", {}),
        ("terminate", {}),
        ("terminate", {"cancel": True}),
    ]
)
GOOD = st.sampled_from([True] * 15 + [False])
RETURNS = st.lists(
    st.sampled_from(
        [
            {"kind": "action", "value": submit("b")},
            {"kind": "action", "value": {"name": "custom", "label": "f"}},
            {"kind": "action", "value": submit("nope")},
            {"kind": "action", "value": {"name": "shrink"}},
            {"kind": "action", "value": {"name": "reset", "label": "b"}},
            {"kind": "rule", "value": {"trigger": "start", "action": submit("a")}},
            {"kind": "rule", "value": {"trigger": "job-success", "action": submit("b")}},
            {
                "kind": "rule",
                "value": {
                    "trigger": ["job-fail", "job-success"],
                    "group": ["b", "a"],
                    "when": "job.id > 1",
                    "actions": [submit("b", params="trigger"), submit("a", nodes="{job.nnodes}")],
                },
            },
            {
                "kind": "rule",
                "value": {
                    "trigger": "anomaly",
                    "name": "b-x",
                    "detector": {"quantile": {"q": 0.5, "warm-up": 2}},
                    "action": {"name": "cancel", "jobs": "trigger", "repetitions": "unlimited"},
                },
            },
            {
                "kind": "rule",
                "value": {
                    "trigger": "idle",
                    "group": "b",
                    "by": ["p"],
                    "action": submit("b", params="trigger"),
                },
            },
        ]
    ),
    max_size=2,
)


@st.composite
def documents(draw):
    rules = [{"id": "r0", "trigger": "start", "action": submit("a")}]
    for number in range(draw(st.integers(1, 5))):
        trigger = draw(TRIGGERS)
        of_job = "job-" in str(trigger["trigger"]) or "detector" in trigger
        choices = st.one_of(ACTIONS, JOB_ACTIONS) if of_job else ACTIONS
        action = {**draw(choices), "repetitions": draw(REPETITIONS)}
        if draw(st.booleans()):
            action["backoff"] = draw(st.integers(0, 2))
        more = draw(st.sampled_from([0, 0, 0, 1, 2]))
        actions = [action, *(draw(choices) for _ in range(more))]
        on_error = draw(st.sampled_from(["disable", "retry", "fail"]))
        rules.append(
            {
                **trigger,
                "id": f"r{number + 1}",
                **({"actions": actions} if more else {"action": action}),
                "on-error": on_error,
            }
        )
    predictions = draw(PREDICTIONS)
    if predictions:
        rules.append(FORESEEN)
    return {
        "name": "any",
        "logging": {"heartbeat": 10},
        "custom": "def f(**kwargs): ...\n",
        "jobs": [
            {"name": "a", "command": "true", "count": draw(st.integers(1, 4))},
            {"name": "a", "command": "true", "nodes": draw(st.integers(1, 2))},
            {
                "name": "b",
                "command": "true {p}",
                "params": {"p": draw(st.sampled_from([[1], [1, 2], [1, 5, 2, "x"]])), "q": [7]},
                "duration": 60,
                "retries": draw(RETRIES),
                **predictions,
            },
        ],
        "metrics": draw(METRICS),
        "rules": rules,
        "limits": {
            "active-jobs": draw(st.integers(1, 8)),
            "jobs": draw(st.sampled_from([8, 30, 500])),
        },
        "scaling": {
            "max-nodes": draw(st.integers(2, 6)),
            "refusals": draw(st.integers(1, 3)),
        },
        "finish": draw(st.sampled_from(["idle", "never"])),
    }


class Histories(RuleBasedStateMachine):
    """Any order of job events, outcomes, timers and requests that a queue could give."""

    @initialize(document=documents(), known=st.booleans())
    def begin(self, document, known):
        self.document = document
        self.engine = Engine(load_mapping(document))
        self.handle = self.engine.handle
        self.t = 1000.0
        self.pending: list = []
        self.jobs: dict[int, tuple[Tag, str]] = {}
        self.next_job = 1
        self.timers: set[str] = set()
        self.asked: set[int] = set()
        self.history: list = []
        self.answers: list[list[str]] = []
        self.finishes = 0
        self.unseen: set[Tag] = set()
        self.shown: set[Tag] = set()
        self.scales: dict[str, int] = {}
        if known:
            self.post(MemberChanged(self.t, "default", 2, 2, 2, 1, 6))
        self.post(Started(self.t))

    def post(self, event):
        commands = self.handle(event)
        self.engine.check()
        self.history.append(event)
        self.answers.append([encode(one) for one in commands])
        assert len(commands) < 2000, "one event causes a bounded number of commands"
        for one in commands:
            if isinstance(one, (SubmitJobs, CancelJobs, UpdateJobs, CallCustom, Scale)):
                self.pending.append(one)
                if isinstance(one, Scale):
                    assert one.member not in self.scales, "one request at a time"
                    most = self.document["scaling"]["max-nodes"]
                    assert 1 <= one.to <= (most if one.by > 0 else 6), "within the bounds"
                    self.scales[one.member] = one.id
                if isinstance(one, SubmitJobs):
                    assert self.engine.t_walltime is None, "nothing is sent when time is up"
                    indices = range(one.first, one.first + one.count)
                    tags = {Tag(one.group, one.rule, one.firing, n) for n in indices}
                    assert not tags & (self.unseen | self.shown), "no job is sent twice"
                    self.unseen |= tags
            elif isinstance(one, StartTimer):
                self.timers.add(one.key)
            elif isinstance(one, StopTimer):
                self.timers.discard(one.key)
                self.scales = {
                    member: id for member, id in self.scales.items() if one.key != f"scale:{id}"
                }
            elif isinstance(one, Reply):
                assert one.request in self.asked, "a request is answered once"
                self.asked.remove(one.request)
            elif isinstance(one, Finish):
                self.finishes += 1
        return [one for one in commands if not isinstance(one, Record)]

    def tick(self):
        self.t += 0.5
        return self.t

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def a_command_has_its_outcome(self, data):
        command = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        ids: list[int] = []
        if isinstance(command, SubmitJobs):
            ids = list(range(self.next_job, self.next_job + command.count))
            self.next_job += command.count
        good = data.draw(GOOD)
        if isinstance(command, SubmitJobs):
            taken = ids if good else ids[: data.draw(st.integers(0, len(ids)))]
            for index, job in enumerate(ids):
                if job in taken or data.draw(st.booleans()):
                    tag = Tag(command.group, command.rule, command.firing, command.first + index)
                    self.jobs[job] = (tag, "")
            ids = taken
        if not good:
            self.post(CommandFailed(self.tick(), command.id, "EIO", "no", ids=tuple(ids)))
        elif isinstance(command, Scale):
            nodes = command.to - data.draw(st.sampled_from([0, 0, 1]))
            self.post(CommandDone(self.tick(), command.id, {"nodes": nodes, "by": command.by}))
        elif isinstance(command, CallCustom):
            returned = data.draw(RETURNS)
            self.post(CommandDone(self.tick(), command.id, {"returned": returned}))
        else:
            self.post(CommandDone(self.tick(), command.id, {"ids": ids}))
        assert self.post(CommandDone(self.tick(), command.id, {})) == []

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def a_job_goes_on(self, data):
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        tag, last = self.jobs[job]
        name = data.draw(st.sampled_from(LIFE[last])) if last else "submit"
        context = {}
        if name == "finish":
            context = {"status": data.draw(st.sampled_from([0, 256]))}
        elif name == "exception":
            context = {"type": data.draw(st.sampled_from(["cancel", "timeout", "exec"]))}
        elif name == "memo":
            context = {"x": data.draw(st.integers(-1, 1))}
        event = JobEvent(self.tick(), job, name, context, tag if name == "submit" else None)
        self.post(event)
        assert self.post(event) == [], "a duplicate emits nothing"
        self.unseen.discard(tag)
        self.shown.add(tag)
        if LIFE[name]:
            self.jobs[job] = (tag, name)
        else:
            del self.jobs[job]
            late = JobEvent(self.tick(), job, "submit", {}, tag)
            assert self.post(late) == [], "a late event emits nothing"

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def a_job_comes_to_its_end(self, data):
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        tag, _ = self.jobs.pop(job)
        self.unseen.discard(tag)
        self.shown.add(tag)
        status = data.draw(st.sampled_from([0, 256, 15]))
        # What the job has been through already is ignored.
        for name in ("submit", "validate", "start", "exception", "finish", "clean"):
            if name == "exception" and status != 15:
                continue
            context = {"finish": {"status": status}, "exception": {"type": "cancel"}}.get(name, {})
            self.post(JobEvent(self.tick(), job, name, context, tag if name == "submit" else None))

    @rule(
        name=st.sampled_from(["submit", "start", "exception", "finish", "clean"]),
        job=st.integers(1, 3),
        kind=st.sampled_from(["cancel", "lost", "member-lost"]),
        status=st.sampled_from([0, 9]),
    )
    def somebody_else_s_job_goes_on(self, name, job, kind, status):
        context = {
            "exception": {"type": kind, "severity": 0},
            "finish": {"status": status},
        }.get(name, {})
        self.post(JobEvent(self.tick(), 10**6 + job, name, context, foreign=True, job_name="x"))

    @rule(jobs=st.lists(st.integers(1, 12), max_size=4))
    def the_instance_was_shut_down(self, jobs):
        assert self.post(Interrupted(self.tick(), tuple(jobs))) == []

    @rule(left=st.sampled_from([0.0, 1.0, 10.0]))
    def the_allocation_ends(self, left):
        t = self.tick()
        self.post(AllocationEnding(t, t + left))

    @precondition(lambda self: self.engine.t_walltime is not None)
    @rule()
    def there_is_time_again(self):
        self.post(AllocationChanged(self.tick(), None))

    @rule(seconds=st.floats(0.0, 100.0))
    def nothing_was_there(self, seconds):
        t = self.tick()
        self.post(Absent(t, t - seconds))

    @rule(share=st.sampled_from([0.25, 0.5, 1.0]))
    def others_compete(self, share):
        self.post(ShareChanged(self.tick(), share))

    @rule(size=st.integers(1, 6), free=st.integers(0, 6), high=st.sampled_from([6, 6, 6, 3, 1]))
    def the_member_changes(self, size, free, high):
        up = max(1, size - 1)
        event = MemberChanged(self.tick(), "default", size, up, min(up, free), 1, high)
        self.post(event)
        assert self.post(event) == [], "what is known already emits nothing"

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def a_timer_fires(self, data):
        key = data.draw(st.sampled_from(sorted(self.timers)))
        if key.startswith("scale:"):
            self.timers.remove(key)
            self.scales = {m: id for m, id in self.scales.items() if key != f"scale:{id}"}
        self.post(TimerFired(self.tick(), key))

    @rule(request=REQUESTS)
    def a_user_asks(self, request):
        number = len(self.history)
        self.asked.add(number)
        self.post(Request(self.tick(), number, *request))
        if request[0] not in ("submit", "action"):
            assert number not in self.asked

    @invariant()
    def statistics_add_up(self):
        for group in self.engine.stats.counts.values():
            assert group["attempts"] == sum(group[outcome] for outcome in ATTEMPT_OUTCOMES)
        json.dumps(self.engine.metrics(self.t), allow_nan=False)
        json.dumps(status(self.engine), allow_nan=False)

    @invariant()
    def it_expects_the_jobs_that_were_sent_and_have_not_shown(self):
        assert all(self.engine.expects(tag) for tag in self.unseen)
        assert not any(self.engine.expects(tag) for tag in self.shown)

    @invariant()
    def commands_without_an_outcome_are_pending(self):
        # Calls of user code are forgotten when the ensemble ends, and so are requests for
        # another size; these also when their time is up.
        kinds = (SubmitJobs, CancelJobs, UpdateJobs, *([CallCustom] if self.engine.acting else []))
        pending = [
            one for one in self.pending if isinstance(one, kinds) or one.id in self.scales.values()
        ]
        assert self.engine.pending == sorted(pending, key=lambda one: one.id)

    @invariant()
    def it_ends_once_at_most(self):
        assert self.finishes == int(self.engine.ended)

    def teardown(self):
        """The same events, through JSON, give byte-identical commands."""
        if not hasattr(self, "document"):
            return
        again = Engine(load_mapping(self.document))
        for event, answer in zip(self.history, self.answers, strict=True):
            copy = event_from_json(json.loads(json.dumps(to_json(event))))
            assert [encode(one) for one in again.handle(copy)] == answer
            for one in answer:
                assert encode(command_from_json(json.loads(one))) == one


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=60)
