"""Reads the journals of Optuna, with nothing but JSON: each line of one is an operation.

So what a document names is understood where Optuna is not installed, as in a replay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The operations that say what studies and trials are, and the states of Optuna that count.
_STUDY, _DELETED, _ATTRIBUTE, _TRIAL, _PARAM, _END = 0, 1, 2, 4, 5, 6
_MAXIMIZE, _COMPLETE = 2, 1


@dataclass
class JournalTrial:
    """A trial: its parameters, its values if it is complete, and whether it is."""

    params: dict[str, Any] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)
    complete: bool = False


@dataclass
class JournalStudy:
    """A study: its name, which of its objectives are to be large, and its trials.

    `objectives` has their names, if it is one of our exports.
    """

    name: str
    maximize: list[bool]
    objectives: list[str] = field(default_factory=list)
    trials: list[JournalTrial] = field(default_factory=list)


def studies(file: str, text: str) -> list[JournalStudy]:
    """Return the studies of a journal.

    Args:
        file: its name.
        text: its content.

    Raises:
        ValueError: it is no journal; the message begins with the file and the line.

    >>> studies("a.journal", '{"op_code": 0, "study_name": "a", "directions": [1]}\\n')[0].maximize
    [False]
    >>> studies("a.journal", "x")
    Traceback (most recent call last):
    ValueError: a.journal:1: expected a line of a journal of Optuna
    """
    journal = _Journal()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            journal.take(json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            # The last line of a program that was killed may be cut short.
            if number < len(lines) or number == 1:
                expected = "expected a line of a journal of Optuna"
                raise ValueError(f"{file}:{number}: {expected}") from None
    return [study for study in journal.studies if study is not None]


class _Journal:
    """The studies of a journal by their numbers, None for those that were deleted."""

    def __init__(self) -> None:
        self.studies: list[JournalStudy | None] = []
        self._trials: list[JournalTrial] = []

    def take(self, line: Mapping[str, Any]) -> None:
        """Take in an operation."""
        code = line["op_code"]
        if code == _STUDY:
            maximize = [one == _MAXIMIZE for one in line["directions"]]
            self.studies.append(JournalStudy(str(line["study_name"]), maximize))
        elif code == _DELETED:
            self.studies[line["study_id"]] = None
        elif code == _ATTRIBUTE:
            study, names = self.studies[line["study_id"]], line["user_attr"].get("objectives")
            if study is not None and isinstance(names, list):
                study.objectives = list(map(str, names))
        elif code == _TRIAL:
            self._begin(line)
        elif code == _PARAM:
            trial = self._trials[line["trial_id"]]
            value = _external(line["distribution"], line["param_value_internal"])
            trial.params[line["param_name"]] = value
        elif code == _END:
            _end(self._trials[line["trial_id"]], line)

    def _begin(self, line: Mapping[str, Any]) -> None:
        study = self.studies[line["study_id"]]
        # Of a deleted study there are no trials with numbers.
        if study is None:
            return
        of = line.get("distributions", {})
        params = {name: _external(of[name], one) for name, one in line.get("params", {}).items()}
        trial = JournalTrial(params)
        _end(trial, line)
        self._trials.append(trial)
        study.trials.append(trial)


def _end(trial: JournalTrial, line: Mapping[str, Any]) -> None:
    values = line.get("values")
    if values is None:
        values = [] if line.get("value") is None else [line["value"]]
    trial.values = list(values)
    trial.complete = line.get("state") == _COMPLETE


def _external(distribution: str, internal: Any) -> Any:
    """Return a parameter of the number that a journal has in its place."""
    of = json.loads(distribution)
    if of["name"] == "CategoricalDistribution":
        return of["attributes"]["choices"][int(internal)]
    return int(internal) if of["name"] == "IntDistribution" else float(internal)
