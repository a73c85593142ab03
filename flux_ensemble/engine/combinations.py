"""The combinations of parameter values with jobs that are not over, for `idle` with `by`.

A combination is known by its name, such as `md{"t":300}`: the group, and the values as JSON. Names
of groups have no brace, so no combination has the name of a group.

A job that runs again with other values of parameters (`retries`) belongs to the combination that it
was asked for, so that this one has no jobs left once the job is over.

The counts follow from the firings and active jobs; a snapshot does not hold them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.submissions import Submissions
from flux_ensemble.scalars import packed, unpacked

#: The most combinations of one rule that can have jobs at the same time, or whose firings are
#: counted.
MAX_COMBINATIONS = 250_000

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Combinations:
    """Counts, for each combination, the jobs of a group that were requested and are not over.

    Args:
        group: the group.
        by: names of the parameters that make up a combination.
    """

    def __init__(self, group: Group, by: tuple[str, ...]) -> None:
        self.by = by
        self.jobs: dict[str, int] = {}
        self._group = group
        self._submissions = Submissions({group.name: group}, asked=True)

    def begin(self, firing: Firing, indices: Collection[int]) -> bool:
        """Count jobs that are requested; return False if there are too many combinations."""
        jobs = self.jobs
        for name, count in self.tally(firing, indices):
            jobs[name] = jobs.get(name, 0) + count
            if len(jobs) > MAX_COMBINATIONS:
                return False
        return True

    def end(self, firing: Firing, indices: Collection[int]) -> Iterator[str]:
        """Count jobs as over, and yield the combinations that have no jobs any more."""
        for name, count in self.tally(firing, indices):
            left = self.jobs[name] - count
            if left:
                self.jobs[name] = left
            else:
                del self.jobs[name]
                yield name

    def name(self, firing: Firing, index: int) -> str:
        """Return the name of the combination of a job."""
        _, params = self._submissions.of(firing)[index]
        return name_of(self._group.name, {name: params[name] for name in self.by})

    def tally(self, firing: Firing, indices: Collection[int]) -> Iterable[tuple[str, int]]:
        """Return pairs of a combination and its number of jobs; a combination may occur twice."""
        submission = self._submissions.of(firing)
        if not isinstance(indices, range) or 2 * len(indices) <= len(submission):
            return ((self.name(firing, index), 1) for index in indices)
        name = self._group.name
        whole = ((name_of(name, values), count) for values, count in submission.tally(self.by))
        others = [*range(indices.start), *range(indices.stop, len(submission))]
        if not others:
            return whole
        # Subtract the jobs that are not in `indices`, which are fewer than those that are.
        counts: Counter[str] = Counter()
        for combination, count in whole:
            counts[combination] += count
        counts.subtract(self.name(firing, index) for index in others)
        return ((combination, count) for combination, count in counts.items() if count)


def name_of(group: str, values: dict[str, Any]) -> str:
    """Return the name of a combination."""
    return group + _encode({name: packed(value) for name, value in values.items()})


def parse_name(name: str) -> tuple[str, dict[str, Any]]:
    """Return the group and the values in the name of a combination; a group's has no values."""
    group, brace, rest = name.partition("{")
    values = json.loads(brace + rest) if brace else {}
    return group, {name: unpacked(value) for name, value in values.items()}
