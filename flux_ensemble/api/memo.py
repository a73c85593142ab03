"""Functions for use inside a job, on each queue: its parameters, its results."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from flux_ensemble import job_params
from flux_ensemble.api import flux_memo
from flux_ensemble.queues.local import memos


class NotInJobError(RuntimeError):
    """A function is for use inside a job, and this process is in none."""


def params() -> dict[str, Any]:
    """Return the parameters of the job that this program runs in, by name.

    Numbers and booleans are those of the document: `1.10` is the number 1.1. Without parameters
    the mapping is empty.

    Raises:
        NotInJobError: the program does not run in a job.
        ValueError: the parameters are too large for the environment of a program.

    >>> params()
    Traceback (most recent call last):
    flux_ensemble.api.memo.NotInJobError: params is for use inside a job: FLUX_JOB_ID is not set
    """
    if not os.environ.get("FLUX_JOB_ID"):
        raise NotInJobError("params is for use inside a job: FLUX_JOB_ID is not set")
    return job_params.read(os.environ)


def memo(values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
    """Publish values of the job that this program runs in, as `flux-ensemble memo` does.

    Numbers become statistics of the job's group, the objective of a search, and columns
    `memo.NAME` of the jobs; a rule on `job-memo` sees every key.

    Args:
        values: the values by key, for keys that are no names of Python.
        more: the same as keywords.

    Raises:
        NotInJobError: the program does not run in a job.
        MemoError: a value cannot be sent, or the ensemble cannot be reached.

    >>> memo(loss=0.25)
    Traceback (most recent call last):
    flux_ensemble.api.memo.NotInJobError: memo is for use inside a job: FLUX_JOB_ID is not set
    """
    publish({key: _plain(value) for key, value in {**(values or {}), **more}.items()})


def publish(values: Mapping[str, Any]) -> None:
    """Publish values of JSON.

    Raises:
        NotInJobError, MemoError: as `memo`.
    """
    path, job = os.environ.get(memos.VARIABLE), os.environ.get("FLUX_JOB_ID")
    # A Flux instance that runs inside a local job has job ids of another form.
    if path and job and job.isdecimal():
        memos.send(path, int(job), values)
        return
    if not job:
        raise NotInJobError("memo is for use inside a job: FLUX_JOB_ID is not set")
    memos.check(values)
    memo = json.dumps(values, allow_nan=False).encode()
    memos.check_size(memo)
    try:
        sent = flux_memo.send(job, memo)
    except OSError as error:
        raise memos.MemoError(f"Flux does not take it: {error.strerror}") from None
    if not sent:
        _run_flux(job, values)


def _run_flux(job: str, values: Mapping[str, Any]) -> None:
    words = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    try:
        code = subprocess.run(["flux", "job", "memo", job, *words]).returncode
    except OSError as error:
        raise memos.MemoError(f"cannot run flux: {error.strerror}") from None
    if code:
        raise memos.MemoError(f"'flux job memo' failed with exit code {code}")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: an item of numpy as a number, and NaN as a text."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        value = item()
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
