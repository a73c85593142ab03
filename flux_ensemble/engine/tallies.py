"""The outcomes of the jobs that a rule on `idle` waits for: `idle.jobs` and its neighbours.

    asked ──► begun by every group ──► none is left ──► looked at ──► counts begin anew

A rule has a tally if it joins several groups, or if something reads how the jobs went. A tally
counts, for each combination, the jobs that were asked for since the rule was last looked at, and
those of them that succeeded. Once none is left, the others have failed, however they ended: so a
job that was cancelled, dropped before it was sent, or lost is never taken for a success.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.model import RETRY_RULE
from flux_ensemble.engine.combinations import MAX_COMBINATIONS, Combinations, parse_name
from flux_ensemble.engine.firings import Firing
from flux_ensemble.metrics.job_fields import IDLE_FAILED, IDLE_JOBS, IDLE_SUCCESS
from flux_ensemble.texts import listed
from flux_ensemble.words import counted, each_pair


class Tally:
    """Counts the jobs of the combinations of one rule.

    Args:
        groups: the groups of the rule.
        by: names of the parameters that make up a combination; () for one of all jobs.
    """

    def __init__(self, groups: Sequence[Group], by: tuple[str, ...]) -> None:
        self._names = {group.name: Combinations(group, by) for group in groups}
        self._bits = {group.name: 1 << number for number, group in enumerate(groups)}
        self._all = (1 << len(groups)) - 1
        #: Values of a combination as JSON -> jobs, successes, and a bit for each group with one.
        self._counts: dict[str, list[int]] = {}
        #: Values of each idle combination for which the rule did not fire -> jobs, and successes.
        self._unmet: dict[str, tuple[int, int]] = {}

    def asked(self, firing: Firing, indices: Collection[int]) -> bool:
        """Count jobs that are asked for; return False if there are too many combinations.

        Jobs that run again by themselves, and copies, are those that were asked for before.
        """
        again = firing.rule == RETRY_RULE and not firing.rerun
        return again or self._count(firing, indices)

    def anew(self, present: Iterable[tuple[Firing, Collection[int]]]) -> None:
        """Begin all counts anew, after the end of the ensemble, with the jobs that are present.

        What runs again then is asked for once more.
        """
        for counts in self._counts.values():
            counts[:2] = 0, 0
        for firing, indices in present:
            self._count(firing, indices)

    def _count(self, firing: Firing, indices: Collection[int]) -> bool:
        if firing.group not in self._bits or firing.work is not None:
            return True
        bit = self._bits[firing.group]
        for name, jobs in self._names[firing.group].tally(firing, indices):
            counts = self._counts.setdefault(values_in(name), [0, 0, 0])
            counts[0] += jobs
            counts[2] |= bit
        return len(self._counts) <= MAX_COMBINATIONS

    def succeeded(self, firing: Firing, index: int) -> None:
        """Count a job that has succeeded, and is over."""
        if firing.group in self._bits:
            name = self._names[firing.group].name(firing, index)
            self._counts.setdefault(values_in(name), [0, 0, 0])[1] += 1

    def begun(self, values: str) -> bool:
        """Return whether every group has had a job of a combination."""
        return len(self._bits) == 1 or self._counts.get(values, (0, 0, 0))[2] == self._all

    def of(self, values: str) -> Mapping[str, int]:
        """Return how the jobs of a combination went, by name in expressions.

        A job that was thought lost can succeed after the rule was looked at, and counts then.
        """
        asked, success, _ = self._counts.get(values, (0, 0, 0))
        jobs = max(asked, success)
        return {IDLE_JOBS: jobs, IDLE_SUCCESS: success, IDLE_FAILED: jobs - success}

    def looked_at(self, values: str, fired: bool, *, may_fire: bool = True) -> None:
        """Begin the counts of an idle combination anew.

        Args:
            values: of the combination.
            fired: the rule has fired, so each group is to have a job again before the next time.
            may_fire: the rule had repetitions left for it.
        """
        if fired:
            self._counts.pop(values, None)
            self._unmet.pop(values, None)
        else:
            if may_fire:
                went = self.of(values)
                self._unmet[values] = went[IDLE_JOBS], went[IDLE_SUCCESS]
            self._counts[values] = [0, 0, self._counts.get(values, (0, 0, 0))[2]]

    def missing(self) -> Iterator[str]:
        """Yield, for each group that lacks combinations that others have, a sentence about them."""
        for group, bit in self._bits.items():
            lacking = [values for values, counts in self._counts.items() if not counts[2] & bit]
            if lacking and len(self._bits) > 1:
                which = listed(filter(None, map(_shown, lacking)))
                values = "" if lacking == [""] else f" with {which}"
                yield f"no job of group {group!r} was submitted{values}"

    def unmet(self, read: Callable[[Mapping[str, Any]], str]) -> str | None:
        """Return, in words, for which idle combinations the rule did not fire; None if for none.

        Args:
            read: returns what the condition of the rule reads for a combination; "" if nothing.
        """
        each = []
        for values, (jobs, success) in self._unmet.items():
            which, failed = _shown(values), jobs - success
            went = f"{failed} of {counted(jobs, 'job')} failed"
            went = ", ".join(filter(None, (went, read(parse_name(values)[1]))))
            each.append(f"{which} ({went})" if which else went)
        if not each:
            return None
        return f"did not fire {'for' if '' not in self._unmet else 'when idle:'} {listed(each)}"

    def dump(self) -> list[Any]:
        """Return the counts as JSON, and those with which the rule did not fire, if it did not."""
        return [
            [values, *counts, *self._unmet.get(values, ())]
            for values, counts in self._counts.items()
        ]

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Set the counts from the result of `dump`."""
        for values, jobs, success, bits, *unmet in rows:
            self._counts[values] = [jobs, success, bits]
            if unmet:
                self._unmet[values] = unmet[0], unmet[1]


def _shown(values: str) -> str:
    """Return the values of a combination as people write them."""
    return " ".join(each_pair(parse_name(values)[1]))


def values_in(name: str | None) -> str:
    """Return the values in the name of a combination, as JSON; "" for a group, or all jobs.

    >>> values_in('md{"t":300}'), values_in("md{}"), values_in("md")
    ('{"t":300}', '', '')
    """
    _, brace, rest = (name or "").partition("{")
    return "" if rest == "}" else brace + rest
