"""The operator as a process, with the packages of its image: watches, probes, and its end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from apiserver import ApiServer
from ensembles import Bench, condition, ensemble
from image_packages import Image
from memory_api import MemoryApi
from patience import PATIENCE

pytest_plugins = ["operator_cluster"]

#: The operator's Lease.
LEASE = "coordination.k8s.io/v1", "Lease", "flux-ensemble", "flux-ensemble-operator"

OPERATOR = "flux-ensemble-flux-ensemble-operator"


def until(
    holds: Callable[[], bool], what: str | Callable[[], str], seconds: float = PATIENCE
) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.1)


@contextmanager
def operator(
    api: MemoryApi | ApiServer, directory: Path, name: str = "operator", *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `flux-ensemble operator run` with the operator's token, and what its image has."""
    image = Image(directory / f"{name}.packages")
    config = directory / f"{name}.config"
    if isinstance(api, MemoryApi):
        api.account_token("flux-ensemble", "flux-ensemble-operator")
    config.write_text(api.kubeconfig(OPERATOR, "flux-ensemble"))
    command = image.command("operator", "run", "--health-port=0", *options)
    with (directory / f"{name}.log").open("w") as log:
        child = subprocess.Popen(
            command, stderr=log, stdout=log, env={**image.environment, "KUBECONFIG": str(config)}
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait(PATIENCE)


def lease_in(bench: Bench) -> dict[str, Any]:
    found = bench.admin.get(*LEASE)
    assert found is not None
    return found


def expire(bench: Bench) -> None:
    """The Lease of an operator that was killed is as long as one on a slow machine needs it."""
    lease = lease_in(bench)
    bench.admin.replace({**lease, "spec": lease["spec"] | {"leaseDurationSeconds": 1}})


def test_an_operator_that_runs_makes_mends_and_ends(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    log = tmp_path / "operator.log"
    with operator(api, tmp_path) as child:
        bench.put(ensemble("first"))
        until(lambda: bench.minicluster("first-solve") is not None, log.read_text())
        bench.put(ensemble("second"))
        until(lambda: bench.minicluster("second-solve") is not None, "the second one")
        # A MiniCluster that changes is looked at without waiting.
        live = bench.minicluster("second-solve")
        assert live is not None
        bench.admin.resize(live, 9)
        until(lambda: (bench.minicluster("second-solve") or {})["spec"]["size"] == 3, "a size of 9")
        found = bench.ensemble("first")
        assert found is not None
        assert condition(found["status"], "Accepted")[0] == "True"
        (port,) = (line.split()[-1] for line in log.read_text().splitlines() if "probes" in line)
        url = f"http://127.0.0.1:{port}"
        assert httpx2.get(f"{url}/healthz").text == "ok\n"
        metrics = httpx2.get(f"{url}/metrics").text
        assert "flux_ensemble_leader 1.0" in metrics
        assert 'flux_ensemble_ensembles{phase="Pending"} 2.0' in metrics
        assert httpx2.get(f"{url}/other").status_code == 404
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0, log.read_text()
    assert lease_in(bench)["spec"]["holderIdentity"] == ""
    said = log.read_text()
    assert "Traceback" not in said
    assert "HTTP Request" not in said


def test_when_the_leader_is_killed_the_other_one_takes_over(
    api: MemoryApi, bench: Bench, tmp_path: Path
) -> None:
    with operator(api, tmp_path, "one") as one:
        bench.put(ensemble("first"))
        until(lambda: bench.minicluster("first-solve") is not None, "the first one")
        with operator(api, tmp_path, "two"):
            until(lambda: "wait for the lease" in (tmp_path / "two.log").read_text(), "the lease")
            assert one.poll() is None, (tmp_path / "one.log").read_text()
            one.kill()
            one.wait(PATIENCE)
            expire(bench)
            bench.put(ensemble("second"))
            until(lambda: bench.minicluster("second-solve") is not None, "the second one")
