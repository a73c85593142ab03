"""Troubles of an ensemble, although it may have completed: jobs, rules and searches.

The final message of a command, its exit code, and the file of `run --summary` derive from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import EXIT_CODES, FAILED, OK
from flux_ensemble.texts import one_line, shortened

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Values of `--fail-on`, and its default.
KINDS = ("job", "rule", "search")
DEFAULT_KINDS = frozenset(("rule", "search"))

#: The value of `--fail-on` for no kinds.
_NONE = "none"

#: Most rules that a sentence names.
_MOST = 5

#: Characters of a rule's error that a sentence has.
_LONGEST = 120


def sentence(status: EnsembleStatus) -> str:
    """Return what went wrong, such as "6 jobs failed and rule 'judge' is disabled", or ""."""
    parts = [one for wrong in _WRONG.values() for one in wrong(status)]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def fails(status: EnsembleStatus, fail_on: frozenset[str]) -> bool:
    """Return True if something of one of these kinds went wrong, as reported by `sentence`."""
    return any(kind in fail_on and any(wrong(status)) for kind, wrong in _WRONG.items())


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


def failed_jobs(status: EnsembleStatus) -> int:
    """Return the number of jobs that failed or ran out of time, and were not tried again."""
    return status.get("failed", _failed_attempts(status))


def _failed_attempts(status: EnsembleStatus) -> int:
    groups = status.get("groups", {}).values()
    return sum(group["failed"] + group["timeout"] for group in groups)


def _jobs(status: EnsembleStatus) -> Iterator[str]:
    groups = list(status.get("groups", {}).values())
    number = failed_jobs(status)
    if number != _failed_attempts(status):
        # Some jobs were tried again.
        if number:
            yield f"{number} job{'s'[: number != 1]} failed"
        return
    for number, what in (
        (sum(group["failed"] for group in groups), "failed"),
        (sum(group["timeout"] for group in groups), "ran out of time"),
    ):
        if number:
            yield f"{number} job{'s'[: number != 1]} {what}"


def _rules(status: EnsembleStatus) -> Iterator[str]:
    # Guests see neither rules nor groups. An error that was recovered from is cleared.
    wrong = [rule for rule in status.get("rules", ()) if rule["error"]]
    for rule in wrong[:_MOST]:
        what = "failed" if rule["enabled"] else "is disabled"
        cause = str(rule["error"]).partition("\n")[0]
        yield f"rule {rule['id']!r} {what} ({shortened(one_line(cause), _LONGEST)})"
    if len(wrong) > _MOST:
        yield f"{len(wrong) - _MOST} more rules failed"


def _searches(status: EnsembleStatus) -> Iterator[str]:
    for search in status.get("searches", ()):
        if search["trouble"]:
            yield search["trouble"]


#: Troubles by kind, each in words.
_WRONG: Mapping[str, Callable[[EnsembleStatus], Iterator[str]]] = {
    "job": _jobs,
    "rule": _rules,
    "search": _searches,
}


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
        if not kinds <= set(KINDS):
            self.fail(
                f"expected some of {', '.join(KINDS)}, separated by commas, or {_NONE}, "
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
