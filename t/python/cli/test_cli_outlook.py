"""How many jobs will not run before the allocation ends."""

from __future__ import annotations

import pytest

from flux_ensemble.cli.session.follow import Outlook
from flux_ensemble.words import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1203.4, "20m 3s"), (-3, "0s"), (90061, "1d 1h"), (3605, "1h"), (3600, "1h"), (59.7, "1m")],
)
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_it_is_said_when_the_rate_says_so() -> None:
    outlook = Outlook()
    # One job a second, and 1,000 left with 600 seconds to go.
    assert outlook.take(0.0, 0, 1060, 660.0) is None
    words = outlook.take(60.0, 60, 1000, 660.0)
    assert words == "the allocation ends in 10m, about 400 jobs will not run"


def test_it_is_not_said_again_unless_it_changes_much() -> None:
    outlook = Outlook()
    outlook.take(0.0, 0, 1060, 660.0)
    assert outlook.take(60.0, 60, 1000, 660.0) is not None
    assert outlook.take(61.0, 61, 999, 660.0) is None
    # Twice as many jobs are asked for.
    assert "about 1,400 jobs" in (outlook.take(62.0, 62, 1998, 660.0) or "")


def test_nothing_is_said_where_all_will_run_or_nothing_is_known() -> None:
    outlook = Outlook()
    assert outlook.take(0.0, 0, 100, 1000.0) is None
    assert outlook.take(10.0, 10, 90, 1000.0) is None
    assert outlook.take(11.0, 11, 10**6, None) is None
    assert Outlook().take(0.0, 50, 10**6, 10.0) is None


def test_the_rate_is_that_of_the_last_minutes() -> None:
    outlook = Outlook()
    outlook.take(0.0, 0, 2000, 10_000.0)
    outlook.take(5000.0, 20, 1980, 10_000.0)
    words = outlook.take(5100.0, 1020, 980, 10_000.0)
    assert words is None
