"""What docs/comparison.md says of ensemble-operator while its members run, in real brokers.

`test_operator_predecessor` says how it is found; these tests need ENSEMBLE_PYTHON, too.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apiserver
import grpc
import httpx2
import pytest
import yaml
from ports import free_ports
from predecessor_standin import PredecessorStandin
from test_operator_app import until
from test_operator_predecessor import ENSEMBLES, MINICLUSTERS, QUIET, Operator, given, running

from flux_ensemble.k8s.grpc.protocol import predecessors_pb2 as pb
from flux_ensemble.k8s.grpc.protocol.predecessors_pb2_grpc import EnsembleOperatorStub

pytestmark = [
    *apiserver.MARKS,
    apiserver.CONTROLLERS,
    pytest.mark.flux,
    pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH"),
    pytest.mark.skipif(
        "ENSEMBLE_PYTHON" not in os.environ,
        reason="ENSEMBLE_PYTHON names no Python that has ensemble-python",
    ),
]

FIRST = "ENSEMBLE_OPERATOR_FIRST"


@contextmanager
def members(operator: Operator, first: bool = False) -> Iterator[PredecessorStandin]:
    """Runs the members of what an operator makes."""
    folder = Path(os.environ[FIRST]) if first else None
    standin = PredecessorStandin(operator.server, os.environ["ENSEMBLE_PYTHON"], folder)
    try:
        yield standin
    finally:
        standin.close()


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with running("ENSEMBLE_OPERATOR", tmp_path_factory.mktemp("second")) as operator:
        yield operator


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Operator]:
    """One for each test: see the last one."""
    with running(FIRST, tmp_path) as operator:
        yield operator


def size(operator: Operator, name: str) -> int:
    found = operator.miniclusters().get(name, {"spec": {}})
    return int(found["spec"].get("size", 0))


def waits(log: str) -> bool:
    """Whether an operator of the first design waits for a connection to a member."""
    return "starting client" in log.splitlines()[-1] and "SUCCESS" not in log.splitlines()[-1]


SECOND = """\
logging: {{debug: true}}
jobs:
  - {{name: gate, command: "sh -c 'until test -e {gate}/grow; do sleep 0.1; done'", nodes: 1}}
  - {{name: last, command: "sh -c 'until test -e {gate}/shrink; do sleep 0.1; done'", nodes: 1}}
  - {{name: wide, command: "sh -c 'touch {gate}/wide; sleep inf'", nodes: 3}}
rules:
  - {{trigger: start, action: {{name: submit, label: gate}}}}
  - {{trigger: metric, name: count.gate.success, when: 1, action: {{name: grow, value: 9}}}}
  - {{trigger: metric, name: count.gate.success, when: 1, action: {{name: submit, label: wide}}}}
  - {{trigger: metric, name: count.gate.success, when: 1, action: {{name: submit, label: last}}}}
  - {{trigger: metric, name: count.last.success, when: 1, action: {{name: shrink, value: 1}}}}
"""


def test_a_member_of_the_second_design_decides_on_events_within_bounds_and_loses_jobs(
    second: Operator, tmp_path: Path
) -> None:
    text = SECOND.format(gate=tmp_path)
    container = {"image": "app", "command": "none"}
    second.put(given("run", {"ensemble": text}, maxSize=3, containers=[container]))
    with members(second) as standin:

        def said() -> str:
            return f"{standin.errors}\n{standin.logs()}\n{second.log()[-2000:]}"

        until(lambda: "(name:gate)" in standin.logs(), said)
        assert size(second, "run-0") == 1
        (tmp_path / "grow").touch()
        # Nine more are asked for, and there are as many as the bounds allow.
        until(lambda: size(second, "run-0") == 3, said)
        until(lambda: (tmp_path / "wide").exists(), said)
        (tmp_path / "shrink").touch()
        until(lambda: size(second, "run-0") == 2, said)
        # The last node goes, and the job that runs on all three is lost.
        until(lambda: "node failure on run-0-2" in standin.logs(), said)
        # Whoever can reach the service changes sizes.
        port = standin._ports["run"]
        payload = json.dumps({"group": "flux-framework.org", "version": "v1alpha2", "shrink": 1})
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            asked = pb.ActionRequest(
                member="miniclusters", name="run-0", action="shrink", payload=payload
            )
            answer = EnsembleOperatorStub(channel).RequestAction(asked)
        assert answer.status == pb.Response.SUCCESS
        assert size(second, "run-0") == 1
        # And it may delete any MiniCluster of the namespace.
        token = second.server.account_token("default", "run")
        answer = httpx2.delete(
            f"{second.server.url}{MINICLUSTERS}/run-0",
            headers={"Authorization": f"Bearer {token}"},
            verify=False,
        )
        assert answer.status_code == 200


def test_errors_of_the_second_design_are_in_the_log_of_a_pod(second: Operator) -> None:
    container = {"image": "app", "command": "none"}
    wrong = {"ensemble": yaml.safe_dump({"jobs": [{"nome": "a"}], "rules": []})}
    second.put(given("wrong", wrong, containers=[container]))
    with members(second) as standin:
        until(lambda: "On instance['jobs'][0]" in standin.logs(), standin.logs)
    assert not second.ask("GET", f"{ENSEMBLES}/wrong").get("status")


def first_ensemble(
    name: str, standin: PredecessorStandin, jobs: list[dict[str, Any]], **options: Any
) -> dict[str, Any]:
    """An Ensemble of the first design, whose member's service is at a port of this machine."""
    (port,) = free_ports(1)
    standin.member_ports[f"{name}-0"] = port
    own = {
        "jobs": jobs,
        "sidecar": {"port": str(port), "workers": 2},
        "algorithm": {"name": "workload-demand", "options": options},
    }
    container = {"image": "app", "command": "none"}
    return given(name, own, containers=[container])


def test_the_first_design_decides_in_the_operator_and_ignores_growth_beyond_the_greatest_size(
    first: Operator,
) -> None:
    with members(first, True) as standin:
        two = {"name": "two", "command": "sleep inf", "nodes": 2, "tasks": 2}
        four = {"name": "four", "command": "sleep inf", "nodes": 4, "tasks": 4}
        one = first_ensemble("grows", standin, [two, four], scaleChecks=1, order="ascending")
        one["spec"]["checkSeconds"] = 1
        first.put(one)

        def said() -> str:
            return f"{standin.errors}\n{standin.logs()[-3000:]}\n{first.log()[-3000:]}"

        # It asks the member, and makes room for the next job.
        until(lambda: size(first, "grows-0") == 3, said)
        assert "Updating size from 1 to 3" in first.log()
        # The next job needs four: these would be four more, and not one.
        until(lambda: "Ignoring scaling event 3 to 7" in first.log(), said)
        assert size(first, "grows-0") == 3
        assert "Member type: minicluster" in standin.logs()


def test_the_first_design_decides_to_shrink_and_does_not(first: Operator) -> None:
    with members(first, True) as standin:
        jobs = [{"name": "one", "command": "sleep inf", "nodes": 1, "tasks": 2}]
        one = first_ensemble("falls", standin, jobs, scaleChecks=1)
        one["spec"]["checkSeconds"] = 1
        one["spec"]["members"][0]["minicluster"]["spec"] |= {"size": 4}
        first.put(one)

        def said() -> str:
            return f"{standin.errors}\n{standin.logs()[-3000:]}\n{first.log()[-3000:]}"

        until(lambda: first.log().count("Scaling down by: 3") >= 2, said)
        assert size(first, "falls-0") == 4


def test_the_first_design_waits_for_a_member_that_has_gone_and_does_nothing_else(
    first: Operator,
) -> None:
    with members(first, True) as standin:
        jobs = [{"name": "one", "command": "sleep inf", "nodes": 1, "tasks": 1}]
        one = first_ensemble("gone", standin, jobs)
        one["spec"]["checkSeconds"] = 1
        first.put(one)
        until(lambda: "SUCCESS" in first.log(), first.log)
    until(lambda: waits(first.log()), first.log)
    time.sleep(QUIET)
    first.put(given("other", {"jobs": jobs, "sidecar": {"workers": 1}}))
    time.sleep(QUIET)
    assert waits(first.log())
    assert "other-0" not in first.miniclusters()
