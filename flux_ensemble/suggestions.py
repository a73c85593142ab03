"""The name that was probably meant: the closest one, or the one for what other tools call so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from flux_ensemble.texts import MAX_NAMES, MAX_QUOTED

#: A name here -> names of the same thing in Slurm, PBS, Flux's own commands, Snakemake, Nextflow,
#: GNU parallel, Argo, GitHub Actions, Ansible and Python. A name can stand for several things: the
#: one among the names that are known where it was written is meant.
_ELSEWHERE = {
    # Fields of a job; first, because keys of job groups have some of these names.
    "runtime": "elapsed walltime time wall-time elapsed-time",
    "returncode": "exit-code exitcode exit-status rc return-code exit code retval",
    "outcome": "status state result",
    "attempt": "retries retry try",
    "nnodes": "nodes",
    "ntasks": "tasks",
    "ncores": "cores",
    "ngpus": "gpus",
    # Keys of job groups.
    "command": "cmd script executable exec run shell program binary args arguments argv "
    "entrypoint bash main",
    "duration": "time walltime wall-time time-limit timelimit timeout timeout-min runtime "
    "run-time max-runtime max-time maxtime",
    "nodes": "nnodes num-nodes n-nodes hosts machines",
    "tasks": "ntasks n np nprocs nproc procs ranks num-tasks mpi-ranks mpiprocs",
    "cores": "cpus cpu cpus-per-task cpus-per-job cores-per-task threads ncpus ncores n-cores "
    "num-cpus num-cores c",
    "gpus": "gres gpus-per-task gpus-per-node ngpus num-gpus accelerators",
    "queue": "partition",
    "bank": "account project allocation charge-account",
    "workdir": "cwd chdir dir directory working-directory wd work-dir initialdir",
    "inputs": "input input-files infiles files stage stage-in links link copy",
    "environment": "env environ envs env-vars variables vars export",
    "output": "stdout out log logfile log-file",
    "error": "stderr err",
    "params": "parameters param matrix foreach for-each array with-items with-param grid wildcards",
    "count": "replicas replicate repeat repetitions times number instances njobs num-jobs",
    "retries": "retry max-retries retry-limit restart restarts restart-times attempts "
    "max-attempts error-strategy retry-strategy",
    "max-active": "parallel parallelism max-parallel concurrency max-concurrent max-forks "
    "max-jobs throttle max-running",
    "urgency": "priority nice",
    # Keys of rules and of actions.
    "label": "group job target rule search",
    "group": "job jobs of groups label",
    # Keys of the document.
    "jobs": "task tasks step steps stage stages process processes group groups templates",
    "rules": "triggers events actions when on workflow hooks",
    "search": "optimize optimise optimizer tune tuning optuna study hyperparameters trials",
    "metrics": "statistics stats",
    "limits": "limit",
    "trigger": "on event events",
    "when": "if condition conditions only-if unless expr expression where",
    "action": "do then run steps call execute",
    "name": "id title label group job-name type uses",
    # Triggers.
    "start": "begin started init startup on-start launch",
    "idle": "end ended done finished complete completed on-idle group-idle job-idle",
    "heartbeat": "cron interval periodic every tick schedule poll",
    "job-fail": "failure on-failure on-error failed job-error job-failure error",
    "job-success": "job-complete job-completed job-done job-ok job-end job-ended succeeded "
    "on-success success",
    "job-cancel": "job-cancelled job-canceled job-killed",
    "job-start": "job-started job-begin job-launched",
    "job-submit": "job-queued job-created",
    # Actions.
    "submit": "run start launch exec spawn execute enqueue add create",
    "cancel": "kill scancel delete remove",
    "terminate": "stop abort exit end finish quit fail",
    "copy": "retry resubmit rerun requeue restart duplicate",
    "grow": "scale scale-up expand extend",
    "custom": "notify email mail log print call webhook function python",
    # Outcomes and counters.
    "success": "succeeded successes successful completed complete passed ok done",
    "failed": "fail failures failure error errors",
    "canceled": "cancelled cancel cancels killed",
    "submitted": "total queued all jobs",
    "finished": "ended inactive",
    # Statistics.
    "mean": "avg average",
    "max": "maximum",
    "min": "minimum",
    "variance": "var std stdev stddev sd",
}

#: A name elsewhere -> the names here that it can stand for. `runtime` is a key of job groups
#: elsewhere, and elsewhere again a field of a job.
_MEANT: dict[str, tuple[str, ...]] = {}
for _name, _others in _ELSEWHERE.items():
    for _other in _others.split():
        _MEANT[_other] = (*_MEANT.get(_other, ()), _name)


def hint(name: str, known: Iterable[str], most: int | None = MAX_NAMES) -> str:
    """A question that suggests the name that was probably meant; "" if there is none.

    Args:
        name: that is not known.
        known: the names that are.
        most: how many of them are looked at, since a document can have very many; None for all.

    >>> hint("sucess", ["success", "failed"]), hint("walltime", ["count", "duration"])
    ("did you mean 'success'? ", "did you mean 'duration'? ")
    """
    near = nearest(name, list(known)[:most])
    return "" if near is None else f"did you mean {near!r}? "


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if there is none.

    That is one that differs in case and in signs between words alone, else the one that other
    tools call so, else the one that is closest.

    >>> nearest("ab", ["ac", "study"]), nearest("xy", ["ac", "study"])
    ('ac', None)
    >>> nearest("max_active", ["max-active"]), nearest("exit_code", ["id", "returncode"])
    ('max-active', 'returncode')
    >>> nearest("mine", ["terminate", "pinned"]), nearest("cor", ["cores"])
    (None, 'cores')
    """
    if len(name) > MAX_QUOTED:
        return None
    there = list(known)
    # The file of a document, in place of the name of its ensemble.
    found = elsewhere(name.removesuffix(".yaml").removesuffix(".yml"), there)
    if found is not None:
        return found
    # Of two letters one is half of the name, and of three one a third.
    cutoff = 0.5 if len(name) == 2 else 0.66
    return next(iter(get_close_matches(name, there, 1, cutoff)), None)


def elsewhere(name: str, known: Iterable[str]) -> str | None:
    """The known name for what other tools call `name`, or write otherwise; None if there is none.

    >>> elsewhere("walltime", ["duration"]), elsewhere("duratoin", ["duration"])
    ('duration', None)
    """
    there, wanted = list(known), _plain(name)
    same = (one for one in there if _plain(one) == wanted)
    return next(same, None) or next((one for one in _MEANT.get(wanted, ()) if one in there), None)


def _plain(name: str) -> str:
    """The name in small letters with hyphens between its words, such as of cpusPerTask."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower().replace("_", "-")
