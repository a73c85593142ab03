"""Which functions `custom` actions can name. No user code is run to find out."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import hint
from flux_ensemble.texts import listed

#: Group of the entry points that are functions for custom actions.
ENTRY_POINTS = "flux_ensemble.actions"

#: Longest source that is parsed, in characters: parsing takes memory.
MAX_SOURCE = 256 * 1024

#: In a set of names: there may be more.
_ANY = "*"


class SourceError(ValueError):
    """Python source that does not parse. `line` counts from 1; None if unknown."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class Functions:
    """The functions that the labels of `custom` actions can name.

    Args:
        source: Python source of the document, or None.
        plugins: names of modules. They are not imported, so with plugins any name is accepted.

    >>> functions = Functions("def next_step(ensemble): ...", plugins=[])
    >>> functions.check("next_step")
    >>> functions.check("nextstep")
    Traceback (most recent call last):
    ValueError: no function named 'nextstep' (did you mean 'next_step'? functions: next_step)
    """

    def __init__(self, source: str | None, plugins: Sequence[str]) -> None:
        try:
            self._names = defined_names(source) if source is not None else frozenset()
        except SourceError:
            self._names = frozenset((_ANY,))
        self._open = bool(plugins) or _ANY in self._names

    @cached_property
    def _installed(self) -> frozenset[str]:
        # Late, because few documents need it.
        from importlib.metadata import entry_points

        return frozenset(point.name for point in entry_points(group=ENTRY_POINTS))

    def check(self, label: str) -> None:
        """Check that the function exists, as far as that is known.

        Raises:
            ValueError: there is no such function.
        """
        if self._open or label in self._names or label in self._installed:
            return
        known = sorted(self._names | self._installed)
        raise ValueError(
            f"no function named {label!r} ({hint(label, known)}functions: {listed(known)})"
        )


def unresolved(spec: Spec) -> list[str] | None:
    """The functions that rules name, if only the process that calls them can tell what there is.

    Returns:
        Their names; None for a document without plugins whose source has all of them.

    >>> from flux_ensemble.document.loading import load_text
    >>> text = "rules: [{trigger: start, action: {name: custom, label: f}}]"
    >>> unresolved(load_text(f"{text}\\ncustom: 'def f(**kwargs): ...'", name="demo"))
    >>> unresolved(load_text(f"{text}\\nplugins: [tools]", name="demo"))
    ['f']
    """
    labels = [rule.action.label or "" for rule in spec.rules if rule.action.name == "custom"]
    names = defined_names(spec.custom) if spec.custom is not None else frozenset()
    if not spec.plugins and names.issuperset(labels):
        return None
    return list(dict.fromkeys(labels))


@lru_cache(maxsize=32)
def defined_names(source: str) -> frozenset[str]:
    """The names that Python source defines at its top level.

    Raises:
        SourceError: the source does not parse.

    >>> sorted(defined_names("import math; half = math.pi / 2"))
    ['half', 'math']
    """
    if len(source) > MAX_SOURCE:
        raise SourceError(
            f"Python source has at most {MAX_SOURCE} characters, not {len(source)}; "
            f"put it in a module, and the module in 'plugins'",
            None,
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        raise SourceError(f"Python syntax error: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "it nests too deep"
        raise SourceError(f"Python source that cannot be parsed: {said}", None) from None
    return frozenset(_bound(tree))


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
