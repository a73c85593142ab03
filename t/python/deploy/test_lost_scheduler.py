"""A scheduler that Flux has given up is loaded again."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.deploy import scheduler
from flux_ensemble.deploy.scheduler import revive
from flux_ensemble.engine.jobs import LOST

SCHED, RUN = 8, 16


class Handle:
    """A broker whose scheduler is given up, or not, with jobs in states; some have resources.

    Args:
        states: of the jobs, by id.
        resources: the jobs that have some.
        offline: after so many questions Flux has no scheduler; None has one always.
        modules: that are loaded.
    """

    def __init__(
        self,
        states: dict[int, int],
        resources: set[int],
        offline: int | None = 0,
        modules: tuple[str, ...] = ("sched-simple",),
    ) -> None:
        self.states, self.modules, self.raised = states, list(modules), list[dict[str, Any]]()
        self._resources, self._offline, self._asked = resources, offline, 0

    def rpc(self, topic: str, payload: dict[str, Any], nodeid: int) -> Any:
        assert nodeid == 0
        return SimpleNamespace(get=lambda: self._answer(topic, payload))

    def _answer(self, topic: str, payload: dict[str, Any]) -> Any:
        if topic == "job-manager.list":
            return {"jobs": [{"id": id, "state": state} for id, state in self.states.items()]}
        if topic == "job-info.lookup":
            if payload["id"] not in self._resources:
                raise OSError(errno.ENOENT, "no such key")
            return {"R": "{}"}
        if topic == "job-manager.queue-list":
            return {"queues": []}
        if topic == "job-manager.queue-status":
            self._asked += 1
            if self._offline is not None and self._asked > self._offline:
                return {"start": False, "stop_reason": "Scheduler is offline"}
            return {"start": True}
        if topic == "module.list":
            return {"mods": [{"name": name} for name in self.modules]}
        if topic == "job-manager.raise":
            self.raised.append(payload)
            del self.states[payload["id"]]
            return None
        change = {"module.remove": self.modules.remove, "module.load": self.modules.append}[topic]
        change(payload.get("name") or payload["path"])
        return None


def test_a_job_that_waits_with_resources_is_lost_and_the_scheduler_loaded_anew() -> None:
    handle = Handle({1: SCHED, 2: SCHED, 3: RUN}, {1, 3})
    said = revive(handle)
    assert said is not None
    assert "is loaded again" in said
    assert [(one["id"], one["type"], one["severity"]) for one in handle.raised] == [(1, LOST, 0)]
    assert handle.modules == ["sched-simple"]


def test_where_no_job_waits_with_resources_nothing_is_done() -> None:
    # A scheduler that somebody has removed is their own affair.
    handle = Handle({1: SCHED, 2: RUN}, {2})
    assert revive(handle) is None
    assert handle.raised == []


def test_a_job_that_is_given_resources_just_now_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle({1: SCHED}, {1}, offline=None)
    monkeypatch.setattr(scheduler.time, "sleep", lambda seconds: handle.states.update({1: RUN}))
    assert revive(handle) is None
    assert handle.raised == []


def test_it_is_waited_until_flux_has_given_its_scheduler_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "_PAUSE", 0.0)
    handle = Handle({1: SCHED}, {1}, offline=3)
    assert revive(handle) is not None
    assert [one["id"] for one in handle.raised] == [1]


def test_another_scheduler_is_left_to_its_site() -> None:
    handle = Handle({1: SCHED}, {1}, modules=("sched-fluxion-qmanager",))
    said = revive(handle)
    assert said is not None
    assert "by hand" in said
    assert handle.raised == []


#: As if the broker had been lost when the first job got its resources: the job manager reads what
#: is recorded only when it starts, and then starts the scheduler of jobs that wait.
_LOSE = """
done=$(flux submit true) && flux job wait-event "$done" clean >/dev/null
flux queue stop >/dev/null
first=$(flux submit true)
flux kvs put --sync "$(flux job id --to=kvs "$first").R=$(flux job info "$done" R)"
for module in sched-simple job-exec job-list; do flux module remove $module; done
flux module reload job-manager
for module in job-list job-exec sched-simple; do flux module load $module; done
flux queue start >/dev/null
"$0" -c '
from flux_ensemble.client import Client
from flux_ensemble.deploy.scheduler import revive
handle = Client().handle
print(revive(handle))
print(revive(handle))
'
flux job wait-event "$first" exception | grep -o "type=.lost"
flux run echo runs again
"""


@pytest.mark.flux
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_flux_that_has_given_its_scheduler_up_runs_jobs_again() -> None:
    ran = subprocess.run(
        ["flux", "start", "bash", "-c", _LOSE, sys.executable],
        capture_output=True,
        text=True,
        timeout=280,
    )
    first, *rest = ran.stdout.splitlines()
    assert "is loaded again" in first, ran.stdout + ran.stderr
    assert rest == ["None", 'type="lost', "runs again"], ran.stdout + ran.stderr
    assert "already allocated" in ran.stderr
