"""Predictions in an engine."""

from __future__ import annotations

from functools import partial
from typing import Any

from flux_ensemble.engine.core import Core
from flux_ensemble.engine.feature import Feature, JobHooks
from flux_ensemble.engine.submitter import Submitter
from flux_ensemble.features.predict.document import REMAINING
from flux_ensemble.features.predict.forecast import remaining
from flux_ensemble.features.predict.predictions import Predictions


def feature(core: Core, sending: Submitter) -> Feature:
    """Return the feature for an engine.

    Args:
        core: the engine's core.
        sending: submits jobs.
    """
    predictions = Predictions(core)
    if predictions.models:
        core.hooks.follow(
            JobHooks(began=predictions.started, ended=predictions.ended, gone=predictions.learn)
        )
        core.stats.computed[REMAINING] = partial(_remaining, core, predictions)
        core.workload.backlog.ordered.update(predictions.orders())
    return Feature(
        "predictions",
        fields={"predicted": predictions.of},
        dump=predictions.dump,
        load=predictions.load,
        status=partial(_status, core),
        shrunk=predictions.shrunk,
        check=predictions.check,
    )


def _remaining(core: Core, predictions: Predictions) -> float | None:
    return remaining(core.workload, predictions, core.t)


def _status(core: Core) -> dict[str, Any]:
    """Return when the ensemble's jobs are predicted to be over, if that is known."""
    left = core.stats.lookup(REMAINING) if core.acting else None
    return {} if left is None else {"t_predicted": core.t + left}
