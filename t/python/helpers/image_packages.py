"""What the container file installs, as a path for Python: links to the packages that are here."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from ensembles import KUBERNETES
from packaging.requirements import Requirement

import flux_ensemble

_CONTAINERFILE = (KUBERNETES / "Containerfile").read_text()


def _words(pattern: str) -> list[str]:
    found = re.search(pattern, _CONTAINERFILE)
    assert found is not None, pattern
    return found[1].split()


#: The extra that is installed, and what is taken out again.
(EXTRA,) = _words(r'pip install \S+ "\.\[(\w+)\]"')
REMOVED = _words(r"pip uninstall --yes ([\w ]+)")


@functools.cache
def packages() -> frozenset[str]:
    """The names of the packages in the image, without ours."""
    found: set[tuple[str, str]] = set()
    todo = [("flux-ensemble", EXTRA)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found or name in REMOVED:
            continue
        found.add((name, extra))
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                todo += [(needed.name.lower(), one) for one in ("", *needed.extras)]
    return frozenset(name for name, _ in found) - {"flux-ensemble"}


def megabytes() -> float:
    """What the packages take on the disk."""
    files = {
        Path(str(one.locate_file(file)))
        for one in map(distribution, packages())
        for file in one.files or ()
    }
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


class Image:
    """An environment in which Python finds what the image has, and nothing else.

    Args:
        directory: for the links.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        for one in map(distribution, packages()):
            for file in one.files or ():
                top, here = file.parts[0], directory / file.parts[0]
                if top not in ("..", "__pycache__") and not here.exists():
                    here.symlink_to(str(one.locate_file(top)))
        ours = Path(flux_ensemble.__file__).parents[1]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
        self.environment = {**kept, "PYTHONPATH": f"{ours}{os.pathsep}{directory}"}

    def command(self, *words: str) -> list[str]:
        """The words of `flux-ensemble ...`, for this environment."""
        # Without the packages of this virtual environment.
        return [sys.executable, "-S", "-m", "flux_ensemble.cli.main", *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `flux-ensemble ...`."""
        return subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True
        )

    def python(self, script: str) -> str:
        """What a script prints."""
        command = [sys.executable, "-S", "-c", script]
        return subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
