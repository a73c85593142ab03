"""Reads `retries` of a job group: how often a job that failed runs again, when and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flux_ensemble.document.keys.jobs import RETRIES_KEYS
from flux_ensemble.document.keys.overrides import GIVEN, OF_EACH, OVERRIDES, merged
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.templates import Template, compiled, has_braces
from flux_ensemble.metrics.conditions import Names, Variable
from flux_ensemble.metrics.expressions import Expression
from flux_ensemble.metrics.names import OUTCOMES
from flux_ensemble.scalars import packed
from flux_ensemble.suggestions import hint

#: Most seconds that a factor makes of the time until a job runs again: a year.
MAX_DELAY = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of the jobs of a job set.

    Attributes:
        times: how often, at most.
        outcomes: after which outcomes.
        conditions: expressions; where one of them is true it runs again too.
        after: seconds until then.
        factor: what the seconds are multiplied by from one time to the next.
        overrides: what is other than before, as in the document, maybe with expressions.
        spread: "node" if it runs again on another member or node than those that it failed on.

    >>> Retries(3, after=30.0, factor=2.0).delay(2)
    120.0
    """

    times: int = 0
    outcomes: frozenset[str] = frozenset({"failed"})
    conditions: tuple[str, ...] = ()
    after: float = 0.0
    factor: float = 1.0
    overrides: Mapping[str, Any] | None = None
    spread: str | None = None

    def delay(self, attempt: int) -> float:
        """Seconds from the end of attempt `attempt`, counted from 0, until the next one."""
        try:
            return min(self.after * self.factor**attempt, max(self.after, MAX_DELAY))
        except OverflowError:
            return max(self.after, MAX_DELAY)


class Policy:
    """Retries with their expressions compiled.

    Args:
        retries: of a job set.
        names: resolves the names in the expressions.

    Attributes:
        fixed: what is other than before whatever job it is, without expressions.

    Raises:
        ValueError: an expression or a value is invalid; the message begins with its key.

    >>> from flux_ensemble.metrics.columns import Known
    >>> from flux_ensemble.metrics.job_fields import scope_of
    >>> names = Names([], [], None, scope_of("job-fail", Known.END, []))
    >>> policy = Policy(Retries(1, conditions=("job.returncode == 3",)), names)
    >>> policy.applies("canceled", lambda variable: 3)
    True
    """

    __slots__ = ("_conditions", "_values", "fixed", "retries")

    def __init__(self, retries: Retries, names: Names) -> None:
        self.retries = retries
        self._conditions: list[Expression[Variable]] = []
        for text in retries.conditions:
            try:
                self._conditions.append(compiled(text, names))
            except ValueError as error:
                near = hint(text, OUTCOMES)
                raise ValueError(f"on: {error}{near and f' ({near.strip()})'}") from None
        self.fixed: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        for key, value in (retries.overrides or {}).items():
            try:
                if has_braces(value):
                    self._values[key] = Template.within(value, names, key in OF_EACH)
                else:
                    self.fixed[key] = _READ[key](value)
            except ValueError as error:
                raise ValueError(f"with.{key}: {error}") from None

    def applies(self, outcome: str, lookup: Callable[[Variable], Any]) -> bool:
        """Return True if a job that ended with this outcome is to run again.

        Args:
            outcome: of the job.
            lookup: returns the value of a variable.
        """
        return outcome in self.retries.outcomes or any(
            condition.holds(lookup) for condition in self._conditions
        )

    def overrides(
        self, lookup: Callable[[Variable], Any], before: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the overrides of the next attempt: over those before, fixed and computed ones.

        Args:
            lookup: returns the value of a variable.
            before: the overrides of the attempt that ended.

        Raises:
            ValueError: an expression has no value, or one that does not fit.
        """
        overrides = dict(self.fixed)
        for key, value in self._values.items():
            try:
                overrides[key] = _READ[key](Template.filled(value, lookup))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return merged(before or {}, overrides) or None


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of parameters as JSON that keeps their spellings."""
    return {name: packed(value) for name, value in values.items()}


#: The keys of `with` -> what reads a value, or raises ValueError.
_READ: Mapping[str, Callable[[Any], Any]] = {**OVERRIDES, GIVEN: _given}


def read_retries(value: Any, problems: Problems, at: Path) -> Retries:
    """Read `retries`, of which `check_form` has checked the form.

    Args:
        value: a number, or a mapping with `times`.
        problems: collects the problems.
        at: the path of the value.

    >>> read_retries({"times": 2, "on": ["timeout"], "after": "30s"}, Problems(), ()).after
    30.0
    """
    if not isinstance(value, dict):
        return Retries(value)
    on = value.get("on", ["failed"])
    texts = on if isinstance(on, list) else [on]
    if "success" in texts:
        problems.add((*at, "on"), "a job that succeeded does not run again")
    return Retries(
        outcomes=frozenset(text for text in texts if text in OUTCOMES),
        conditions=tuple(text for text in texts if text is not None and text not in OUTCOMES),
        **read_keys(RETRIES_KEYS, value, problems, at),
    )
