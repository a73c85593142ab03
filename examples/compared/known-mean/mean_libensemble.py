"""Eight walks, and eight more until their mean is known to 20 %; walks that fail are left out."""

from pathlib import Path

import numpy as np
from libensemble import Ensemble
from libensemble.alloc_funcs.start_only_persistent import only_persistent_gens
from libensemble.executors import Executor
from libensemble.message_numbers import (
    EVAL_GEN_TAG,
    FINISHED_PERSISTENT_GEN_TAG,
    TASK_FAILED,
    WORKER_DONE,
)
from libensemble.specs import AllocSpecs, ExitCriteria, GenSpecs, LibeSpecs, SimSpecs
from libensemble.tools.persistent_support import PersistentSupport
from scipy.stats import t


def walk(points, persis_info, sim_specs, libE_info):
    task = libE_info["executor"].submit(app_name="walk", app_args=str(points["seed"][0]))
    task.wait()
    results = np.full(1, np.nan, dtype=sim_specs["out"])
    if not task.success:
        return results, persis_info, TASK_FAILED
    results["distance"] = float(task.read_stdout().strip().removeprefix("distance="))
    return results, persis_info, WORKER_DONE


def until_known(earlier, persis_info, gen_specs, libE_info):
    support = PersistentSupport(libE_info, EVAL_GEN_TAG)
    found = {row["seed"]: row["distance"] for row in earlier}  # to go on
    for batch in range(50):
        seeds = range(8 * batch, 8 * batch + 8)
        seeds = [seed for seed in seeds if seed not in found]  # to go on
        if seeds:  # to go on
            points = np.zeros(len(seeds), dtype=gen_specs["out"])
            points["seed"] = seeds
            _, _, results = support.send_recv(points)
            found.update({row["seed"]: row["distance"] for row in results})
        distances = [distance for distance in found.values() if not np.isnan(distance)]
        n, mean = len(distances), np.mean(distances)
        half = t.ppf(0.975, n - 1) * np.std(distances, ddof=1) / n**0.5
        if half < 0.2 * mean:
            text = f"distance {round(mean, 2)} +- {round(half, 2)}, of {n} walks\n"
            Path("answer.txt").write_text(text)
            break
    return None, persis_info, FINISHED_PERSISTENT_GEN_TAG


def kept():  # to go on
    """The walks that ended before a kill, of the latest file of the history."""
    files = sorted(Path().glob("libE_history*.npy"), key=lambda path: path.stat().st_mtime)
    if not files:
        return None
    history = np.load(files[-1])
    return history[history["sim_ended"]]


if __name__ == "__main__":
    executor = Executor()
    path = str(Path("walk.sh").resolve())
    executor.register_app(full_path=path, app_name="walk", precedent="sh")
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(
            nworkers=4,
            gen_on_manager=True,
            save_every_k_sims=1,  # to go on
        ),
        sim_specs=SimSpecs(sim_f=walk, inputs=["seed"], outputs=[("distance", float)]),
        gen_specs=GenSpecs(
            gen_f=until_known,
            inputs=["seed", "distance"],  # to go on
            persis_in=["seed", "distance"],
            outputs=[("seed", int)],
        ),
        alloc_specs=AllocSpecs(alloc_f=only_persistent_gens),
        exit_criteria=ExitCriteria(sim_max=400),
        H0=kept(),  # to go on
    )
    ensemble.run()
