"""flux-ensemble: ensembles of jobs on Flux, driven by rules that react to events."""

from flux_ensemble.custom import Action, Rule

__all__ = ["Action", "Rule"]

__version__ = "0.1.0"
