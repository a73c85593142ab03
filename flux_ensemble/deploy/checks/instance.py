"""The instance that is checked, and the finding of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flux_ensemble.client.errors import KEEPER

#: Seconds to wait for one response.
PATIENCE = 10.0

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The finding of one check.

    Args:
        check: the name of the check.
        state: whether the finding is good.
        text: what was found.
        advice: the remedy; empty if all is well.
    """

    check: str
    state: State
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as `doctor --json` prints it."""
        return {
            "check": self.check,
            "state": self.state,
            "found": self.text,
            "advice": self.advice,
        }


class InstanceInfo:
    """A Flux instance, with the facts that several checks need.

    Args:
        handle: an open `flux.Flux`.

    Attributes:
        modules: the broker modules of rank 0, or None if Flux does not list them.
        service: the report of the ensemble service on itself, or its error.
        instance: the service's report on the Flux instance; None for guests, and after an error.
        ensembles: the service's report on the ensembles; empty after an error.
        has_members: an ensemble has members of its own: Flux instances.
        keeper: the report of the module `ensemble-keeper` on the service; None without one.
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
        """Send a request to rank 0, and wait for the response for `PATIENCE` seconds.

        Raises:
            OSError: an error, or no response in time.
        """
        future = self.handle.rpc(topic, payload, nodeid=0)
        future.wait_for(PATIENCE)
        return future.get()

    def attribute(self, name: str) -> str:
        """Return a broker attribute of rank 0.

        Raises:
            OSError: there is none of the name.
        """
        return str(self.ask("attr.get", {"name": name})["value"])


def config(instance: InstanceInfo, table: str) -> Any:
    """Return a table of the configuration of rank 0; {} if there is none."""
    return instance.ask("config.get", {}).get(table, {})
