"""The instance that is checked, and what a check finds in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flux_ensemble.client.errors import KEEPER

#: Seconds that one response may take.
PATIENCE = 10.0

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Args:
        check: the name of the check.
        state: whether that is good.
        text: what was found.
        advice: what to do about it; empty if all is well.
    """

    check: str
    state: State
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """As `doctor --json` prints it."""
        return {
            "check": self.check,
            "state": self.state,
            "found": self.text,
            "advice": self.advice,
        }


class InstanceInfo:
    """A Flux instance, and what several checks need to know about it.

    Args:
        handle: an open `flux.Flux`.

    Attributes:
        modules: the broker modules of rank 0, or None if they are not told.
        service: what the ensemble service says about itself, or its error.
        members: what it says about its members; empty for guests, and after an error.
        ensembles: what it says about them.
        has_members: an ensemble has members of its own: Flux instances.
        keeper: what the module `ensemble-keeper` says about the service; None without one.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.modules: frozenset[str] | None
        try:
            modules = self.ask("module.list", {})["mods"]
            self.modules = frozenset(module["name"] for module in modules)
        except OSError:
            self.modules = None
        self.service: Mapping[str, Any] | OSError
        self.instance: Mapping[str, Any] | None = None
        self.has_members = False
        self.ensembles: Sequence[Mapping[str, Any]] = ()
        try:
            status = self.ask("ensemble.status", {})
            self.service = status["service"]
            self.instance = status.get("instance")
            self.ensembles = status["ensembles"]
            self.has_members = any(one.get("pools") for one in self.ensembles)
        except OSError as error:
            self.service = error
        self.keeper: Mapping[str, Any] | None
        try:
            self.keeper = self.ask(f"{KEEPER}.stats-get", {})
        except OSError:
            self.keeper = None

    def ask(self, topic: str, payload: Mapping[str, Any]) -> Any:
        """Ask rank 0, and wait for the response for `PATIENCE` seconds.

        Raises:
            OSError: an error, or no response in time.
        """
        future = self.handle.rpc(topic, payload, nodeid=0)
        future.wait_for(PATIENCE)
        return future.get()

    def attribute(self, name: str) -> str:
        """A broker attribute of rank 0.

        Raises:
            OSError: there is none.
        """
        return str(self.ask("attr.get", {"name": name})["value"])


def config(instance: InstanceInfo, table: str) -> Any:
    """A table of the configuration of rank 0; {} where there is none."""
    return instance.ask("config.get", {}).get(table, {})
