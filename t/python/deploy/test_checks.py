"""What the doctor says of members, and of jobs that wait."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.deploy.checks.instance import InstanceInfo
from flux_ensemble.deploy.checks.queue import waits
from flux_ensemble.deploy.checks.service import members, scaler


class Handle:
    """A Flux instance with a configuration, and with an ensemble."""

    def __init__(self, service: str | None, ensemble: dict[str, Any]) -> None:
        self._responses = {
            "config.get": {} if service is None else {"exec": {"service": service}},
            "ensemble.status": {"service": {}, "ensembles": [ensemble]},
            "module.list": {"mods": []},
            "ensemble-keeper.stats-get": {},
        }

    def rpc(self, topic: str, payload: Any, nodeid: int) -> Response:
        return Response(self._responses[topic])


class Response:
    """One that has come."""

    def __init__(self, payload: Any) -> None:
        self._payload = payload

    def wait_for(self, seconds: float) -> None:
        """It is there."""

    def get(self) -> Any:
        return self._payload


@pytest.mark.parametrize(
    ("service", "ensemble", "state"),
    [
        (None, {}, "ok"),
        (None, {"pools": {"pool": {}}}, "warning"),
        ("rexec", {"pools": {"pool": {}}}, "warning"),
        ("sdexec", {"pools": {"pool": {}}}, "ok"),
    ],
)
def test_that_tasks_can_outlive_a_members_broker_is_said_where_there_are_members(
    service: str | None, ensemble: dict[str, Any], state: str
) -> None:
    finding = members(InstanceInfo(Handle(service, ensemble)))
    assert finding.state == state
    assert ("live on" in finding.text) == (service != "sdexec")
    assert ("sdexec" in finding.advice) == (state == "warning")


@pytest.mark.parametrize(
    ("ensemble", "state", "text"),
    [
        ({"name": "md", "waits": []}, "ok", "no ensemble's jobs wait for more than free nodes"),
        (
            {"name": "md", "waits": [{"reason": "the queue is stopped"}]},
            "warning",
            "md: the queue is stopped",
        ),
        # As a guest sees it.
        ({"name": "md"}, "ok", "not known: only the owner of the instance is told"),
    ],
)
def test_what_is_not_told_is_not_known_to_be_well(
    ensemble: dict[str, Any], state: str, text: str
) -> None:
    finding = waits(InstanceInfo(Handle(None, ensemble)))
    assert (finding.state, finding.text) == (state, text)


def test_an_old_key_of_a_scaler_is_a_warning_with_the_new_one() -> None:
    handle = Handle(None, {})
    table = {"scaler": "instance", "start-broker": "x", "max-size": 2}
    handle._responses["config.get"] = {"ensemble": table}
    finding = scaler(InstanceInfo(handle))
    assert finding.state == "warning"
    assert "[ensemble] max-size is deprecated: use max-nodes" in finding.text
    table["max-nodes"] = table.pop("max-size")
    assert scaler(InstanceInfo(handle)).state == "ok"
