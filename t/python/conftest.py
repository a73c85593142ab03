"""What all unit tests share: Hypothesis without deadlines, and skips where Flux is not."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import settings

# A shared machine is slow now and then. In CI Hypothesis has a profile of its own.
if "CI" not in os.environ:
    settings.register_profile("no-deadline", deadline=None)
    settings.load_profile("no-deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `flux` on a machine without Flux."""
    if shutil.which("flux") is None:
        for item in items:
            if item.get_closest_marker("flux"):
                item.add_marker(pytest.mark.skip(reason="flux is not on PATH"))
