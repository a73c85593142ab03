"""Members that are nested instances, on real Flux."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from under_flux import under_flux


def nested(tmp_path: Path, what: str, config: str = "") -> Any:
    """What a scenario of helpers/flux_nested.py finds."""
    return under_flux(tmp_path, what, config, script="flux_nested.py")


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
