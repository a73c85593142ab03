"""What a user waits for: `flux ensemble status`, and `flux-ensemble validate` of 1,000 rules."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plots
import yaml
from benchmark import Benchmark, Numbers, Row, middle

GROUPS, RULES = 100, 1000

#: How often each command is run.
TIMES = 15

_BIN = Path(sys.executable).parent


def measure_status(smoke: bool) -> Numbers:
    """Seconds of the command, and of what it cannot be faster than."""
    from live import burst, live

    times = 2 if smoke else TIMES
    with live() as stage:
        stage.load_service()
        stage.run(burst("some", 10))
        environment = stage.instance.environment
        environment["PATH"] = f"{_BIN}:{environment['PATH']}"
        told = _run(["flux", "ensemble", "status"], environment)
        assert "some" in told, told
        return {
            "status": _times(["flux", "ensemble", "status"], environment, times),
            "python": _times([sys.executable, "-c", ""], environment, times),
            "flux": _times(["flux", "getattr", "rank"], environment, times),
            "jobs": _times(["flux", "jobs"], environment, times),
        }


def document(groups: int, rules: int) -> dict[str, Any]:
    """Groups, and rules of every kind that is cheap to write."""
    kinds: list[dict[str, Any]] = [
        {"trigger": "job-success"},
        {"trigger": "job-fail"},
        {"trigger": "metric", "name": "count.{}.success", "when": "> 10"},
        {"trigger": "metric", "when": "count.{}.failed > 3 and mean['{}-duration'] > 60"},
    ]
    return {
        "name": "large",
        "jobs": [{"name": f"g{one}", "command": f"echo {one}"} for one in range(groups)],
        "rules": [_rule(kinds[one % 4], f"g{one % groups}") for one in range(rules)],
    }


def _rule(kind: Mapping[str, str], group: str) -> dict[str, Any]:
    filled = {key: value.replace("{}", group) for key, value in kind.items()}
    if kind["trigger"] != "metric":
        filled["group"] = group
    return {**filled, "action": {"name": "submit", "label": group}}


def measure_validate(smoke: bool) -> Numbers:
    """Seconds of the command."""
    rules, times = (20, 1) if smoke else (RULES, TIMES)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "large.yaml")
        file.write_text(yaml.safe_dump(document(min(rules, GROUPS), rules), sort_keys=False))
        command = [str(_BIN / "flux-ensemble"), "validate", str(file)]
        environment = dict(os.environ)
        _run(command, environment)
        return {
            "rules": rules,
            "validate": _times(command, environment, times),
            "python": _times([sys.executable, "-c", ""], environment, times),
        }


def _times(command: list[str], environment: Mapping[str, str], times: int) -> list[float]:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        _run(command, environment)
        found.append(time.perf_counter() - begin)
    return found


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def rows_status(numbers: Numbers) -> list[Row]:
    """Against Flux's own table of jobs, which is Python and one request too."""
    if "jobs" not in numbers:
        return []
    return [
        Row(
            "`flux ensemble status` / `flux jobs`, start to exit",
            middle(numbers["status"]) / middle(numbers["jobs"]), "<=", 1, "x",
            f"{1e3 * middle(numbers['status']):.0f} / {1e3 * middle(numbers['jobs']):.0f} ms; "
            f"an empty Python {1e3 * middle(numbers['python']):.0f} ms, "
            f"`flux getattr` {1e3 * middle(numbers['flux']):.0f} ms",
        )
    ]  # fmt: skip


def rows_validate(numbers: Numbers) -> list[Row]:
    """The command."""
    return [
        Row(
            f"`flux-ensemble validate` of a {numbers['rules']:,}-rule document",
            middle(numbers["validate"]), "<=", 1, "s",
            f"an empty Python {1e3 * middle(numbers['python']):.0f} ms",
        )
    ]  # fmt: skip


def plot_status(figure: Any, numbers: Numbers) -> None:
    """Each command."""
    names = {
        "python": "empty Python",
        "flux": "flux getattr",
        "jobs": "flux jobs",
        "status": "flux ensemble status",
    }
    names = {key: name for key, name in names.items() if key in numbers}
    _plot(figure, numbers, names, 1e3 * middle(numbers["jobs" if "jobs" in numbers else "status"]))


def plot_validate(figure: Any, numbers: Numbers) -> None:
    """Each command."""
    _plot(figure, numbers, {"python": "empty Python", "validate": "flux-ensemble validate"}, 1000)


def _plot(figure: Any, numbers: Numbers, names: Mapping[str, str], most: float) -> None:
    axes = figure.subplots()
    values = {name: [1e3 * one for one in numbers[key]] for key, name in names.items()}
    plots.bars(axes, values, [plots.OTHER] * (len(values) - 1) + [plots.OURS])
    plots.goal(axes, x=most)
    axes.set_xlabel("ms from start to exit")
    plots.legend(axes)


STATUS = Benchmark(
    "status-command",
    "The command `flux ensemble status`",
    """Run again and again, with one ensemble in the service. For comparison: Flux's own table of
    jobs, which is a command in Python that asks for one thing too, a Python that does nothing, and
    a command of Flux in C.""",
    measure_status,
    rows_status,
    plot_status,
    height=1.8,
)

VALIDATE = Benchmark(
    "validate",
    "Validation of a large document",
    """`flux-ensemble validate` of a YAML file with 100 groups and rules of four kinds, run again
    and again. It needs no Flux.""",
    measure_validate,
    rows_validate,
    plot_validate,
    height=1.6,
)
