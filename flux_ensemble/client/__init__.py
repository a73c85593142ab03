"""The Python client: requests to the service, their responses, waiting for a service to return.

    from flux_ensemble.client import Client

Programs of users import it, so it needs Flux's bindings and nothing of the service or the engine.
"""

from flux_ensemble.client.client import Client, user_context
from flux_ensemble.client.errors import EnsembleError

__all__ = ["Client", "EnsembleError", "user_context"]
