"""The process in which an algorithm of another package runs.

It reads a request from standard input and writes the answer to standard output, both as JSON:

    {"call": "describe"}                         {"schema": {...}}
    {"call": "expand", "arguments", "document"}  {"expansion": {...}} or {"argument", "message"}

The answer to either request may also be {"failure": "raised ..."}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from copy import deepcopy
from typing import Any

#: The most characters of an answer.
MAX_ANSWER = 8 * 1024 * 1024


class Failed(Exception):
    """The failure of an algorithm, or an entry point that is none; the text is the predicate."""


def answer_to(value: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request.

    Args:
        value: the value of the entry point: MODULE:NAME.
        request: the request, as described above.
    """
    from flux_ensemble.algorithms.algorithm import ArgumentError

    try:
        algorithm = _algorithm(value)
        if request["call"] == "describe":
            return {"schema": _plain(algorithm.schema, "a schema")}
        made = [
            _plain(algorithm.expand(*deepcopy((request["arguments"], request["document"]))), "data")
            for _ in range(2)
        ]
    except ArgumentError as error:
        return {"argument": str(error.argument), "message": str(error)}
    except Failed as failed:
        return {"failure": str(failed)}
    except BaseException as error:
        return {"failure": f"raised {type(error).__name__}: {error}{_where(error)}"}
    if made[0] != made[1]:
        return {"failure": "made two different things of the same arguments and document"}
    return {"expansion": made[0]}


def _algorithm(value: str) -> Any:
    from flux_ensemble.algorithms.algorithm import Algorithm

    module, _, name = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in name.strip().split("."):
        found = getattr(found, part)
    if not isinstance(found, Algorithm):
        kind = type(found).__name__
        raise Failed(f"is no flux_ensemble.algorithms.Algorithm, but of type {kind!r}: {value}")
    return found


def _plain(value: Any, what: str) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Failed(f"made no {what} that JSON can hold: {error}") from None
    if len(text) > MAX_ANSWER:
        raise Failed(f"made {len(text)} characters of JSON, more than {MAX_ANSWER}")
    return json.loads(text)


def _where(error: BaseException) -> str:
    """Return the last place of an error in the algorithm's code, in brackets; "" if unknown."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename not in (__file__, importlib.__file__)]
    own = [frame for frame in own if not frame.filename.startswith("<frozen")]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def main() -> None:
    """Answer the request on standard input."""
    # Text that the algorithm prints is redirected to standard error, apart from the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    answer = answer_to(sys.argv[1], json.load(sys.stdin))
    with os.fdopen(out, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
