"""The examples in the docstrings of the package.

They are read from the source files: mypyc leaves no docstrings in the modules that it compiles.
Run as a script inside a Flux instance, by project/test_doctests.py, this loads the service, runs
the examples that need one, and prints those that fail.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from patience import PATIENCE

import flux_ensemble

PACKAGE = Path(flux_ensemble.__path__[0])

#: Rooms that import Flux, so their modules are imported, and tested, inside an instance only.
FLUX_ROOMS = (
    "flux_ensemble.k8s.scaler",
    "flux_ensemble.queues.elastic",
    "flux_ensemble.queues.flux",
    "flux_ensemble.queues.nested",
    "flux_ensemble.queues.providers.flux.provider",
    "flux_ensemble.service",
)

#: The client and what it is made of: module and class. Their examples need an instance with the
#: service, and go on from the example of the client itself.
CLIENT = ("flux_ensemble.client.client", "Client")
CLIENT_CLASSES = (
    CLIENT,
    ("flux_ensemble.client.connection", "Connection"),
    ("flux_ensemble.client.requests", "EnsembleRequests"),
)

#: The module with what programs run, whose examples have an ensemble.
ENSEMBLE = "flux_ensemble.api.ensemble"

#: What protoc generates, what a site copies, which is installed with the package, and former names.
_FOREIGN = (
    "flux_ensemble.k8s.grpc.protocol.",
    "flux_ensemble.etc.",
    "flux_ensemble.examples.",
    "flux_ensemble.gateway",
)


class Documented(NamedTuple):
    """What has a docstring, or should have one.

    Attributes:
        name: within its module, such as "Stream.update"; "" for the module.
        docstring: "" if there is none.
        line: of the docstring, from 0.
        node: the function, class or module.
    """

    name: str
    docstring: str
    line: int
    node: ast.AST

    @property
    def has_example(self) -> bool:
        return bool(doctest.DocTestParser().get_examples(self.docstring))


def source(module: str) -> Path:
    """The source file of a module."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> list[str]:
    """Every module that somebody wrote."""
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return sorted(name for name in names if not name.startswith(_FOREIGN))


def needs_flux(module: str) -> bool:
    """Whether a module is in a room that imports Flux."""
    return any(f"{module}.".startswith(f"{room}.") for room in FLUX_ROOMS)


def documented(module: str) -> list[Documented]:
    """The module, its classes, and their functions and its own."""

    def walk(node: ast.Module | ast.ClassDef, within: str) -> Iterator[Documented]:
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                yield of(item, f"{within}{item.name}")
            if isinstance(item, ast.ClassDef):
                yield from walk(item, f"{within}{item.name}.")

    def of(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> Documented:
        text = ast.get_docstring(node, clean=False)
        line = node.body[0].lineno - 1 if text is not None else 0
        return Documented(name, text or "", line, node)

    tree = ast.parse(source(module).read_text())
    return [of(tree, ""), *walk(tree, "")]


def run(module: str, item: Documented, names: dict[str, Any]) -> str:
    """Run the examples of a docstring.

    Args:
        module: the module.
        item: what the docstring is of.
        names: the names that the examples begin with; theirs are added.

    Returns:
        What is wrong with them, "" if nothing.
    """
    test = doctest.DocTestParser().get_doctest(
        item.docstring, names, item.name or module, str(source(module)), item.line
    )
    # A copy is made of the names that a test is given.
    test.globs = names
    output: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=output.append, clear_globs=False)
    return "".join(output)


def run_module(module: str) -> str:
    """Run the examples of a module, but for those of the client; what is wrong with them."""
    names = dict(vars(importlib.import_module(module)))
    items = [item for item in documented(module) if not of_client(module, item)]
    if module != ENSEMBLE:
        return "".join(run(module, item, dict(names)) for item in items)
    with TemporaryDirectory() as directory, contextlib.chdir(directory):
        names["echoes"] = _echoes(Path(directory))
        return "".join(run(module, item, dict(names)) for item in items)


def _echoes(directory: Path) -> Any:
    """An ensemble that has ended, for the examples of its methods: the third of its jobs failed."""
    from flux_ensemble import Action, Ensemble, Job, Rule

    echoes = Ensemble(
        name="echoes",
        jobs=[
            Job(
                name="echo",
                command="sh -c 'echo {x}; test {x} != 3 && flux-ensemble memo square={x}{x}'",
                params={"x": [1, 2, 3]},
                max_active=1,
            )
        ],
        rules=[Rule(trigger="start", action=Action(name="submit", label="echo"))],
        metrics=[{"best": {"name": "top", "of": "echo-square", "mode": "max"}}],
    )
    echoes.run(state_dir=directory / "state", nodes=1, cores=1)
    return echoes


def of_client(module: str, item: Documented) -> bool:
    """Whether the examples are the client's, and need the service."""
    return (module, item.name.partition(".")[0]) in CLIENT_CLASSES


def _run_client() -> str:
    """Run the examples of the client, each method's on an ensemble of its own."""
    from flux_ensemble.client import Client
    from flux_ensemble.deploy.service_start import ensure_service

    client = Client()
    ensure_service(client)
    begin, name = CLIENT
    [own] = (item for item in documented(begin) if item.name == name)
    methods = [
        (module, item)
        for module, _ in CLIENT_CLASSES
        for item in documented(module)
        if of_client(module, item) and item.has_example and item.name != name
    ]
    output = []
    for module, method in methods:
        names = dict(vars(sys.modules[begin]))
        output += [run(begin, own, names), run(module, method, names)]
        for summary in client.list():
            client.cancel(summary["name"])
            client.wait(summary["name"], timeout=PATIENCE)
            client.unload(summary["name"])
    return "".join(output)


def main() -> int:
    """Run what needs Flux."""
    from flux_ensemble.bindings import require_flux

    require_flux()
    wrong = "".join(run_module(module) for module in modules() if needs_flux(module))
    wrong += _run_client()
    print(wrong, end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
