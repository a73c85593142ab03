"""Which ranks come and go when an instance changes size."""

from __future__ import annotations

import errno

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flux_ensemble.queues.elastic.ranks import (
    REASON,
    Ranks,
    check_bounds,
    check_highest,
    to_grow,
    to_shrink,
    tree,
)


def flat(size: int) -> dict[int, int]:
    return {0: -1} | dict.fromkeys(range(1, size), 0)


def ranks(online: str, ours: str = "", theirs: str = "", size: int = 4) -> Ranks:
    """Ranks by digits."""
    drained = {int(rank): REASON for rank in ours} | {int(rank): "disk" for rank in theirs}
    return Ranks(
        usable=frozenset(range(size)),
        online=frozenset(int(rank) for rank in online),
        drained=drained,
    )


def test_the_lowest_ranks_come_first() -> None:
    assert to_grow(ranks("0"), flat(4), 3) == {1, 2}


def test_what_a_shrink_left_behind_comes_first() -> None:
    assert to_grow(ranks("013", ours="13"), flat(4), 3) == {1, 3}
    assert to_grow(ranks("03", ours="23"), flat(4), 2) == {3}


def test_a_broker_comes_after_its_parent_whichever_rank_is_higher() -> None:
    assert to_grow(ranks("0"), {0: -1, 1: 2, 2: 0, 3: 0}, 2) == {2}
    assert to_grow(ranks("0"), {0: -1, 1: 2, 2: 0, 3: 0}, 3) == {1, 2}


def test_ranks_that_somebody_drained_do_not_come_and_are_named() -> None:
    assert to_grow(ranks("0", theirs="1"), flat(4), 3) == {2, 3}
    with pytest.raises(OSError, match=r"there are 3 .* rank 1 \('disk'\)") as refused:
        to_grow(ranks("0", theirs="1"), flat(4), 4)
    assert refused.value.errno == errno.EBUSY


def test_more_ranks_than_there_are_cannot_come() -> None:
    with pytest.raises(OSError, match="cannot grow to 5 nodes: there are 4") as refused:
        to_grow(ranks("0"), flat(4), 5)
    assert refused.value.errno == errno.EINVAL


def test_the_highest_ranks_go_first_and_rank_0_never() -> None:
    assert to_shrink(ranks("0123"), flat(4), 2) == {2, 3}
    with pytest.raises(OSError, match="rank 0 cannot go") as refused:
        to_shrink(ranks("0123"), flat(4), 0)
    assert refused.value.errno == errno.EBUSY


def test_what_a_shrink_left_behind_goes_too() -> None:
    assert to_shrink(ranks("0123", ours="3"), flat(4), 2) == {2, 3}
    assert to_shrink(ranks("0123", ours="3"), flat(4), 3) == {3}


def test_a_broker_with_another_below_it_that_stays_does_not_go() -> None:
    above = {0: -1, 1: 3, 2: 0, 3: 0}
    assert to_shrink(ranks("0123"), above, 3) == {2}
    assert to_shrink(ranks("0123"), above, 2) == {1, 2}
    assert to_shrink(ranks("0123"), above, 1) == {1, 2, 3}
    # Nor does one that somebody has drained, and whatever it hangs on.
    with pytest.raises(OSError, match="rank 0,3 cannot go"):
        to_shrink(ranks("0123", theirs="1"), above, 1)
    assert to_shrink(ranks("0123", ours="3"), above, 2) == {2}


def test_where_only_the_highest_can_go_none_may_stay_above_them() -> None:
    now = ranks("0123", theirs="3")
    check_highest(frozenset((2, 3)), now)
    check_highest(frozenset(), now)
    with pytest.raises(OSError, match=r"cannot take rank 2 away: .* rank 3 stays"):
        check_highest(frozenset((2,)), now)


def test_a_rank_is_in_use_up_and_free() -> None:
    now = Ranks(
        usable=frozenset((1, 2, 3, 4, 5)),
        online=frozenset((0, 1, 2, 3, 4)),
        torpid=frozenset((2,)),
        drained={4: "disk", 5: REASON, 0: REASON},
        allocated=frozenset((3, 4)),
    )
    assert [set(some) for some in (now.in_use, now.up, now.free)] == [{1, 2, 3}, {1, 3}, {1}]
    assert [set(some) for some in (now.ours, now.theirs, now.leaving)] == [{5}, {4}, set()]


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [(0, 3, "min-nodes: .* not 0"), (3, 2, "max-nodes: expected 3"), (1, 5, "has 4 hosts")],
)
def test_bounds_that_make_no_sense_are_refused(low: int, high: int, reason: str) -> None:
    check_bounds(1, 4, 4)
    with pytest.raises(ValueError, match=reason):
        check_bounds(low, high, 4)


def test_the_tree_of_brokers() -> None:
    leaf = {"rank": 3, "size": 1, "children": []}
    inner = {"rank": 1, "size": 2, "children": [leaf]}
    assert tree({"rank": 0, "size": 3, "children": [inner]}) == {0: -1, 1: 0, 3: 1}


@st.composite
def instances(draw: st.DrawFn) -> tuple[Ranks, dict[int, int]]:
    """Any instance that can be: whoever is online has a parent that is."""
    size = draw(st.integers(1, 8))
    order = [0, *draw(st.permutations(range(1, size)))]
    parents = {0: -1}
    online = {0}
    for number, rank in enumerate(order[1:], start=1):
        parents[rank] = order[draw(st.integers(0, number - 1))]
        if parents[rank] in online and draw(st.booleans()):
            online.add(rank)
    some = st.sets(st.integers(0, size - 1))
    drained = draw(st.dictionaries(st.integers(0, size - 1), st.sampled_from((REASON, "disk"))))
    now = Ranks(
        usable=frozenset(range(size)) - draw(some), online=frozenset(online), drained=drained
    )
    return now, parents


@given(instances(), st.integers(1, 8))
def test_whatever_the_instance_growing_gives_the_size_asked_for(
    instance: tuple[Ranks, dict[int, int]], size: int
) -> None:
    now, parents = instance
    assume(size > len(now.in_use))
    try:
        coming = to_grow(now, parents, size)
    except OSError:
        return
    assert len(now.in_use | coming) == size
    assert coming <= now.usable - now.in_use - now.theirs
    assert all(parents[rank] in now.online | coming for rank in coming - now.online)


# Many instances have nothing that can go.
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(instances(), st.integers(1, 8))
def test_whatever_the_instance_shrinking_takes_nobody_along(
    instance: tuple[Ranks, dict[int, int]], size: int
) -> None:
    now, parents = instance
    assume(size <= len(now.in_use))
    try:
        going = to_shrink(now, parents, size)
    except OSError:
        return
    assert 0 not in going
    assert len(now.in_use - going) == size
    assert going <= now.online & now.usable - now.theirs
    assert not any(parents[rank] in going for rank in now.online - going)
