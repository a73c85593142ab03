"""flux-ensemble: ensembles of jobs on Flux, driven by rules that react to events.

Programs that make and run ensembles import from here; see docs/python.md.
"""

from typing import Any

from flux_ensemble.entries import Action, Job, Rule

__all__ = ["Action", "AsyncClient", "Ensemble", "Job", "Rule", "memo", "params"]

__version__ = "0.2.0"

#: Names that are imported on first use, since commands and custom functions do not need them.
_LATER = {
    "AsyncClient": "flux_ensemble.api.asynchronous",
    "Ensemble": "flux_ensemble.api.ensemble",
    "memo": "flux_ensemble.api.memo",
    "params": "flux_ensemble.api.memo",
}


def __dir__() -> list[str]:
    # What is imported on first use is completed, too.
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
