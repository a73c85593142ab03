"""Checks for `doctor FILE` that Slurm would take the members of a pool."""

from __future__ import annotations

import subprocess
from typing import Any

from flux_ensemble.document.members import Pool
from flux_ensemble.finding import Finding
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed
from flux_ensemble.words import counted, in_words

#: Seconds that Slurm may take for an answer.
PATIENCE = 10.0

_COMMAND = ("scontrol", "show", "partition", "--oneliner")


def check(pool: Pool) -> Finding:
    """Ask Slurm whether it is there, and whether the partition takes such members."""
    try:
        done = subprocess.run(
            _COMMAND, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except OSError:
        return _problem(
            pool,
            f"{_COMMAND[0]!r} is not on PATH",
            "run this where sbatch and squeue are, such as a login node of the cluster",
        )
    except subprocess.TimeoutExpired:
        return _problem(
            pool,
            f"Slurm has not answered for {PATIENCE:g} s",
            f"see whether `{' '.join(_COMMAND)}` answers later",
        )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason is given"])[-1]
        return _problem(pool, f"Slurm does not answer: {said}", "`sinfo` may say more")
    return judge(pool, done.stdout)


def judge(pool: Pool, output: str) -> Finding:
    """Return whether a partition takes the members of a pool.

    Args:
        pool: the pool.
        output: what `scontrol show partition --oneliner` printed.

    >>> output = "PartitionName=batch Default=YES MaxNodes=4 MaxTime=01:00:00 State=UP TotalNodes=8"
    >>> judge(Pool("hpc", nodes=4, duration=3600.0), output).text
    'hpc: partition batch is up, with 8 nodes'
    >>> judge(Pool("hpc", duration=7200.0), output).text
    'hpc: partition batch gives 1h at most, and a member lasts 2h'
    """
    partitions = {one["PartitionName"]: one for one in map(_fields, output.splitlines()) if one}
    wanted = str(pool.options.get("partition", ""))
    default = [name for name, one in partitions.items() if one.get("Default") == "YES"]
    names = wanted.split(",") if wanted else default
    if not names:
        return _problem(
            pool,
            "Slurm has no default partition",
            f"name one: 'options: {{partition: NAME}}' ({_all(partitions)})",
        )
    problems = []
    for name in names:
        if name not in partitions:
            near = hint(name, sorted(partitions))
            problems.append(
                _problem(pool, f"there is no partition {name!r}", f"{near}{_all(partitions)}")
            )
        elif (problem := _judge(pool, name, partitions[name])) is not None:
            problems.append(problem)
        else:
            nodes = counted(int(partitions[name].get("TotalNodes", 0)), "node")
            return Finding("site", "ok", f"{pool.name}: partition {name} is up, with {nodes}")
    return problems[0]


def _judge(pool: Pool, name: str, partition: dict[str, str]) -> Finding | None:
    """Return why a partition does not take the members of a pool; None if it does."""
    most = min(_number(partition.get(key)) for key in ("MaxNodes", "TotalNodes"))
    if pool.nodes > most:
        return _problem(
            pool,
            f"partition {name} gives {counted(int(most), 'node')} at most, and a member has "
            f"{pool.nodes}",
            "give fewer 'nodes', or another partition in 'options'",
        )
    longest = _seconds(partition.get("MaxTime"))
    if pool.duration > longest:
        return _problem(
            pool,
            f"partition {name} gives {in_words(longest)} at most, and a member lasts "
            f"{in_words(pool.duration)}",
            "give a shorter 'duration', or another partition in 'options'",
        )
    accounts = partition.get("AllowAccounts", "ALL")
    account = pool.options.get("account")
    if account is not None and accounts != "ALL" and account not in accounts.split(","):
        return _problem(
            pool,
            f"partition {name} takes no jobs of account {account!r}",
            f"give another 'account' in 'options' (it takes those of {accounts}), or another "
            "partition",
        )
    state = partition.get("State", "UP")
    if state != "UP":
        return Finding(
            "site",
            "warning",
            f"{pool.name}: partition {name} is {state.lower()}",
            "members wait until it is up; or give another partition in 'options'",
        )
    return None


def _problem(pool: Pool, text: str, advice: str) -> Finding:
    return Finding("site", "problem", f"{pool.name}: {text}", advice)


def _all(partitions: dict[str, Any]) -> str:
    return f"partitions: {listed(sorted(partitions))}" if partitions else "it has no partitions"


def _fields(line: str) -> dict[str, str]:
    """Return the fields of a partition; {} for another line.

    >>> _fields("PartitionName=a State=UP")
    {'PartitionName': 'a', 'State': 'UP'}
    """
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return fields if "PartitionName" in fields else {}


def _number(text: str | None) -> float:
    """Return a number; infinity for UNLIMITED.

    >>> _number("4"), _number("UNLIMITED")
    (4.0, inf)
    """
    return float(text) if text is not None and text.isdecimal() else float("inf")


def _seconds(text: str | None) -> float:
    """Return the seconds of a time of Slurm; infinity for UNLIMITED.

    >>> _seconds("1-02:00:00"), _seconds("00:30:00"), _seconds("UNLIMITED")
    (93600.0, 1800.0, inf)
    """
    days, _, clock = (text or "").rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or not (days or "0").isdecimal():
        return float("inf")
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + 86400.0 * int(days or 0)
