"""The Python client of the ensemble service.

    from flux_ensemble.client import Client

User programs import it, so it needs only Flux's bindings, not the service or the engine.
"""

from flux_ensemble.client.client import Client
from flux_ensemble.client.errors import EnsembleError
from flux_ensemble.client.instance import is_named, user_context

__all__ = ["Client", "EnsembleError", "is_named", "user_context"]
