"""The functions that `custom` actions can name and call, found without running user code."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed

#: Group of the entry points that are functions for custom actions.
ENTRY_POINTS = "flux_ensemble.actions"

#: What every function is called with, by keyword, and what only those are that take it.
KEYWORDS = ("metrics", "event", "rule", "action", "handle", "ensemble")
STATE = "state"

#: Longest source that is parsed, in characters: parsing takes memory.
MAX_SOURCE = 256 * 1024

#: In a set of names: there may be more.
_ANY = "*"


class SourceError(ValueError):
    """Python source that does not parse. `line` counts from 1; None if unknown."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class FunctionLabels:
    """The functions that the labels of `custom` actions can name.

    Args:
        source: Python source of the document, or None.
        plugins: names of modules. They are not imported, so with plugins any name is accepted.

    >>> functions = FunctionLabels("def next_step(ensemble, **kwargs): ...", plugins=[])
    >>> functions.check("next_step")
    >>> functions.check("nextstep")
    Traceback (most recent call last):
    ValueError: no function named 'nextstep' (did you mean 'next_step'? functions: next_step)
    """

    def __init__(self, source: str | None, plugins: Sequence[str]) -> None:
        self._source = source
        try:
            self._names = defined_names(source) if source is not None else frozenset()
        except SourceError:
            self._source = None
            self._names = frozenset((_ANY,))
        self._open = bool(plugins) or _ANY in self._names

    @cached_property
    def _installed(self) -> frozenset[str]:
        # Late, because few documents need it.
        from importlib.metadata import entry_points

        return frozenset(point.name for point in entry_points(group=ENTRY_POINTS))

    def check(self, label: str) -> None:
        """Check that the function exists and can be called, as far as that is known.

        Raises:
            ValueError: there is no such function, or it cannot be called as functions are.
        """
        if self._source is not None and label in self._names:
            signature = signatures(self._source).get(label)
            objection = None if signature is None else objection_to(signature)
            if objection is not None:
                raise ValueError(f"function {label!r} {objection}")
        if self._open or label in self._names or label in self._installed:
            return
        known = sorted(self._names | self._installed)
        raise ValueError(
            f"no function named {label!r} ({hint(label, known)}functions: {listed(known)})"
        )


def unresolved(spec: Spec) -> list[str] | None:
    """The functions that rules name, if only the process that calls them can tell what there is.

    Returns:
        Their names; None for a document without plugins whose source has all of them, in such a
        way that they are known without running it.

    >>> from flux_ensemble.document.loading import load_text
    >>> text = "rules: [{trigger: start, action: {name: custom, label: f}}]"
    >>> unresolved(load_text(f"{text}\\ncustom: 'def f(**kwargs): ...'", name="demo"))
    >>> unresolved(load_text(f"{text}\\nplugins: [tools]", name="demo"))
    ['f']
    """
    labels = [
        action.label or ""
        for rule in spec.rules
        for action in rule.actions
        if action.name == "custom"
    ]
    names = signatures(spec.custom).keys() if spec.custom is not None else frozenset()
    if not spec.plugins and names >= set(labels):
        return None
    return list(dict.fromkeys(labels))


def objection_to(signature: inspect.Signature) -> str | None:
    """Return the reason that a function cannot be called as a custom function; None if it can.

    >>> def judge(metrics): ...
    >>> objection_to(inspect.signature(judge))[:58]
    "is called with 'event' too, which it does not take: add **"
    """
    parameters = signature.parameters.values()
    given = (*KEYWORDS, STATE)
    asked = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and (parameter.kind is parameter.POSITIONAL_ONLY or parameter.name not in given)
    ]
    if asked:
        return (
            f"takes {asked[0]!r}, which it is not given: functions are called with the keywords "
            f"{', '.join(given)}"
        )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    missing = [name for name in KEYWORDS if name not in signature.parameters]
    if missing:
        return f"is called with {missing[0]!r} too, which it does not take: add **kwargs"
    return None


@lru_cache(maxsize=32)
def signatures(source: str) -> Mapping[str, inspect.Signature]:
    """The signatures of the functions that Python source defines plainly at its top level.

    Those are left out that could be anything else when the source has run: they are decorated,
    asynchronous, defined under a condition, or a name that is bound more than once.

    Raises:
        SourceError: the source does not parse.

    >>> [str(one) for one in signatures("def f(metrics, *, x=1, **kwargs): ...").values()]
    ['(metrics, *, x=None, **kwargs)']
    """
    tree = _parsed(source)
    bound = Counter(_bound(tree))
    return {
        node.name: _signature(node.args)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and bound[node.name] == 1
    }


def _signature(arguments: ast.arguments) -> inspect.Signature:
    plain = [*arguments.posonlyargs, *arguments.args]
    optional = len(plain) - len(arguments.defaults)
    none = inspect.Parameter.empty

    def parameter(argument: ast.arg, kind: Any, *, default: bool = False) -> inspect.Parameter:
        return inspect.Parameter(argument.arg, kind, default=None if default else none)

    found = [
        parameter(
            argument,
            inspect.Parameter.POSITIONAL_ONLY
            if position < len(arguments.posonlyargs)
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=position >= optional,
        )
        for position, argument in enumerate(plain)
    ]
    if arguments.vararg is not None:
        found.append(parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        kind = inspect.Parameter.KEYWORD_ONLY
        found.append(parameter(argument, kind, default=default is not None))
    if arguments.kwarg is not None:
        found.append(parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(found)


@lru_cache(maxsize=32)
def defined_names(source: str) -> frozenset[str]:
    """The names that Python source defines at its top level.

    Raises:
        SourceError: the source does not parse.

    >>> sorted(defined_names("import math; half = math.pi / 2"))
    ['half', 'math']
    """
    return frozenset(_bound(_parsed(source)))


def _parsed(source: str) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise SourceError(
            f"Python source has at most {MAX_SOURCE} characters, not {len(source)}; "
            f"put it in a module, and the module in 'plugins'",
            None,
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        raise SourceError(f"Python syntax error: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "it nests too deep"
        raise SourceError(f"Python source that cannot be parsed: {said}", None) from None


def _bound(tree: ast.Module) -> Iterator[str]:
    # Not recursive: expressions may nest deeper than Python's stack.
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            # Assignments, and the bodies of if, try, with and the like.
            nodes += ast.iter_child_nodes(node)
