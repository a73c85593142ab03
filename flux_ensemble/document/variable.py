"""Sizes of jobs that differ from job to job: `tasks: "{n}"`, with a parameter of the sweep."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flux_ensemble.document.bounds import MAX_VALUES
from flux_ensemble.document.keys.forms import Key
from flux_ensemble.document.keys.jobs import JOB_KEYS
from flux_ensemble.document.keys.overrides import Whole
from flux_ensemble.document.texts import filler, placeholders
from flux_ensemble.document.values import Steps
from flux_ensemble.scalars import as_text, number, numbers, plain_scalar
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: An integer; steps are floats, such as 4.0.
_INTEGER = re.compile(r"([0-9]{1,12})(\.0*)?", re.ASCII)


def _reader(key: Key) -> Callable[[str], Any]:
    if "integer" not in key.form["type"]:
        assert key.read is not None
        return key.read
    whole = Whole.of(key.form)

    def read(text: str) -> int:
        match = _INTEGER.fullmatch(text)
        return whole.check(None if match is None else int(match[1]), text)

    return read


#: Keys of a job group that can be text with a parameter -> what reads the text when it is filled
#: in, or raises ValueError.
VARIABLE: Mapping[str, Callable[[str], Any]] = {
    key.name: _reader(key) for key in JOB_KEYS if key.parameter
}


def resolve(variable: Mapping[str, str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one job.

    Args:
        variable: field -> its text, which `check_variable` has checked.
        params: the job's parameters.

    >>> resolve({"tasks": "{n}", "duration": "{n}m"}, {"n": 2})
    {'tasks': 2, 'duration': 120.0}
    """
    # A size is a number, however that is written.
    fill = filler(numbers(params))
    return {key: VARIABLE[key](fill(text)) for key, text in variable.items()}


def variable_text(key: str, text: str, params: Mapping[str, Any]) -> str:
    """The parameter that a text is filled in with.

    Args:
        key: of `VARIABLE`.
        text: the key's value.
        params: the parameters that the entry declares.

    Raises:
        ValueError: it has no parameter of the entry, or more than one.

    >>> variable_text("duration", "{minutes}m", {"minutes": (5, 10)})
    'minutes'
    """
    names = placeholders(text)
    if not names:
        number = plain_scalar(text) if text else None
        said = f" (write {text})" if type(number) is int else ""
        raise ValueError(
            f"expected a number, or text with a parameter such as '{{n}}', not {shown(text)}{said}"
        )
    if len(names) > 1:
        raise ValueError(f"expected text with one parameter such as '{{n}}', not {shown(text)}")
    (name,) = names
    if name not in params:
        known = f"{hint(name, params)}parameters: {listed(params)}"
        raise ValueError(f"{shown(text)} names no parameter of the entry ({known})")
    return name


class VariableCheck:
    """Checks that every value of a parameter makes a field, each kind of text once.

    >>> VariableCheck().check("tasks", "{n}", "n", (1, "many"))
    Traceback (most recent call last):
    ValueError: expected an integer >= 1, not 'many', which is a value of the parameter 'n'
    """

    def __init__(self) -> None:
        self._checked: dict[tuple[str, str, int], Sequence[Any]] = {}
        self._values = 0

    def check(self, key: str, text: str, name: str, values: Sequence[Any]) -> None:
        """Check the values of the parameter `name` that a field's text is filled in with.

        Raises:
            ValueError: one makes no field, or there are too many to look at.
        """
        # The values are kept, so no others can have their identity.
        known = key, text, id(values)
        if known in self._checked:
            return
        for value in map(number, self._looked_at(values)):
            filled = filler({name: value})(text)
            try:
                VARIABLE[key](filled)
            except ValueError as error:
                raise ValueError(
                    f"{error}, which is a value of the parameter {name!r}"
                    if filled == as_text(value)
                    else f"{error}, with {shown(value)} for the parameter {name!r}"
                ) from None
        self._checked[known] = values

    def _looked_at(self, values: Sequence[Any]) -> Sequence[Any]:
        if isinstance(values, (range, Steps)):
            # They go one way; and where the first two are integers, so are all.
            return [values[0], values[min(1, len(values) - 1)], values[-1]]
        self._values += len(values)
        if self._values > MAX_VALUES:
            raise ValueError(
                f"expected at most {MAX_VALUES} values of parameters in the sizes of jobs"
            )
        return values
