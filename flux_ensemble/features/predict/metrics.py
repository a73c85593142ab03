"""The metrics of predictions."""

from __future__ import annotations

METRICS = {
    "time": {
        "remaining": "seconds until all jobs with [predicted](predictions.md) durations are over; "
        "empty if nothing is predicted",
    },
}
