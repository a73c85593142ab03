"""Placement: what holds of every choice, however the loads came about."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.engine.job_keys import make, ordinal_of, split
from flux_ensemble.engine.placement import Need, Place, Placement

NEEDS = (
    Need(),
    Need(cores=3),
    Need(nodes=2, cores=4),
    Need(gpus=1),
    Need(seconds=60.0),
    Need(exclusive=True),
)

places = st.lists(
    st.builds(
        Place,
        ordinal=st.just(0),
        pool=st.sampled_from(["a", "b"]),
        nodes=st.integers(1, 3),
        cores=st.integers(1, 8),
        gpus=st.integers(0, 1),
        t_expires=st.sampled_from([50.0, 100.0, 1000.0, math.inf]),
        bulk=st.booleans(),
        worker=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)

#: What happens: jobs are placed, one of them ends, time goes by, or a member closes.
steps = st.lists(
    st.tuples(st.sampled_from(["place", "end", "wait", "close"]), st.integers(0, 50)),
    max_size=60,
)


def rebuilt(placement: Placement) -> Placement:
    """One that knows the same members, and nothing of what has been."""
    other = Placement()
    for old in placement.places.values():
        place = Place(
            old.ordinal, old.pool, old.nodes, old.cores, old.gpus, old.t_expires, old.bulk,
            old.worker,
        )  # fmt: skip
        place.rate = list(old.rate)
        other.add(place)
        other.take(place, old.taken)
        if not old.open:
            other.close(place)
    return other


@given(places, steps)
def test_each_choice_is_the_least_loaded_of_those_that_are_feasible_and_have_room(
    members: list[Place], happenings: list[tuple[str, int]]
) -> None:
    placement = Placement()
    for ordinal, place in enumerate(members, 1):
        place.ordinal = ordinal
        placement.add(place)
    t = 0.0
    active: list[tuple[Place, int]] = []
    for kind, number in happenings:
        need = NEEDS[number % len(NEEDS)]
        pools = (["a"], ["b"], ["a", "b"])[number % 3]
        if kind == "wait":
            t += number / 10
        elif kind == "close":
            placement.close(members[number % len(members)])
        elif kind == "end" and active:
            place, cores = active.pop(number % len(active))
            placement.give(place, cores, t)
        elif kind == "place":
            able = [
                place
                for place in members
                if place.pool in pools and place.feasible(need, t) and place.room(need, t)
            ]
            best = min(able, key=lambda place: (place.load, place.ordinal), default=None)
            assert placement.choose(pools, need, t) is best
            # What is known of the loads alone leads to the same choice.
            again = rebuilt(placement).choose(pools, need, t)
            assert (again and again.ordinal) == (best and best.ordinal)
            if best is not None:
                assert best.open
                assert best.nodes >= need.nodes
                assert best.gpus >= need.gpus
                assert best.t_expires - t >= 1.1 * need.seconds
                number = best.slice(need, t, 1 + number, len(able))
                assert 1 <= number <= best.room(need, t)
                for _ in range(number):
                    placement.take(best, best.weight(need))
                    active.append((best, best.weight(need)))
        for place in members:
            assert place.taken == sum(cores for owner, cores in active if owner is place)


@given(st.integers(1, 40), st.integers(1, 6))
def test_jobs_are_shared_out_evenly_over_members_that_are_alike(jobs: int, members: int) -> None:
    placement = Placement()
    for ordinal in range(1, members + 1):
        placement.add(Place(ordinal, "a", nodes=1, cores=8))
    left = jobs
    while left:
        place = placement.choose(["a"], Need(), 0.0)
        if place is None:
            break
        number = place.slice(Need(), 0.0, left, members)
        placement.take(place, number)
        left -= number
    loads = [place.taken for place in placement.places.values()]
    # What has no core free waits where it can go to any of them.
    assert sum(loads) == min(jobs, members * 8)
    assert max(loads) - min(loads) <= -(-jobs // members)


def test_a_member_that_runs_many_short_jobs_gets_as_many_as_it_ran_in_a_second() -> None:
    placement = Placement()
    place = Place(1, "a", nodes=1, cores=2)
    placement.add(place)
    assert place.room(Need(), 0.0) == 2
    for _ in range(100):
        placement.take(place, 1)
        placement.give(place, 1, 10.0)
    assert place.room(Need(), 10.0) == place.room(Need(), 11.5) == 100
    # That says nothing any more when nothing has run for a while.
    assert place.room(Need(), 13.0) == 2


def test_a_member_gets_no_more_long_jobs_than_it_has_cores_for() -> None:
    place = Place(1, "a", nodes=1, cores=8)
    for _ in range(8):
        place.taken += 1
    assert place.room(Need(), 0.0) == 0
    # One ended, and it runs one a second: another one may wait for the next core.
    place.ended(1, 100.0)
    assert place.room(Need(), 100.0) == 2
    place.taken += 2
    assert place.room(Need(), 101.0) == 0
    # A member that ran as many as it has cores gets as many again, and no more than that.
    for _ in range(9):
        place.ended(1, 200.0)
        place.taken += 1
    assert place.room(Need(), 200.0) == 16 - 9


def test_a_job_takes_the_share_of_its_gpus_nodes_or_cores_whichever_is_largest() -> None:
    place = Place(1, "a", nodes=2, cores=64, gpus=4)
    assert place.weight(Need(gpus=1)) == 16
    assert place.weight(Need(gpus=3, cores=60)) == 60
    assert place.weight(Need(exclusive=True, gpus=1)) == 32
    assert place.weight(Need(cores=3)) == 3
    assert Place(1, "a", nodes=1, cores=8, gpus=4).weight(Need(gpus=3)) == 6
    # So no job waits for one of its GPUs while those of another member are free.
    assert place.room(Need(gpus=1), 0.0) == 4


def test_a_job_is_feasible_only_where_its_pools_have_a_member_that_it_is_not_kept_off() -> None:
    placement, need = Placement(), Need(cores=8)
    placement.add(Place(1, "small", nodes=1, cores=4))
    placement.add(Place(2, "large", nodes=1, cores=8))
    assert placement.feasible(["small", "large"], need, 0.0, ())
    assert not placement.feasible(["small"], need, 0.0, ())
    assert not placement.feasible(["large"], need, 0.0, {2})


def test_a_member_with_a_service_of_its_own_gets_jobs_in_bulk_and_does_not_run_dry() -> None:
    placement = Placement()
    place = Place(1, "a", nodes=1, cores=100, bulk=True)
    placement.add(place)
    placement.take(place, 200)
    rooms = []
    for _ in range(51):
        rooms.append(place.room(Need(), 0.0))
        placement.give(place, 1, 0.0)
    assert rooms == [0] * 50 + [50]
    assert place.taken > place.cores


def test_a_member_with_a_service_of_its_own_has_jobs_for_some_seconds() -> None:
    placement = Placement()
    place = Place(1, "a", nodes=1, cores=2, bulk=True)
    placement.add(place)
    for _ in range(100):
        placement.take(place, 1)
        placement.give(place, 1, 10.0)
    assert place.room(Need(), 11.5) == 400
    assert place.room(Need(), 13.0) == 4


def test_long_tasks_do_not_wait_on_a_worker_and_short_ones_are_sent_in_bulk() -> None:
    placement = Placement()
    place = Place(1, "a", nodes=1, cores=8, bulk=True, worker=True)
    placement.add(place)
    assert place.room(Need(), 0.0) == 8
    placement.take(place, 8)
    assert place.room(Need(), 0.0) == 0
    placement.give(place, 1, 0.0)
    # One of a few that take long: the core is not left idle until more have ended.
    assert place.room(Need(), 10.0) == 1
    for _ in range(100):
        placement.take(place, 1)
        placement.give(place, 1, 20.0)
    assert place.room(Need(), 21.5) == 393


@given(st.integers(0, 2**40), st.integers(0, 2**64 - 1))
def test_a_key_is_the_member_and_the_id_and_no_two_are_equal(ordinal: int, id: int) -> None:
    assert split(make(ordinal, id)) == (ordinal, id)
    assert ordinal_of(make(ordinal, id)) == ordinal
    assert make(0, id) == id
