"""ensemble-python 0.0.16, which flux-ensemble succeeds, from the package registry.

It is installed once, into a virtual environment of its own in `.bench/` at the top of the
project. Of what it depends on it gets what it imports to run an ensemble on Flux; it declares
more (grpcio, grpcio-tools, kubernetes), which only its service for scaling imports.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

VERSION = "0.0.16"

#: What it imports, and what Flux's bindings do, which it imports too.
NEEDS = ("river", "jsonschema", "pyyaml", "cffi", "ply")

CACHE = Path(__file__).resolve().parents[2] / ".bench"


def command() -> list[str]:
    """The command `ensemble`; installs it where it is not there yet.

    Raises:
        RuntimeError: it cannot be installed.
    """
    home = CACHE / f"ensemble-python-{VERSION}"
    done = home / "installed"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        for what in (["--no-deps", f"ensemble-python=={VERSION}"], NEEDS):
            installed = subprocess.run(
                [home / "bin" / "pip", "install", "--quiet", *what], capture_output=True, text=True
            )
            if installed.returncode:
                raise RuntimeError(f"pip install {' '.join(what)}: {installed.stderr.strip()}")
        done.touch()
    return [str(home / "bin" / "python"), str(home / "bin" / "ensemble"), "run", "--executor=flux"]


def bindings() -> str:
    """The directories of Flux's bindings, for PYTHONPATH."""
    flux = subprocess.run(
        ["flux", "config", "builtin", "python_path"], capture_output=True, text=True, check=True
    )
    return flux.stdout.strip()


if __name__ == "__main__":
    sys.exit(subprocess.call([*command(), *sys.argv[1:]]))
