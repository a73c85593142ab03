"""Reads `simulate:`: how the jobs of each group behave in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from flux_ensemble.document.distributions import (
    Computed,
    Constant,
    Drawable,
    Empirical,
    Exponential,
    FromLog,
    Lognormal,
    Normal,
    Param,
    Simulated,
    Uniform,
    unknown,
)
from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Path, Problems, TooMany
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.values import texts_among
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: Makes a number of a value in the document.
_Number = Callable[[Any], float]


def read_simulate(
    section: Mapping[str, Any],
    groups: Mapping[str, Group],
    names: Collection[str],
    problems: Problems,
) -> dict[str, Simulated]:
    """Read the section.

    Args:
        section: its valid part, as `check_form` returns it.
        groups: the groups without problems.
        names: the names of all groups, with problems or not.
        problems: collects the problems.

    >>> groups = {"md": Group("md", ())}
    >>> read_simulate({"md": {"duration": "10m"}}, groups, groups, Problems())["md"].duration
    Constant(value=600.0)
    """
    simulated: dict[str, Simulated] = {}
    ordered = sorted(names)
    for name, behaviour in section.items():
        at: Path = ("simulate", name)
        if name not in names:
            known = f"{hint(name, ordered)}groups: {listed(ordered)}"
            problems.add(at, f"no job group named {name!r} ({known})")
        elif name in groups:
            simulated[name] = _Reader(groups[name], problems, at).read(behaviour)
    return simulated


def override_duration(simulated: Simulated, value: Any, group: Group) -> Simulated:
    """Replace the duration of a group's simulated jobs.

    Raises:
        ValueError: the value is not a distribution of durations.

    >>> override_duration(Simulated(), {"exponential": {"mean": "5m"}}, Group("md", ())).duration
    Exponential(mean=300.0)
    """
    problems = Problems()
    entry = {"duration": value}
    read = simulated
    with suppress(TooMany):
        left = check_form("simulated", entry, problems, wrong=check_plain(entry, problems)) or {}
        read = _Reader(group, problems, ()).read(left)
    if problems:
        raise ValueError(problems.sentences())
    return replace(simulated, duration=read.duration)


def read_seconds(value: Any, problems: Problems, at: Path) -> Drawable | None:
    """The distribution of a duration that is none of a job's; None where there is a problem.

    >>> read_seconds({"exponential": {"mean": "5m"}}, Problems(), ())
    Exponential(mean=300.0)
    """
    return _Reader(Group("", ()), problems, at).seconds(value)


class _Reader:
    """Reads what the section says of one group."""

    def __init__(self, group: Group, problems: Problems, at: Path) -> None:
        self._group = group
        self._problems = problems
        self._at = at
        #: parameter -> why it is none that can be drawn.
        self._unfit: dict[str, str] = {}

    def read(self, entry: Mapping[str, Any]) -> Simulated:
        """Read the simulated behaviour of the group from its entry."""
        startup = self._drawable(entry.get("startup"), ("startup",), _seconds)
        assert not isinstance(startup, FromLog)
        memo = {
            key: self._computed(value, ("memo", key))
            if isinstance(value, dict) and "expression" in value
            else self._drawable(value, ("memo", key), float)
            for key, value in entry.get("memo", {}).items()
        }
        return Simulated(
            duration=self._distribution(entry.get("duration")),
            failure_rate=float(entry.get("failure-rate", 0.0)),
            startup=startup,
            memo={key: value for key, value in memo.items() if value is not None},
        )

    def seconds(self, value: Any) -> Drawable | None:
        """The distribution of a duration."""
        return self._drawable(value, (), _seconds)

    def _distribution(self, value: Any) -> Drawable | FromLog | None:
        if isinstance(value, dict) and "from-log" in value:
            return FromLog(value["from-log"])
        return self._drawable(value, ("duration",), _seconds)

    def _drawable(self, value: Any, path: Path, number: _Number) -> Drawable | None:
        """The distribution at `path`; None where there is none, or a problem."""
        if value is None or self._problems.blames((*self._at, *path)):
            return None
        if isinstance(value, list):
            values = [
                self._number(item, (*path, index), number) for index, item in enumerate(value)
            ]
            return Empirical(tuple(values))
        if not isinstance(value, dict):
            return Constant(self._number(value, path, number))
        ((kind, arguments),) = value.items()
        at = (*path, kind)
        if kind == "param":
            return self._param(arguments, at)
        numbers = {
            key: float(item) if key == "sigma" else self._number(item, (*at, key), number)
            for key, item in arguments.items()
        }
        if kind == "uniform" and numbers["min"] > numbers["max"]:
            low, high = arguments["min"], arguments["max"]
            self._problem(at, f"expected 'min' not above 'max', not {low!r} and {high!r}")
        return _KINDS[kind](**numbers)

    def _computed(self, value: Mapping[str, Any], path: Path) -> Computed | None:
        """Read the expression and steps of a memo's value; None if there is a problem."""
        if self._problems.blames((*self._at, *path)):
            return None
        if ("step" in value) != ("steps" in value):
            self._problem(path, "give both of 'step' and 'steps', or none")
            return None
        path = (*path, "expression")
        try:
            computed = Computed(value["expression"], value.get("step"), value.get("steps", 1))
        except ValueError as error:
            self._problem(path, str(error))
            return None
        for name in unknown(computed, self._group.params):
            known = listed(sorted(self._group.params))
            self._problem(
                path, f"group {self._group.name!r} has no parameter {name!r} (parameters: {known})"
            )
        return computed

    def _param(self, name: str, path: Path) -> Param:
        """The parameter `name`: each job of the group has it, and it is a number."""
        if name not in self._unfit:
            self._unfit[name] = self._why_unfit(name)
        if self._unfit[name]:
            self._problem(path, self._unfit[name])
        return Param(name)

    def _why_unfit(self, name: str) -> str:
        """Return the reason that a parameter cannot be a duration or a number; "" if it can."""
        for jobset in self._group.sets:
            params = jobset.sweep.params or {}
            if name not in params:
                known = listed(sorted(self._group.params))
                return f"group {jobset.name!r} has no parameter {name!r} (parameters: {known})"
            if wrong := texts_among(params[name]):
                return f"the values of parameter {name!r} are to be numbers, not {shown(wrong[0])}"
        return ""

    def _number(self, value: Any, path: Path, number: _Number) -> float:
        try:
            return number(value)
        except ValueError as error:
            self._problem(path, str(error))
            return 0.0

    def _problem(self, path: Path, message: str) -> None:
        self._problems.add((*self._at, *path), message)


def _seconds(value: Any) -> float:
    return parse_duration(value, limit=False)


_KINDS: Mapping[str, Callable[..., Drawable]] = {
    "uniform": Uniform,
    "normal": Normal,
    "lognormal": Lognormal,
    "exponential": Exponential,
}
