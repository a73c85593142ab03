"""Every example that needs no Flux does in the simulator what its test on Flux expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from flux_counts import EXPECTED, ON_FLUX, VARY, end_of
from simulations import fired, outcomes, predict

from flux_ensemble.document.loading import load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.runtime.recording import read_lines

ROOT = Path(__file__).parents[3]

#: Examples of what a simulation has not: custom functions, jobs that fail by themselves, and what
#: jobs used.
ELSEWHERE = ON_FLUX | {
    "counter",
    "custom-action",
    "directories",
    "fail-fast",
    "join",
    "resources",
    "smaller-step",
    "sweep",
}

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if path.stem not in ELSEWHERE)

#: Recordings of examples on Flux.
RECORDINGS = [
    recording
    for path in EXAMPLES
    if (recording := ROOT / "t" / "traces" / f"flux-{path.stem}.jsonl").exists()
]


def example(path: Path) -> Spec:
    return load_text(path.read_text(), file=path.name, directory=str(path.parent))


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in VARY], ids=lambda path: path.stem
)
def test_the_example_does_the_same_as_on_flux(path: Path) -> None:
    found = predict(example(path))
    assert found.status["state"] == "completed"
    assert end_of(found.status) == EXPECTED[path.stem]


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
