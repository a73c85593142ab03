"""Algorithms of other packages, by entry point; each runs in its own process, with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flux_ensemble.algorithms.algorithm import ArgumentError, Plain
from flux_ensemble.texts import bounded, clip

#: Group of the entry points that are algorithms.
ENTRY_POINTS = "flux_ensemble.algorithms"

#: The seconds that an algorithm may take to be imported, and to make groups and rules.
PATIENCE = 10.0

#: The most characters of an algorithm's failure in a message.
_MOST_SAID = 500


class PackageError(Exception):
    """The failure of an algorithm of another package; the text is a sentence with the package."""


class Foreign:
    """An algorithm of another package.

    Args:
        point: the entry point of the algorithm.
        patience: seconds that a call may take; default: `PATIENCE`.
    """

    def __init__(self, point: EntryPoint, patience: float | None = None) -> None:
        self._point = point
        self._patience = PATIENCE if patience is None else patience
        distribution = point.dist
        self.package = "unknown" if distribution is None else distribution.name

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the algorithm's arguments.

        Raises:
            PackageError: the algorithm fails.
        """
        answer: dict[str, Any] = self._call({"call": "describe"})["schema"]
        return answer

    def expand(self, arguments: Plain, document: Plain) -> Any:
        """Return the expansion of the algorithm.

        Raises:
            PackageError: the algorithm fails.
            ArgumentError: the algorithm does not accept an argument.
        """
        answer = self._call({"call": "expand", "arguments": arguments, "document": document})
        if "argument" in answer:
            raise ArgumentError(bounded(answer["argument"]), clip(bounded(answer["message"])))
        return answer["expansion"]

    def failure(self, what: str) -> PackageError:
        """Return an error with the names of the algorithm and its package.

        Args:
            what: the predicate, such as "raised ValueError: ...".
        """
        name, package = self._point.name, self.package
        return PackageError(f"the algorithm {name!r} of the package {package!r} {what}")

    def _call(self, request: Plain) -> dict[str, Any]:
        from flux_ensemble.algorithms import child

        # -P: nothing is imported from the working directory.
        words = [sys.executable, "-P", child.__file__, self._point.value]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, _ = process.communicate(json.dumps(request).encode(), self._patience)
            except subprocess.TimeoutExpired:
                raise self.failure(f"was not done in {self._patience:g} seconds") from None
            finally:
                # The whole process group is killed: also the processes that the algorithm started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        try:
            answer = json.loads(out)
        except ValueError:
            status = process.returncode
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            raise self.failure(f"ended its process {how}") from None
        if "failure" in answer:
            raise self.failure(clip(bounded(answer["failure"]), _MOST_SAID))
        result: dict[str, Any] = answer
        return result


def installed() -> dict[str, list[EntryPoint]]:
    """Return the algorithms of other packages: name -> its entry points, of one or more packages.

    >>> isinstance(installed(), dict)
    True
    """
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        points.setdefault(point.name, []).append(point)
    return points
