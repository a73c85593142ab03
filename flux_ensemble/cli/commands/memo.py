"""`memo`: publishes values from within a job, both in Flux and on the local queue."""

from __future__ import annotations

import json
import math
import os
import subprocess
from typing import Any

import click

from flux_ensemble.cli.common import USAGE, Failure
from flux_ensemble.queues.local import memos


class Value(click.ParamType):
    """`key=value`, where the value is JSON or else text, as in flux-job(1) `memo`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not (key and equals):
            self.fail(f"expected key=value, not {value!r}", param, ctx)
        try:
            return key, json.loads(text, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            return key, text


@click.command
@click.argument("values", nargs=-1, required=True, type=Value(), metavar="KEY=VALUE...")
def memo(values: tuple[tuple[str, Any], ...]) -> int:
    """Publish values of the job that this is run in, as "flux job memo" does.

    Numbers become statistics of the job's group; a rule on job-memo sees every key.
    """
    path, job = os.environ.get(memos.VARIABLE), os.environ.get("FLUX_JOB_ID")
    # A Flux instance that runs inside a local job has job ids of another form.
    if path and job and job.isdecimal():
        try:
            memos.send(path, int(job), dict(values))
        except memos.MemoError as error:
            raise Failure(f"a memo cannot be sent: {error}") from None
        return 0
    if not job:
        raise Failure("memo is for use inside a job: FLUX_JOB_ID is not set", USAGE)
    words = [f"{key}={json.dumps(value)}" for key, value in values]
    try:
        return subprocess.run(["flux", "job", "memo", job, *words]).returncode
    except OSError as error:
        raise Failure(f"cannot run flux: {error.strerror}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


COMMANDS = (memo,)
