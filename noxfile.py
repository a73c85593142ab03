"""The short tests on each Python that is supported and installed: `make check-pythons`.

Those without Flux and without waiting, on each Python but the one of .venv, where `make check` runs
all of them. A Python that is not installed is named as skipped; with NEWEST=1 there is only the
newest one that is installed. The environments are kept in .nox, and made anew when pyproject.toml
has changed.

And what protoc generates: `make protocols`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PROJECT = ROOT / "pyproject.toml"
PROTOCOL = ROOT / "flux_ensemble" / "k8s" / "grpc" / "protocol"

#: What is supported is what the package says of itself.
PREFIX = "Programming Language :: Python :: 3."
SUPPORTED = [
    f"3.{classifier.removeprefix(PREFIX)}"
    for classifier in tomllib.loads(PROJECT.read_text())["project"]["classifiers"]
    if classifier.startswith(PREFIX)
]
PYTHONS = [one for one in SUPPORTED if one != f"{sys.version_info[0]}.{sys.version_info[1]}"]

#: Rooms whose tests work rather than wait, and what a Python could break elsewhere: processes,
#: signals, sockets, TLS.
SHORT = (
    "client",
    "custom/test_custom.py",
    "custom/test_calls.py",
    "document",
    "engine",
    "k8s/grpc/test_grpc_typed.py",
    "k8s/grpc/test_grpc_tls.py",
    "local/test_local_queue.py",
    "local/test_local_resume.py",
    "local/test_local_run.py",
    "metrics",
    "modules",
    "parity/test_parity_simulated.py",
    "project/test_doctests.py",
    "runtime/test_driver.py",
    "runtime/test_eventlog.py",
    "runtime/test_recording.py",
    "runtime/test_wal.py",
    "simulation",
    "virtual",
)

nox.options.sessions = ["short"]
nox.options.reuse_venv = "yes"
# Debian's Python has a venv only with another package.
nox.options.default_venv_backend = "virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"


def pyenv(version: str) -> list[str]:
    """The directories of pyenv's interpreters of that version, the newest first."""
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    return [
        str(path.parent) for path in sorted(root.glob(f"versions/{version}.*/bin/python"))[::-1]
    ]


if os.environ.get("NEWEST"):
    # What fails in between fails there or on that of .venv, which is the oldest, all but always.
    PYTHONS = [one for one in PYTHONS if pyenv(one) or shutil.which(f"python{one}")][-1:]

# pyenv's shims are on PATH for versions that are not chosen, too.
os.environ["PATH"] = os.pathsep.join(
    [*(directory for version in PYTHONS for directory in pyenv(version)), os.environ["PATH"]]
)


def install(session: nox.Session) -> None:
    """Install what is edited here, and what the tests need."""
    # .venv has what a wheel is built with; pip would install that once more for each Python.
    with tempfile.TemporaryDirectory() as directory:
        build = ["hatchling", "build", "--target=wheel:editable", f"--directory={directory}"]
        session.run_install(sys.executable, "-m", *build, external=True, silent=True)
        (wheel,) = Path(directory).glob("*.whl")
        # What is not imported need not be compiled.
        session.install("--no-compile", f"flux-ensemble[short] @ {wheel.as_uri()}")


@nox.session(python=PYTHONS)
def short(session: nox.Session) -> None:
    """Run the short tests."""
    stamp = Path(session.virtualenv.location, "installed")
    wanted = hashlib.sha256(PROJECT.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        install(session)
        stamp.write_text(wanted)
    tests = [f"t/python/{one}" for one in SHORT]
    session.run(
        "pytest",
        "-q",
        "--hypothesis-profile=short",
        f"--numprocesses={(os.cpu_count() or 1) + 2}",
        "--dist=worksteal",
        f"--reruns={os.environ.get('RETRIES', '0')}",
        "-rR",
        "-m",
        "not flux",
        *(session.posargs or tests),
    )


@nox.session
def protocols(session: nox.Session) -> None:
    """Generate the Python code of the protocols.

    It needs a grpcio and a protobuf that are no older than this grpcio-tools and what that brings.
    """
    session.install("grpcio-tools~=1.76.0", "ruff")
    out = [f"--{kind}=." for kind in ("python_out", "pyi_out", "grpc_python_out")]
    sources = [str(path.relative_to(ROOT)) for path in sorted(PROTOCOL.glob("*.proto"))]
    session.run("python", "-m", "grpc_tools.protoc", "--proto_path=.", *out, *sources)
    # Nobody reads them: few lines are better than short ones.
    form = ["--config=format.skip-magic-trailing-comma=true", "--line-length=320"]
    session.run("ruff", "format", "--quiet", *form, *map(str, PROTOCOL.glob("*_pb2*.py")))
