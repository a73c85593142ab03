"""Declares what documents may say of members in Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.keys.provider import PoolProvider
from flux_ensemble.texts import shown

#: Options of sbatch that members have already, with what gives them.
_OURS = {
    "nodes": "nodes", "time": "duration", "exclusive": "exclusive", "cpus-per-task": "cores",
    "gpus-per-node": "gpus", "hold": None, "comment": None, "parsable": None, "requeue": None,
    "no-requeue": None, "array": None, "wrap": None, "chdir": None, "job-name": None, "test-only":
    None, "ntasks": None, "ntasks-per-node": None, "wait": None, "export": None, "dependency": None,
}  # fmt: skip


def read_options(value: Mapping[str, Any]) -> dict[str, str | bool]:
    """Read options of sbatch.

    Raises:
        ValueError: one has another form, or is not theirs to give.

    >>> read_options({"partition": "batch", "nice": 5, "overcommit": True})
    {'partition': 'batch', 'nice': '5', 'overcommit': True}
    >>> read_options({"time": "1h"})
    Traceback (most recent call last):
    ValueError: 'time' is what 'duration' of the member says; leave it out here
    """
    options: dict[str, str | bool] = {}
    for name, given in value.items():
        if not isinstance(given, (str, int, float)):
            raise ValueError(f"{name}: expected text, a number, true or false, not {shown(given)}")
        if not re.fullmatch(r"[a-z][a-z-]*[a-z]", name):
            raise ValueError(
                f"expected the long name of an option of sbatch without dashes before it, such as "
                f"partition, not {shown(name)}"
            )
        if name in _OURS:
            key = _OURS[name]
            said = f"is what {key!r} of the member says" if key else "is given by flux-ensemble"
            raise ValueError(f"{name!r} {said}; leave it out here")
        options[name] = given if isinstance(given, bool) else str(given)
    return options


PROVIDER = PoolProvider(
    site="Slurm",
    starts="Slurm, in a job of its own for each",
    page="[members in Slurm](slurm-members.md)",
    refuses={
        key: f"{key!r} is of Flux, and the members are jobs of Slurm; write its options, such as "
        "'options: {partition: NAME, account: NAME}'"
        for key in ("queue", "bank", "constraint", "attributes")
    }
    | {
        f"service: {value}": f"'service: {value}' is of members that Flux starts; one in Slurm is "
        "a Flux instance that the service of the ensemble connects to, or a worker ('runs: "
        "tasks'), so leave out 'service'"
        for value in ("child", "auto")
    },
    command="sbatch",
    read_options=read_options,
)
