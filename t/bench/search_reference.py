"""Searches by other tools, in the environment that has them; it prints numbers as JSON.

    search_reference.py quality ax branin 30 0 1 2
    search_reference.py processor optuna 100
    search_reference.py installed

`quality` prints how far the best value is above the least one, for each seed, and the seconds of
processor time of one trial. `processor` prints those of all processes, with so many trials that run
`true`. `installed` prints which of the tools there are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from objectives import FUNCTIONS, Bounds

Function = Callable[..., float]


def ax(function: Function, bounds: Bounds, trials: int, seed: int) -> float:
    """Ax as its tutorial has it: quasi-random points, and then a Gaussian process of BoTorch."""
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig
    from torch import set_num_threads

    set_num_threads(1)
    logging.disable(logging.CRITICAL)
    client = Client(random_seed=seed)
    client.configure_experiment(
        name="bench",
        parameters=[
            RangeParameterConfig(name=f"x{place}", parameter_type="float", bounds=bound)
            for place, bound in enumerate(bounds)
        ],
    )
    client.configure_optimization(objective="-loss")
    best = math.inf
    for _ in range(trials):
        for number, params in client.get_next_trials(max_trials=1).items():
            value = function(*(params[f"x{place}"] for place in range(len(bounds))))
            best = min(best, value)
            client.complete_trial(trial_index=number, raw_data={"loss": value})
    return best


def optuna(name: str) -> Callable[[Function, Bounds, int, int], float]:
    """A sampler of Optuna."""

    def run(function: Function, bounds: Bounds, trials: int, seed: int) -> float:
        import optuna

        if name == "GPSampler":
            from torch import set_num_threads

            set_num_threads(1)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=getattr(optuna.samplers, name)(seed=seed))
        study.optimize(
            lambda trial: function(
                *(trial.suggest_float(f"x{place}", *bound) for place, bound in enumerate(bounds))
            ),
            trials,
        )
        return float(study.best_value)

    return run


def libensemble(function: Function, bounds: Bounds, trials: int, seed: int) -> float:
    """A Latin hypercube of libEnsemble."""
    import numpy as np
    from libensemble.gen_funcs.sampling import latin_hypercube_sample

    lower, upper = (np.array([bound[place] for bound in bounds]) for place in (0, 1))
    user = {"gen_batch_size": trials, "lb": lower, "ub": upper}
    specs = {"out": [("x", float, (len(bounds),))], "user": user}
    persistent = {"rand_stream": np.random.default_rng(seed)}
    points, _ = latin_hypercube_sample(None, persistent, specs)
    return min(function(*map(float, point)) for point in points["x"])


def ray(function: Function, bounds: Bounds, trials: int, seed: int) -> float:
    """Ray Tune's search by Optuna, which is asked and told as Ray Tune does it."""
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        f"x{place}": optuna.distributions.FloatDistribution(*bound)
        for place, bound in enumerate(bounds)
    }
    search = OptunaSearch(space, metric="loss", mode="min", seed=seed)
    best = math.inf
    for number in range(trials):
        params = search.suggest(str(number))
        value = function(*(params[name] for name in space))
        best = min(best, value)
        search.on_trial_complete(str(number), {"loss": value})
    return best


TOOLS: dict[str, Callable[[Function, Bounds, int, int], float]] = {
    "ax": ax,
    "optuna-gp": optuna("GPSampler"),
    "optuna-tpe": optuna("TPESampler"),
    "optuna-cma": optuna("CmaEsSampler"),
    "libensemble": libensemble,
    "ray": ray,
}

#: What each needs, besides Optuna.
MODULES = {"ax": "ax", "optuna-gp": "torch", "libensemble": "libensemble", "ray": "ray.tune"}


def quality(tool: str, name: str, trials: int, seeds: list[int]) -> dict[str, Any]:
    """How far each search comes, and what one trial of it takes."""
    function, bounds, least = FUNCTIONS[name]
    # What is imported takes no time of a trial.
    TOOLS[tool](function, bounds, 2, 0)
    used = time.process_time()
    above = [TOOLS[tool](function, bounds, trials, seed) - least for seed in seeds]
    return {"above": above, "seconds": (time.process_time() - used) / trials / len(seeds)}


def installed() -> list[str]:
    """The tools whose packages there are."""
    found = []
    for tool in TOOLS:
        try:
            import_module(MODULES.get(tool, "optuna"))
        except ImportError:
            continue
        found.append(tool)
    return found


def processor_optuna(trials: int) -> float:
    """Seconds of all processes of a study of Optuna with a file, whose trials run `true`."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: Any) -> float:
        x: float = trial.suggest_float("x", 1e-5, 0.1, log=True)
        subprocess.run(["true"], check=True)
        return x

    with tempfile.TemporaryDirectory() as directory:
        storage = JournalStorage(JournalFileBackend(str(Path(directory, "study.log"))))
        sampler = optuna.samplers.RandomSampler(seed=0)
        optuna.create_study(storage=storage, sampler=sampler).optimize(objective, trials)
    return _own()


def processor_ray(trials: int) -> float:
    """Seconds of all processes of Ray with four slots, whose trials run `true`."""
    import ray
    from ray import tune

    def objective(config: dict[str, float]) -> dict[str, float]:
        subprocess.run(["true"], check=True)
        return {"loss": config["x"]}

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as directory:
        tune.Tuner(
            objective,
            param_space={"x": tune.loguniform(1e-5, 0.1)},
            tune_config=tune.TuneConfig(num_samples=trials, max_concurrent_trials=4),
            run_config=tune.RunConfig(storage_path=directory, verbose=0),
        ).fit()
    # Its processes are only reaped by others when it ends.
    used = _own() + sum(map(_used, _below(os.getpid())))
    ray.shutdown()
    return used


PROCESSOR = {"optuna": processor_optuna, "ray": processor_ray}


def _own() -> float:
    """Seconds of this process, and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found: list[int] = []
    # What has ended since is waited for by what started it.
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_below(child)]
    return found


def _used(pid: int) -> float:
    """Seconds of a process that runs, and of those that it has waited for."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, *words = sys.argv[1:]
    if what == "quality":
        tool, name, trials, *seeds = words
        print(json.dumps(quality(tool, name, int(trials), list(map(int, seeds)))))
    elif what == "processor":
        tool, count = words
        print(json.dumps(PROCESSOR[tool](int(count))))
    else:
        print(json.dumps(installed()))
