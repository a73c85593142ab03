"""A simulation for each row of a sheet, in a directory of its own with links to its input files."""

from pathlib import Path

import numpy as np
from libensemble import Ensemble
from libensemble.alloc_funcs.give_pregenerated_work import give_pregenerated_sim_work
from libensemble.executors import Executor
from libensemble.message_numbers import TASK_FAILED, WORKER_DONE
from libensemble.specs import AllocSpecs, ExitCriteria, LibeSpecs, SimSpecs


def relax(points, persis_info, sim_specs, libE_info):
    structure, temperature = points["structure"][0], points["temperature"][0]
    results = np.zeros(1, dtype=sim_specs["out"])
    path = sim_specs["user"]["structures"] / f"{structure}.cif"
    try:
        Path(path.name).symlink_to(path.resolve(strict=True))
    except FileNotFoundError as error:
        print(f"{structure}: {error}")
        return results, persis_info, TASK_FAILED
    task = libE_info["executor"].submit(app_name="relax", app_args=f"{structure} {temperature}")
    task.wait()
    results["returncode"] = task.errcode
    return results, persis_info, WORKER_DONE if task.success else TASK_FAILED


if __name__ == "__main__":
    executor = Executor()
    path = str(Path("relax.sh").resolve())
    executor.register_app(full_path=path, app_name="relax", precedent="sh")
    rows = np.genfromtxt("structures.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    own = [("sim_id", int), ("sim_started", bool), ("sim_ended", bool)]
    points = np.zeros(len(rows), dtype=rows.dtype.descr + own)
    for name in rows.dtype.names:
        points[name] = rows[name]
    points["sim_id"] = range(len(rows))
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(
            nworkers=4,
            sim_dirs_make=True,
            ensemble_dir_path="runs",
            sim_dir_symlink_files=["in.relax"],
        ),
        sim_specs=SimSpecs(
            sim_f=relax,
            inputs=["structure", "temperature"],
            outputs=[("returncode", int)],
            user={"structures": Path("structures").resolve()},
        ),
        alloc_specs=AllocSpecs(alloc_f=give_pregenerated_sim_work),
        exit_criteria=ExitCriteria(sim_max=len(rows)),
        H0=points,
    )
    ensemble.run()
