"""The states of an ensemble, as a literal table.

Other packages can import this table without the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

#: State -> the states that may follow it.
TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "running": ("paused", "ending"),
    "paused": ("running", "ending"),
    # No rule fires any more; the ensemble's jobs are being cancelled.
    "ending": ("completed", "failed", "canceled"),
    "completed": (),
    "failed": (),
    "canceled": (),
}

#: States in which rules can fire; while paused, their actions wait.
ACTING_STATES = tuple(state for state, following in TRANSITIONS.items() if "ending" in following)

#: States that end an ensemble: it leaves them only if jobs of it are run again (`Core.reopen`).
FINAL_STATES = tuple(state for state, following in TRANSITIONS.items() if not following)
