"""Lanes and the table of clusters."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest
from patience import PATIENCE

from flux_ensemble.k8s.grpc.clusters import Cluster, Clusters, parse_cluster
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.threads import Lane, LaneFull


def test_a_lane_gives_the_result_of_a_call_or_what_it_raises() -> None:
    async def main() -> None:
        lane = Lane("test", threads=1, waiting=0)
        assert await lane.run(lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            await lane.run(lambda: 1 // 0)
        assert await lane.run(lambda: 4) == 4
        lane.close()

    asyncio.run(main())


def test_a_lane_runs_no_more_calls_at_once_than_it_has_threads() -> None:
    async def main() -> None:
        lane = Lane("test", threads=2, waiting=8)
        running = threading.Semaphore(2)

        def call() -> str:
            assert running.acquire(blocking=False)
            running.release()
            return threading.current_thread().name

        assert await asyncio.gather(*(lane.run(call) for _ in range(10))) == ["test"] * 10
        lane.close()

    asyncio.run(main())


def test_a_lane_that_is_full_refuses_a_call_until_one_is_done() -> None:
    async def main() -> None:
        lane = Lane("test", threads=1, waiting=1)
        release = threading.Event()
        calls = [asyncio.create_task(lane.run(lambda: release.wait(PATIENCE))) for _ in range(2)]
        await asyncio.sleep(0)  # lets both begin
        with pytest.raises(LaneFull, match="test has 2 requests open already"):
            await lane.run(lambda: 1)
        release.set()
        await asyncio.gather(*calls)
        assert await lane.run(lambda: 1) == 1
        lane.close()

    asyncio.run(main())


def test_a_call_that_nobody_waits_for_any_more_is_not_made() -> None:
    async def main() -> None:
        lane = Lane("test", threads=1, waiting=8)
        release, made = threading.Event(), []
        first = asyncio.create_task(lane.run(lambda: release.wait(PATIENCE)))
        second = asyncio.create_task(lane.run(lambda: made.append(2)))
        third = asyncio.create_task(lane.run(lambda: made.append(3)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        release.set()
        await asyncio.gather(first, third)
        assert made == [3]
        lane.close()

    asyncio.run(main())


def test_calls_that_nobody_waits_for_any_more_take_no_place() -> None:
    async def main() -> None:
        lane = Lane("test", threads=1, waiting=1)
        release = threading.Event()
        first = asyncio.create_task(lane.run(lambda: release.wait(PATIENCE)))
        await asyncio.sleep(0)
        for _ in range(100):
            second = asyncio.create_task(lane.run(lambda: 2))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([second])
        third = asyncio.create_task(lane.run(lambda: 3))
        await asyncio.sleep(0)
        release.set()
        assert await third == 3
        await first
        lane.close()
        assert not lane.busy

    asyncio.run(main())


class ClosesMeanwhile(asyncio.SelectorEventLoop):
    """A loop that is closed just after a lane has seen that it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.over = threading.Event(), threading.Event()

    def is_closed(self) -> bool:
        return threading.current_thread().name != "test" and super().is_closed()

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        if threading.current_thread().name == "test":
            self.seen.set()
            assert self.over.wait(PATIENCE)
        return super().call_soon_threadsafe(*args, **options)


def test_a_call_that_ends_while_its_loop_is_closed_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lane = Lane("test", threads=1, waiting=0)
    begun, release, loop = asyncio.Event(), threading.Event(), ClosesMeanwhile()

    def wait() -> None:
        asyncio.SelectorEventLoop.call_soon_threadsafe(loop, begun.set)
        assert release.wait(PATIENCE)

    async def main() -> None:
        call = asyncio.create_task(lane.run(wait))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        release.set()

    loop.run_until_complete(main())
    assert loop.seen.wait(PATIENCE)
    loop.close()
    loop.over.set()
    lane.close()
    for thread in threading.enumerate():
        if thread.name == "test":
            thread.join(PATIENCE)
    assert caplog.text == ""


def clusters(*names: str, discovered: bool = False) -> Clusters:
    def canonical(name: str) -> str:
        return name if "/" in name else f"default/{name}"

    return Clusters([parse_cluster(name) for name in names], canonical, discovered=discovered)


def test_a_cluster_is_a_name_and_maybe_a_uri() -> None:
    assert parse_cluster("a") == Cluster("a")
    assert parse_cluster("ns/a.b-c=local:///x=y") == Cluster("ns/a.b-c", uri="local:///x=y")


@pytest.mark.parametrize("text", ["", "=local:///x", "a b", "a/", "/a", "a/b/c", "../a", "ä"])
def test_a_cluster_without_a_proper_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a cluster's name: expected NAME"):
        parse_cluster(text)


def test_an_empty_uri_is_refused() -> None:
    with pytest.raises(ValueError, match="cluster 'a' has an empty URI"):
        parse_cluster("a=")


def test_two_names_of_one_cluster_are_refused() -> None:
    with pytest.raises(ValueError, match="cluster 'default/a' is given twice"):
        clusters("a", "default/a")


def test_clusters_are_found_by_any_of_their_names() -> None:
    table = clusters("a", "b")
    assert table.name("a") == table.name("default/a") == "default/a"
    assert table.find("default/a").name == "default/a"


def test_a_cluster_that_is_not_listed_is_unknown_unless_the_back_end_discovers_it() -> None:
    with pytest.raises(
        RequestProblem, match=r"no cluster is named 'default/c' \(clusters: default/a\)"
    ):
        clusters("a").find("default/c")
    assert clusters(discovered=True).find("default/c") == Cluster("default/c", has_flux=False)


def test_an_empty_name_is_refused_where_clusters_are_discovered() -> None:
    with pytest.raises(
        RequestProblem, match="clusters: the MiniClusters of this Kubernetes"
    ) as caught:
        clusters(discovered=True).name("")
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
