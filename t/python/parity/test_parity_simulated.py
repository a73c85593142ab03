"""Every example that needs no Flux does in the simulator what its test on Flux expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from flux_counts import EXPECTED, VARY
from simulations import fired, outcomes, predict

from flux_ensemble.document.loading import load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.runtime.recording import read_lines

ROOT = Path(__file__).parents[3]

#: Examples of what a simulation has not: custom functions, jobs that fail by themselves, jobs of
#: others, and another size.
ELSEWHERE = {
    "counter",
    "custom-action",
    "fail-fast",
    "queue-scope",
    "grow-on-pending",
    "shrink-when-idle",
    "minicluster",
}

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if path.stem not in ELSEWHERE)

#: How often each rule fires, in their order.
FIRINGS = {
    "active-loop": [1, 6, 2, 2, 1, 0, 0],
    "anomaly": [1, 1, 1],
    "asha": [1, 1],
    "cancel-on-condition": [1, 1, 1],
    "drift": [1, 16, 2, 3],
    "heartbeat": [1, 3, 1],
    "hello-world": [1, 1],
    "job-memo": [1, 1, 1],
    "longest-first": [1, 1],
    "map-reduce": [1, 3],
    "median-stop": [1, 1],
    "more-nodes": [1, 1],
    "more-time": [1, 1, 0],
    "two-allocations": [1],
    "parameter-sweep": [1, 1, 1, 1],
    "pipeline": [1, 3, 1],
    "replica-exchange": [1, 1, 12, 3],
    "retry-with-more": [1, 1, 0],
    "repetitions-and-backoff": [1, 3, 3],
    "stragglers": [1, 6, 1, 1],
    "terminate": [1, 1, 4],
    "tune": [1, 1],
    "active-learning": [1, 3, 3],
}

#: Recordings of examples on Flux.
RECORDINGS = [
    recording
    for path in EXAMPLES
    if (recording := ROOT / "t" / "traces" / f"flux-{path.stem}.jsonl").exists()
]


def example(path: Path) -> Spec:
    return load_text(path.read_text(), file=path.name, directory=str(path.parent))


def expected(name: str) -> dict[str, tuple[int, ...]]:
    """Outcomes by group, as the test on Flux has them."""
    pairs = (word.split("=") for word in EXPECTED[name].split())
    return {group: tuple(map(int, counts.split("/"))) for group, counts in pairs}


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in VARY], ids=lambda path: path.stem
)
def test_the_example_ends_with_the_counts_that_it_has_on_flux(path: Path) -> None:
    found = predict(example(path))
    counts = expected(path.stem)
    assert found.status["state"] == "completed"
    assert {group: outcomes(found, group) for group in found.status["groups"]} == counts


def test_trials_are_stopped_early_as_they_are_on_flux() -> None:
    found = predict(example(ROOT / "examples" / "tune.yaml"))
    complete, failed, canceled, timeout = outcomes(found, "trial")
    (search,) = found.status["searches"]
    assert (complete + canceled, failed, timeout) == (20, 0, 0)
    assert search["complete"] == complete
    assert search["pruned"] == canceled >= 5
    # The best that there can be is 1/8.
    assert 1 / 8 <= search["best"][0]["value"] < 0.3
    # Of twenty trials of half an hour on four slots.
    assert found.makespan < 0.75 * 5 * 1800


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_rule_of_the_example_fires_as_often_as_on_flux(path: Path) -> None:
    found = predict(example(path))
    assert [rule["fired"] for rule in found.status["rules"]] == FIRINGS[path.stem]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_rules_fire_in_the_order_of_a_recording_from_flux(path: Path) -> None:
    lines = [line for _, line in read_lines(path)][1:]
    recorded = [
        command["context"]["rule"]
        for line in lines
        for command in line["commands"]
        if command["type"] == "Record" and command["name"] == "fire"
    ]
    found = predict(example(ROOT / "examples" / f"{path.stem.removeprefix('flux-')}.yaml"))
    assert [rule for _, rule in fired(found)] == recorded
