"""Searches of every kind in one simulation, whose recording replays without an optimiser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("sklearn")

DOCUMENT = """\
name: kinds
seed: 3
search:
  - id: warm
    group: a
    variables: {x: {low: 0, high: 1}}
    points: [{x: 0.5}]
    minimize: loss
    warm-start: {trials: [{x: 0.2, loss: 0.01}, {x: 0.9, loss: 0.4}]}
    trials: 4
    parallel: 2
  - id: conditional
    group: b
    variables:
      x: {low: 0, high: 1}
      opt: [sgd, adam, null]
      m: {low: 0, high: 1, step: 0.25, when: opt == "sgd"}
    where: x <= 0.9
    minimize: loss
    sampler: gp
    trials: 12
    parallel: 3
  - id: bounded
    group: c
    variables: {x: {low: 0, high: 1}}
    minimize: loss
    subject-to: loss >= 0.05
    trials: 5
    parallel: 2
  - id: repeated
    group: d
    variables: {x: [0.1, 0.2, 0.3]}
    minimize: loss
    repeats: 3
    aggregate: median
    sampler: grid
    trials: 3
    parallel: 2
  - id: stopped
    group: e
    variables: {x: {low: 0, high: 1}}
    minimize: loss
    stop: {policy: hyperband, step: epoch, from: 1, to: 4, eta: 2}
    sampler: random
    trials: 8
    parallel: 3
jobs:
  - {name: a, command: "run {x}"}
  - {name: b, command: "run {x} {opt} {m}", params: {m: 0}}
  - {name: c, command: "run {x}"}
  - {name: d, command: "run {x}"}
  - {name: e, command: "run {x}"}
  - {name: p, command: "run {x} {member} {round} {from}"}
use:
  - algorithm: population
    id: population
    group: p
    variables: {x: {low: 0.0, high: 1.0}}
    minimize: loss
    population: 3
    rounds: 2
rules:
  - {trigger: start, action: {name: search, label: warm}}
  - {trigger: start, action: {name: search, label: conditional}}
  - {trigger: start, action: {name: search, label: bounded}}
  - {trigger: start, action: {name: search, label: repeated}}
  - {trigger: start, action: {name: search, label: stopped}}
simulate:
  a: {duration: 1, memo: {loss: {expression: x}}}
  b: {duration: 1, memo: {loss: {expression: x}}}
  c: {duration: 1, memo: {loss: {expression: x}}}
  d: {duration: 1, memo: {loss: {expression: x}}}
  e: {duration: 1, memo: {loss: {expression: x + 1 / epoch, step: epoch, steps: 4}}}
  p: {duration: 1, memo: {loss: {expression: x}}}
"""


def command(*arguments: str, directory: Path, modules: str = "") -> str:
    """What `flux-ensemble` prints; of `modules`, those in this directory come first."""
    ran = subprocess.run(
        [sys.executable, "-m", "flux_ensemble", *arguments],
        cwd=directory,
        env={**os.environ, **({"PYTHONPATH": modules} if modules else {})},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_searches_of_every_kind_are_simulated_and_replay_without_an_optimiser(
    tmp_path: Path,
) -> None:
    (tmp_path / "kinds.yaml").write_text(DOCUMENT)
    out = command("simulate", "--record", "run.jsonl", "kinds.yaml", directory=tmp_path)
    for id in ("warm", "conditional", "bounded", "repeated", "stopped"):
        assert f"{id}: done (trials)" in out
    assert "stopped early" in out
    for name in ("optuna", "sklearn"):
        (tmp_path / "none" / name).mkdir(parents=True)
        (tmp_path / "none" / name / "__init__.py").write_text("raise ImportError")
    out = command("replay", "run.jsonl", directory=tmp_path, modules=str(tmp_path / "none"))
    assert out.endswith("the same commands; completed\n")
