"""The shapes of an ensemble's jobs on a virtual cluster."""

from __future__ import annotations

from typing import Any

from flux_ensemble.document import jobspec
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.model import Spec
from flux_ensemble.queues.virtual.cluster import Shape, UnsatisfiableError, shape_of

#: Number of shapes that are kept. There are more only if the sizes differ from job to job.
KEPT = 10_000


class Shapes:
    """The shape of each job, by the job set with its sizes.

    Args:
        spec: the ensemble's document.

    Raises:
        UnsatisfiableError: a job set requests a form of resources that a virtual cluster
            does not have.
    """

    def __init__(self, spec: Spec) -> None:
        self._of: dict[tuple[Any, ...], Shape] = {}
        #: One object for equal shapes, since a lookup is fastest with the same object.
        self._same: dict[Shape, Shape] = {}
        self._spec = spec
        #: Shapes of the document's job sets, by identity; the document lives as long as this
        #: object.
        self._fixed = {
            id(job_set): self._look_up(job_set)
            for group in spec.groups.values()
            for job_set in group.sets
        }

    def __call__(self, job_set: JobSet) -> Shape:
        """Return the shape of a job."""
        shape = self._fixed.get(id(job_set))
        return shape if shape is not None else self._look_up(job_set)

    def _look_up(self, job_set: JobSet) -> Shape:
        key: tuple[Any, ...] = (job_set.name, job_set.index)
        if job_set.jobspec is None:
            sizes = job_set.nodes, job_set.tasks, job_set.cores, job_set.gpus
            key = (*sizes, job_set.exclusive)
        shape = self._of.get(key)
        if shape is None:
            if len(self._of) >= KEPT:
                self._of.clear()
                self._same.clear()
            shape = _shape(job_set)
            shape = self._of[key] = self._same.setdefault(shape, shape)
        return shape


def _shape(job_set: JobSet) -> Shape:
    try:
        return shape_of(jobspec.build(job_set, {}, environment={}, cwd="/", tag={}))
    except UnsatisfiableError as error:
        raise UnsatisfiableError(f"job group {job_set.name!r}: {error}") from None
