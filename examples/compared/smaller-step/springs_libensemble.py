"""Each point begins with the largest step, and has half of it whenever its simulation blew up."""

from pathlib import Path

import numpy as np
from libensemble import Ensemble
from libensemble.alloc_funcs.give_pregenerated_work import give_pregenerated_sim_work
from libensemble.executors import Executor
from libensemble.message_numbers import TASK_FAILED, WORKER_DONE
from libensemble.specs import AllocSpecs, ExitCriteria, LibeSpecs, SimSpecs


def spring(points, persis_info, sim_specs, libE_info):
    k = points["k"][0]
    results = np.zeros(1, dtype=sim_specs["out"])
    for attempt in range(4):
        dt = 0.1 / 2**attempt
        task = libE_info["executor"].submit(app_name="spring", app_args=f"{k} {dt}")
        task.wait()
        if task.errcode != 3:
            break
    if not task.success:
        return results, persis_info, TASK_FAILED
    energy = task.read_stdout().strip().removeprefix("energy=")
    results["dt"], results["energy"], results["stable"] = dt, float(energy), True
    return results, persis_info, WORKER_DONE


if __name__ == "__main__":
    executor = Executor()
    executor.register_app(
        full_path=str(Path("spring.sh").resolve()), app_name="spring", precedent="sh"
    )
    stiffness = [1, 100, 900, 10000, 1000000]
    fields = [("k", int), ("sim_id", int), ("sim_started", bool), ("sim_ended", bool)]
    points = np.zeros(len(stiffness), dtype=fields)
    points["k"], points["sim_id"] = stiffness, range(len(stiffness))
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(nworkers=4, sim_dirs_make=True),
        sim_specs=SimSpecs(
            sim_f=spring,
            inputs=["k"],
            outputs=[("dt", float), ("energy", float), ("stable", bool)],
        ),
        alloc_specs=AllocSpecs(alloc_f=give_pregenerated_sim_work),
        exit_criteria=ExitCriteria(sim_max=len(stiffness)),
        H0=points,
    )
    history, _, _ = ensemble.run()
    good = np.sort(history[history["stable"]], order="k")
    Path("table.txt").write_text(
        "".join(f"{row['k']} {row['dt']} {row['energy']:.3f}\n" for row in good)
    )
    Path("left-over.txt").write_text("".join(f"{k}\n" for k in history["k"][~history["stable"]]))
