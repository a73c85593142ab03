"""The submissions of open firings, which say what each of their jobs is."""

from __future__ import annotations

from collections.abc import Mapping

from flux_ensemble.document.job_sets import Group, Submission
from flux_ensemble.engine.firings import Firing

#: How many are kept. Where parameters are overridden, one takes time for each of their values.
KEPT = 16


class Submissions:
    """Makes submissions, and keeps those that were asked for last.

    Args:
        groups: of the ensemble, by name.
        most: how many are kept.
    """

    def __init__(self, groups: Mapping[str, Group], most: int = KEPT) -> None:
        self._groups = groups
        self._most = most
        #: In the order in which they were made or asked for again.
        self._kept: dict[Firing, Submission] = {}
        self._latest: Firing | None = None

    def of(self, firing: Firing) -> Submission:
        """The submission of a firing."""
        kept = self._kept
        if firing is not self._latest:
            submission = kept.pop(firing, None)
            if submission is None:
                group = self._groups[firing.group]
                submission = group.submission(firing.each, firing.params, firing.overrides)
                if len(kept) == self._most:
                    del kept[next(iter(kept))]
            kept[firing] = submission
            self._latest = firing
        return kept[firing]
