"""Members that are nested instances, on real Flux."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from under_flux import under_flux

# Each has instances of its own to start.
pytestmark = pytest.mark.timeout(600)


def nested(tmp_path: Path, what: str, config: str = "", *, size: int = 1) -> Any:
    """What a scenario of helpers/flux_nested.py finds."""
    return under_flux(tmp_path, what, config, script="flux_nested.py", size=size, seconds=500)


@pytest.mark.flux
def test_a_pump_leaves_nothing_unread_and_outlives_its_broker(tmp_path: Path) -> None:
    found = nested(tmp_path, "pump")
    assert found["accepted"] == found["before"] == 260
    # What the broker had sent before it was killed counts.
    assert found["after"] == 270
    assert found["twice"] == 0
    assert found["lost"] == 1
    assert "Connection refused" in found["refused"]
    assert found["found"]


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Sweeps over two members, in each of which the first member is lost in the middle."""
    return nested(tmp_path_factory.mktemp("sweeps"), "sweep", size=2)


@pytest.mark.flux
@pytest.mark.parametrize("how", ["kill", "fence"])
def test_what_a_lost_member_had_is_done_once_elsewhere(sweeps: Any, how: str) -> None:
    found = sweeps[how]
    assert found["intents"] == found["outcomes"] == 60
    assert found["lost"] + found["known"] == 30
    assert found["lost"] > 0
    # What it had is sent elsewhere only when its job is clean.
    assert found["fenced"]
    assert found["clean"]
    assert found["in the journal of the other"] == 30 + found["lost"]
    assert not found["failed"]
    assert found["ended"] == [True, True, 0]
    # Jobs are sent when it is durable that they were asked for.
    assert found["commits"] > 0


@pytest.mark.flux
def test_without_the_fence_jobs_are_done_twice(sweeps: Any) -> None:
    found = sweeps["no-fence"]
    assert found["intents"] == 60
    assert found["outcomes"] == 60 + found["lost"]
    assert found["lost"] > 0
