"""The nodes of the queue, as it reports them.

Queues are known by name, although there is only one so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flux_ensemble.engine.codec import event_from_json, to_json
from flux_ensemble.engine.events import MemberChanged
from flux_ensemble.engine.feature import Hooks
from flux_ensemble.engine.rules import RuleIndex
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.metrics.names import MEMBER, MEMBER_METRICS
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.metrics.streams import Metrics


class Nodes:
    """Stores the sizes that one engine's queue reports.

    Attributes:
        known: the latest report of each queue.
    """

    def __init__(self, rules: RuleIndex, stats: Metrics, hooks: Hooks) -> None:
        self._rules = rules
        self._stats = stats
        self._hooks = hooks
        self.known: dict[str, MemberChanged] = {}

    def on_changed(self, event: MemberChanged) -> Iterable[TriggerQueue]:
        """Store a report, and return the rules that it triggers."""
        changed = self.take(event)
        return () if self._stats.t_start is None else self._triggered(event, changed)

    def resized(self, name: str, nodes: int) -> Iterable[TriggerQueue]:
        """Store the size after a request, and return the rules that it triggers."""
        return self.on_changed(replace(self.known[name], t=self._stats.t, size=nodes))

    def is_news(self, event: MemberChanged) -> bool:
        """Return whether a report may matter to the ensemble.

        The size and bounds of a queue that can change its size always matter, because requests
        depend on them. Other values matter if rules read them.
        """
        known = self.known.get(event.member)
        read = self._rules.wants_nodes
        if known is None:
            return bool(read) or not event.low == event.high == event.size
        if (known.size, known.low, known.high) != (event.size, event.low, event.high):
            return True
        return any(getattr(known, name) != getattr(event, name) for name in read)

    def take(self, event: MemberChanged) -> list[MetricPath]:
        """Store a report.

        Returns:
            The metrics that changed.
        """
        before = self.known.get(event.member)
        if before is not None and event.size < before.size:
            for shrunk in self._hooks.shrunk:
                shrunk()
        self.known[event.member] = event
        nodes, changed = self._stats.nodes, []
        for variable in MEMBER_METRICS["nodes"]:
            path = MetricPath("nodes", event.member, variable)
            value = getattr(event, variable)
            if nodes.get(path) != value:
                nodes[path] = value
                changed.append(path)
        return changed

    def begin(self) -> Iterator[TriggerQueue]:
        """Yield the rules triggered by the reports from before the start of the ensemble."""
        for event in self.known.values():
            paths = [
                MetricPath("nodes", event.member, variable) for variable in MEMBER_METRICS["nodes"]
            ]
            yield from self._triggered(event, paths)

    def _triggered(self, event: MemberChanged, changed: Iterable[MetricPath]) -> list[TriggerQueue]:
        """Return the rules on metrics that have changed."""
        seen = {
            "trigger": "member",
            "member": event.member,
            "size": event.size,
            "up": event.up,
            "free": event.free,
            "timestamp": self._stats.t,
        }
        return [TriggerQueue(state, Cause(seen)) for state in self._rules.metric(changed)]

    # -- status -------------------------------------------------------------------

    def queue(self) -> dict[str, Any] | None:
        """Return the nodes of the queue, and what features know of them, as JSON.

        The result is None before the queue has reported its nodes.
        """
        known = self.known.get(MEMBER)
        if known is None:
            return None
        bounds = {"nodes": known.size, "low": known.low, "high": known.high}
        return {**bounds, **self._of_features(MEMBER)}

    def report(self) -> dict[str, Any]:
        """Return the data of `queue` by name, the earlier form in `status`."""
        return {
            name: {
                "size": known.size,
                "low": known.low,
                "high": known.high,
                **self._of_features(name),
            }
            for name, known in self.known.items()
        }

    def _of_features(self, name: str) -> dict[str, Any]:
        return {key: value for say in self._hooks.of_nodes for key, value in say(name).items()}

    # -- snapshots ----------------------------------------------------------------

    def dump(self) -> list[Any]:
        """Return the reports as JSON."""
        return [to_json(event) for event in self.known.values()]

    def load(self, value: Iterable[Mapping[str, Any]]) -> None:
        """Set the reports from the result of `dump`."""
        for event in value:
            changed = event_from_json(event)
            assert isinstance(changed, MemberChanged)
            self.take(changed)
