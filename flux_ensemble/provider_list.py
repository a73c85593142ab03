"""The providers of members, and how their parts are found.

A provider is a folder of `flux_ensemble.queues.providers`, whose docstring has the parts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

#: The folders, which are the values of `from`. The first is the default.
PROVIDERS = (
    "flux",
    "slurm",
    "jobset",
    "local",
)


@cache
def part(provider: str, name: str) -> ModuleType:
    """Return a module of a provider.

    Args:
        provider: the folder.
        name: the part, such as `keys`.

    >>> part("slurm", "keys").PROVIDER.site
    'Slurm'
    """
    return import_module(f"{__package__}.queues.providers.{provider}.{name}")


def has_part(provider: str, name: str) -> bool:
    """Return whether a provider has a module.

    >>> has_part("slurm", "checks"), has_part("local", "checks")
    (True, False)
    """
    return find_spec(f"{__package__}.queues.providers.{provider}.{name}") is not None
