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


@pytest.mark.flux
def test_a_broker_module_outlives_its_member(tmp_path: Path) -> None:
    assert nested(tmp_path, "module")["state"] == "run"


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


@pytest.mark.flux
def test_members_are_found_again_waited_for_and_reconnected(tmp_path: Path) -> None:
    found = nested(tmp_path, "ways")
    assert found["seen"] < 60
    assert found["found"] == 1
    # 60 over two services, 61 with a broker that is stopped, 40 over two proxies.
    assert found["finished"] == [161, 161]
    assert not found["failed"]
    assert "does not answer" in found["silent"]
    assert found["lives"]
    assert found["let go"] == [False, 0]
    assert "this service Flux 0.1.0" in found["refused"]
    assert found["ended early"] == [True, True, False]
    assert "/nowhere/local-0" in found["nowhere"]


@pytest.mark.flux
def test_no_job_that_waits_is_burnt_when_an_allocation_expires(tmp_path: Path) -> None:
    found = nested(tmp_path, "walltime")
    assert "walltime" in found["draining"]
    assert found["waiting"] == 3
    # What runs is interrupted, and that is no outcome.
    assert found["started"] == found["cores"] == found["interrupted"]
    assert found["outcomes"] == 0
    assert found["lost"] == [False] * 3 + [True] * found["cores"]
    assert found["fenced"]


@pytest.mark.flux
def test_nobody_waits_for_a_broker_that_is_gone(tmp_path: Path) -> None:
    assert nested(tmp_path, "dead")["error"] == "ECONNREFUSED"


@pytest.mark.flux
def test_a_member_that_drains_is_looked_at_for_its_time_limit(tmp_path: Path) -> None:
    found = nested(tmp_path, "limits")
    assert "walltime" in found["draining"]
    before, after = found["left"]
    assert before <= 300 < 3600 < after
