"""The border between a program and the package: what a mistake of the program looks like.

A mistake, in a document or in a call, is told in a sentence, below the line of the program that
made it. The frames of the package, which say nothing about it, are left out of the traceback; those
of any other error stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, isfunction, signature
from typing import ParamSpec, TypeVar

from flux_ensemble.bindings import BindingsError
from flux_ensemble.client import EnsembleError
from flux_ensemble.document.problems import DocumentError
from flux_ensemble.suggestions import hint

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)

#: Words for the end of jobs that `outcome` has.
_OF_OUTCOME = ("status", "state", "result")


class MisuseError(Exception):
    """A mistake of the program, other than in a document or in a request."""


class WrongArgumentError(MisuseError, TypeError):
    """An argument that a method does not take."""


class WrongValueError(MisuseError, ValueError):
    """An argument with a value that a method does not take."""


#: What has a sentence for the program, so that frames of the package say no more. A `TimeoutError`
#: is the end of a wait, and the note of an interrupt says what goes on.
TOLD = (
    DocumentError,
    EnsembleError,
    BindingsError,
    MisuseError,
    TimeoutError,
    KeyboardInterrupt,
)


def told_shortly(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Make a method leave its own frames out of the tracebacks of mistakes.

    >>> told_shortly(lambda self, *, group=None: None)(None, groups=1)
    Traceback (most recent call last):
    TypeError: <lambda>: unknown argument 'groups' (did you mean 'group'? arguments: group)
    """
    known = dict(list(signature(function).parameters.items())[1:])
    kinds = [parameter.kind for parameter in known.values()]

    @wraps(function)
    def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if Parameter.VAR_KEYWORD not in kinds:
            for name in (name for name in kwargs if name not in known):
                raise TypeError(_unknown(function.__name__, name, list(known)))
        if len(args) - 1 > sum(kind is Parameter.POSITIONAL_OR_KEYWORD for kind in kinds):
            listed = ", ".join(f"{name}=" for name in known) or "none"
            raise TypeError(f"{function.__name__}: its arguments are keywords: {listed}")
        try:
            return function(*args, **kwargs)
        except TOLD as error:
            raise error.with_traceback(None) from None

    return called


def tell_shortly(ensemble: _Class) -> _Class:
    """Make all public methods of a class do as `told_shortly`, but those that are wrapped already.

    Coroutines have tracebacks of their own.
    """
    for name, method in list(vars(ensemble).items()):
        awaited = iscoroutinefunction(method) or isasyncgenfunction(method)
        if isfunction(method) and not (
            name.startswith("_") or awaited or hasattr(method, "__wrapped__")
        ):
            setattr(ensemble, name, told_shortly(method))
    return ensemble


def _unknown(method: str, name: str, known: list[str]) -> str:
    """Return the sentence about an argument that a method does not have.

    >>> print(_unknown("jobs", "status", ["filter", "outcome"]))
    jobs: unknown argument 'status' (write outcome='failed', or filter='job.state == "running"'; ...
    """
    near = hint(name, known)
    if name in _OF_OUTCOME and "outcome" in known:
        near = "write outcome='failed', or filter='job.state == \"running\"'; "
    return f"{method}: unknown argument {name!r} ({near}arguments: {', '.join(known) or 'none'})"
