"""`kubectl ensemble`: the plugin on a real API server, with real brokers.

A kubelet would run what `kubectl exec` asks for; here that runs on this machine, and sees only the
processes of the pod.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apiserver
import pytest
import yaml
from ensembles import CRDS, KUBERNETES, ROOT, Bench, ensemble, member, objects
from lightkube.codecs import from_dict
from standin import standin
from test_operator_app import operator, until

from flux_ensemble import __version__
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure

PLUGIN = KUBERNETES / "kubectl-ensemble"
TOKEN = "flux-ensemble-flux-ensemble-operator"
ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"

#: What stands before the real kubectl.
KUBECTL = """\
#!{python}
import json, os, subprocess, sys, tempfile

real, words = {real!r}, sys.argv[1:]
if words[0] != "exec":
    os.execv(real, [real, *words])
cut = words.index("--")
options = [word for word in words[2:cut] if not word.startswith("--container")]
pod = json.loads(subprocess.check_output(
    [real, "get", "pod", words[1], "--output=json", *options]
))
mark = b"FLUX_ENSEMBLE_TEST_POD=" + pod["metadata"]["uid"].encode()
with tempfile.TemporaryDirectory() as seen:
    for id in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{{id}}/environ", "rb") as file:
                own = mark in file.read().split(b"\\0")
        except OSError:
            continue
        if own:
            os.symlink(f"/proc/{{id}}", f"{{seen}}/{{id}}")
    command = [word.replace("/proc/[0-9]*", f"{{seen}}/[0-9]*") for word in words[cut + 1 :]]
    sys.exit(subprocess.run(command).returncode)
"""

DOCUMENT = """\
jobs: [{name: work, command: "sh -c 'until test -e GATE; do sleep 0.1; done'", count: 2}]
rules: [{id: begin, trigger: start, action: {name: submit, label: work}}]
"""


def run(
    *words: str, path: Path | None = None, cwd: Path | None = None, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    if config is not None:
        environment["KUBECONFIG"] = str(config)
    command = ["kubectl", "ensemble", *words] if config is not None else [str(PLUGIN), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "Usage: kubectl ensemble status NAME"),
        (["--help"], 0, "Usage: kubectl ensemble status NAME"),
        (["stat", "a"], 1, "no command 'stat' (commands: status, log, report)"),
        (["status"], 1, "give the name of an Ensemble first: kubectl ensemble status NAME"),
        (["log", "a", "--member"], 1, "--member needs a value"),
    ],
)
def test_what_is_typed_wrong_is_told(words: list[str], code: int, said: str) -> None:
    done = run(*words)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)


def test_the_manifest_for_krew_is_of_this_release() -> None:
    (manifest,) = objects(ROOT / "etc" / "packaging" / "krew" / "ensemble.yaml")
    assert manifest["spec"]["version"] == f"v{__version__}"
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"].endswith(f"/flux_ensemble-{__version__}.tar.gz")
    for file in platform["files"]:
        top, _, path = file["from"].partition("/")
        assert top == f"flux_ensemble-{__version__}"
        assert (ROOT / path).is_file()
    assert PLUGIN.name == platform["bin"]
    assert os.access(PLUGIN, os.X_OK)


def test_a_release_puts_the_checksum_of_its_sdist_into_the_manifest(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = workflow["jobs"]["sdist"]["steps"]
    (step,) = (one["run"] for one in steps if "Krew" in one.get("name", ""))
    content = b"an sdist"
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "flux_ensemble-1.tar.gz").write_bytes(content)
    shutil.copytree(ROOT / "etc" / "packaging" / "krew", tmp_path / "etc" / "packaging" / "krew")
    subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, check=True)
    (before,) = objects(ROOT / "etc" / "packaging" / "krew" / "ensemble.yaml")
    (made,) = objects(tmp_path / "ensemble.yaml")
    before["spec"]["platforms"][0]["sha256"] = hashlib.sha256(content).hexdigest()
    assert made == before


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apiserver.ApiServer]:
    with apiserver.api_server(tmp_path_factory.mktemp("apiserver"), {TOKEN: ACCOUNT}) as server:
        admin = server.client()
        for one in objects(KUBERNETES / "install.yaml", CRDS[1]):
            admin.create(from_dict(one))
        yield server


def put(bench: Bench, gate: Path) -> None:
    text = DOCUMENT.replace("GATE", str(gate))
    members = [member(name, document=text) for name in ("one", "two")]
    found = ensemble("sweep", *members, install={"skip": True})

    def done() -> bool:
        try:
            bench.put(found)
        except ClusterFailure:
            return False  # Its CRD is not established yet.
        return True

    until(done, "the Ensemble cannot be created")


def members_are(bench: Bench, state: str) -> bool:
    status: dict[str, Any] = (bench.ensemble() or {}).get("status") or {}
    found = status.get("members") or [{}]
    return all(one.get("state") == state for one in found)


@pytest.mark.flux
@pytest.mark.apiserver
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
@pytest.mark.skipif(apiserver.binaries() is None, reason="kube-apiserver and etcd are not on PATH")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_status_log_and_report_are_those_of_the_client_in_the_pod(
    server: apiserver.ApiServer, tmp_path: Path
) -> None:
    programs, gate, config = tmp_path / "bin", tmp_path / "gate", tmp_path / "config"
    programs.mkdir()
    (programs / PLUGIN.name).symlink_to(PLUGIN)
    real = str(Path(shutil.which("kubectl") or "").absolute())
    (programs / "kubectl").write_text(KUBECTL.format(python=sys.executable, real=real))
    (programs / "kubectl").chmod(0o755)
    config.write_text(server.kubeconfig("admin"))
    bench = Bench(server, TOKEN)

    def plugin(*words: str) -> tuple[int, str, str]:
        done = run(*words, path=programs, cwd=tmp_path, config=config)
        return done.returncode, done.stdout, done.stderr

    with operator(server, tmp_path), standin(server) as running:
        put(bench, gate)
        code, _, said = plugin("log", "sweep", "--member", "one")
        assert code == 0 or "does not run" in said or "not yet" in said, said

        def seen() -> bool:
            assert not running.errors, running.errors
            status = plugin("status", "sweep")
            return status[0] == 0 and status[1].count("work") >= 2

        until(seen, lambda: f"{plugin('status', 'sweep')}\n{running.logs()}", 200)
        code, out, said = plugin("status", "sweep")
        assert (code, said) == (0, "")
        assert "sweep" in out.splitlines()[1]
        assert "\none: Running" in out
        assert "\ntwo: Running" in out
        code, _, said = plugin("log", "sweep")
        assert code == 1
        assert "choose one of its members with --member: one two" in said
        code, _, said = plugin("log", "sweep", "--member=three")
        assert code == 1
        assert "'sweep' has no member 'three' (members: one two)" in said
        code, out, said = plugin("log", "sweep", "--member=one", "--rule", "begin")
        assert (code, said) == (0, "")
        assert "begin #0" in out
        code, out, said = plugin("report", "sweep", "-m", "two", "--namespace=default")
        assert (code, out, said) == (0, "sweep-two.html\n", "")
        assert (tmp_path / "sweep-two.html").read_text().lower().startswith("<!doctype html")
        code, _, said = plugin("report", "sweep", "-m", "two")
        assert code == 1
        assert "sweep-two.html exists" in said
        code, out, _ = plugin("status", "nothing")
        assert code == 1
        gate.touch()
        until(lambda: members_are(bench, "Completed"), lambda: running.logs())
        code, out, said = plugin("status", "sweep")
        assert code == 0
        assert "\none: Completed" in out
        code, _, said = plugin("report", "sweep", "-m", "one")
        assert code == 1
        assert "one does not run (Completed), and a report is made by the pod" in said
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    bench.close()
