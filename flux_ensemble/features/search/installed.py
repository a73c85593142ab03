"""Checks that the packages that samplers and generators need are installed here.

An ensemble that goes on after a crash, or is replayed, has the points of its searches in its log,
so this is asked where one begins, and is no part of reading a document.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from importlib.machinery import PathFinder
from importlib.util import find_spec

from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import dotted
from flux_ensemble.extras import install_command
from flux_ensemble.features.search.model import GENERATOR, Search, searches_of

#: The modules that a sampler needs; the extra `search` installs all but that of `gp`. The points
#: with which a generator begins are SciPy's.
_NEEDS = {
    "tpe": ("optuna",),
    "random": ("optuna",),
    "qmc": ("scipy",),
    "cma": ("optuna", "cmaes"),
    "nsga2": ("optuna",),
    "gp": ("scipy", "sklearn"),
    "grid": (),
    GENERATOR: ("gest_api", "scipy"),
}


def kind(search: Search) -> str:
    """Return the key of the document that names a search's suggester of points.

    >>> kind(Search("hpo", "a", (), ()))
    'sampler'
    """
    return GENERATOR if search.generator is not None else "sampler"


def missing(searches: Collection[Search]) -> Iterator[tuple[Search, str]]:
    """The searches whose samplers cannot be used here, each with the reason.

    >>> list(missing(()))
    []
    """
    for search in searches:
        absent = [module for module in _NEEDS[search.sampler] if find_spec(module) is None]
        if absent:
            extra = "gp" if search.sampler == "gp" else "search"
            yield (
                search,
                f"the {kind(search)} {search.suggests!r} needs {absent[0]!r}, which is not "
                f"installed here: {install_command(extra)}",
            )


def unfound(spec: Spec) -> Iterator[tuple[Search, str]]:
    """The searches whose generators are nowhere that this process knows of, each with the reason.

    Only the first package of a module's name is looked for, so that nothing is imported.

    >>> from flux_ensemble.document.loading import load_text
    >>> list(unfound(load_text("jobs: [{name: hello, command: echo hello}]", name="demo")))
    []
    """
    for search in searches_of(spec):
        if search.generator is None:
            continue
        package = search.generator.name.partition(":")[0].partition(".")[0]
        users = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = [one for one in (*users, spec.directory) if one]
        if find_spec(package) is None and PathFinder.find_spec(package, path) is None:
            yield (
                search,
                f"there is no module {package!r} beside the document, in PYTHONPATH or where "
                "flux-ensemble is installed",
            )


def objection(spec: Spec, file: str | None) -> str | None:
    """Return the reason that the searches of a document cannot begin here; None if they can.

    Args:
        spec: the document.
        file: its name, for the sentence.

    >>> from flux_ensemble.document.loading import load_text
    >>> spec = load_text("jobs: [{name: hello, command: echo hello}]", name="demo")
    >>> objection(spec, None) is None
    True
    """
    for search, message in missing(searches_of(spec)):
        path = ("search", searches_of(spec).index(search), kind(search))
        where = f"{file}: " if file else ""
        return f"{where}{dotted(path)}: {message}"
    return None
