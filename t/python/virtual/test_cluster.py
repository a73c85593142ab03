"""The virtual cluster: what is placed is there, once, and comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document import jobspec
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.queues.virtual.cluster import Shape, UnsatisfiableError, VirtualCluster, shape_of

NODES, CORES, GPUS = 5, 4, 2

SHAPES = st.builds(
    Shape,
    chunks=st.integers(1, 8),
    cores=st.integers(0, CORES),
    gpus=st.integers(0, GPUS),
    distinct=st.booleans(),
    exclusive=st.booleans(),
).filter(lambda shape: shape.cores or shape.gpus)


def shape(**job: Any) -> Shape:
    """The shape of a job group in a document."""
    spec = load_mapping({"name": "test", "jobs": [{"name": "a", "command": "x", **job}]})
    (one,) = spec.groups["a"].sets
    return shape_of(jobspec.build(one, {}, environment={}, cwd="/", tag={}))


@given(st.lists(st.tuples(SHAPES, st.integers(0, 3))))
def test_no_node_ever_has_more_in_use_than_it_has(steps: list[tuple[Shape, int]]) -> None:
    cluster = VirtualCluster(NODES, CORES, GPUS)
    placed: list[tuple[Shape, list[int]]] = []
    for wanted, kept in steps:
        nodes = cluster.place(wanted)
        if nodes is not None:
            assert len(nodes) == wanted.chunks
            assert not wanted.distinct or len(set(nodes)) == len(nodes)
            placed.append((wanted, nodes))
        while len(placed) > kept:
            cluster.release(*placed.pop(0))
        cores, gpus = [CORES] * NODES, [GPUS] * NODES
        for one, where in placed:
            for node in set(where) if one.exclusive else where:
                cores[node] -= CORES if one.exclusive else one.cores
                gpus[node] -= GPUS if one.exclusive else one.gpus
        assert cluster.free_cores == cores
        assert cluster.free_gpus == gpus
        assert min(cores) >= 0 <= min(gpus)
        assert cluster.busy_cores == NODES * CORES - sum(cores)
        assert cluster.busy_nodes == sum(free < CORES for free in cores)


@given(SHAPES)
def test_what_passes_the_check_fits_an_empty_cluster_and_nothing_else_does(wanted: Shape) -> None:
    cluster = VirtualCluster(NODES, CORES, GPUS)
    try:
        cluster.check(wanted)
    except UnsatisfiableError:
        assert cluster.place(wanted) is None
    else:
        assert cluster.fits(wanted)
        assert cluster.place(wanted) is not None


@given(SHAPES)
def test_an_exclusive_job_has_its_nodes_alone(other: Shape) -> None:
    cluster = VirtualCluster(NODES, CORES, GPUS)
    mine = cluster.place(Shape(3, 1, exclusive=True))
    assert mine is not None
    theirs = cluster.place(other)
    assert theirs is None or not set(mine) & set(theirs)


def test_nodes_to_leave_alone_are_left_alone() -> None:
    cluster = VirtualCluster(3, 2)
    assert cluster.place(Shape(2, 1), without={1}) is not None
    assert cluster.free_cores == [1, 2, 1]
    assert cluster.place(Shape(3, 1), without={1}) is None


def test_jobs_share_nodes_before_they_take_empty_ones() -> None:
    cluster = VirtualCluster(3, 2)
    cluster.place(Shape(1, 1))
    cluster.place(Shape(1, 1))
    assert cluster.busy_nodes == 1


def test_a_job_for_more_than_there_is_is_refused_in_a_sentence() -> None:
    cluster = VirtualCluster(2, 4)
    with pytest.raises(UnsatisfiableError, match="a node has 4 cores and 0 gpus, not 5 cores"):
        cluster.check(Shape(1, 5))
    with pytest.raises(UnsatisfiableError, match="the cluster has room for 2 of 3 nodes"):
        cluster.check(Shape(3, 1))


@pytest.mark.parametrize(("nodes", "cores", "gpus"), [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_a_cluster_has_nodes_and_cores(nodes: int, cores: int, gpus: int) -> None:
    with pytest.raises(ValueError, match="a cluster has at least"):
        VirtualCluster(nodes, cores, gpus)


def test_the_tasks_of_a_job_are_spread_over_its_nodes() -> None:
    assert shape(nodes=2, tasks=8, cores=2, gpus=1) == Shape(2, 8, 4)
    assert shape(nodes=2, tasks=3) == Shape(2, 2)
    assert shape(nodes=1, exclusive=True) == Shape(1, 1, exclusive=True)


def test_slots_without_nodes_may_share_a_node() -> None:
    slots = {"type": "slot", "count": 6, "label": "s", "with": [{"type": "core", "count": 2}]}
    given = {"version": 1, "resources": [slots], "tasks": []}
    assert shape_of(given) == Shape(6, 2, distinct=False)
    assert VirtualCluster(3, 4).place(shape_of(given)) == [0, 0, 1, 1, 2, 2]


def test_several_trees_of_resources_are_refused() -> None:
    slot = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
    for trees in ([slot, slot], [{"type": "node", "count": 1, "with": [slot, slot]}]):
        with pytest.raises(UnsatisfiableError, match="takes one resource there, not slot, slot"):
            shape_of({"resources": trees})


def test_other_resources_are_refused_by_name() -> None:
    given = {"resources": [{"type": "rack", "count": 1, "with": []}]}
    with pytest.raises(UnsatisfiableError, match="no resources of type 'rack'"):
        shape_of(given)
