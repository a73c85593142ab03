"""Check of the launch: whether each task of a Slurm step became an instance of its own.

If `srun` and Flux do not agree on how brokers find each other (`--mpi=none`, or a plugin that Flux
was built without), each of the N tasks starts an instance of size 1. A script then runs N times,
and so would an ensemble. Flux removes `SLURM_*` from the broker's environment, so the variables are
read where the kernel keeps the initial environment of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any

#: Variables with the number of tasks of the step that launched a process, and its rank (srun(1)).
_TASKS = "SLURM_STEP_NUM_TASKS"
_RANK = "SLURM_PROCID"


def split_by_slurm(attr_get: Callable[[str], Any], proc: Path = Path("/proc")) -> str | None:
    """Return a sentence if the instance is one of several that were meant to be one.

    Args:
        attr_get: `flux.Flux.attr_get` of a handle of the instance, on the node of its rank 0.
        proc: the file system in which the kernel exposes processes.

    Returns:
        A sentence with the remedy; None if all is well, or if that is unknown.
    """
    try:
        if int(attr_get("size")) != 1 or int(attr_get("instance-level")) != 0:
            return None
        if attr_get("hostname") != gethostname():
            return None
        begun_with = (proc / str(int(attr_get("broker.pid"))) / "environ").read_bytes()
    except (OSError, TypeError, ValueError):
        # Another node, another user, or a Flux without these attributes.
        return None
    variables = dict(
        entry.split("=", 1)
        for entry in begun_with.decode(errors="replace").split("\0")
        if "=" in entry
    )
    tasks = variables.get(_TASKS, "")
    if not tasks.isdecimal() or int(tasks) < 2:
        return None
    rank = variables.get(_RANK, "?")
    return (
        f"this Flux instance is task {rank} of {tasks} that srun started, and each of them is an "
        f"instance of its own, so the ensemble would run {tasks} times: start them as one with "
        "`srun --mpi=pmi2 flux start ...` (or --mpi=pmix; `srun --mpi=list` names what there is), "
        "or one task of them with `srun -n1`"
    )
