"""Random histories of an engine with members: these come up, drain, are lost and end at any time.

What is not heard of a member that has ended is nothing that a service would tell an engine, nor is
a job on a member that it was not sent to. All else of `histories` may happen.
"""

from __future__ import annotations

from random import Random
from typing import Any

from engines.histories import History
from engines.member_documents import GROUPS, POOLS, member_action
from flux_ensemble.engine.commands import DrainMember, EndMember, StartMember, SubmitJobs
from flux_ensemble.engine.events import (
    CPU,
    LIFE,
    RSS,
    CommandDone,
    Event,
    JobEvent,
    JobEvents,
    JobsAlike,
    MemberDraining,
    MemberEnded,
    MemberExpires,
    MemberLost,
    MemberUp,
    Request,
    Tag,
    TimerFired,
)
from flux_ensemble.engine.job_keys import make, ordinal_of, split
from flux_ensemble.queues.nested.job_columns import JobColumns


class MemberHistory(History):
    """One history of an engine with members."""

    def __init__(self, random: Random, document: dict[str, Any]) -> None:
        super().__init__(random, document)
        #: The members that have not ended, by their numbers.
        self._members: dict[int, str] = {}
        self._last: dict[int, int] = {}

    def _begin(self) -> None:
        """Nothing is known of the members before there are some."""

    def _perform(self, command: Any) -> None:
        if isinstance(command, StartMember):
            self._members[command.ordinal] = command.member
        if isinstance(command, StartMember | DrainMember | EndMember):
            self._pending.append(command)
        else:
            super()._perform(command)

    def _expect(self, command: SubmitJobs) -> None:
        self._pending.append(command)
        last = self._last.get(command.ordinal, 0)
        self._last[command.ordinal] = last + command.count
        ids = range(last + 1, last + 1 + command.count)
        self._ids[command.id] = [make(command.ordinal, id) for id in ids]
        for index, job in enumerate(self._ids[command.id], start=command.first):
            self._jobs[job] = Tag(command.group, command.rule, command.firing, index), ""

    def _post(self, event: Event) -> None:
        if isinstance(event, JobEvent) and not self._heard(event):
            return
        super()._post(event)
        there = () if self.broken else self._side.engine.members.known
        for ordinal in [ordinal for ordinal in self._members if ordinal not in there]:
            del self._members[ordinal]
            for job in [job for job in self._jobs if ordinal_of(job) == ordinal]:
                del self._jobs[job]

    def _heard(self, event: JobEvent) -> bool:
        """Whether the service would tell the engine: see `service.tracker`."""
        if ordinal_of(event.job) not in self._members:
            return False
        engine = self._side.engine
        return event.tag is None or bool(engine.expects(event.tag, event.job))

    # -- moves --------------------------------------------------------------------

    def _together(self) -> None:
        """Jobs of one member go through the same events, which come at once."""
        random, engine = self._random, self._side.engine
        found: dict[Any, list[int]] = {}
        for job, (tag, last) in self._jobs.items():
            if ordinal_of(job) in self._members and (last or engine.expects(tag, job)):
                begun = LIFE.index(last) + 1 if last in LIFE else 0 if not last else len(LIFE)
                found.setdefault((ordinal_of(job), begun, tag[:3]), []).append(job)
        stops = {key: [stop for stop in (2, 3, 5) if stop > key[1]] for key in found}
        keys = [key for key in found if stops[key]]
        if not keys:
            return
        key = random.choice(keys)
        ordinal, begun, _ = key
        names = LIFE[begun : random.choice(stops[key])]
        placed, measured = random.random() < 0.5, random.random() < 0.5
        lives = []
        for job in found[key][: random.choice([1, 2, 6])]:
            events: list[list[Any]] = []
            for name in names:
                t = self._tick()
                place = {"t_alloc": t - 0.25, "ranks": random.choice("01")} if placed else {}
                used = {CPU: random.randrange(9), RSS: random.randrange(9)} if measured else {}
                context = {"start": place, "finish": {"status": 0, **used}}.get(name)
                events.append([t, name, context] if context else [t, name])
            first = self._jobs[job][0] if not begun else None
            t_last = max(event[0] for event in events)
            lives.append(JobEvents(t_last, job, events, first))
        for life in lives:
            tag, _ = self._jobs.pop(life.job)
            if names[-1] != LIFE[-1]:
                self._jobs[life.job] = tag, names[-1]
        alike = JobColumns(lives[0].events, lives[0].tag)
        for life in lives:
            alike.add(split(life.job)[1], life.events, life.tag)
        _, t_all, *item = alike.item()
        event = JobsAlike(t_all, ordinal, *item)
        if random.random() < 0.7 and engine.knows(event):
            self._post(event)
        else:
            for life in lives:
                self._post(life)

    def _member(self) -> None:
        """Something becomes of a member, perhaps again."""
        if not self._members:
            return
        random, t = self._random, self._tick()
        ordinal = random.choice(list(self._members))
        name = self._members[ordinal]
        t_expires = random.choice([None, t + 20.0, t + 200.0])
        size = random.choice([1, 1, 3]), random.choice([1, 4])
        up = MemberUp(t, name, ordinal, *size, 0, t_expires)
        drains = MemberDraining(t, name, ordinal, "its instance ends", random.random() < 0.5)
        lost = MemberLost(t, name, ordinal, "it is gone")
        events: list[Event] = [up, up, up, up, drains, lost]
        event = random.choice(events)
        self._post(event)
        if random.random() < 0.1:
            self._post(event)

    def _limit(self) -> None:
        """The time limit of a member is changed."""
        if self._members:
            ordinal = self._random.choice(list(self._members))
            t, left = self._tick(), self._random.choice([0.0, 40.0, 400.0, None])
            t_expires = None if left is None else t + left
            self._post(MemberExpires(t, self._members[ordinal], ordinal, t_expires))

    def _end(self) -> None:
        """A member has ended: one that is up or lost, and more often one that was told to."""
        if self._members:
            ordinal = self._random.choice(list(self._members))
            self._post(MemberEnded(self._tick(), self._members[ordinal], ordinal, "it is clean"))

    def _repeat(self) -> None:
        """An event comes again, or is about what there is not."""
        random, t = self._random, self._tick()
        events = [
            random.choice(self._before),
            CommandDone(t, random.randint(1, 40), {}),
            MemberUp(t, "pool.99", 1099, 1, 1),
            MemberEnded(t, "pool.99", 1099, "it never was"),
            TimerFired(t, f"drain:{random.randint(1, 9)}"),
        ]
        self._post(random.choice(events))

    def _request(self) -> None:
        """A user asks for something."""
        random = self._random
        group = random.choice(GROUPS)
        requests: list[tuple[str, dict[str, Any]]] = [
            ("submit", {"group": group, "count": random.choice([1, 2, 20])}),
            ("action", {"action": {"name": "grow", "label": random.choice(POOLS)}}),
            ("action", {"action": member_action(random)}),
            ("cancel", {"group": group}),
            ("pause", {}),
            ("resume", {}),
        ]
        if random.random() < 0.1:
            requests = self._more(group)
        self._post(Request(self._tick(), len(self.steps), *random.choice(requests)))

    moves = (
        (History._answer, 25),
        (History._go_on, 25),
        (History._live, 12),
        (_together, 10),
        (History._interrupt, 1),
        (History._absent, 1),
        (History._fail_on_and_on, 1),
        (History._end_on_and_on, 1.5),
        (History._time, 8),
        (_member, 14),
        (_limit, 4),
        (_end, 3),
        (_repeat, 4),
        (_request, 6),
    )
