"""What is stored beside snapshots: values come back to the last bit, as they were."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from flux_ensemble import __version__
from flux_ensemble.engine.events import TICKS
from flux_ensemble.runtime.durability.chunks import beside, sorted_out
from flux_ensemble.runtime.durability.format import FORMAT
from flux_ensemble.runtime.durability.records import Records

#: Durations, and whatever a job publishes; None where a stream begins anew.
_TICKS = st.integers(-(2**60), 2**60).map(lambda ticks: ticks / TICKS)
_VALUES = st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.none() | _TICKS


def stored(rows: list[list[Any]]) -> list[list[Any]]:
    """What is read of what is written of them."""
    (found,) = sorted_out([json.loads(beside(rows, None))], Records())
    return found


@example([1.5, 1.7e308])
@given(st.lists(_TICKS) | st.lists(_VALUES) | st.lists(st.sampled_from([0.0, -0.0, 1.5])))
def test_values_come_back_to_the_last_bit(values: list[Any]) -> None:
    rows = [["a", "duration", values], ["b", "x", [1, None]]]
    # Texts tell a number from an equal one of another type, and zeros from each other.
    assert repr(stored(rows)) == repr(rows)


def test_durations_are_written_as_integers() -> None:
    assert beside([["a", "duration", [0.5, 1.25]]], None) == (
        f'{{"format":{FORMAT},"by":"{__version__}",'
        f'"values":[["a","duration",[{TICKS // 2},{TICKS * 5 // 4}],{TICKS}]]}}'
    )
