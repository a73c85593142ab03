"""Cores and GPUs of this machine that jobs are bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: The variables by which the programs of two vendors find the GPUs that they may use.
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Binding:
    """The cores and GPUs that running jobs have.

    A job that finds fewer cores free than it asks for, because it shares them with others, is not
    bound.

    Args:
        cores: numbers of the cores, as for `os.sched_setaffinity`.
        gpus: names of the GPUs, as in `GPU_VARIABLES`.

    >>> binding = Binding([4, 5, 6], ["0", "1"])
    >>> binding.take(1, 2, 1), binding.take(2, 1, 1)
    (([4, 5], ['0']), ([6], ['1']))
    >>> binding.give(1)
    >>> binding.take(3, 1, 0)
    ([4], [])
    """

    def __init__(self, cores: Sequence[int], gpus: Sequence[str] = ()) -> None:
        # The end of a list is taken from; a job gets the cores that were given back last.
        self._cores = list(reversed(cores))
        self._gpus = list(reversed(gpus))
        self._held: dict[int, tuple[list[int], list[str]]] = {}

    def take(self, job: int, cores: int, gpus: int) -> tuple[list[int], list[str]]:
        """Return the cores and GPUs of a job, which has them until `give`."""
        held = _taken(self._cores, cores), _taken(self._gpus, gpus)
        self._held[job] = held
        return held

    def give(self, job: int) -> None:
        """Take back what a job has; a job that has nothing is no error."""
        cores, gpus = self._held.pop(job, ((), ()))
        self._cores += reversed(cores)
        self._gpus += reversed(gpus)


def _taken(free: list[Any], number: int) -> list[Any]:
    """Remove entries from the end of a list, and return them; none if there are too few."""
    if not 0 < number <= len(free):
        return []
    taken = free[-number:][::-1]
    del free[-number:]
    return taken
