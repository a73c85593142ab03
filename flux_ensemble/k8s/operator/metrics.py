"""Metrics of the operator, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class OperatorMetrics:
    """Counters and gauges, in a registry of their own; thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._phases: dict[tuple[str, str], str] = {}
        self._members: dict[tuple[str, str], set[str]] = {}
        self.reconciles = Counter(
            "flux_ensemble_reconciles",
            "Looks at Ensembles, by how they ended.",
            ["result"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "flux_ensemble_reconcile_seconds", "How long a look takes.", registry=self.registry
        )
        self.leader = Gauge(
            "flux_ensemble_leader", "Whether this operator is the leader.", registry=self.registry
        )
        self._ensembles = Gauge(
            "flux_ensemble_ensembles",
            "Ensembles, by phase.",
            ["phase"],
            registry=self.registry,
        )
        self._size = Gauge(
            "flux_ensemble_member_size",
            "Pods of a member that run.",
            ["namespace", "ensemble", "member"],
            registry=self.registry,
        )
        self._wanted = Gauge(
            "flux_ensemble_member_wanted_size",
            "The size that a member is to have.",
            ["namespace", "ensemble", "member"],
            registry=self.registry,
        )

    def seen(self, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        """Note the status of an Ensemble."""
        key = namespace, name
        with self._lock:
            self._phase(key, status["phase"])
            members = {member["name"] for member in status["members"]}
            for gone in self._members.get(key, set()) - members:
                self._drop(key, gone)
            self._members[key] = members
            for member in status["members"]:
                self._size.labels(*key, member["name"]).set(member["size"])
                self._wanted.labels(*key, member["name"]).set(member["wanted"])

    def forget(self, namespace: str, name: str) -> None:
        """Note that an Ensemble is gone."""
        key = namespace, name
        with self._lock:
            self._phase(key, None)
            for member in self._members.pop(key, set()):
                self._drop(key, member)

    def _phase(self, key: tuple[str, str], phase: str | None) -> None:
        before = self._phases.pop(key, None)
        if before is not None:
            self._ensembles.labels(before).dec()
        if phase is not None:
            self._phases[key] = phase
            self._ensembles.labels(phase).inc()

    def _drop(self, key: tuple[str, str], member: str) -> None:
        for gauge in (self._size, self._wanted):
            gauge.remove(*key, member)
