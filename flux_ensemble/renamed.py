"""Former names that users know, each with the new one.

The former names work for one release, with a warning. To end that, delete the line here. Former
names of keys of documents are in `document.keys`: `Key.formerly`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Mapping
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

#: Options of commands, without their dashes -> the options that took their place. A command has
#: one of these at most.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "member": ("queue", "cluster"),
    "executor": ("queue",),
    "min-size": ("min-nodes",),
    "max-size": ("max-nodes",),
}

#: Arguments of functions in Python, in the same way.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {"member": ("queue", "cluster")}


#: Keys of the table [ensemble] in the configuration of an instance.
SETTINGS: Mapping[str, str] = {
    "min-size": "min-nodes",
    "max-size": "max-nodes",
    "grpc-member": "grpc-cluster",
}


def renamed(old: str, names: Mapping[str, tuple[str, ...]], known: Container[str]) -> str | None:
    """Return what a name is called now, or None if it was not renamed.

    Args:
        old: the name.
        names: old names -> new ones.
        known: the names that are valid in this place.

    >>> renamed("member", OPTIONS, ["queue", "state-dir"])
    'queue'
    >>> renamed("member", OPTIONS, ["member"]), renamed("queue", OPTIONS, ["queue"])
    (None, None)
    """
    if old in known:
        return None
    return next((new for new in names.get(old, ()) if new in known), None)


def deprecated(old: str, new: str) -> str:
    """Return the warning about an old name.

    >>> deprecated("--member", "--queue")
    '--member is deprecated: use --queue'
    """
    return f"{old} is deprecated: use {new}"


def takes_old_arguments(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Make a function accept arguments by their former names."""
    known = frozenset(signature(function).parameters)

    @wraps(function)
    def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for old in [key for key in kwargs if key in ARGUMENTS]:
            new = renamed(old, ARGUMENTS, known)
            if new is None:
                continue
            if new in kwargs:
                raise TypeError(f"{old} and {new} are the same argument: give {new} alone")
            warnings.warn(deprecated(f"{old}=", f"{new}="), DeprecationWarning, stacklevel=2)
            kwargs[new] = kwargs.pop(old)
        return function(*args, **kwargs)

    return called
