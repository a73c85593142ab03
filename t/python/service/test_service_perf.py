"""How the service says that it is doing."""

from __future__ import annotations

import pytest
from fakes import FakeLoop

from flux_ensemble.queues.flux.pipeline import Calls, Pipeline, Window
from flux_ensemble.service.status.perf import INTERVAL, LOOKS, Perf


def test_the_reactor_is_as_late_as_it_calls_back() -> None:
    now, loop = [10.0], FakeLoop()
    perf = Perf(loop, lambda: 7, clock=lambda: now[0])
    (timer,) = loop.timers
    assert timer.every == INTERVAL
    assert perf.report()["lag_max_seconds"] is None
    for late in (0.0, 0.25, -0.1, 0.05):
        now[0] += INTERVAL + late
        timer.callback()
    said = perf.report()
    assert said["waiting"] == 7
    assert said["lag_max_seconds"] == pytest.approx(0.25)
    assert said["lag_mean_seconds"] == pytest.approx(0.075)
    assert said["cpu_seconds"] > 0
    assert said["rss_bytes"] > 1 << 20
    for _ in range(LOOKS):
        now[0] += INTERVAL
        timer.callback()
    assert perf.report()["lag_max_seconds"] == 0
    perf.stop()
    assert timer.cancelled


def test_calls_that_are_to_be_started_are_counted() -> None:
    pipeline = Pipeline(Window(3), lambda callback: None, clock=lambda: 0.0)
    batch = Calls(5, lambda call, report: None, lambda batch: None, stop_at_error=False)
    pipeline.add("lane", batch)
    pipeline.add("lane", Calls(4, lambda call, report: None, print, stop_at_error=False))
    assert pipeline.waiting == 2 + 4
    pipeline.revoke("lane")
    assert pipeline.waiting == 0
