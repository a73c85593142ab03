"""The hash of a log, by which a report can be verified against a recording."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from flux_ensemble.eventlog import Stored, read

_DIGEST = re.compile(r"\b([0-9a-f]{64}) \([\d,]+ entr")


class Digest:
    """SHA-256 of the entries of an engine, each as a line of JSON with sorted keys.

    Attributes:
        count: number of entries.

    >>> digest = Digest()
    >>> digest.add({"timestamp": 1.5, "name": "start", "context": {}})
    >>> digest.add({"timestamp": 1.5, "name": "epoch", "context": {"epoch": 2}})
    >>> digest.count, digest.text[:8]
    (1, '13591715')
    """

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.sha256()

    def add(self, entry: Stored) -> None:
        """Add an entry; one that no engine wrote changes nothing."""
        if read(entry).is_note:
            return
        self.count += 1
        self._digest.update(json.dumps(entry, sort_keys=True).encode() + b"\n")

    @property
    def text(self) -> str:
        """The hash so far, in hexadecimal."""
        return self._digest.hexdigest()


def hashes(path: Path) -> set[str]:
    """Return the hashes of logs in a report.

    Raises:
        OSError: it cannot be read.
    """
    return set(_DIGEST.findall(path.read_text(encoding="utf-8", errors="replace")))
