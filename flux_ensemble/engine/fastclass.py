"""Dataclasses that are frozen and made fast.

A frozen dataclass sets each of its fields through `object.__setattr__`, which makes it three
times slower to make, and events and commands are made by the million. That they are never
changed is left to the type checker, which sees these as frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def fastclass(cls: type[T]) -> type[T]:
    """Make a dataclass with slots that the type checker takes for frozen.

    >>> @fastclass
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1)
    Point(x=1, y=0)
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
