"""Declarations of what documents may say of members, one for each provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from flux_ensemble.document.keys.forms import Key
from flux_ensemble.provider_list import PROVIDERS, part

#: Seconds after which a member that no job needs ends, if nothing is said.
IDLE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProvider:
    """Declares what documents may say of the members that a provider starts.

    Sentences are about a key of an entry of `members`, and have what to do instead.

    Args:
        site: its name, for people, such as "Slurm".
        starts: how it starts members, for the guide, such as "Slurm, in a job of its own for each".
        page: a link to the page about it, from docs/; "" if there is none.
        refuses: the sentence on each key that its pools do not have. A key that they have with
            other values is "KEY: VALUE" there.
        ignores: keys of other sites with which nothing is done, so that `from` alone can change.
        needs: the sentence on each key that they have to have.
        workers: the sentence on pools that are no workers ('runs: tasks'), if there can be none.
        command: what the `options` of a pool are those of, such as "sbatch".
        read_options: reads these, or raises ValueError; None if there are none.
        keys: those that only its pools have, such as `template`, which its part `template` reads.
        elsewhere: the sentence on each of these in the pools of others.
        idle: default of the seconds after which a member that no job needs ends; 0 is never.
        enclosing: its members are jobs of the enclosing Flux instance, whose journal has them.
    """

    site: str
    starts: str
    page: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict)
    ignores: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    workers: str = ""
    command: str = ""
    read_options: Callable[[Mapping[str, Any]], Mapping[str, str | bool]] | None = None
    keys: tuple[Key, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    idle: float = IDLE_SECONDS
    enclosing: bool = False

    def refusal(self, key: str, value: Any) -> str | None:
        """Return the sentence on a key that its pools do not have; None for another.

        >>> pool_providers()["slurm"].refusal("service", "parent") is None
        True
        """
        sentence = self.refuses.get(key, self.refuses.get(f"{key}: {value}"))
        others = (one.elsewhere.get(key) for one in pool_providers().values() if one is not self)
        return sentence or next(filter(None, others), None)


@cache
def pool_providers() -> Mapping[str, PoolProvider]:
    """Return all of them, by the names that `from` has for them.

    >>> pool_providers()["jobset"].site
    'Kubernetes'
    """
    return {name: part(name, "keys").PROVIDER for name in PROVIDERS}
