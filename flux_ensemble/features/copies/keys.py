"""Keys and actions of copies, in documents."""

from __future__ import annotations

from flux_ensemble.document.keys.forms import FurtherAction

ACTIONS = (
    FurtherAction(
        "copy",
        "Run the triggering job a second time [beside itself](retries.md#copies).",
        after="cancel",
        takes=("jobs",),
        of_job=True,
        again=True,
    ),
)
