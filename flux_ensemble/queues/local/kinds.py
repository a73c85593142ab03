"""The queues that an ensemble can have without Flux, by the names that `--queue` has for them.

The run of a queue keeps its name in its files, and goes on with the same. `run_queue` has what a
queue has to be.
"""

from __future__ import annotations

from typing import Literal

#: The names, and the class of each, as module:class. It is imported by the runs that have it.
QueueName = Literal["local"]
QUEUES: dict[QueueName, str] = {
    "local": "flux_ensemble.queues.local.queue:LocalQueue",
}

#: The queue of a run whose user has chosen none.
USUAL: QueueName = "local"


def own_queue(name: str | None) -> QueueName | None:
    """Return a name that is one of `QUEUES`; None for another, such as "flux", and for none.

    >>> own_queue("local")
    'local'
    >>> own_queue("flux")
    """
    return next((own for own in QUEUES if own == name), None)
