"""Fields of a job by its copy, in expressions."""

from __future__ import annotations

from flux_ensemble.metrics.columns import Column, Known
from flux_ensemble.metrics.domains import flag

FIELDS = {
    "copied": Column(
        "whether it has a [copy](retries.md#copies), or is one", known=Known.SUBMISSION, check=flag
    ),
}
