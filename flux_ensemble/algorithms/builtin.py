"""The algorithms that come with flux-ensemble.

They are listed here or belong to a feature, and are not found by entry point. So they exist in a
clone that is not installed, too, and no other package can replace one.
"""

from __future__ import annotations

from importlib import import_module

from flux_ensemble.algorithms.algorithm import Algorithm
from flux_ensemble.feature_list import parts

#: Name of an algorithm of this room -> its module, and its name there.
_OWN: dict[str, tuple[str, str]] = {
    "active-loop": ("active_loop", "ACTIVE_LOOP"),
    "replica-exchange": ("replica_exchange", "REPLICA_EXCHANGE"),
    "retry-with-more": ("retry_with_more", "RETRY_WITH_MORE"),
    "workload-demand": ("workload_demand", "WORKLOAD_DEMAND"),
}

#: Those of features, by name.
_OF_FEATURES: dict[str, Algorithm] = {
    name: algorithm for part in parts("algorithms") for name, algorithm in part.ALGORITHMS.items()
}

#: The names of all of them.
SHIPPED = tuple(sorted((*_OWN, *_OF_FEATURES)))


def shipped(name: str) -> Algorithm:
    """Return an algorithm that comes with flux-ensemble.

    Raises:
        KeyError: there is none of this name.

    >>> shipped("retry-with-more").required
    ('group',)
    """
    if name in _OF_FEATURES:
        return _OF_FEATURES[name]
    module, attribute = _OWN[name]
    algorithm = getattr(import_module(f"{__package__}.{module}"), attribute)
    assert isinstance(algorithm, Algorithm)
    return algorithm
