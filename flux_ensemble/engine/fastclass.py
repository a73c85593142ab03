"""Frozen dataclasses that are fast to create.

A frozen dataclass sets each field through `object.__setattr__`, so it takes three times as long to
create, and there are millions of events and commands. The dataclasses here are frozen for the type
checker only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def fastclass(cls: type[T]) -> type[T]:
    """Make a dataclass with slots that the type checker treats as frozen.

    >>> @fastclass
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
