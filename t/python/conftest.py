"""What all tests in Python share: how much Hypothesis tries, and skips where Flux is not."""

from __future__ import annotations

import gc
import os
import shutil
import sys

import pytest
from hypothesis import settings

# Bytecode is kept, whatever is usual here: each worker, and each process of a test, would compile
# the same files anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What is imported and collected stays: nothing of it is looked at again and again, by no worker.
gc.disable()

# How many examples a property is tried with: by `make check-pythons`, `make check` and `make fuzz`.
# A shared machine is slow now and then, so there is no deadline; in CI Hypothesis has settings of
# its own besides.
_OWN = settings.get_profile("ci" if "CI" in os.environ else "default")
for _name, _examples in {"short": 20, "check": 25, "long": 2000}.items():
    settings.register_profile(_name, parent=_OWN, deadline=None, max_examples=_examples)
settings.load_profile("check")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `flux` on a machine without Flux; elsewhere they have time."""
    has_flux = shutil.which("flux") is not None
    for item in items:
        if not item.get_closest_marker("flux"):
            continue
        if not has_flux:
            item.add_marker(pytest.mark.skip(reason="flux is not on PATH"))
        elif not item.get_closest_marker("timeout"):
            # An instance is many processes, and others run beside it.
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    """Collect garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say why a test failed that is tried again: of those that pass then nothing else does."""
    outcome: str = report.outcome
    if outcome == "rerun" and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} is tried again:\n{report.longreprtext}", flush=True)
