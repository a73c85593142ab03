"""The states of an ensemble that are said by name, apart from the engine, which imports much."""

from __future__ import annotations

#: States that an ensemble does not leave.
FINAL_STATES = ("completed", "failed", "canceled")
