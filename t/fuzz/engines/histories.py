"""Random histories of an engine: whatever a queue, users, user code and the clock may do.

A history is mostly one that a queue could give. Some of its events come late, twice, in another
order, with a time that goes back, or are about what does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from test_engine_properties import LIFE

from engines import learning
from engines.documents import GROUPS, action, trigger
from engines.side import Side
from flux_ensemble.document.keys.rules import JOB_EVENTS
from flux_ensemble.engine.codec import to_json
from flux_ensemble.engine.commands import (
    Ask,
    CallCustom,
    CancelJobs,
    Scale,
    StartTimer,
    StopTimer,
    SubmitJobs,
    UpdateJobs,
)
from flux_ensemble.engine.events import (
    Absent,
    AllocationChanged,
    AllocationEnding,
    CommandDone,
    CommandFailed,
    Event,
    Interrupted,
    JobEvent,
    MemberChanged,
    Request,
    ShareChanged,
    Started,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.runtime.rerun import Choice

#: Exceptions of jobs: type and note. The last two are no doing of the job.
EXCEPTIONS = (
    ("cancel", ""),
    ("timeout", ""),
    ("exec", "job shell exec error"),
    ("lost", "gone"),
    ("exec", "node failure on n3 (rank 3)"),
)


def _triggers(rule: dict[str, Any]) -> list[str]:
    """The trigger of a rule, or each of several."""
    given = rule["trigger"]
    return given if isinstance(given, list) else [given]


class History:
    """One history of an engine, made up as it goes.

    Args:
        random: decides everything.
        document: of the ensemble.

    Attributes:
        steps: each with the text that it came to.
        sent: the commands of all events.
    """

    def __init__(self, random: Random, document: dict[str, Any]) -> None:
        self._random = random
        self._side = Side({"document": document})
        self.steps: list[tuple[Sequence[Any], str]] = []
        self.sent: list[Any] = []
        #: Names of job events that rules are about, which come more often than the others.
        self._names = [
            name
            for triggers in map(_triggers, document["rules"])
            for name in (one.removeprefix("job-") for one in triggers)
            if name in JOB_EVENTS
        ]
        if any(rule["trigger"] in ("drift", "anomaly") for rule in document["rules"]):
            self._names += ["memo"] * 6
        self._t = 1000.0
        self._pending: list[Any] = []
        #: Ids of the jobs of each command that submits some.
        self._ids: dict[int, list[int]] = {}
        #: Job id -> its tag, and the latest event of its life.
        self._jobs: dict[int, tuple[Tag, str]] = {}
        self._last_job = 0
        self._timers: set[str] = set()
        self._before: list[Event] = []
        #: The jobs that are gone, as the record beside the snapshots has them.
        self._record: list[Any] = []

    @property
    def rules(self) -> dict[str, Any]:
        """The states of the engine's rules, by id."""
        states: dict[str, Any] = self._side.engine.rules.states
        return states

    @property
    def broken(self) -> bool:
        """The engine raised an exception, which was the end."""
        return self._side.broken

    def run(self, length: int) -> None:
        """Go on for about so many events."""
        random = self._random
        moves, weights = zip(*self.moves, strict=True)
        self._begin()
        self._post(Started(self._t))
        while len(self.steps) < length and not self.broken:
            random.choices(moves, weights)[0](self)
            if self._side.engine.ended:
                # Little comes to anything from now on, unless some jobs run again.
                length -= 5
                if random.random() < 0.2:
                    self._reopen()
            if random.random() < 0.08:
                self._take(random.choice([["look"], ["restore"]]))
        if not self.broken:
            self._take(["look"])

    def _begin(self) -> None:
        """Before the ensemble begins, the queue or a user may have said something."""
        if self._random.random() < 0.6:
            self._post(MemberChanged(self._t, "default", 2, 2, 2, 1, 6))
        if self._random.random() < 0.05:
            self._ask()

    def _take(self, step: Sequence[Any]) -> None:
        engine = self._side.engine
        self.steps.append((step, self._side.take(step)))
        if self._side.engine is not engine:
            # The one that was restored has the record to come alone.
            self._record += engine.records.waiting

    def _post(self, event: Event) -> None:
        if self.broken:
            return
        self._before.append(event)
        self._take(["event", to_json(event)])
        for command in () if self.broken else self._side.commands:
            self.sent.append(command)
            self._perform(command)

    def _perform(self, command: Any) -> None:
        match command:
            case SubmitJobs():
                self._expect(command)
            case CancelJobs() | UpdateJobs() | CallCustom() | Scale() | Ask():
                self._pending.append(command)
            case StartTimer():
                self._timers.add(command.key)
            case StopTimer():
                self._timers.discard(command.key)

    def _expect(self, command: SubmitJobs) -> None:
        self._pending.append(command)
        ids = range(self._last_job + 1, self._last_job + 1 + command.count)
        self._last_job += command.count
        self._ids[command.id] = list(ids)
        for index, job in enumerate(ids, start=command.first):
            self._jobs[job] = Tag(command.group, command.rule, command.firing, index), ""

    def _tick(self) -> float:
        self._t += self._random.choice([0.0, 0.25, 0.5, 0.5, 1.0, 4.0])
        # The clock of a queue can be set back.
        return self._t - (10.0 if self._random.random() < 0.02 else 0.0)

    def _some_rules(self) -> list[str]:
        """Ids of rules: of a chain only where it begins, and one of the others."""
        ids = list(self.rules)
        links = [id for id in ids if id.startswith("c")]
        return [id for id in ids if id not in links] + links[:1] + links[-1:]

    # -- moves --------------------------------------------------------------------

    def _answer(self) -> None:
        """A command has its outcome, perhaps twice."""
        if not self._pending:
            return
        random = self._random
        command = self._pending.pop(random.randrange(len(self._pending)))
        if random.random() < (0.97 if isinstance(command, SubmitJobs) else 0.9):
            event: Event = CommandDone(self._tick(), command.id, self._result(command))
        else:
            ids = self._ids.get(command.id, [])
            kept = tuple(ids[: random.randint(0, len(ids))])
            event = CommandFailed(self._tick(), command.id, "EIO", "no", "detail", kept)
            for job in set(ids) - set(kept):
                if random.random() < 0.7:
                    self._jobs.pop(job, None)
        self._post(event)
        if random.random() < 0.1:
            self._post(event)

    def _call_on_and_on(self) -> None:
        """A function returns the action that calls it, until that is too often."""
        call = {"kind": "action", "value": {"name": "custom", "label": "f"}}
        for _ in range(110):
            calls = [command for command in self._pending if isinstance(command, CallCustom)]
            if not calls or self._side.engine.state != "running":
                return
            self._pending.remove(calls[-1])
            self._post(CommandDone(self._tick(), calls[-1].id, {"returned": [call]}))

    def _fail_on_and_on(self) -> None:
        """A call or an ask fails, is tried again, and fails again, until it is given up."""
        for _ in range(8):
            if self.broken or self._side.engine.ended:
                return
            asked = [one for one in self._pending if isinstance(one, CallCustom | Ask)]
            timers = [key for key in sorted(self._timers) if key.startswith(("retry:", "ask:"))]
            if timers:
                self._timers.remove(timers[-1])
                self._post(TimerFired(self._tick(), timers[-1]))
            elif asked:
                self._pending.remove(asked[-1])
                self._post(CommandFailed(self._tick(), asked[-1].id, "EIO", "no"))
            else:
                return

    def _end_on_and_on(self) -> None:
        """A job fails or is lost, runs again and ends as before, until it is given up."""
        if not self._jobs:
            return
        random = self._random
        group = self._jobs[self._some_job()][0].group
        lost: dict[str, Any] = {"type": "lost", "severity": 0, "note": "gone"}
        ends: list[tuple[str, dict[str, Any]]] = [("exception", lost), ("finish", {"status": 256})]
        end = random.choice(ends)
        for _ in range(6):
            for command in [one for one in self._pending if isinstance(one, SubmitJobs)]:
                self._pending.remove(command)
                self._post(CommandDone(self._tick(), command.id, self._result(command)))
            jobs = [job for job, (tag, _) in self._jobs.items() if tag.group == group]
            if not jobs or self.broken:
                return
            tag, _ = self._jobs.pop(jobs[-1])
            self._post(JobEvent(self._tick(), jobs[-1], "submit", {}, tag))
            for name, context in (("validate", {}), ("start", {}), end, ("clean", {})):
                self._post(JobEvent(self._tick(), jobs[-1], name, context))
            for key in [key for key in sorted(self._timers) if key.startswith("again:")]:
                self._timers.discard(key)
                self._post(TimerFired(self._tick(), key))

    def _result(self, command: Any) -> dict[str, Any]:
        random = self._random
        match command:
            case SubmitJobs():
                return {"ids": self._ids[command.id]}
            case Ask():
                return learning.answer(random, command)
            case Scale():
                nodes = command.to - random.choice([0, 0, 1])
                return random.choice([{}, {"nodes": nodes, "by": command.by}])
            case CallCustom():
                size = random.choice([0, 1, 1, 2, 3, 5])
                return {"returned": [self._returned() for _ in range(size)]}
            case _:
                return {}

    def _returned(self) -> dict[str, Any]:
        """One item of what a custom function returns."""
        random, rules = self._random, self._some_rules()
        match random.randrange(8):
            case 0 | 1:
                value = action(random, rules)
                return {"kind": "action", "value": value}
            case 2 | 3 | 4:
                name = random.choice(["enable", "enable", "disable"])
                return {"kind": "action", "value": {"name": name, "label": random.choice(rules)}}
            case 5:
                wrong = [{"name": "submit", "label": "nope"}, {}, {"name": "grow", "value": 0}]
                return {"kind": "action", "value": random.choice(wrong)}
            case _:
                rule = {**trigger(random, rules), "action": action(random, rules)}
                id = {"id": f"n{random.randint(0, 9)}"} if random.random() < 0.5 else {}
                return {"kind": "rule", "value": {**rule, **id}}

    def _some_job(self) -> int:
        """A job, of a trial rather than another: it takes many events until a search comes on."""
        trials = [job for job, (tag, _) in self._jobs.items() if tag.group == learning.GROUP]
        of_trials = trials and self._random.random() < 0.5
        return self._random.choice(trials if of_trials else list(self._jobs))

    def _go_on(self) -> None:
        """A job has its next event."""
        if not self._jobs:
            return
        random = self._random
        job = self._some_job()
        tag, last = self._jobs[job]
        trial = tag is not None and tag.group == learning.GROUP
        if last and random.random() < (0.5 if trial else 0.15):
            name = random.choice([*self._names, random.choice(JOB_EVENTS)])
            name = "memo" if trial and random.random() < 0.7 else name
        else:
            name = random.choice(LIFE[last]) if last else "submit"
        event = self._job_event(job, name, tag)
        self._post(event)
        if random.random() < 0.05:
            self._post(event)
        if not LIFE.get(name, True):
            del self._jobs[job]
        elif name in LIFE:
            self._jobs[job] = tag, name

    def _live(self) -> None:
        """A job comes to its end; what it has been through already is ignored."""
        if not self._jobs:
            return
        random = self._random
        job = self._some_job()
        tag, _ = self._jobs.pop(job)
        names = ["submit", "validate", "start", "finish", "clean"]
        if tag.group == learning.GROUP:
            names.insert(3, "memo")
        if random.random() < 0.2:
            names.insert(random.randint(1, 3), "exception")
        if random.random() < 0.1:
            names.remove(random.choice(names))
        if random.random() < 0.05:
            random.shuffle(names)
        for name in names:
            self._post(self._job_event(job, name, tag))

    def _job_event(self, job: int, name: str, tag: Tag | None) -> JobEvent:
        random = self._random
        context: dict[str, Any] = {}
        match name:
            case "finish":
                context = {"status": random.choice([0, 0, 256, 15])}
            case "exception":
                kind, note = random.choice(EXCEPTIONS)
                context = {"type": kind, "severity": 0, "note": note}
            case "memo":
                values: list[Any] = [-1, 0, 1, 2.5, True, "text", None, [1]]
                keys = random.sample(["x", "y", "z", "duration", "waiting"], random.randint(1, 3))
                context = {key: random.choice(values) for key in keys}
                if tag is not None and tag.group == learning.GROUP:
                    context = dict(learning.memo(random))
                if random.random() < 0.1:
                    context["long" * 100] = 1
        return JobEvent(self._tick(), job, name, context, tag if name == "submit" else None)

    def _foreign(self) -> None:
        """A job of somebody else has an event."""
        random = self._random
        name = random.choice([*LIFE, *JOB_EVENTS])
        event = self._job_event(10**6 + random.randint(1, 3), name, None)
        known = random.choice(["a", "b", "x", None])
        self._post(JobEvent(event.t, event.job, name, event.context, None, True, known))

    def _stray(self) -> None:
        """An event comes again, or is about what there is not."""
        random = self._random
        rule = random.choice(self._some_rules())
        tag = Tag(random.choice(GROUPS), rule, 0, random.randint(0, 9))
        self._post(
            random.choice(
                [
                    random.choice(self._before),
                    random.choice(self._before),
                    JobEvent(self._tick(), random.randint(1, 20), "submit", {}, tag),
                    self._job_event(random.randint(1, 20), random.choice(JOB_EVENTS), None),
                    CommandDone(self._tick(), random.randint(1, 40), {}),
                    CommandFailed(self._tick(), random.randint(1, 40), "EIO", "no"),
                    TimerFired(self._tick(), random.choice(["rule:r1", "scale:1", "retry:r1:0"])),
                ]
            )
        )

    def _interrupt(self) -> None:
        """The instance shuts down while jobs are active."""
        random = self._random
        known = sorted(self._jobs)
        jobs = [*random.sample(known, min(len(known), 3)), random.randint(1, 20)]
        self._post(Interrupted(self._tick(), tuple(jobs)))
        for job in jobs:
            if job in self._jobs and random.random() < 0.7:
                del self._jobs[job]
                for name, context in (("exception", {"type": "cancel"}), ("clean", {})):
                    self._post(JobEvent(self._tick(), job, name, context))

    def _allocate(self) -> None:
        """The allocation is about to end, or there is another one, or more of it."""
        t, left = self._tick(), self._random.choice([0.0, 1.0, 10.0, 1000.0])
        if self._random.random() < 0.4:
            self._post(AllocationEnding(t, t + left))
        else:
            self._post(AllocationChanged(t, self._random.choice([None, t + left])))

    def _resize(self) -> None:
        """The member changes."""
        random = self._random
        size = random.randint(1, 6)
        up = random.randint(1, size)
        high = random.choice([6, 6, 6, 3, 1])
        free = random.randint(0, up)
        self._post(MemberChanged(self._tick(), "default", size, up, free, 1, high))

    def _compete(self) -> None:
        """Other ensembles come or go."""
        self._post(ShareChanged(self._tick(), self._random.choice([0.25, 0.5, 1.0])))

    def _time(self) -> None:
        """A timer fires."""
        if self._timers:
            key = self._random.choice(sorted(self._timers))
            if key.startswith(("scale:", "retry:", "ask:")):
                self._timers.remove(key)
            self._post(TimerFired(self._tick(), key))

    def _ask(self) -> None:
        """A user asks for something."""
        random, rules = self._random, [*self._some_rules(), "nope"]
        group = random.choice([*GROUPS, "nope"])
        requests: list[tuple[str, dict[str, Any]]] = [
            ("submit", {"group": group, "count": random.choice([1, 2, 90])}),
            ("submit", {"group": group}),
            ("pause", {}),
            *[("resume", dict[str, Any]())] * 3,
            ("rules", {"id": random.choice(rules), "enabled": random.random() < 0.7}),
            ("rules", {"id": random.choice(rules), "enabled": random.random() < 0.7}),
            ("action", {"action": action(random, rules)}),
            ("action", {"action": action(random, rules)}),
            ("cancel", {"group": group}),
        ]
        if random.random() < 0.12:
            requests = self._more(group)
        if random.random() < 0.08:
            requests = [
                ("cancel", {}),
                ("terminate", {}),
                ("terminate", {"cancel": True}),
                ("nothing", {}),
            ]
        self._post(Request(self._tick(), len(self.steps), *random.choice(requests)))

    def _more(self, group: str) -> list[tuple[str, dict[str, Any]]]:
        """Requests that give an ensemble more to do."""
        random = self._random
        point = {"u": 0.5, "k": random.choice([1, 2, 9]), "w": "p"}
        search: dict[str, Any] = {"search": random.choice([learning.SEARCH, None])}
        overrides = random.choice([{"urgency": 20}, {"nodes": 2, "duration": 60}, {"nodes": 0}])
        return [
            ("submit", {"group": group, "count": 1, "overrides": overrides}),
            ("search", {**search, "more": random.randint(0, 2)}),
            ("search", {**search, "points": [point]}),
            *[("rerun", self._over())] * 3,
        ]

    def _over(self) -> dict[str, Any]:
        """Arguments of a rerun of jobs that are over, as the service chooses them."""
        random, engine = self._random, self._side.engine
        unsent, failed = random.choice([(False, False), (True, False), (False, True)])
        if not engine.records.kept:
            return {"firings": [], "unsent": unsent}
        jobs = [*self._record, *engine.records.waiting]
        record: Any = SimpleNamespace(jobs=lambda position: jobs[position:])
        choice = Choice(engine, record, Describer(engine.spec, "", str, str), None, failed=failed)
        choice.all(self._t)
        return {"firings": choice.firings(), "unsent": unsent}

    def _absent(self) -> None:
        """There was no instance for a while, perhaps with results that a crash undid."""
        since = self._t
        self._t += self._random.choice([0.5, 20.0, 300.0])
        undone = self._random.choice([0, 0, 2])
        ended = since + 0.25 if undone else None
        self._post(Absent(self._t, since, undone, ended))

    def _reopen(self) -> None:
        """An ensemble that has ended goes on with jobs that are over."""
        if self._side.engine.ended:
            self._post(Request(self._tick(), len(self.steps), "rerun", self._over()))

    def _start_again(self) -> None:
        """The ensemble is said to begin once more."""
        self._post(Started(self._tick()))

    #: What may happen, with how often it does.
    moves: tuple[tuple[Callable[[Any], None], float], ...] = (
        (_answer, 30),
        (_go_on, 25),
        (_live, 10),
        (_foreign, 6),
        (_stray, 4),
        (_interrupt, 2),
        (_allocate, 2),
        (_resize, 5),
        (_compete, 2),
        (_time, 12),
        (_ask, 12),
        (_start_again, 1),
        (_absent, 1),
        (_call_on_and_on, 0.02),
        (_fail_on_and_on, 1),
        (_end_on_and_on, 1.5),
    )
