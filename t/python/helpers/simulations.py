"""Simulations for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.model import Spec
from flux_ensemble.queues.simulation.simulation import Prediction, Simulation, resolve
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.ports import Tap


def predict(
    given: Mapping[str, Any] | Spec,
    *,
    nodes: int = 4,
    cores: int = 2,
    seed: int = 0,
    until: float = 1e6,
    tap: Tap | None = None,
) -> Prediction:
    """What a simulation of a document comes to."""
    spec = given if isinstance(given, Spec) else load_mapping(given)
    behaviour = resolve(spec, spec.simulate)
    return Simulation(spec, VirtualCluster(nodes, cores), behaviour, seed=seed, tap=tap).run(until)


def outcomes(found: Prediction, group: str) -> tuple[int, ...]:
    """Jobs of a group that ended as success, failed, canceled and timeout."""
    counts = found.status["groups"][group]
    return tuple(counts[name] for name in ("success", "failed", "canceled", "timeout"))


def fired(found: Prediction) -> list[tuple[float, str]]:
    """When which rule fired."""
    entries = found.first + found.last
    return [
        (entry["timestamp"], entry["context"]["rule"])
        for entry in entries
        if entry["name"] == "fire"
    ]
