"""The launch of an instance: by which batch system, and whether each task is one of its own.

If a launcher and Flux do not agree on how brokers find each other (`srun --mpi=none`, a plugin that
Flux was built without, `mpirun` of Open MPI), each of the N tasks starts an instance of size 1. A
script then runs N times, and so would an ensemble. Flux removes `SLURM_*` from the broker's
environment, so the variables are read where the kernel keeps the initial environment of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple


class _Launcher(NamedTuple):
    """A command that starts tasks.

    `tasks` and `rank` are the variables with the number of tasks and the rank of one; `remedy` is
    how brokers are started as one instance.
    """

    command: str
    tasks: str
    rank: str
    remedy: str


#: Launchers, the innermost first: Open MPI starts its own processes by srun within a Slurm job.
_LAUNCHERS = (
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "`srun --mpi=pmi2 flux start ...` or `mpiexec.hydra flux start ...` (Flux does not find "
        "its brokers by Open MPI), or one task of them with `mpirun -n1`",
    ),
    _Launcher(
        "srun",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        "`srun --mpi=pmi2 flux start ...` (or --mpi=pmix; `srun --mpi=list` names what there is), "
        "or one task of them with `srun -n1`",
    ),
)


#: Variable that a batch system sets for the processes of a job -> the batch system.
_BATCH_SYSTEMS = {"SLURM_JOB_ID": "Slurm", "PBS_JOBID": "PBS"}


def batch_system(attr_get: Callable[[str], Any], proc: Path = Path("/proc")) -> str | None:
    """Return the name of the batch system in whose job the instance runs.

    Args:
        attr_get, proc: as for `split_by_launcher`.

    Returns:
        The name; None if there is none, or if that is unknown.
    """
    variables = _initial_environment(attr_get, proc)
    return next((name for key, name in _BATCH_SYSTEMS.items() if key in variables), None)


def split_by_launcher(attr_get: Callable[[str], Any], proc: Path = Path("/proc")) -> str | None:
    """Return a sentence if the instance is one of several that were meant to be one.

    Args:
        attr_get: `flux.Flux.attr_get` of a handle of the instance, on the node of its rank 0.
        proc: the file system in which the kernel exposes processes.

    Returns:
        A sentence with the remedy; None if all is well, or if that is unknown.
    """
    try:
        if int(attr_get("size")) != 1:
            return None
    except (OSError, TypeError, ValueError):
        return None
    variables = _initial_environment(attr_get, proc)
    for launcher in _LAUNCHERS:
        tasks = variables.get(launcher.tasks, "")
        if tasks.isdecimal() and int(tasks) > 1:
            return (
                f"this Flux instance is task {variables.get(launcher.rank, '?')} of {tasks} that "
                f"{launcher.command} started, and each of them is an instance of its own, so the "
                f"ensemble would run {tasks} times: start them as one with {launcher.remedy}"
            )
    return None


def _initial_environment(attr_get: Callable[[str], Any], proc: Path) -> dict[str, str]:
    """Return the environment with which the broker of an outermost instance was started.

    It is empty if that is unknown: on another node, for another user, for a Flux without these
    attributes, and for an instance inside another one.
    """
    try:
        if int(attr_get("instance-level")) != 0 or attr_get("hostname") != gethostname():
            return {}
        initial = (proc / str(int(attr_get("broker.pid"))) / "environ").read_bytes()
    except (OSError, TypeError, ValueError):
        return {}
    entries = initial.decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
