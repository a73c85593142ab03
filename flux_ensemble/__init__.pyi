# What type checkers see of the package: not the names that are imported later.
from flux_ensemble.api.asynchronous import AsyncClient as AsyncClient
from flux_ensemble.api.ensemble import Ensemble as Ensemble
from flux_ensemble.api.memo import memo as memo
from flux_ensemble.api.memo import params as params
from flux_ensemble.entries import Action as Action
from flux_ensemble.entries import Job as Job
from flux_ensemble.entries import Rule as Rule

__all__ = ["Action", "AsyncClient", "Ensemble", "Job", "Rule", "memo", "params"]

__version__: str
