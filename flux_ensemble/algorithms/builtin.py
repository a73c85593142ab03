"""The algorithms that come with flux-ensemble.

They are listed here, and not found by entry point. So they exist in a clone that is not installed,
too, and no other package can replace one.
"""

from __future__ import annotations

from importlib import import_module

from flux_ensemble.algorithms.algorithm import Algorithm

#: Name of an algorithm -> its module, and its name there.
SHIPPED: dict[str, tuple[str, str]] = {
    "active-loop": ("active_loop", "ACTIVE_LOOP"),
    "asha": ("searches", "ASHA"),
    "median-stop": ("searches", "MEDIAN_STOP"),
    "replica-exchange": ("replica_exchange", "REPLICA_EXCHANGE"),
    "retry-with-more": ("retry_with_more", "RETRY_WITH_MORE"),
    "stragglers": ("stragglers", "STRAGGLERS"),
}


def shipped(name: str) -> Algorithm:
    """Return an algorithm that comes with flux-ensemble.

    Raises:
        KeyError: there is none of this name.

    >>> shipped("retry-with-more").required
    ('group',)
    """
    module, attribute = SHIPPED[name]
    algorithm = getattr(import_module(f"{__package__}.{module}"), attribute)
    assert isinstance(algorithm, Algorithm)
    return algorithm
