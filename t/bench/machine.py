"""What was measured on: the machine, and the versions of everything that matters."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import predecessor

import flux_ensemble


def describe() -> dict[str, str]:
    """By name; values are for people."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Python of the service": _flux("python", "--version").split()[-1],
        "flux-core": _flux("version").splitlines()[0].split()[-1],
        "flux-ensemble": f"{flux_ensemble.__version__}, with {_compiled()} compiled modules",
        "river": version("river"),
        "ensemble-python": predecessor.VERSION,
    }


def _compiled() -> int:
    """How many modules of the package are compiled."""
    return len(list(Path(flux_ensemble.__file__).parent.rglob("*.so")))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _flux(*arguments: str) -> str:
    """What a command of Flux prints; "none" without Flux."""
    if shutil.which("flux") is None:
        return "none"
    command = ["flux", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
