"""What is left of ensembles that were dropped."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from flux_ensemble.service.collector import DROPPED, Collector


class Remains:
    """Refers to itself, as the parts of an ensemble do to each other."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_what_is_left_of_ensembles_is_collected_when_there_were_enough() -> None:
    collector = Collector()
    collector.calm()
    remains = [Remains() for _ in range(DROPPED)]
    left = [weakref.ref(one) for one in remains]
    # As after some collections in which they were still there.
    gc.collect()
    del remains
    for _ in range(DROPPED - 1):
        collector.dropped()
    assert all(one() is not None for one in left)
    collector.dropped()
    assert not any(one() is not None for one in left)
