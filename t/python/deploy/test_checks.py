"""What the doctor says of members, and of jobs that wait."""

from __future__ import annotations

import errno
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.deploy.doctor import (
    InstanceInfo,
    flux_version,
    members,
    others,
    scaler,
    tmpdir,
    waits,
)


class Handle:
    """A Flux instance with a configuration, and with ensembles."""

    def __init__(self, service: str | None, *ensembles: dict[str, Any]) -> None:
        self._responses = {
            "config.get": {} if service is None else {"exec": {"service": service}},
            "ensemble.status": {"service": {}, "ensembles": list(ensembles)},
            "module.list": {"mods": []},
            "ensemble-keeper.stats-get": {},
            "attr.get": {"value": "0.88.0"},
        }
        #: The claims of services, or errors, by rank.
        self.claims: list[Any] = []

    def attr_get(self, name: str) -> str:
        return str(len(self.claims))

    def rpc(self, topic: str, payload: Any, nodeid: int) -> Response:
        return Response(
            self.claims[nodeid] if topic == "ensemble.claim" else self._responses[topic]
        )


class Response:
    """One that has come."""

    def __init__(self, payload: Any) -> None:
        self._payload = payload

    def wait_for(self, seconds: float) -> None:
        """It is there."""

    def get(self) -> Any:
        if isinstance(self._payload, OSError):
            raise self._payload
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
            {"name": "md", "waits": [{"kind": "stopped", "reason": "the queue is stopped"}]},
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


def waiting(name: str, **waits: str) -> dict[str, Any]:
    """An ensemble whose jobs wait for reasons of these kinds."""
    found = [{"kind": kind, "reason": reason} for kind, reason in waits.items()]
    return {"name": name, "waits": found}


def test_nodes_that_are_not_up_are_not_said_again_for_each_ensemble() -> None:
    drained = "needs {} nodes, and 1 of 9 is up: rank 1 is drained ('bad memory')"
    ensembles = [
        waiting("a", nodes=drained.format(2), behind=f"stands behind job f1, which {drained}"),
        waiting("b", nodes=drained.format(3)),
        waiting("c", behind=f"stands behind job f1, which {drained}"),
    ]
    finding = waits(InstanceInfo(Handle(None, *ensembles)))
    assert finding.text == "a, b, c: wait for nodes that are not up"


def test_a_reason_that_several_ensembles_have_is_said_once_with_their_names() -> None:
    stopped, held = "the queue is stopped", "held by urgency 0"
    ensembles = [
        waiting("a", stopped=stopped),
        waiting("b", stopped=stopped, held=held),
        waiting("c", held=held),
    ]
    finding = waits(InstanceInfo(Handle(None, *ensembles)))
    assert finding.text == f"a, b: {stopped}; b, c: {held}"


def test_many_ensembles_that_wait_for_one_reason_are_counted() -> None:
    many = [waiting(f"sweep-{number}", held="held by urgency 0") for number in range(50)]
    finding = waits(InstanceInfo(Handle(None, *many)))
    names = "sweep-0, sweep-1, sweep-2, sweep-3, sweep-4, and 45 more"
    assert finding.text == f"{names}: held by urgency 0"


def test_an_old_key_of_a_scaler_is_a_warning_with_the_new_one() -> None:
    handle = Handle(None, {})
    table = {"scaler": "instance", "start-broker": "x", "max-size": 2}
    handle._responses["config.get"] = {"ensemble": table}
    finding = scaler(InstanceInfo(handle))
    assert finding.state == "warning"
    assert "[ensemble] max-size is deprecated: use max-nodes" in finding.text
    table["max-nodes"] = table.pop("max-size")
    assert scaler(InstanceInfo(handle)).state == "ok"


@pytest.mark.parametrize(
    ("version", "scaler", "rules", "lacks"),
    [
        ("0.88.0", "instance", [], []),
        ("0.87.1", None, [], []),
        ("0.87.1", None, [{"actions": ["grow", "shrink pool"]}], []),
        ("0.87.1", None, [{"actions": ["submit a", "shrink"]}], ["may not grow again"]),
        ("0.85.0", "instance", [], ["is not found on PATH", "may not grow again"]),
        ("0.83.0", None, [], ["no broker modules", "is not found on PATH"]),
    ],
)
def test_a_flux_that_is_too_old_for_what_is_used_is_a_warning(
    version: str,
    scaler: str | None,
    rules: list[dict[str, Any]],
    lacks: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FLUX_EXEC_PATH", raising=False)
    raw = types.SimpleNamespace(flux_core_version_string=lambda: version.encode())
    monkeypatch.setitem(sys.modules, "flux.core.inner", types.SimpleNamespace(raw=raw))
    handle = Handle(None, {"rules": rules})
    handle._responses["config.get"] = {"ensemble": {"scaler": scaler} if scaler else {}}
    handle._responses["attr.get"] = {"value": version}
    finding = flux_version(InstanceInfo(handle))
    assert finding.state == ("warning" if lacks else "ok")
    assert finding.text.count(", before Flux 0.") == len(lacks)
    assert all(text in finding.text for text in lacks)
    assert bool(finding.advice) == bool(lacks)


NOBODY = OSError(errno.ENOSYS, "no such service")


@pytest.mark.parametrize(
    ("claims", "state", "text"),
    [
        ([{"mode": "module", "pid": 5}, NOBODY], "ok", "no second service"),
        (
            [{"mode": "module", "pid": 5}, NOBODY, {"mode": "client", "pid": 7}],
            "warning",
            "2 services: module on rank 0 (pid 5), client on rank 2 (pid 7); one drives",
        ),
        (
            [{"mode": "module", "pid": 5}, OSError(errno.ETIMEDOUT, "late")],
            "warning",
            "one on rank 1 that does not answer",
        ),
        ([OSError(errno.EPERM, "no"), NOBODY], "ok", "not known"),
    ],
)
def test_a_second_service_is_a_warning_with_its_place(
    claims: list[Any], state: str, text: str
) -> None:
    handle = Handle(None, {})
    handle.claims = claims
    finding = others(InstanceInfo(handle))
    assert finding.state == state
    assert text in finding.text


@pytest.mark.parametrize(
    ("mode", "state"), [(0o700, "ok"), (0o775, "ok"), (0o777, "warning"), (0o1777, "ok")]
)
def test_a_directory_for_temporary_files_that_others_can_write_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, state: str
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(mode)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    handle = Handle(None, {})
    handle._responses["attr.get"] = {"value": str(tmp_path / "tmp" / "flux-1")}
    finding = tmpdir(InstanceInfo(handle))
    assert finding.state == state
    assert ("chmod +t" in finding.advice) == (state == "warning")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_for_temporary_files_of_another_user_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 9999, -1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    handle = Handle(None, {})
    handle._responses["attr.get"] = {"value": str(tmp_path / "flux-1")}
    finding = tmpdir(InstanceInfo(handle))
    assert "belongs to another user (uid 9999)" in finding.text
