"""Fields of a job by its prediction, in expressions."""

from __future__ import annotations

from flux_ensemble.metrics.columns import Column, Known
from flux_ensemble.metrics.domains import number

FIELDS = {
    "predicted": Column(
        "how many seconds it was [predicted](predictions.md) to run",
        known=Known.SUBMISSION,
        check=number,
        needs="predict",
        empty="'job.predicted' is empty for each job that this is about: its group says with "
        "'predict' which parameters its duration follows from",
    ),
}
