"""A sample is called when its lanes are aligned and it is checked, and all of that succeeded."""

from pathlib import Path
from statistics import mean

import numpy as np
from libensemble import Ensemble
from libensemble.alloc_funcs.give_pregenerated_work import give_pregenerated_sim_work
from libensemble.executors import Executor
from libensemble.message_numbers import TASK_FAILED, WORKER_DONE
from libensemble.specs import AllocSpecs, ExitCriteria, LibeSpecs, SimSpecs

SAMPLES = ["s1", "s2", "s3"]
LANES = [1, 2]


def call_variants(points, persis_info, sim_specs, libE_info):
    executor = libE_info["executor"]
    sample = points["sample"][0]
    results = np.zeros(1, dtype=sim_specs["out"])
    lanes = [executor.submit(app_name="align", app_args=f"{sample} {lane}") for lane in LANES]
    tasks = [*lanes, executor.submit(app_name="qc", app_args=sample)]
    for task in tasks:
        task.wait()
    results["failed"] = sum(not task.success for task in tasks)
    if results["failed"]:
        return results, persis_info, TASK_FAILED
    depths = [float(task.read_stdout().strip().removeprefix("depth=")) for task in lanes]
    call = executor.submit(app_name="call", app_args=f"{sample} {mean(depths)}")
    call.wait()
    return results, persis_info, WORKER_DONE if call.success else TASK_FAILED


if __name__ == "__main__":
    executor = Executor()
    for app in ("align", "qc", "call"):
        path = str(Path(f"{app}.sh").resolve())
        executor.register_app(full_path=path, app_name=app, precedent="sh")
    fields = [("sample", "U8"), ("sim_id", int), ("sim_started", bool), ("sim_ended", bool)]
    points = np.zeros(len(SAMPLES), dtype=fields)
    points["sample"], points["sim_id"] = SAMPLES, range(len(SAMPLES))
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(nworkers=3),
        sim_specs=SimSpecs(sim_f=call_variants, inputs=["sample"], outputs=[("failed", int)]),
        alloc_specs=AllocSpecs(alloc_f=give_pregenerated_sim_work),
        exit_criteria=ExitCriteria(sim_max=len(SAMPLES)),
        H0=points,
    )
    history, _, _ = ensemble.run()
    left_out = [
        f"{row['sample']}: {row['failed']} of {len(LANES) + 1} jobs failed\n"
        for row in history
        if row["failed"]
    ]
    Path("left-out.txt").write_text("".join(left_out))
