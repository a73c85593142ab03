"""`flux ensemble grpc start`: what it refuses, each in one sentence."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
import yaml
from certificates import DAY, Authority
from patience import PATIENCE
from rpc_servers import serving
from warm import WarmProcess

from flux_ensemble.cli.commands.grpc import start
from flux_ensemble.cli.main import run_command
from flux_ensemble.extras import install_command
from flux_ensemble.k8s.grpc.backend import DryRun

REFUSED = {
    "plaintext for others": (["--host", "0.0.0.0"], "can be reached from other machines"),
    "loading for everybody": (["--allow-load"], "for clients that say who they are"),
    "a socket in a shared directory": (["--socket", "/tmp/grpc.sock"], "to user 0 and not to you")
    if os.geteuid()
    else (["--socket", "/tmp/grpc.sock"], "others can write in '/tmp'"),
    "a token with TLS": (
        ["--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c", "--token-file", "none"],
        "--token-file is for plaintext",
    ),
    "half of TLS": (["--tls-cert", "a.pem"], "all three of --tls-cert, --tls-key and --tls-ca"),
    "an owner without certificates": (
        ["--backend", "kubernetes", "--owner", "uid"],
        "--owner needs certificates and --backend kubernetes",
    ),
    "bounds without dry run": (["--max-nodes", "3"], "bounds of --backend dry-run only"),
    "shared nodes without a back end": (["--shared-nodes", "3"], "needs a --backend"),
    "no shared nodes": (
        ["--backend", "dry-run", "--shared-nodes", "0"],
        "--shared-nodes: the clusters of a namespace share 0 nodes: expected 1 or more",
    ),
    "minimum below 1": (["--backend", "dry-run", "--min-nodes", "0"], "minimum size of 0"),
    "minimum above maximum": (
        ["--backend", "dry-run", "--min-nodes", "4", "--max-nodes", "3"],
        "of 4, above its maximum of 3",
    ),
    "bad cluster": (["--cluster", "a b"], "'a b' is not a cluster's name"),
    "cluster twice": (["--cluster", "a", "--cluster", "a"], "cluster 'a' is given twice"),
    "unknown back end": (["--backend", "slurm"], "is not one of 'dry-run', 'kubernetes'"),
    "port": (["--port", "70000"], "not in the range 0<=x<=65535"),
    "host of others": (["--host", "192.0.2.1", "--insecure"], "the host is not this machine's"),
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_arguments_that_cannot_work_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run_command(["grpc", "start", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "flux-ensemble: ERROR: " in error


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (["--member", "a b"], "cluster", "'a b' is not a cluster's name"),
        (["--max-size", "3"], "max-nodes", "--min-nodes and --max-nodes are bounds of"),
        (["--min-size", "0", "--backend", "dry-run"], "min-nodes", "minimum size of 0"),
    ],
)
def test_old_options_are_taken_with_one_warning(
    capsys: pytest.CaptureFixture[str], old: list[str], new: str, sentence: str
) -> None:
    assert run_command(["grpc", "start", *old]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("deprecated") == 1
    assert f"warning: {old[0]} is deprecated: use --{new}\n" in error


def test_insecure_with_certificates_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c"]
    assert run_command(["grpc", "start", "--insecure", *files]) == 2
    assert "--insecure is plaintext" in capsys.readouterr().err


def test_an_expired_certificate_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    files = Authority(tmp_path).issue("old", starts=now - 2 * DAY, ends=now - DAY)
    options = ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca]
    assert run_command(["grpc", "start", *map(str, options)]) == 2
    assert "has expired at" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(DryRun()) as target:
        assert run_command(["grpc", "start", "--port", target.rpartition(":")[2]]) == 2
    assert f"cannot listen at {target}" in capsys.readouterr().err


def test_a_health_port_of_the_machines_choice_is_said(tmp_path: Path) -> None:
    words = ["grpc", "start", "--port", "0", "--backend", "dry-run", "--health-port", "0"]
    with WarmProcess(words, tmp_path, subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            port = next(line.split()[-1] for line in process.stderr if "probes and metrics" in line)
            with urlopen(f"http://localhost:{port}/healthz", timeout=PATIENCE) as answer:
                assert answer.read() == b"ok\n"
        finally:
            process.terminate()


def test_without_a_cluster_the_kubernetes_back_end_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run_command(["grpc", "start", "--backend", "kubernetes"]) == 2
    assert "there is no Kubernetes cluster to talk to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "backend", "extra"),
    [("grpc", "dry-run", "grpc"), ("lightkube", "kubernetes", "k8s")],
)
def test_a_package_that_is_missing_is_named_with_the_extra(
    module: str, backend: str, extra: str
) -> None:
    script = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from flux_ensemble.cli.main import main\n"
        f"main(['grpc', 'start', '--backend', {backend!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"`{install_command(extra)}` brings it" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_loads_no_grpc() -> None:
    script = (
        "import sys, flux_ensemble.cli.main\n"
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('grpc', 'google', 'cryptography', 'lightkube')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def deployment() -> dict[str, dict[str, object]]:
    """The objects of etc/kubernetes/grpc.yaml by kind."""
    text = (ROOT / "etc" / "kubernetes" / "grpc.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_the_deployments_command_is_one_that_the_command_line_takes(deployment: dict) -> None:
    (container,) = deployment["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == ["flux-ensemble", "grpc", "start"]
    context = click.Context(start)
    start.parse_args(context, container["command"][3:])
    assert context.params["backend"] == "kubernetes"
    (mount,) = container["volumeMounts"]
    for option in ("tls_cert", "tls_key", "tls_ca"):
        assert str(context.params[option].parent) == mount["mountPath"]


def test_the_deployments_role_is_what_the_back_end_needs(deployment: dict) -> None:
    rules = {rule["resources"][0]: rule["verbs"] for rule in deployment["Role"]["rules"]}
    assert rules == {
        "miniclusters": ["get"],
        "miniclusters/scale": ["get", "update"],
        "events": ["create"],
    }
    groups = [rule["apiGroups"] for rule in deployment["Role"]["rules"]]
    assert groups == [["flux-framework.org"], ["flux-framework.org"], [""]]


def test_every_option_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "grpc.md").read_text()
    for parameter in start.params:
        assert parameter.opts[-1] in page
