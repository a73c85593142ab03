"""20 trainings, four at a time, with parameters that a sampler suggests; then a longer one with the
best. Trainings that fail are left out."""

from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import optuna
import parsl
from optuna.trial import TrialState
from parsl import python_app
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor


@python_app
def train(lr, layers, epochs):
    import subprocess

    words = ["python3", "train.py", str(lr), str(layers), str(epochs)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.strip().removeprefix("loss="))


def main():
    study = optuna.create_study()
    runs = {}

    def begin():
        trial = study.ask()
        lr = trial.suggest_float("lr", 1e-5, 0.1, log=True)
        runs[train(lr, trial.suggest_int("layers", 1, 8), 4)] = trial

    for _ in range(4):
        begin()
    while runs:
        done, _ = wait(runs, return_when=FIRST_COMPLETED)
        for future in done:
            trial = runs.pop(future)
            if future.exception():
                print(trial.params, future.exception())
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, future.result())
            if len(study.trials) < 20:
                begin()
    loss = train(**study.best_params, epochs=8).result()
    Path("final.txt").write_text(f"loss={loss}\n")


if __name__ == "__main__":
    with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=4)])):
        main()
