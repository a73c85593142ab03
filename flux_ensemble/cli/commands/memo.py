"""`memo`: publishes values from within a job, both in Flux and on the local queue."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from flux_ensemble.cli.common import USAGE, Failure


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
def memo(values: tuple[tuple[str, Any], ...]) -> None:
    """Publish values of the job that this is run in, as "flux job memo" does.

    Numbers become statistics of the job's group; a rule on job-memo sees every key.
    """
    from flux_ensemble.api.memo import NotInJobError, publish
    from flux_ensemble.queues.local.memos import MemoError

    try:
        publish(dict(values))
    except NotInJobError as error:
        raise Failure(str(error), USAGE) from None
    except MemoError as error:
        raise Failure(f"a memo cannot be sent: {error}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


COMMANDS = (memo,)
