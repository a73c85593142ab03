"""The providers of members, and how their parts are found.

A provider is a folder of `flux_ensemble.queues.providers`, whose docstring has the parts.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
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
