"""The choice of `service` for members whose document makes none: who submits their jobs.

The service connects to a member on another node by ssh. Where ssh reaches no other node of the
instance, such members get services of their own (`service: child`), which need no ssh. That is
written into the document, so that a recovery and a recording have it.

    load request ──► is_open? ──► Ssh.ask ──► why not ──► served ──► the document is read again
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from flux_ensemble.document.keys.members import TASKS
from flux_ensemble.document.members import Pool
from flux_ensemble.document.model import Spec
from flux_ensemble.document.use import plain_form
from flux_ensemble.document.yaml_reader import Document, read_yaml
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.nested.proxy import proxy_environment
from flux_ensemble.queues.nested.ssh import SECONDS, failed, probe
from flux_ensemble.runtime.command import Command, CommandResult
from flux_ensemble.runtime.ports import Loop


class Ssh:
    """Knows whether ssh reaches other nodes; that is tried once, when it is of interest first.

    Args:
        loop: of the service.
        command: succeeds if it does (`queues.nested.ssh.probe`); None if all brokers are here.
    """

    def __init__(self, loop: Loop, command: list[str] | None) -> None:
        self._loop = loop
        self._command = command
        self._answer: str | None = None
        self._is_known = command is None

    @classmethod
    def of(cls, broker: Broker) -> Self:
        """Return what knows it of the instance of a broker."""
        attr_get = broker.handle.attr_get
        try:
            here = str(attr_get("hostname"))
        except OSError:
            here = platform.node()
        return cls(broker.loop, probe(str(attr_get("hostlist")), here))

    def ask(self, take: Callable[[str | None], None]) -> None:
        """Find out why ssh does not reach other nodes.

        Args:
            take: receives the reason, or None if it reaches them or need not.
        """
        if self._is_known or self._command is None:
            take(self._answer)
            return
        Command(
            self._loop,
            self._command,
            partial(self._ended, self._command, take),
            limit=SECONDS,
            environment=proxy_environment(),
        )

    def _ended(
        self, command: list[str], take: Callable[[str | None], None], outcome: CommandResult
    ) -> None:
        self._is_known = True
        self._answer = None
        if outcome.error is not None:
            # What did not begin has no exit status, and says nothing itself.
            said = outcome.said or ("" if outcome.how else outcome.error)
            self._answer = failed(command, said, None if outcome.late else outcome.status or 1)
        take(self._answer)


def is_open(spec: Spec) -> bool:
    """Return True if there are members that could have services of their own, and have none."""
    return any(_may_call(pool) for pool in spec.members)


def _may_call(pool: Pool) -> bool:
    started = pool.uri is None and pool.started_by.enclosing
    return started and pool.runs != TASKS and not pool.calls


def served(spec: Spec, payload: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give members services of their own where the document says nothing.

    Args:
        spec: the document as it was read.
        payload: of the request to load it.

    Returns:
        The payload with that document, and the names of the pools that it changes.
    """
    value = spec.expansion or _plain(payload)
    named = {pool.name for pool in spec.members if _may_call(pool)}
    changed = list[str]()
    members = []
    for entry in value["members"]:
        if entry["name"] in named and "service" not in entry:
            changed.append(entry["name"])
            entry = {**entry, "service": "child"}
        members.append(entry)
    if not changed:
        return dict(payload), []
    rest = {key: given for key, given in payload.items() if key != "text"}
    return {**rest, "spec": {**value, "members": members}}, changed


def _plain(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    if "spec" in payload:
        return plain_form(Document(payload["spec"]))
    return plain_form(read_yaml(payload["text"], payload.get("file"))[0])
