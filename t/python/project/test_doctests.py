"""The examples in docstrings are true, and what users of the package call has one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docstrings import (
    CLIENT_CLASSES,
    Documented,
    documented,
    modules,
    needs_flux,
    run_module,
)
from patience import PATIENCE

SCRIPT = Path(__file__).parents[1] / "helpers" / "docstrings.py"

#: Rooms whose functions and classes are for users of the package too.
ROOMS = ("flux_ensemble.client.", "flux_ensemble.document.", "flux_ensemble.metrics.")

#: What needs no example, and why.
WITHOUT = {
    "flux_ensemble.client.connection.Connection.has_died": "needs a service that has died",
    "flux_ensemble.client.connection.Connection.response": "Client.call is its example",
    "flux_ensemble.client.connection.Connection.stream": "Client.jobs is its example",
    "flux_ensemble.client.connection.Connection.send": "for programs with a reactor: raw_rpc.py",
    "flux_ensemble.client.log.EnsembleLog.read": "Client.log and Client.wait are its examples",
    "flux_ensemble.client.news.News.failed": "Client.news is its example",
    "flux_ensemble.client.news.News.read": "Client.news is its example",
    "flux_ensemble.client.requests.EnsembleRequests.call": "Client.call is its example",
    "flux_ensemble.client.tables.JobTable.to_pandas": "needs pandas, which nothing else does",
    "flux_ensemble.client.tables.JobTable.to_polars": "needs Polars, which nothing else does",
}


def public(module: str) -> Iterator[Documented]:
    """The public functions and methods of a module, without properties."""
    for item in documented(module):
        parts = item.name.split(".")
        if not isinstance(item.node, ast.FunctionDef) or any(part[0] == "_" for part in parts):
            continue
        decorators = [ast.unparse(one) for one in item.node.decorator_list]
        if not any("property" in decorator for decorator in decorators):
            yield item


@pytest.mark.parametrize("module", [name for name in modules() if not needs_flux(name)])
def test_the_examples_of_the_module_are_true(module: str) -> None:
    wrong = run_module(module)
    assert not wrong, wrong


@pytest.mark.flux
def test_the_examples_that_need_flux_are_true() -> None:
    done = subprocess.run(
        ["flux", "start", sys.executable, SCRIPT],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", [name for name in modules() if name.startswith(ROOMS)])
def test_public_functions_and_classes_of_the_module_have_examples(module: str) -> None:
    shown = {item.name for item in documented(module) if item.has_example}
    # An example of a class, or of any of its methods, shows how it is used.
    shown |= {name.partition(".")[0] for name in shown}
    missing = []
    for item in public(module):
        owner = item.name.partition(".")[0]
        enough = item.name if (module, owner) in CLIENT_CLASSES else owner
        if enough not in shown and f"{module}.{item.name}" not in WITHOUT:
            missing.append(item.name)
    assert not missing


def test_what_needs_no_example_is_there_and_has_none() -> None:
    functions = {f"{module}.{item.name}": item for module in modules() for item in public(module)}
    assert not [name for name in WITHOUT if functions[name].has_example]
