"""The other tree of a comparison, in a process that is some inputs behind.

A tree is a folder with a checkout, or a revision of this one. The process runs a script of this
tree (`side.py`, `document_side.py`) with the other tree's package. Its first line of output is the
tree it is of. For each line on its standard input, of JSON, it answers with a line: `null` where it
comes to the same, else whatever says how it differs. The answer is short, so that it fits in a pipe
while the next input is being written.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[2]

#: How many inputs the other side may be behind.
AHEAD = 4


@contextlib.contextmanager
def tree(text: str) -> Iterator[Path]:
    """Yield the folder of a tree: one that there is, or a temporary one with a revision's package.

    Raises:
        SystemExit: there is no such folder, and no such revision.
    """
    if Path(text).is_dir():
        yield Path(text).resolve()
        return
    command = ["git", "-C", str(TREE), "archive", text, "flux_ensemble", "examples"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{text!r} is neither a folder nor a revision of {TREE}")
    with tempfile.TemporaryDirectory(prefix="tree-") as folder:
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder).resolve()


class Other:
    """The other tree's process.

    Args:
        tree: the folder.
        script: file name of a script in this folder.
        show: called with the name and the input that differ, and how.
    """

    def __init__(self, tree: Path, script: str, show: Callable[[str, Any, Any], None]) -> None:
        self._show = show
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script)],
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        found = Path(self._process.stdout.readline().strip())
        if found != tree:
            raise SystemExit(f"expected the package of {tree}, not of {found}")
        self._sent: list[tuple[str, Any]] = []
        #: How many inputs differed.
        self.differences = 0

    def compare(self, name: str, given: Any) -> None:
        """Compare an input when it is its turn."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        self._sent.append((name, given))
        if len(self._sent) > AHEAD:
            self._check()

    def finish(self) -> None:
        """Wait until all are compared."""
        while self._sent:
            self._check()

    def close(self) -> None:
        """End the process, whatever is left."""
        self._process.kill()
        self._process.communicate()

    def _check(self) -> None:
        assert self._process.stdout is not None
        name, given = self._sent.pop(0)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the other tree's process ended at {name}")
        difference = json.loads(answer)
        if difference is not None:
            self.differences += 1
            self._show(name, given, difference)


def excerpts(own: str, other: str) -> tuple[str, str]:
    """Excerpts of two texts from where they begin to differ."""
    pairs = enumerate(zip(own, other, strict=False))
    at = next((at for at, (a, b) in pairs if a != b), min(len(own), len(other)))
    begin, end = max(0, at - 200), at + 300
    return own[begin:end], other[begin:end]
