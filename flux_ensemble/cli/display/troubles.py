"""The troubles with which a command fails, although an ensemble may have completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import EXIT_CODES, FAILED, OK
from flux_ensemble.client import troubles

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: The default of `--fail-on`, whose values are `troubles.KINDS`.
DEFAULT_KINDS = frozenset(("rule", "search"))

#: The value of `--fail-on` for no kinds.
_NONE = "none"


def fails(status: EnsembleStatus, fail_on: frozenset[str]) -> bool:
    """Return True if something of these kinds went wrong, as `troubles.sentence` reports it."""
    return any(kind in fail_on and any(wrong(status)) for kind, wrong in troubles.KINDS.items())


def exit_code(
    state: str,
    status: EnsembleStatus | None,
    fail_on: frozenset[str],
    forced: int | None = None,
) -> int:
    """Return the exit code of a command that has followed an ensemble to its end.

    Args:
        state: in which it ended.
        status: at the end; None if it cannot be had.
        fail_on: the kinds of troubles that make the command fail.
        forced: the code of a command that ended it, or did not wait for its end.
    """
    code = EXIT_CODES[state] if forced is None else forced
    wrong = status is not None and fails(status, fail_on)
    return code or (FAILED if wrong else OK)


def left(
    status: EnsembleStatus, command: Callable[..., str], *, searches: bool = False
) -> Iterator[str]:
    """Yield what an ensemble did not run, and the commands that run it, as `troubles.left`.

    Args:
        status: of the ensemble.
        command: returns a command about it, from its words; "" if there is none.
        searches: only trials.
    """

    def search(id: str | None, more: int) -> str:
        which = () if id is None else (id,)
        return f"'{command('search', status['name'], *which, '--more', str(more))}'"

    rerun = command("rerun", status["name"])
    if searches:
        yield from troubles.left_of_searches(status, search)
    elif rerun:
        yield from troubles.left(status, f"'{rerun}'", search)


class Kinds(click.ParamType):
    """Kinds of trouble, separated by commas."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        if value == _NONE:
            return frozenset()
        kinds = frozenset(value.split(","))
        if not kinds <= set(troubles.KINDS):
            self.fail(
                f"expected some of {', '.join(troubles.KINDS)}, separated by commas, or {_NONE}, "
                f"not {value!r}"
            )
        return kinds


FAIL_ON_OPTION = click.option(
    "--fail-on",
    type=Kinds(),
    default=DEFAULT_KINDS,
    show_default="rule,search",
    metavar="KINDS",
    help='Exit 1 if jobs failed ("job"), rules failed ("rule") or searches '
    'gave up or found nothing ("search"): some of these, separated by commas, or "none".',
)
