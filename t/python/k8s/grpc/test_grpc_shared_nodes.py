"""Clusters of a namespace share a number of nodes: who asks more often gets no more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("grpc")

from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

from flux_ensemble.k8s.grpc.backend import BadSize, DryRun, Refused, Size, Unavailable
from flux_ensemble.k8s.grpc.shared_nodes import WAIT_SECONDS, SharedNodes, divide


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shared(nodes: int, *clusters: str) -> tuple[SharedNodes, Clock]:
    clock = Clock()
    return SharedNodes(DryRun(1, 100), nodes, clusters, clock), clock


def grow(shares: SharedNodes, cluster: str, by: int) -> int:
    """The size after a request to grow, whatever was granted."""
    try:
        return shares.scale(cluster, deadline=0.0, by=by).size
    except Refused:
        return shares.size(cluster, 0.0).nodes


def test_one_alone_gets_what_it_asks_for_up_to_the_bound() -> None:
    shares, _ = shared(10, "n/a")
    assert grow(shares, "n/a", 4) == 5
    assert grow(shares, "n/a", 40) == 10
    with pytest.raises(
        Refused, match=r"'n/a' cannot grow now: its size is 10, .* 0 other clusters"
    ):
        shares.scale("n/a", deadline=0.0, by=1)


def test_who_was_there_first_does_not_grow_while_another_waits_with_less() -> None:
    shares, clock = shared(10, "n/a", "n/b")
    assert grow(shares, "n/a", 8) == 9
    with pytest.raises(Refused, match="'n' share 1 other cluster has 9: retry later"):
        shares.scale("n/b", deadline=0.0, to=6)
    # Nodes get free: they are for the one with less, however often the other asks.
    assert shares.scale("n/a", deadline=0.0, by=-3).size == 6
    with pytest.raises(Refused, match="'n' share 5 are its part while 1 other cluster waits"):
        shares.scale("n/a", deadline=0.0, by=3)
    assert grow(shares, "n/b", 5) == 4
    # Who asks no more does not wait any more.
    shares.scale("n/b", deadline=0.0, to=1)
    clock.now += WAIT_SECONDS
    assert grow(shares, "n/a", 3) == 9


def test_namespaces_do_not_share() -> None:
    shares, _ = shared(4, "n/a", "m/a", "a")
    assert [grow(shares, name, 9) for name in ("n/a", "m/a", "a")] == [4, 4, 4]


def test_a_namespace_whose_back_end_takes_long_keeps_no_other_waiting() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(DryRun):
        def size(self, cluster: str, deadline: float) -> Size:
            if cluster == "n/a":
                begun.set()
                assert go_on.wait(PATIENCE)
            return super().size(cluster, deadline)

    shares = SharedNodes(Slow(1, 9), 4)
    with ThreadPoolExecutor(1) as others:
        slow = others.submit(grow, shares, "n/a", 9)
        assert begun.wait(PATIENCE)
        try:
            assert grow(shares, "m/a", 9) == 4
            assert not slow.done()
        finally:
            go_on.set()
        assert slow.result(PATIENCE) == 4


def test_a_namespace_that_somebody_made_up_is_not_kept() -> None:
    class Strict(DryRun):
        def size(self, cluster: str, deadline: float) -> Size:
            raise Refused(f"no cluster {cluster!r}")

    shares = SharedNodes(Strict(1, 9), 4)
    for number in range(3):
        with pytest.raises(Refused, match="no cluster"):
            shares.scale(f"made-up-{number}/a", deadline=0.0, by=1)
    assert not shares._namespaces


def test_what_is_no_request_to_grow_is_the_back_ends_matter() -> None:
    shares, _ = shared(4, "n/a")
    assert grow(shares, "n/a", 2) == 3
    assert shares.scale("n/a", deadline=0.0, to=2).size == 2
    assert shares.canonical("x") == "x"
    assert (shares.name, shares.discovers) == ("dry-run", False)
    with pytest.raises(BadSize):
        shares.scale("n/a", deadline=0.0, by=0)
    with pytest.raises(Refused, match="share 0 nodes"):
        SharedNodes(DryRun(), 0)


def test_a_cluster_of_unknown_size_counts_as_none() -> None:
    class Partly(DryRun):
        def size(self, cluster: str, deadline: float) -> Size:
            if cluster != "n/a":
                raise Unavailable(f"{cluster} does not answer")
            return super().size(cluster, deadline)

    shares = SharedNodes(Partly(1, 9), 5, ["n/a", "n/gone"])
    assert grow(shares, "n/a", 9) == 5


@given(
    st.integers(2, 30),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 9)), max_size=40),
)
def test_the_bound_holds_and_who_has_least_is_never_kept_below_its_part(
    nodes: int, requests: list[tuple[str, int]]
) -> None:
    names = [f"n/{name}" for name in "abc"]
    shares, _ = shared(nodes, *names)

    def sizes() -> dict[str, int]:
        return {name: shares.size(name, 0.0).nodes for name in names}

    most = max(nodes, 3)
    for name, by in requests:
        before = sizes()
        if by:
            grow(shares, f"n/{name}", by)
        after = sizes()
        assert sum(after.values()) <= most
        if by > 0:
            free = nodes - sum(before.values())
            own = before[f"n/{name}"]
            assert after[f"n/{name}"] >= min(own + by, nodes // 3, own + max(free, 0))


@given(st.integers(0, 50), st.dictionaries(st.text("abcdef", min_size=1), st.integers(1, 60)))
def test_parts_are_no_more_than_there_is_and_than_is_wanted(
    nodes: int, wanted: dict[str, int]
) -> None:
    parts = divide(nodes, wanted)
    assert sum(parts.values()) == (min(nodes, sum(wanted.values())) if wanted else 0)
    assert all(parts[name] <= most for name, most in wanted.items())
    hungry = [part for name, part in parts.items() if part < wanted[name]]
    assert not hungry or min(hungry) >= max(parts.values()) - 1
