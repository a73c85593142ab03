"""The algorithm `retry-with-more`: a failed job runs again, with more time or resources."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from flux_ensemble.algorithms.algorithm import GROUP, Algorithm, ArgumentError, Plain

#: The default number of attempts after the first, if it does not follow from a bound.
_TIMES = 3

#: The most attempts after the first.
_MOST_TIMES = 100

#: Key of a resource -> the expression for the amount that a job had.
_FIELDS = {
    "duration": "job.duration",
    "nodes": "job.nnodes",
    "cores": "job.ncores // job.ntasks",
}


def _more(text: str, most: dict[str, Any]) -> dict[str, Any]:
    factor = {
        "type": "number",
        "exclusiveMinimum": 1,
        "title": "a number > 1",
        "description": "What it is multiplied by each time.",
    }
    return {
        "type": ["number", "object"],
        "title": "a number > 1, or a mapping such as {factor: 2, most: LIMIT}",
        "description": text,
        "exclusiveMinimum": 1,
        "properties": {"factor": factor, "most": most},
        "required": ["factor"],
        "additionalProperties": False,
        "examples": [2],
    }


def _most(text: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "title": "an integer >= 1", "description": text}


_ARGUMENTS = {
    "group": GROUP,
    "duration": {
        **_more(
            "More time: the time limit of the group is multiplied by this.",
            {
                "type": ["number", "string"],
                "format": "duration",
                "title": "a duration",
                "description": "The longest time limit.",
            },
        ),
        "examples": [2, {"factor": 2, "most": "8h"}],
    },
    "nodes": _more("More nodes.", _most("The most nodes.")),
    "cores": _more(
        "More cores for each task; where a job gets memory with its cores, more memory too.",
        _most("The most cores of a task."),
    ),
    "memory": {
        "type": "object",
        "title": "a mapping such as {variable: MEMORY, first: 4, factor: 2, most: 64}",
        "description": "More memory, for programs that an environment variable tells how much "
        "they may use. Flux itself does not share out memory.",
        "properties": {
            "variable": {
                "type": "string",
                "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                "title": "the name of an environment variable",
                "description": "The variable. The group has it from its first attempt on.",
                "default": "MEMORY",
            },
            "first": {**_most("Its first value, in any unit."), "examples": [4]},
            "factor": {
                "type": "integer",
                "minimum": 2,
                "title": "an integer >= 2",
                "description": "What it is multiplied by each time.",
                "default": 2,
            },
            "most": _most("Its greatest value."),
        },
        "required": ["first"],
        "additionalProperties": False,
        "examples": [{"variable": "MEMORY", "first": 4, "most": 64}],
    },
    "on": {
        "type": ["string", "array"],
        "items": {"type": "string", "title": "an outcome or an expression"},
        "minItems": 1,
        "title": "an outcome or an expression, or a list of them",
        "description": "After what a job runs again, as in `retries`. The default is timeout where "
        "only the duration grows, else failed and timeout.",
        "examples": [["timeout", "job.returncode == 137"]],
    },
    "times": {
        "type": "integer",
        "minimum": 1,
        "maximum": _MOST_TIMES,
        "title": f"an integer >= 1 and <= {_MOST_TIMES}",
        "description": "How often a job runs again at most. The default is as often as it takes to "
        f"get to what is most, where that is given and known, else {_TIMES}.",
        "examples": [4],
    },
    "after": {
        "type": ["number", "string"],
        "format": "duration",
        "title": "a duration",
        "description": "How long it waits before.",
        "default": 0,
    },
}


def _expand(arguments: Plain, document: Plain) -> Plain:
    group = arguments["group"]
    entries = [entry for entry in document.get("jobs", ()) if entry.get("name") == group]
    wanted = {key: _pair(arguments[key]) for key in _FIELDS if key in arguments}
    memory = arguments.get("memory")
    if not wanted and memory is None:
        raise ArgumentError("algorithm", "give what is to be more: duration, nodes, cores, memory")
    if "duration" in wanted and any(entry.get("duration", 0) == 0 for entry in entries):
        raise ArgumentError(
            "duration", f"group {group!r} has no 'duration', so there is no time limit to multiply"
        )
    needed = [
        steps
        for key, (factor, most) in wanted.items()
        if most is not None
        for steps in _steps(entries, key, factor, most)
    ]
    if memory is not None and "most" in memory:
        if memory["first"] >= memory["most"]:
            raise ArgumentError(
                "memory", f"expected 'most' above 'first', {memory['first']}, not {memory['most']}"
            )
        needed.append(_until(memory["first"], memory.get("factor", 2), memory["most"]))
    times = arguments.get("times", max(needed, default=_TIMES))
    with_: dict[str, Any] = {
        key: _expression(key, factor, most) for key, (factor, most) in wanted.items()
    }
    added: dict[str, Any] = {}
    if memory is not None:
        variable = memory.get("variable", "MEMORY")
        added["environment"] = {variable: memory["first"]}
        with_["environment"] = {variable: _memory(memory, times)}
    only_time = wanted.keys() == {"duration"} and memory is None
    retries: dict[str, Any] = {
        "times": times,
        "on": arguments.get("on", "timeout" if only_time else ["failed", "timeout"]),
        "with": with_,
    }
    if arguments.get("after"):
        retries["after"] = arguments["after"]
    return {"groups": {group: {**added, "retries": retries}}}


def _pair(value: Any) -> tuple[float, float | None]:
    """Return the factor, and the bound or None."""
    return (value["factor"], value.get("most")) if isinstance(value, dict) else (value, None)


def _steps(entries: list[Any], key: str, factor: float, most: float) -> Iterator[int]:
    """Yield for each entry of a group the number of multiplications that reach the bound.

    An entry whose value is not known, since it is an expression, is left out.

    Raises:
        ArgumentError: the value of an entry is not below the bound.
    """
    for entry in entries:
        first = entry.get(key, 1)
        if isinstance(first, int | float):
            if first >= most:
                has = f"{first:g} {'seconds' if key == 'duration' else key}"
                raise ArgumentError(
                    key,
                    f"expected 'most' above what group {entry['name']!r} has, {has}, not {most:g}",
                )
            yield _until(first, factor, most)


def _until(first: float, factor: float, most: float) -> int:
    return max(1, min(_MOST_TIMES, math.ceil(math.log(most / first) / math.log(factor) - 1e-9)))


def _expression(key: str, factor: float, most: float | None) -> str:
    text = f"{_FIELDS[key]} * {_number(factor)}"
    if key != "duration" and factor != int(factor):
        text = f"-(-({text}) // 1)"  # the next integer
    return f"{{{text}}}" if most is None else f"{{min({text}, {_number(most)})}}"


def _memory(memory: Plain, times: int) -> str:
    """Return the expression for the memory after attempt `job.attempt`.

    The memory is first * factor ** (job.attempt + 1). Expressions have no powers, so the expression
    is the maximum of the straight lines through successive values.
    """
    factor = memory.get("factor", 2)
    most = memory.get("most", math.inf)
    values = [memory["first"] * factor ** (attempt + 1) for attempt in range(times)]
    lines: list[str] = []
    for attempt, (low, high) in enumerate(pairwise(values)):
        if lines and low >= most:
            break
        lines.append(_line(high - low, low - (high - low) * attempt))
    text = lines[0] if lines else str(values[0])
    if len(lines) > 1:
        text = f"max({', '.join(lines)})"
    return f"{{{text}}}" if most == math.inf else f"{{min({text}, {most})}}"


def _line(slope: int, start: int) -> str:
    if start == 0:
        return f"{slope} * job.attempt"
    return f"{slope} * job.attempt {'-' if start < 0 else '+'} {abs(start)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


RETRY_WITH_MORE = Algorithm(
    "A job that failed, or ran out of time, runs again with more time, nodes, cores or memory, up "
    "to a bound.",
    _ARGUMENTS,
    ("group",),
    _expand,
)
