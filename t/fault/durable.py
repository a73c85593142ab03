"""What an ensemble has in the KVS, read past the service: its log, its snapshot, the epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import flux.kvs
from flux.core.inner import ffi
from flux.future import Future


class Durable:
    """The KVS directory of one ensemble."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle = handle
        self._directory = f"ensemble.{name}"

    def text(self, key: str) -> str | None:
        """The text of a key, or None."""
        value = ffi.new("char *[1]")
        future = Future(flux.kvs.RAW.flux_kvs_lookup(self._handle, "primary", 0, key))
        try:
            flux.kvs.RAW.flux_kvs_lookup_get(future, value)
        except OSError:
            return None
        return "" if value[0] == ffi.NULL else ffi.string(value[0]).decode()

    @property
    def epoch(self) -> str | None:
        """The service's epoch, as text; None before the first."""
        return self.text("ensemble-service")

    @property
    def loaded(self) -> bool:
        """The document is durable."""
        return self.text(f"{self._directory}.load") is not None

    @property
    def snapshot(self) -> str | None:
        """The latest snapshot."""
        return self.text(f"{self._directory}.snapshot")

    def segments(self) -> list[str]:
        """The keys of the segments of its log, in order."""
        try:
            directory = flux.kvs.get_dir(self._handle, f"{self._directory}.log")
            return [f"{self._directory}.log.{name}" for name in sorted(directory.files())]
        except OSError:
            return []

    def lines(self) -> Iterator[dict[str, Any]]:
        """The entries of the log, headers of batches included."""
        for key in self.segments():
            for line in (self.text(key) or "").splitlines():
                yield json.loads(line)

    def absences(self) -> list[tuple[float, float]]:
        """The spans in which there was no instance, as its log has them."""
        return sorted(
            {
                (event["since"], event["t"])
                for entry in self.lines()
                if entry["name"] == "batch"
                for event in entry["context"]["events"]
                if isinstance(event, dict) and event["type"] == "Absent"
            }
        )

    def entries(self) -> list[dict[str, Any]]:
        """The entries for people; those of a batch that was committed twice are there once.

        Raises:
            ValueError: a batch is missing.
        """
        found: list[dict[str, Any]] = []
        latest: int | None = None
        repeated = False
        for entry in self.lines():
            if entry["name"] == "batch":
                number = entry["context"]["number"]
                repeated = latest is not None and number <= latest
                if latest is not None and number > latest + 1:
                    raise ValueError(f"batches {latest + 1} to {number - 1} are not in the log")
                latest = max(number, latest or 0)
            elif not repeated:
                found.append(entry)
        return found

    def count(self, name: str) -> int:
        """How many entries of a name there are, roughly: for waiting."""
        mark = f'"name":"{name}"'
        return sum((self.text(key) or "").count(mark) for key in self.segments())
