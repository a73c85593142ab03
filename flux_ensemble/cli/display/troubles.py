"""What went wrong in an ensemble, although it may have completed: jobs, and rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: What `--fail-on` can name.
KINDS = ("job", "rule")

#: Most rules that a sentence names.
_MOST = 5


def sentence(status: EnsembleStatus) -> str:
    """What went wrong, such as "6 jobs failed and rule 'judge' is disabled"; "" if nothing did."""
    parts = [*_jobs(status), *_rules(status)]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def fails(status: EnsembleStatus, fail_on: frozenset[str]) -> bool:
    """Whether something of one of these kinds went wrong."""
    return any(
        kind in fail_on and any(wrong(status)) for kind, wrong in (("job", _jobs), ("rule", _rules))
    )


def failed_jobs(status: EnsembleStatus) -> int:
    """How many jobs failed or ran out of time, and were not tried again."""
    groups = status.get("groups", {}).values()
    failed = sum(group["failed"] + group["timeout"] for group in groups)
    return max(0, failed - _tried_again(status))


def _tried_again(status: EnsembleStatus) -> int:
    # What is tried again after a shutdown of the instance was cancelled, and did not fail.
    return max(0, status.get("retries", 0) - status.get("interrupted", 0))


def _jobs(status: EnsembleStatus) -> Iterator[str]:
    groups = status.get("groups", {}).values()
    if _tried_again(status):
        number = failed_jobs(status)
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
    # Guests see neither rules nor groups.
    wrong = [rule for rule in status.get("rules", ()) if rule["error"]]
    for rule in wrong[:_MOST]:
        yield f"rule {rule['id']!r} {'failed' if rule['enabled'] else 'is disabled'}"
    if len(wrong) > _MOST:
        yield f"{len(wrong) - _MOST} more rules failed"


class Kinds(click.ParamType):
    """Kinds of trouble, separated by commas."""

    name = "kinds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        kinds = frozenset(value.split(","))
        if not kinds <= set(KINDS):
            self.fail(f"expected some of {', '.join(KINDS)}, separated by commas, not {value!r}")
        return kinds


FAIL_ON_OPTION = click.option(
    "--fail-on",
    type=Kinds(),
    default=frozenset(),
    metavar="KINDS",
    help='Exit 1 if jobs failed ("job"), rules failed ("rule"), or either ("job,rule").',
)
