"""Jobspecs that differ in their tags alone, made at the cost of one.

Jobs of one job set with the same parameters have the same jobspec, apart from the tag that
distinguishes them. The jobspec is built and encoded once with a placeholder, and split there; the
jobspec of each job is then the two halves with its tag between them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from flux_ensemble.document import jobspec
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.encoding import dumps

#: Number of split jobspecs that are kept; a sweep goes through its combinations in order.
KEPT = 16


class TagTemplates:
    """Encoded jobspecs of one ensemble.

    Args:
        environment: of the jobs.
        cwd: working directory of the jobs.
        prefix: of the jobs' names.
        built: receives each jobspec that is built, with the placeholder.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        cwd: str,
        prefix: str = "",
        built: Callable[[Mapping[str, Any]], None] = lambda jobspec: None,
    ) -> None:
        self._prefix = prefix
        self._built = built
        self._environment = environment
        self._cwd = cwd
        self._placeholder = {"placeholder": uuid4().hex}
        self._mark = json.dumps(self._placeholder)
        self._halves: dict[tuple[Any, ...], tuple[str, str]] = {}

    def jobspec(
        self,
        job_set: JobSet,
        params: Mapping[str, Any],
        tag: Mapping[str, Any],
        variant: str = "",
        off: str = "",
    ) -> str:
        """Return the encoded jobspec of a job.

        Args:
            job_set, params: of the job.
            tag: of the job.
            variant: distinguishes forms of one job set.
            off: the ranks that it is kept off, as an idset (RFC 22).
        """
        before, after = self.prepare(job_set, params, variant, off)
        return f"{before}{dumps(tag)}{after}"

    def prepare(
        self, job_set: JobSet, params: Mapping[str, Any], variant: str = "", off: str = ""
    ) -> tuple[str, str]:
        """Return the jobspec's text before and after its tag; build it if necessary."""
        values = json.dumps(params) if params else ""
        key = (job_set.name, job_set.index, job_set.number, values, variant, off)
        halves = self._halves.get(key)
        if halves is None:
            halves = self._split(job_set, params, off)
            if len(self._halves) >= KEPT:
                del self._halves[next(iter(self._halves))]
            self._halves[key] = halves
        return halves

    def _split(self, job_set: JobSet, params: Mapping[str, Any], off: str) -> tuple[str, str]:
        whole = jobspec.anchored(
            jobspec.build(
                job_set,
                params,
                environment=self._environment,
                cwd=self._cwd,
                tag=self._placeholder,
                prefix=self._prefix,
            )
        )
        self._built(whole)
        if off:
            whole = jobspec.kept_off(whole, off)
        before, after = json.dumps(whole).split(self._mark)
        return before, after
