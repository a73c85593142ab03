"""libEnsemble, from the package registry, in a virtual environment of its own in `.bench/`.

A manager and two workers, whose simulations each run `true` with its executor, at points of a Latin
hypercube.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from pathlib import Path

VERSION = "1.6.1"
CACHE = Path(__file__).resolve().parents[2] / ".bench"

#: Prints the seconds of processor time of all of its processes.
_PROGRAM = """
import resource
import sys

import numpy as np
from libensemble import Ensemble
from libensemble.executors.executor import Executor
from libensemble.gen_funcs.sampling import latin_hypercube_sample
from libensemble.specs import ExitCriteria, GenSpecs, LibeSpecs, SimSpecs


def run(H, persis_info, sim_specs, libE_info):
    task = libE_info["executor"].submit(app_name="true")
    task.wait()
    out = np.zeros(1, dtype=sim_specs["out"])
    out["f"] = task.state == "FINISHED"
    return out, persis_info


if __name__ == "__main__":
    trials = int(sys.argv[1])
    executor = Executor()
    executor.register_app(full_path="/bin/true", app_name="true")
    user = {"gen_batch_size": trials, "lb": np.array([0.0]), "ub": np.array([1.0])}
    ensemble = Ensemble(
        executor=executor,
        libE_specs=LibeSpecs(nworkers=2, comms="local", disable_log_files=True),
        sim_specs=SimSpecs(sim_f=run, inputs=["x"], out=[("f", float)]),
        gen_specs=GenSpecs(gen_f=latin_hypercube_sample, outputs=[("x", float, (1,))], user=user),
        exit_criteria=ExitCriteria(sim_max=trials),
    )
    ensemble.add_random_streams()
    H, *_ = ensemble.run()
    assert H["f"][H["sim_ended"]].sum() >= trials
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(sum(one.ru_utime + one.ru_stime for one in used))
"""


def processor(trials: int) -> float:
    """Seconds of processor time of a run of so many simulations.

    Raises:
        CalledProcessError: it cannot be installed, or does not run.
    """
    home = CACHE / f"libensemble-{VERSION}"
    if not (home / "installed").exists():
        venv.create(home, with_pip=True, clear=True)
        wanted = f"libensemble=={VERSION}"
        subprocess.run([home / "bin" / "pip", "install", "--quiet", wanted], check=True)
        (home / "installed").touch()
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "program.py")
        program.write_text(_PROGRAM)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [home / "bin" / "python", program, str(trials)],
            cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    return float(done.stdout.splitlines()[-1])
