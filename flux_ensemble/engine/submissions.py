"""A cache of the submissions of open firings, which hold job set and parameters of each job."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.document.job_sets import Group, Submission
from flux_ensemble.document.texts import NUMBER
from flux_ensemble.engine.firings import Firing

#: The number of submissions that are kept. To make one takes time for each value of an overridden
#: parameter.
KEPT = 16


class Submissions:
    """Makes submissions, and keeps the ones used last.

    Args:
        groups: the ensemble's job groups, by name.
        most: the most submissions to keep.
        asked: True for jobs as they were asked for, whatever `retries` changed since.
    """

    def __init__(
        self, groups: Mapping[str, Group], most: int = KEPT, *, asked: bool = False
    ) -> None:
        self._groups = groups
        self._asked = asked
        self._most = most
        #: The kept submissions, the least recently used first.
        self._kept: dict[Firing, Submission] = {}
        self._latest: Firing | None = None

    def of(self, firing: Firing) -> Submission:
        """Return the submission of a firing."""
        kept = self._kept
        if firing is not self._latest:
            submission = kept.pop(firing, None)
            if submission is None:
                group = self._groups[firing.group]
                overrides = firing.overrides
                if self._asked and overrides is not None:
                    before = overrides.get(NUMBER)
                    overrides = None if before is None else {NUMBER: before}
                submission = group.submission(firing.each, firing.params, overrides)
                if len(kept) == self._most:
                    del kept[next(iter(kept))]
            kept[firing] = submission
            self._latest = firing
        return kept[firing]
