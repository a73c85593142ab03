"""The features of the package, and how their parts are found.

A feature is a folder of `flux_ensemble.features`. Nothing imports it: the rooms ask here for a part
of each feature by its name, so a feature is gone when its folder is, or its line here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

#: The folders, in the order in which features are told of what happens.
FEATURES = (
    "search",
    "predict",
    "copies",
    "scaling",
)


@cache
def parts(name: str) -> tuple[ModuleType, ...]:
    """Return the modules with this name of the features that have one.

    Args:
        name: the part, such as `keys`; the docstring of `flux_ensemble.features` has all.

    >>> parts("nothing")
    ()
    """
    found = []
    for feature in FEATURES:
        module = f"{__package__}.features.{feature}.{name}"
        try:
            found.append(import_module(module))
        except ModuleNotFoundError as error:
            # A module that the part imports is another matter.
            if not f"{module}.".startswith(f"{error.name}."):
                raise
    return tuple(found)
