"""Samplers beside those of Ax, Optuna, Ray and libEnsemble: how far they come, and what they take.

The environment variable SEARCH_PEERS names a Python that has `ax-platform`, `optuna`, `ray[tune]`
and `libensemble`; Ax brings PyTorch along. Without it the samplers of Optuna are there alone, and
what it lacks is skipped by name.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row
from objectives import FUNCTIONS
from search import local, slope

from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import Objective, Search, Variable
from flux_ensemble.features.search.samplers import SearchSampler

REFERENCE = Path(__file__).with_name("search_reference.py")

#: Trials of a search, and its seeds: few where a Gaussian process takes its time. Of ten seeds
#: chance alone makes one of ten sets 1.7 times as bad as the quartiles are apart.
TRIALS, SEEDS, MANY = 30, 10, 100

#: The sampler that has few seeds, and so has what it is compared with.
_DEAR = "gp"

#: Those that are compared, by the name of the tool: our sampler, and what the tool is called.
PAIRS = {
    "optuna-tpe": ("tpe", "Optuna's TPE"),
    "optuna-cma": ("cma", "Optuna's CMA-ES"),
    "optuna-gp": ("gp", "Optuna's GP"),
    "ax": ("gp", "Ax"),
    "ray": ("tpe", "Ray Tune's OptunaSearch"),
    "libensemble": ("qmc", "libEnsemble's Latin hypercube"),
}

#: Those for which the environment of the project is enough.
_OWN = ("optuna-tpe", "optuna-cma")

#: Trials before a point of `gp`, and the most seconds that it may take.
ASKS = {100: 0.3, 300: 1.0, 1000: 1.0, 3000: 1.0}

#: Trials of Ray of which one more is measured: each is a process of its own.
FEW = (8, 40)

#: Trials, slots and seconds of trials that are processes, and how often they are run.
REAL, SLOTS, EACH, ROUNDS = 60, 4, 0.2, 5


def measure(smoke: bool) -> Numbers:
    """All of them; in tiny sizes without other environments."""
    peers = None if smoke else os.environ.get("SEARCH_PEERS")
    trials = 12 if smoke else TRIALS
    there = {*_OWN, *(_reference(peers, ["installed"]) if peers else ())}
    tools = [tool for tool in PAIRS if tool in there]
    if not smoke and (
        lacking := [words for tool, (_, words) in PAIRS.items() if tool not in there]
    ):
        print(f"  skipped: {', '.join(lacking)}: not in the environment that SEARCH_PEERS names")
    functions = ["branin"] if smoke else list(FUNCTIONS)
    ours: dict[str, dict[str, Any]] = {}
    theirs: dict[str, dict[str, Any]] = {}
    for name in functions:
        for sampler in dict.fromkeys(PAIRS[tool][0] for tool in tools):
            seeds = _seeds(sampler, smoke)
            ours.setdefault(sampler, {})[name] = _quality(sampler, name, trials, len(seeds))
        for tool in tools:
            seeds = _seeds(PAIRS[tool][0], smoke)
            words = ["quality", tool, name, str(trials), *map(str, seeds)]
            python = None if tool in _OWN else peers
            theirs.setdefault(tool, {})[name] = _reference(python, words)
    sizes = (5, 10) if smoke else (100, 600)
    return {
        "ours": ours,
        "theirs": theirs,
        "ask": {str(many): _ask(many) for many in ((20,) if smoke else ASKS)},
        "trial": {
            "ours": slope(lambda count: local(count, "true")["processor"], sizes),
            "optuna": _processor(None, "optuna", sizes),
            **({"ray": _processor(peers, "ray", FEW)} if "ray" in tools else {}),
        },
        "real": [
            local(8 if smoke else REAL, f"sleep {EACH}", timed=True, slots=SLOTS)["seconds"]
            for _ in range(1 if smoke else ROUNDS)
        ],
        "trials": 8 if smoke else REAL,
        "load": os.getloadavg()[0],
    }


def _seeds(sampler: str, smoke: bool) -> range:
    return range(2 if smoke else SEEDS if sampler == _DEAR else MANY)


def _processor(python: str | None, tool: str, sizes: tuple[int, int]) -> float:
    """Seconds of processor time that one more trial of another tool takes."""
    return slope(lambda count: _reference(python, ["processor", tool, str(count)]), sizes)


def _quality(sampler: str, name: str, trials: int, seeds: int) -> dict[str, Any]:
    """How far each search comes, and what one trial of it takes, as the reference has it."""
    used = time.process_time()
    above = [_above(sampler, name, trials, seed) for seed in range(seeds)]
    return {"above": above, "seconds": (time.process_time() - used) / trials / seeds}


def _above(sampler: str, name: str, trials: int, seed: int) -> float:
    function, bounds, least = FUNCTIONS[name]
    variables = tuple(Variable(f"x{place}", *bound) for place, bound in enumerate(bounds))
    given = Search("s", "t", variables, (Objective("loss"),), sampler, trials=trials)
    sampling = SearchSampler(described(given, seed))
    ends: list[list[float]] = []
    values: list[float] = []
    for number in range(trials):
        request = {"count": 1, "points": [], "attributes": {}, "ends": ends}
        (point,) = sampling.answer(request)["points"]
        values.append(function(*point["params"].values()))
        ends = [[number, values[-1]]]
    return min(values) - least


def _ask(many: int) -> float:
    """Seconds of processor time of a point of `gp`, after so many trials of Hartmann's function."""
    function, bounds, _ = FUNCTIONS["hartmann6"]
    variables = tuple(Variable(f"x{place}", *bound) for place, bound in enumerate(bounds))
    given = Search("s", "t", variables, (Objective("loss"),), "gp", trials=10_000)
    sampling = SearchSampler(described(given, 7))
    chance = random.Random(7)
    points = [[chance.random() for _ in bounds] for _ in range(many)]
    ends = [[number, function(*point)] for number, point in enumerate(points)]
    request = {"count": 1, "attributes": {}, "points": points, "ends": ends}
    (point,) = sampling.answer(request)["points"]
    asks = 20
    used = time.process_time()
    for number in range(many, many + asks):
        ends = [[number, function(*point["params"].values())]]
        (point,) = sampling.answer({**request, "points": [], "ends": ends})["points"]
    return (time.process_time() - used) / asks


def _reference(python: str | None, words: list[str]) -> Any:
    """What the other tool has found, in its environment, or in the one of the project."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python or sys.executable, REFERENCE, *words],
        env=environment if python else None, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


# -- the page -------------------------------------------------------------------------------


def _beside(ours: list[float], theirs: list[float]) -> float:
    """How much worse the middle search is, in what is between the quartiles of the others."""
    first, _, third = quantiles(theirs, n=4)
    return max(0.0, median(ours) - median(theirs)) / max(third - first, 1e-9)


def _found(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    return "; ".join(
        f"{name} {median(ours[name]['above']):.2g} / {median(theirs[name]['above']):.2g}"
        for name in theirs
    )


def rows(numbers: Numbers) -> list[Row]:
    """How far they come, what they take, and how long trials of processes last."""
    found: list[Row] = []
    for tool, theirs in numbers["theirs"].items():
        sampler, words = PAIRS[tool]
        ours = numbers["ours"][sampler]
        worst = max(_beside(ours[name]["above"], theirs[name]["above"]) for name in theirs)
        found.append(
            Row(
                f"sampler `{sampler}` beside {words}: how much worse, in the scatter of the seeds",
                worst, "<=", 1, "x", f"above the least value: {_found(ours, theirs)}",
            )
        )  # fmt: skip
    for tool in ("optuna-gp", "ax"):
        if theirs := numbers["theirs"].get(tool):
            seconds = [
                sum(of[name]["seconds"] for name in theirs) / len(theirs)
                for of in (numbers["ours"]["gp"], theirs)
            ]
            found.append(
                Row(
                    f"sampler `gp`: processor time of a point / of one of {PAIRS[tool][1]}",
                    seconds[0] / seconds[1], "<=", 1, "x",
                    f"{1e3 * seconds[0]:.0f} / {1e3 * seconds[1]:.0f} ms, the mean of the first "
                    f"{TRIALS}",
                )
            )  # fmt: skip
    for many, seconds in numbers["ask"].items():
        goal = ASKS.get(int(many), 1.0)
        text = f"sampler `gp`: processor time of a point after {int(many):,} trials"
        found.append(Row(text, seconds, "<=", goal, "s", "6 variables"))
    trial = numbers["trial"]
    ideal = EACH * numbers["trials"] / SLOTS
    return [
        *found,
        Row(
            "processor time of one more `true` trial / of one of Optuna with its study in a file",
            trial["ours"] / trial["optuna"], "<=", 1.1, "x",
            f"{1e3 * trial['ours']:.2f} / {1e3 * trial['optuna']:.2f} ms, random points",
        ),
        *(
            [
                Row(
                    "processor time of one more `true` trial / of one of Ray Tune",
                    trial["ours"] / trial["ray"], "<=", 0.5, "x",
                    f"{1e3 * trial['ours']:.2f} / {1e3 * trial['ray']:.0f} ms, random points",
                )
            ]
            if "ray" in trial
            else []
        ),
        Row(
            f"{numbers['trials']} trials of {EACH} s on {SLOTS} slots of the local queue / ideal",
            min(numbers["real"]) / ideal, "<=", 1.15, "x",
            f"{', '.join(f'{one:.2f}' for one in sorted(numbers['real']))} / {ideal:.2f} s, the "
            f"least counts; load {numbers['load']:.1f}",
        ),
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """How far the searches of Branin's function come."""
    axes = figure.subplots()
    values = {
        **{name: of["branin"]["above"] for name, of in numbers["ours"].items()},
        **{PAIRS[name][1]: of["branin"]["above"] for name, of in numbers["theirs"].items()},
    }
    colors = [plots.OURS] * len(numbers["ours"]) + [plots.OTHER] * len(numbers["theirs"])
    plots.bars(axes, values, colors)
    axes.set_xscale("log")
    axes.set_xlabel("best value of Branin's function, above its least one")


BENCHMARK = Benchmark(
    "search-peers",
    "Samplers beside those of other tools",
    f"""Searches of {TRIALS} trials, one at a time, for the least value of three functions, each
    with {MANY} seeds, by a sampler and by what it is compared with: how much worse the middle one
    of its searches is, in what lies between the quartiles of the other's. Those with a Gaussian
    process have {SEEDS} seeds, of which chance alone can make more than 1x: in the first ten of its
    seeds `tpe` was 1.65x worse on Branin's function and `qmc` 1.08x on Rosenbrock's, in nine other
    sets of ten at most 0.22x and 0.6x, and in all hundred 0x and 0.08x. Processor time is that of
    the process that suggests. And trials that run `true`, with points drawn at random, against
    those of Optuna whose study is a file, and of Ray Tune: what one more takes of all processes;
    and trials that are processes of {EACH} s. Ax, Optuna's GP, Ray Tune and libEnsemble are in an
    environment of their own, which SEARCH_PEERS names.""",
    measure,
    rows,
    plot,
)
