"""A parameter in whose place an f-string has put a value of the program, so that no job gets it.

`command=f"md -t {t}"` is a habit of those who write Python. The text that arrives has no braces any
more, and every job runs the same command. The line of the program shows it.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from typing import Any

from flux_ensemble.entries import DocumentEntry


def replaced(entry: Any) -> str | None:
    """Return a parameter of a job group that an f-string has replaced in its command; None if none.

    A parameter with one value may be there for the record.

    >>> replaced({"name": "md", "command": "md -t 300", "params": {"t": [280, 300]}})
    """
    if not isinstance(entry, DocumentEntry) or entry.place is None:
        return None
    params, command = entry.get("params"), str(entry.get("command"))
    if not isinstance(params, Mapping):
        return None
    suspects = {
        name
        for name, values in params.items()
        if not isinstance(values, str | int | float) and f"{{{name}" not in command
    }
    return next(_formatted(*entry.place, suspects), None) if suspects else None


def _formatted(file: str, line: int, names: set[Any]) -> Iterator[str]:
    """Yield the names that f-strings of a call's `command` format, in the call on a line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return  # no program, or one that has changed
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or 0):
            commands = [keyword.value for keyword in call.keywords if keyword.arg == "command"]
            for node in (node for command in commands for node in ast.walk(command)):
                value = node.value if isinstance(node, ast.FormattedValue) else None
                if isinstance(value, ast.Name) and value.id in names:
                    yield value.id
