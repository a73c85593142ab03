"""Keys of predictions, in documents."""

from __future__ import annotations

from flux_ensemble.document.keys.forms import NAMES_OF_PARAMETERS, Key, choice

#: In which order the jobs of a group are sent that wait in the service.
ORDERS = ("longest-first",)

JOB_KEYS = (
    Key(
        "predict",
        NAMES_OF_PARAMETERS,
        "How long a job takes is learned from these parameters: job.predicted, time.remaining.",
        (["n", "potential"],),
        read=None,
        after="max-active",
        more="See [predictions](predictions.md).",
    ),
    Key(
        "order",
        choice("an order", ORDERS),
        "The jobs that wait in the service are sent by what they are predicted to take.",
        ("longest-first",),
        read=None,
        after="predict",
        more="With `longest-first` those go first that are predicted to take longest, see "
        "[predictions](predictions.md).",
    ),
)
