"""20 trainings, four at a time, with parameters that a sampler suggests; then a longer one with the
best. Trainings that fail are left out."""

import subprocess
from pathlib import Path

import numpy as np
import optuna
from libensemble import Ensemble
from libensemble.alloc_funcs.start_only_persistent import only_persistent_gens
from libensemble.executors import Executor
from libensemble.message_numbers import (
    EVAL_GEN_TAG,
    FINISHED_PERSISTENT_GEN_TAG,
    PERSIS_STOP,
    STOP_TAG,
    TASK_FAILED,
    WORKER_DONE,
)
from libensemble.specs import AllocSpecs, ExitCriteria, GenSpecs, LibeSpecs, SimSpecs
from libensemble.tools.persistent_support import PersistentSupport
from optuna.trial import TrialState


def train(points, persis_info, sim_specs, libE_info):
    arguments = f"{points['lr'][0]} {points['layers'][0]} 4"
    task = libE_info["executor"].submit(app_name="train", app_args=arguments)
    task.wait()
    results = np.full(1, np.nan, dtype=sim_specs["out"])
    if not task.success:
        return results, persis_info, TASK_FAILED
    results["loss"] = float(task.read_stdout().strip().removeprefix("loss="))
    return results, persis_info, WORKER_DONE


def suggest(_, persis_info, gen_specs, libE_info):
    support = PersistentSupport(libE_info, EVAL_GEN_TAG)
    study = optuna.create_study()
    tag, wanted = None, 4
    while tag not in (STOP_TAG, PERSIS_STOP):
        points = np.zeros(wanted, dtype=gen_specs["out"])
        for point in points:
            trial = study.ask()
            point["trial"] = trial.number
            point["lr"] = trial.suggest_float("lr", 1e-5, 0.1, log=True)
            point["layers"] = trial.suggest_int("layers", 1, 8)
        tag, _, results = support.send_recv(points)
        if results is not None:
            wanted = len(results)
            for row in results:
                if np.isnan(row["loss"]):
                    study.tell(int(row["trial"]), state=TrialState.FAIL)
                else:
                    study.tell(int(row["trial"]), row["loss"])
    return None, persis_info, FINISHED_PERSISTENT_GEN_TAG


if __name__ == "__main__":
    executor = Executor()
    executor.register_app(full_path=str(Path("train.py").resolve()), app_name="train")
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(nworkers=4, gen_on_manager=True),
        sim_specs=SimSpecs(sim_f=train, inputs=["lr", "layers"], outputs=[("loss", float)]),
        gen_specs=GenSpecs(
            gen_f=suggest,
            persis_in=["trial", "loss"],
            outputs=[("trial", int), ("lr", float), ("layers", int)],
        ),
        alloc_specs=AllocSpecs(alloc_f=only_persistent_gens, user={"async_return": True}),
        exit_criteria=ExitCriteria(sim_max=20),
    )
    history, _, _ = ensemble.run()
    best = history[np.nanargmin(np.where(history["sim_ended"], history["loss"], np.nan))]
    words = ["python3", "train.py", str(best["lr"]), str(best["layers"]), "8"]
    with open("final.txt", "w") as file:
        subprocess.run(words, check=True, stdout=file)
