"""The result of a run as one JSON object in a file: `run --summary FILE`.

In a pod the file is /dev/termination-log, whose contents Kubernetes keeps as the message of the
container, up to 4096 bytes; the operator reads them there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.common import print_error
from flux_ensemble.cli.display.troubles import sentence
from flux_ensemble.files import writing
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES
from flux_ensemble.texts import printable

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Size of a message that Kubernetes keeps, in bytes.
LARGEST = 4096

#: Longest text in the file, in characters of at most four bytes each.
_LONGEST = 300


class Summary:
    """The summary of a run: collects the final status, and writes it when the run is over.

    Args:
        path: of the file; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}

    def take(self, status: EnsembleStatus) -> None:
        """Note the final status of the ensemble."""
        groups: Iterable[Mapping[str, Any]] = status.get("groups", {}).values()
        self._known = {
            "name": status["name"],
            "state": status["state"],
            "reason": _text(status.get("reason", "")),
            "trouble": _text(sentence(status)),
            "jobs": {
                outcome: sum(group[outcome] for group in groups) for outcome in ATTEMPT_OUTCOMES
            },
            "t_start": status["t_start"],
            "t_end": status["t_end"],
        }

    def write(self, code: int, error: str | None = None) -> None:
        """Write {"exit_code", "error"?} and, if the ensemble ended, its final status.

        Args:
            code: the exit code of the command.
            error: why it could not continue.
        """
        if self._path is None:
            return
        summary = {**self._known, "exit_code": code}
        if error is not None:
            summary["error"] = _text(error)
        try:
            # Written in place, because the file may be a mount of its own.
            with writing(self._path) as file:
                file.write(json.dumps(summary, ensure_ascii=False) + "\n")
        except OSError as exc:
            print_error(f"cannot write the summary {str(self._path)!r}: {exc.strerror}")


def _text(text: str) -> str:
    """A text for the people who read the file in Kubernetes."""
    return printable(text[:_LONGEST])[:_LONGEST]
