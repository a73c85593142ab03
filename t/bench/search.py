"""Searches: how well slots are used, and beside Optuna and libEnsemble."""

from __future__ import annotations

import heapq
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import libensemble_peer
import plots
from benchmark import Benchmark, Numbers, Row

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.codec import event_from_json
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.model import Objective, Search, Variable, searches_of
from flux_ensemble.features.search.samplers import SearchSampler, seed_of
from flux_ensemble.features.search.unit_cube import sequence_seed

SLOTS = 16

#: The command, up to what it is to do.
_COMMAND = [sys.executable, "-m", "flux_ensemble.cli.main"]


def document(trials: int, command: str, **more: Any) -> dict[str, Any]:
    """A search of one variable, whose trials publish nothing where they are processes."""
    search = {
        "id": "s", "group": "t", "variables": {"x": {"low": 1e-5, "high": 0.1, "log": True}},
        "minimize": "loss", "sampler": "random", "trials": trials, "parallel": SLOTS,
        "failures": trials + 1, **more,
    }  # fmt: skip
    return {
        "name": "bench",
        "search": [search],
        "jobs": [{"name": "t", "command": command}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "s"}}],
    }


def measure(smoke: bool) -> Numbers:
    """All of them; without libEnsemble, which is installed for it, where it is small."""
    many, few = (50, 20) if smoke else (10_000, 1000)
    sizes = (5, 10) if smoke else (100, 600)
    numbers: Numbers = {
        "simulated": _simulated(many),
        "local": local(few, "sleep 0.1", timed=True),
    }
    numbers["differing"] = _differing(8 if smoke else 30)
    seeds = range(1 if smoke else 8)
    numbers["stopping"] = [_stopping(seed, 60 if smoke else 300) for seed in seeds]
    numbers["trial"] = {"ours": slope(lambda count: local(count, "true")["processor"], sizes)}
    if not smoke:
        numbers["trial"]["libensemble"] = slope(libensemble_peer.processor, sizes)
    return numbers


def slope(processor: Callable[[int], float], sizes: tuple[int, int]) -> float:
    """Seconds of processor time that one more trial takes."""
    few, many = sizes
    return (processor(many) - processor(few)) / (many - few)


def _processor() -> float:
    """Seconds of processor time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def local(
    trials: int, command: str, *, timed: bool = False, slots: int = SLOTS
) -> dict[str, float]:
    """Seconds of a run on the local queue: of its jobs by the clock, and all of the processor."""
    size = ("--nodes", "4", "--cores", str(slots // 4))
    # Trials that publish nothing find nothing, which fails a run.
    words = ["run", "--queue", "local", "--state-dir", ".", "--fail-on", "none", *size]
    words += ["--record", "run.jsonl"] if timed else []
    value = document(trials, command, parallel=slots)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "bench.yaml").write_text(json.dumps(value))
        used = _processor()
        subprocess.run(
            [*_COMMAND, *words, "bench.yaml"], cwd=directory, check=True, stdout=subprocess.DEVNULL
        )
        used = _processor() - used
        times = [
            line["event"]["t"]
            for line in (_lines(Path(directory, "run.jsonl")) if timed else ())
            if line.get("event", {}).get("name") in ("submit", "clean")
        ]
    seconds = max(times) - min(times) if timed else 0.0
    return {"trials": trials, "seconds": seconds, "processor": used}


# -- the simulator, and a replay ------------------------------------------------------------


def _simulated(trials: int) -> dict[str, float]:
    """Seconds of virtual time on 16 slots, and of processor time to read it all again."""
    value = document(trials, "x {x}")
    value["simulate"] = {"t": {"duration": 1, "memo": {"loss": {"expression": "x"}}}}
    with tempfile.TemporaryDirectory() as directory:
        lines = _recorded(value, directory)
        times = [line["event"]["t"] for line in lines if line.get("event", {}).get("t") is not None]
        used = _processor()
        subprocess.run(
            [*_COMMAND, "replay", str(Path(directory, "run.jsonl"))],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        replayed = _processor() - used
    recovered = _recovered(value, lines)
    seconds = max(times) - min(times)
    return {"trials": trials, "seconds": seconds, "replayed": replayed, "recovered": recovered}


def _recovered(value: dict[str, Any], lines: list[dict[str, Any]]) -> float:
    """Seconds of processor time until an engine is as it was at a snapshot in the end."""
    engine = Engine(load_mapping(value))
    engine.stats.keep_values()
    for line in lines:
        if "event" in line:
            engine.handle(event_from_json(line["event"]))
    kept = json.dumps([value, dump(engine), engine.stats.take_values()])
    used = time.process_time()
    document, snapshot, values = json.loads(kept)
    again = restore(load_mapping(document), snapshot, [values])
    used = time.process_time() - used
    assert dump(again) == dump(engine)
    return used


def _recorded(value: dict[str, Any], directory: str, slots: int = SLOTS) -> list[dict[str, Any]]:
    """The lines of the recording of a simulation, but for its header."""
    file = Path(directory, "bench.yaml")
    file.write_text(json.dumps(value))
    words = ["--nodes", "1", "--cores", str(slots), "--record", str(Path(directory, "run.jsonl"))]
    subprocess.run(
        [*_COMMAND, "simulate", *words, str(file)], check=True, stdout=subprocess.DEVNULL
    )
    return _lines(Path(directory, "run.jsonl"))


def _lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a recording but for its header."""
    with file.open() as lines:
        return [json.loads(line) for line in lines][1:]


# -- Optuna ---------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "sphere": lambda x, y: x * x + y * y,
    "rosenbrock": lambda x, y: (1 - x) ** 2 + 100 * (y - x * x) ** 2,
    "himmelblau": lambda x, y: (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2,
    "rastrigin": lambda x, y: 20 + sum(v * v - 10 * math.cos(2 * math.pi * v) for v in (x, y)),
    "booth": lambda x, y: (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2,
}


def _differing(trials: int) -> dict[str, int]:
    """Of how many points those of a search are not those of Optuna, called directly."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", message="QMCSampler is experimental")
    liar = partial(optuna.samplers.TPESampler, constant_liar=True)
    # With how many trials are under way at once.
    samplers: list[tuple[str, int, Callable[..., Any]]] = [
        ("random", 1, optuna.samplers.RandomSampler),
        ("qmc", 1, partial(optuna.samplers.QMCSampler, scramble=True)),
        ("tpe", 1, optuna.samplers.TPESampler),
        ("tpe", 4, liar),
        ("cma", 1, optuna.samplers.CmaEsSampler),
        ("nsga2", 1, optuna.samplers.NSGAIISampler),
    ]
    space: dict[str, Any] = {
        name: optuna.distributions.FloatDistribution(-5.0, 5.0) for name in "xy"
    }
    variables = tuple(Variable(name, -5.0, 5.0) for name in "xy")
    points = differing = 0
    for name, at_once, sampler in samplers:
        for function in _FUNCTIONS.values():
            given = Search(
                "s", "t", variables, (Objective("loss"),), name, trials=1000, parallel=at_once
            )
            words = described(given, 7)
            sampling, study = SearchSampler(words), optuna.create_study()
            if name == "qmc":
                # Optuna's sequence begins with the second trial: the first tells it of the space.
                study.sampler = optuna.samplers.RandomSampler()
                study.tell(study.ask(space), 0.0)
            before = len(study.trials)
            ends: list[list[float]] = []
            under_way: deque[Any] = deque()
            for number in range(trials):
                request = {"count": 1, "points": [], "attributes": {}, "ends": ends}
                params = sampling.answer(request)["points"][0]["params"]
                seed = sequence_seed(words) if name == "qmc" else seed_of(words, number)
                study.sampler = sampler(seed=seed)
                trial = study.ask(space)
                under_way.append(trial)
                ends = []
                if len(under_way) == at_once:
                    oldest = under_way.popleft()
                    value = function(oldest.params["x"], oldest.params["y"])
                    study.tell(oldest, value)
                    ends = [[oldest.number - before, value]]
                points += 1
                differing += params != trial.params
    return {"points": points, "differing": differing}


#: Steps of a trial, each a second long; trials at once; the loss that is to be reached.
_STEPS, _WORKERS, _TARGET = 27, 8, 0.06


def _loss(x: float, step: int) -> float:
    return (math.log10(x) + 3) ** 2 + math.exp(-step / 9)


def _stopping(seed: int, trials: int) -> dict[str, float]:
    """Seconds of workers until a trial has reached the loss, ours and Optuna's."""
    value = document(
        trials, "x {x}", parallel=_WORKERS, stop={"policy": "asha", "step": "epoch", "eta": 3}
    )
    loss = {"expression": "(log10(x) + 3) ** 2 + exp(-epoch / 9)", "step": "epoch", "steps": _STEPS}
    value["seed"] = seed
    value["simulate"] = {"t": {"duration": _STEPS, "memo": {"loss": loss}}}
    with tempfile.TemporaryDirectory() as directory:
        lines = _recorded(value, directory, _WORKERS)
    return {"ours": _spent(lines), "optuna": _optuna(value, trials)}


def _spent(lines: list[dict[str, Any]]) -> float:
    spent, running = 0.0, dict[int, float]()
    for line in lines:
        event = line.get("event", {})
        match event.get("name"):
            case "start":
                running[event["job"]] = event["t"]
            case "finish" if event["job"] in running:
                spent += event["t"] - running.pop(event["job"])
            case "memo" if event["context"]["loss"] <= _TARGET:
                return spent + sum(event["t"] - start for start in running.values())
    return math.inf


def _optuna(value: dict[str, Any], trials: int) -> float:
    """The same in virtual time, with the same points, by Optuna's study and pruner."""
    import optuna

    (given,) = searches_of(load_mapping(value))
    words = described(given, value["seed"])
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    study = optuna.create_study(pruner=pruner)
    space: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(1e-5, 0.1, log=True)}
    spent, asked = 0.0, 0

    def begin(t: float) -> None:
        nonlocal asked
        study.sampler = optuna.samplers.RandomSampler(seed=seed_of(words, asked))
        heapq.heappush(events, (t + 1, asked, 1, study.ask(space)))
        asked += 1

    events: list[tuple[float, int, int, Any]] = []
    for _ in range(_WORKERS):
        begin(0.0)
    while events:
        t, number, step, trial = heapq.heappop(events)
        spent += 1
        value_now = _loss(trial.params["x"], step)
        if value_now <= _TARGET:
            # What the others have spent on the steps that they are at.
            return spent + sum(1 - (end - t) for end, *_ in events)
        trial.report(value_now, step)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        elif step == _STEPS:
            study.tell(trial, value_now)
        else:
            heapq.heappush(events, (t + 1, number, step + 1, trial))
            continue
        if asked < trials:
            begin(t)
    return math.inf


# -- the page -------------------------------------------------------------------------------


def rows(numbers: Numbers) -> list[Row]:
    """Against the ideal, Optuna and libEnsemble."""
    simulated, local, trial = numbers["simulated"], numbers["local"], numbers["trial"]
    ideal = math.ceil(simulated["trials"] / SLOTS)
    short = 0.1 * math.ceil(local["trials"] / SLOTS)
    differing, stopping = numbers["differing"], numbers["stopping"]
    ours, theirs = (sum(one[key] for one in stopping) for key in ("ours", "optuna"))
    found = [
        Row(
            f"search of {simulated['trials']:,} trials of 1 s on {SLOTS} slots, simulated / ideal",
            simulated["seconds"] / ideal, "<=", 1.03, "x",
            f"{simulated['seconds']:.0f} / {ideal} s",
        ),
        Row(
            f"search of {local['trials']:,} trials of 0.1 s on {SLOTS} slots of the local queue "
            "/ ideal",
            local["seconds"] / short, "<=", 1.03, "x",
            f"{local['seconds']:.1f} / {short:.1f} s from the first submit to the last end; "
            f"{1e3 * local['processor'] / local['trials']:.1f} ms of processor time a trial",
        ),
        Row(
            "points that are not those of Optuna, called directly",
            differing["differing"], "<=", 0, "",
            f"{differing['points']} points: 5 samplers, one of them also with 4 trials at once; "
            "5 functions",
        ),
        Row(
            "early stopping: seconds of workers until a loss is reached / Optuna's ASHA",
            ours / theirs, "<=", 1, "x",
            f"{ours:.0f} / {theirs:.0f} s in {len(stopping)} searches with the same points",
        ),
        Row(
            f"search of {simulated['trials']:,} trials: recovery from a snapshot",
            simulated["recovered"], "<=", 3, "s",
            f"processor time; a replay of its whole recording takes {simulated['replayed']:.2f} s",
        ),
    ]  # fmt: skip
    if "libensemble" in trial:
        found.append(
            Row(
                "processor time of one more `true` trial / of one of libEnsemble",
                trial["ours"] / trial["libensemble"], "<=", 0.5, "x",
                f"{1e3 * trial['ours']:.2f} / {1e3 * trial['libensemble']:.2f} ms; libEnsemble "
                f"{libensemble_peer.VERSION} with its executor and 2 workers",
            )
        )  # fmt: skip
    return found


def plot(figure: Any, numbers: Numbers) -> None:
    """Seconds of workers, ours and Optuna's, of each search."""
    axes = figure.subplots()
    stopping = numbers["stopping"]
    values = {
        name: [sum(one[key] for one in stopping)]
        for name, key in (("flux-ensemble", "ours"), ("Optuna", "optuna"))
    }
    plots.bars(axes, values, [plots.OURS, plots.OTHER])
    axes.set_xlabel("seconds of workers until a loss is reached")


BENCHMARK = Benchmark(
    "search",
    "Searches",
    """A search of short trials against the time that its slots alone take; its trials publish
    nothing on the local queue. Points against those of Optuna, called with the same seeds in
    the same order. A search with early stopping in the simulator against Optuna's own pruner in a
    loop in virtual time, with the same points, steps and workers. And trials that run `true`
    on the local queue against those of libEnsemble with its executor, in a virtual environment of
    its own: what one more takes of the processor, of all processes.""",
    measure,
    rows,
    plot,
)
