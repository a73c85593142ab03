"""Shares: how ensembles that compete divide the cores, on a simulated queue."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.events import ShareChanged
from flux_ensemble.engine.jobs import Phase
from flux_ensemble.queues.flux.submission import Submitter
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.shares import (
    LOOK_SECONDS,
    RISE_SECONDS,
    Party,
    Shares,
    Sizes,
    cores_of,
    divide,
)

#: Seconds between two turns of the simulated queue.
TURN = 0.05


class Lane(Submitter):
    """The jobs of one ensemble, that the simulated queue has or is to get."""

    def __init__(
        self, name: str, share: float, seconds: float, cores: int, urgency: int, *, reads: bool
    ) -> None:
        document = {
            "name": name,
            "share": share,
            "jobs": [{"name": "g", "command": "true", "cores": cores, "urgency": urgency}],
        }
        self.name, self.seconds, self.cores, self.job_urgency = name, seconds, cores, urgency
        self.known = {}
        self.to_send = 0
        self.jobs: dict[int, SimpleNamespace] = {}
        self.attempts = self.running = 0
        self.used: deque[tuple[float, float]] = deque()
        self.told = 1.0
        self.ensemble = SimpleNamespace(
            name=name,
            live=True,
            member=self,
            post=self._post,
            engine=SimpleNamespace(
                spec=load_mapping(document),
                stats=SimpleNamespace(counts={"g": self._counts}, lookup=lambda _: self.told),
                workload=self,
                wants_share=reads,
                job_at=lambda firing, index: (firing.sizes[index], {}),
            ),
        )

    @property
    def _counts(self) -> Mapping[str, int]:
        lane = self

        class Counts(dict[str, int]):
            def __getitem__(self, name: str) -> int:
                assert name == "attempts"
                return lane.attempts

        return Counts()

    def _post(self, events: list[ShareChanged]) -> None:
        (event,) = events
        self.told = event.share

    @property
    def busy(self) -> int:
        return self.to_send + len(self.jobs)

    def unsent(self) -> Counter[str]:
        return Counter({"g": self.to_send}) if self.to_send else Counter()

    def on_their_way(self) -> Counter[str]:
        return Counter()


class Queue:
    """An instance that starts jobs by urgency and in their order, as sched-simple does."""

    def __init__(self, cores: int) -> None:
        self.now = 0.0
        self.cores = self.free = cores
        self.lanes: list[Lane] = []
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.pending: list[tuple[int, int, Lane]] = []
        self.ends: list[tuple[float, int, Lane]] = []
        self.starts: list[tuple[float, Lane]] = []
        self.stopped = False
        self._numbers = count()
        self.shares = Shares(
            cast("list[Ensemble]", self._ensembles()),
            cast("Any", SimpleNamespace(timer=self._timer)),
            lambda done: done({"node_cores_up": cores}),
            self.pump,
            lambda: self.now,
        )

    def _ensembles(self) -> Any:
        lanes = self.lanes

        class Ensembles:
            def __iter__(self) -> Any:
                return iter([lane.ensemble for lane in lanes])

        return Ensembles()

    def _timer(self, after: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self.timers, (self.now + after, next(self._numbers), callback))

    def add(
        self,
        name: str,
        jobs: int,
        *,
        share: float = 1,
        seconds: float = 1.0,
        cores: int = 1,
        urgency: int = 16,
        reads: bool = False,
    ) -> Lane:
        lane = Lane(name, share, seconds, cores, urgency, reads=reads)
        self.lanes.append(lane)
        self.send(lane, jobs)
        return lane

    def send(self, lane: Lane, jobs: int) -> None:
        lane.to_send += jobs
        self.pump()

    def pump(self) -> None:
        while waiting := [lane for lane in self.lanes if lane.to_send]:
            chosen = cast("Lane | None", self.shares.next(cast("list[Hashable]", waiting)))
            if chosen is None:
                return
            chosen.to_send -= 1
            number = next(self._numbers)
            phase = Phase.PENDING
            chosen.jobs[number] = SimpleNamespace(
                firing=SimpleNamespace(group="g", overrides={}), phase=phase
            )
            urgency = self.shares.urgency(chosen, chosen.job_urgency)
            heapq.heappush(self.pending, (-urgency, number, chosen))
            self.lanes.remove(chosen)
            self.lanes.append(chosen)

    def turn(self) -> None:
        self.now += TURN
        for lane in self.lanes:
            lane.used.append((self.now, lane.running * lane.cores * TURN))
        while self.ends and self.ends[0][0] <= self.now:
            _, number, lane = heapq.heappop(self.ends)
            del lane.jobs[number]
            lane.attempts += 1
            lane.running -= 1
            self.free += lane.cores
        while self.pending and not self.stopped and self.pending[0][0] < 0:
            _, number, lane = self.pending[0]
            if lane.cores > self.free:
                break
            heapq.heappop(self.pending)
            self.free -= lane.cores
            lane.jobs[number].phase = Phase.RUNNING
            lane.running += 1
            self.starts.append((self.now, lane))
            heapq.heappush(self.ends, (self.now + lane.seconds, number, lane))
        while self.timers and self.timers[0][0] <= self.now:
            heapq.heappop(self.timers)[2]()
        self.pump()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until - TURN / 2:
            self.turn()

    def used(self, lane: Lane, begin: float, end: float) -> float:
        """Core-seconds of a lane's jobs between two times."""
        return sum(used for t, used in lane.used if begin < t <= end)


@pytest.mark.parametrize("late", [0.0, 10.0])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"seconds": 1.0}, {"seconds": 1.0}),
        ({"seconds": 0.3}, {"seconds": 5.0}),
        ({"seconds": 5.0}, {"seconds": 0.3}),
        ({"seconds": 2.0}, {"seconds": 2.0, "cores": 3}),
        ({"seconds": 1.0, "urgency": 20}, {"seconds": 1.0, "urgency": 3}),
    ],
    ids=["equal", "short first", "short second", "wide", "urgent first"],
)
def test_core_seconds_are_as_the_shares_in_all_and_in_a_minute(
    a: dict[str, Any], b: dict[str, Any], late: float
) -> None:
    queue = Queue(12)
    one = queue.add("a", 2500, share=1, **a)
    queue.run(late)
    two = queue.add("b", 4500, share=2, **b)
    queue.run(130)
    # Jobs of the first that are long keep their cores for a while, which the second then makes up.
    for begin, end in ((late, late + 120), (late + 60, late + 120)):
        first, second = (queue.used(lane, begin, end) for lane in (one, two))
        assert second / first == pytest.approx(2.0, rel=0.1)
        assert first + second > 0.95 * 12 * (end - begin), "no core is idle"


def test_where_the_first_has_thousands_in_the_queue_the_second_starts_with_the_next_free_core() -> (
    None
):
    queue = Queue(4)
    queue.add("a", 10_000)
    queue.run(5.5)
    assert not queue.lanes[0].to_send, "alone it sends all"
    two = queue.add("b", 1)
    queue.run(1.1)
    assert two in [lane for _, lane in queue.starts]


def test_what_one_does_not_need_goes_to_the_others() -> None:
    queue = Queue(12)
    one = queue.add("a", 2000)
    two = queue.add("b", 2000)
    three = queue.add("c", 2, share=100, seconds=500.0)
    queue.run(70)
    used = [queue.used(lane, 10, 70) / 60 for lane in (one, two, three)]
    assert used == pytest.approx([5, 5, 2], rel=0.1)


def test_alone_nothing_is_looked_at_and_nobody_waits() -> None:
    queue = Queue(2)
    lane = queue.add("a", 5000)
    assert lane.to_send == 0
    queue.run(1)
    assert not queue.timers
    assert queue.shares.urgency(lane, 16) == 16
    assert queue.shares.waiting(lane) is None


def test_who_waits_is_told_for_whom_and_who_ends_sets_the_others_free() -> None:
    queue = Queue(2)
    one = queue.add("a", 1000)
    two = queue.add("b", 1000)
    queue.run(1)
    waiting = queue.shares.waiting(two)
    assert waiting is not None
    assert waiting.reason == "its share is 1 of 2 cores, while jobs of 'a' wait, too"
    one.ensemble.live = False
    queue.run(2)
    assert two.to_send == 0
    assert queue.shares.waiting(two) is None


def test_a_job_that_waits_for_something_else_keeps_no_other_waiting() -> None:
    queue = Queue(4)
    held = queue.add("a", 500, urgency=0)
    other = queue.add("b", 500, seconds=0.2)
    queue.run(60)
    assert other.attempts == 500
    assert held.attempts == 0


def test_jobs_that_are_held_stay_so_and_none_is_above_the_most_urgent() -> None:
    queue = Queue(2)
    queue.add("a", 1000, urgency=31)
    queue.run(1)
    two = queue.add("b", 10)
    assert queue.shares.urgency(two, 0) == 0
    assert queue.shares.urgency(two, 16) == 31
    assert queue.shares.urgency(two, 31) == 31


def test_a_job_larger_than_the_share_of_its_ensemble_starts() -> None:
    queue = Queue(4)
    queue.add("a", 1000, seconds=0.5)
    two = queue.add("b", 3, cores=4, seconds=0.5)
    queue.run(60)
    assert two.attempts == 3


def test_a_lane_that_is_no_ensembles_own_has_its_turn() -> None:
    queue = Queue(2)
    queue.add("a", 1000)
    two = queue.add("b", 1000)
    assert queue.shares.next([two, "a member"]) == "a member"
    two.known = {cast("Any", None): 1}
    assert queue.shares.next([two]) is two, "the queue has its job already"


@settings(max_examples=60)
@given(
    cores=st.integers(1, 9),
    lanes=st.lists(
        st.tuples(
            st.sampled_from([0.001, 0.5, 1, 3, 1000]),
            st.sampled_from([0.1, 0.7, 2.0]),
            st.integers(1, 3),
            st.integers(1, 40),
            st.sampled_from([1, 16, 31]),
            st.sampled_from([0.0, 0.0, 1.0]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_each_job_starts_and_no_core_is_idle_for_long(
    cores: int, lanes: list[tuple[float, float, int, int, int, float]]
) -> None:
    queue = Queue(cores)
    added = []
    for number, (share, seconds, wide, jobs, urgency, pause) in enumerate(lanes):
        queue.run(pause)
        wide = min(wide, cores)
        added.append(
            queue.add(f"e{number}", jobs, share=share, seconds=seconds, cores=wide, urgency=urgency)
        )
    work = sum(jobs * seconds * min(wide, cores) for _, seconds, wide, jobs, _, _ in lanes)
    widest = max(min(lane[2], cores) for lane in lanes)
    # In their order jobs leave some cores free before a wide one, and a look comes late.
    turns = sum(jobs for _, _, _, jobs, _, _ in lanes)
    queue.run(work / max(1, cores - widest + 1) + turns * (LOOK_SECONDS + 2 * TURN) + 5)
    assert [lane.attempts for lane in added] == [jobs for _, _, _, jobs, _, _ in lanes]


def test_parts_are_by_weight_and_add_up() -> None:
    parties = [
        Party("a", 1, wanted=100),
        Party("b", 2, wanted=100),
        Party("c", 7, running=1),
    ]
    divide(10, parties)
    assert [party.part for party in parties] == pytest.approx([3, 6, 1])
    divide(0.5, parties)
    assert sum(party.part for party in parties) == pytest.approx(0.5)


def test_cores_of_a_group_are_those_of_its_jobs() -> None:
    document = {
        "name": "x",
        "jobs": [
            {"name": "g", "command": "true", "tasks": 2, "cores": 3, "count": 3},
            {"name": "g", "command": "true", "count": 1},
            {"name": "h", "command": "true", "nodes": 4},
        ],
    }
    groups = load_mapping(document).groups
    assert cores_of(groups["g"]) == pytest.approx(19 / 4)
    assert cores_of(groups["h"]) == 4


def test_cores_that_a_parameter_gives_are_counted() -> None:
    document = {
        "name": "x",
        "jobs": [{"name": "g", "command": "true", "tasks": "{n}", "params": {"n": [1, 2, 9]}}],
    }
    spec = load_mapping(document)
    submission = spec.groups["g"].submission()
    jobs = {
        number: SimpleNamespace(
            firing=SimpleNamespace(group="g", overrides={}), index=index, phase=Phase.PENDING
        )
        for number, index in enumerate([2, 2, 0])
    }
    jobs[3] = SimpleNamespace(firing=None, index=0, phase=Phase.PENDING)
    engine = SimpleNamespace(
        spec=spec,
        workload=SimpleNamespace(jobs=jobs),
        job_at=lambda firing, index: submission[index],
    )
    sizes = Sizes(cast("Ensemble", SimpleNamespace(engine=engine)))
    assert sizes.means == {"g": 4}
    for _ in range(2):
        assert [cores for _, cores in sizes.jobs()] == [9, 9, 1]


def test_cores_of_a_large_sweep_are_those_of_a_sample() -> None:
    values = {"n": {"range": [1, 100_001]}}
    document = {
        "name": "x",
        "jobs": [{"name": "g", "command": "true", "tasks": "{n}", "params": values}],
    }
    assert cores_of(load_mapping(document).groups["g"]) == pytest.approx(50_000, rel=0.02)


def test_rules_see_the_part_while_others_compete_and_a_moment_later_that_they_do_not() -> None:
    queue = Queue(12)
    one = queue.add("one", 400, reads=True)
    queue.run(5)
    assert one.told == 1
    two = queue.add("two", 20, share=3)
    queue.run(2 * LOOK_SECONDS)
    assert one.told == 0.25
    assert two.told == 1
    while two.busy:
        assert one.told == 0.25
        queue.turn()
    queue.run(RISE_SECONDS + 1)
    assert one.told == 1
    queue.run(120)
    assert not one.busy
    assert not queue.timers


def test_one_that_is_told_less_when_the_service_begins_is_told_that_nobody_competes() -> None:
    queue = Queue(12)
    one = queue.add("one", 0, reads=True)
    one.told = 0.5
    queue.shares.ready()
    queue.run(RISE_SECONDS + 1)
    assert one.told == 1
    assert not queue.timers
