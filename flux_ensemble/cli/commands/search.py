"""The commands about searches, and about the best jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from flux_ensemble.cli.commands.rerun import RerunCommand
from flux_ensemble.cli.commands.run import QUIET_OPTION
from flux_ensemble.cli.common import MOST, OK, USAGE, Failure, naming, say
from flux_ensemble.cli.display.formats import Output, Table, print_json, table_options
from flux_ensemble.cli.display.searches import detail_lines, found
from flux_ensemble.cli.display.tables import BESTS, best_rows
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.target import targeted
from flux_ensemble.feature_list import parts
from flux_ensemble.results.best import for_guests, none_best, none_kept, ties
from flux_ensemble.results.hosts import Target
from flux_ensemble.texts import one_line
from flux_ensemble.words import ended_trials, more_trials, shown_search, unfeasible

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus, SearchStatus

_SEARCHES = Table(
    "search",
    {
        "id": "SEARCH",
        "group": "GROUP",
        "state": "STATE",
        "reason": "REASON",
        "sampler": "SAMPLER",
        "trials": "TRIALS",
        "active": "ACTIVE",
        "stock": "STOCK",
        "complete": "COMPLETE",
        "infeasible": "INFEASIBLE",
        "failed": "FAILED",
        "canceled": "CANCELED",
        "pruned": "PRUNED",
        "objective": "OBJECTIVE",
        "best": "BEST",
        "asks": "ASKS",
        "ask_seconds": "T_ASK",
        "trial_seconds": "T_TRIAL",
        "idle_seconds": "IDLE",
    },
    {
        "default": {
            "description": "searches, and how far they are",
            "format": "+:{id:<6} +:{state:<7} ?:{reason:<9} +:{sampler:<7} {trials:>6} {active:>6} "
            "{complete:>8} ?:{infeasible:>10} {failed:>6} ?:{canceled:>8} "
            "?:{pruned:>6} +:{objective:<9} {best:>10}",
        },
        "long": {
            "description": "with the times of asks and trials, and of slots that were empty",
            "format": "+:{id:<6} +:{state:<7} ?:{reason:<9} +:{sampler:<7} {trials:>6} {active:>6} "
            "{complete:>8} ?:{infeasible:>10} {failed:>6} ?:{canceled:>8} "
            "?:{pruned:>6} +:{objective:<9} {best:>10} "
            "{asks:>5} {ask_seconds!F:>8h} {trial_seconds!F:>8h} {idle_seconds!F:>8h}",
        },
    },
    yields=("reason", "objective", "id"),
    drops=(
        "active",
        "canceled",
        "pruned",
        "sampler",
        "asks",
        "idle_seconds",
        "failed",
        "reason",
        "ask_seconds",
        "infeasible",
        "complete",
    ),
)


#: A comma before the next `NAME=`; others belong to a value.
_BETWEEN = re.compile(r",(?=\s*[A-Za-z_][\w-]*\s*=)")


class Point(click.ParamType):
    """A point of a search: values of variables by name, as in `lr=0.01,layers=2`.

    >>> Point().convert("layers=[64,32],opt=sgd", None, None)
    {'layers': '[64,32]', 'opt': 'sgd'}
    """

    name = "point"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, str]:
        """Return the texts of the values by name; the search knows what they mean."""
        pairs = [one.partition("=") for one in _BETWEEN.split(value)]
        names = [name.strip() for name, _, _ in pairs]
        if not all(name and sign for name, (_, sign, _) in zip(names, pairs, strict=True)):
            self.fail(f"expected a point such as lr=0.01,layers=2, not {value!r}", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"a variable is there twice in {value!r}", param, ctx)
        return {name: text.strip() for name, (_, _, text) in zip(names, pairs, strict=True)}


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@click.argument("id", required=False)
@click.option("--more", type=click.IntRange(1, MOST), metavar="N", help="Go on with N more trials.")
@click.option(
    "--add",
    "points",
    type=Point(),
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Try this point, as one more trial, before others; may be repeated.",
)
@click.option("--detach", is_flag=True, help="Do not follow it: leave it to the service.")
@QUIET_OPTION
@table_options(_SEARCHES)
@targeted
def search(
    name: str,
    id: str | None,
    more: int | None,
    points: tuple[dict[str, str], ...],
    detach: bool,
    quiet: bool,
    output: Output,
    target: Target,
) -> int:
    """Show the searches of ensemble NAME, or search ID alone, the best trials, and what matters.

    With -o only the table of searches is printed. The trials are jobs: "jobs NAME" shows them.
    With --more or --add the search goes on; an ensemble that has ended goes on, too, and is
    followed to its end as by "run".
    """
    if more is not None or points:
        return _More(
            target, name, search=id, more=more, points=points, detach=detach, quiet=quiet
        ).execute()
    for option, given in (("--detach", detach), ("--quiet", quiet)):
        if given:
            raise Failure(f"{option} is for --more and --add", USAGE)
    answer: Any
    with naming(target, name):
        answer = target.status(name)
    (status,) = answer["ensembles"]
    if for_guests(status):
        raise Failure("only the owner of the instance may see searches")
    searches = _chosen(status.get("searches", []), name, id)
    if output.as_json:
        with naming(target, name):
            print_json({"searches": _in_full(target, name, searches)})
        return OK
    output.show(_SEARCHES, [_row(search, status) for search in searches])
    if output.is_default:
        for search in searches:
            if words := search["trouble"] or unfeasible(search):
                click.echo(f"\n{fitted(one_line(words))}")
            for line in detail_lines(search, header=not output.no_header):
                click.echo(line)
    return OK


def _in_full(target: Target, name: str, searches: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return entries of a status with `variables`, `where` and `all_trials`.

    Where the log does not have the document any more, they are as they were.
    """
    (history,) = parts("history")
    try:
        by_id = {search.id: search for search in history.logged_searches(target.log(name))}
    except history.StudyError:
        by_id = {}
    told = []
    for one in searches:
        more: Mapping[str, Any] = {}
        if (search := by_id.get(one["id"])) is not None:
            jobs = target.jobs(name, group=search.group, interrupted=True)
            more = history.in_full(search, jobs)
        told.append({**one, **more})
    return told


@dataclass
class _More(RerunCommand):
    """More trials of a search: the fields are options."""

    OP: ClassVar[str] = "search"

    search: str | None = None
    more: int | None = None
    points: tuple[Mapping[str, str], ...] = ()

    @property
    def asked(self) -> dict[str, Any]:
        """The payload of the request, without the name."""
        given = {"search": self.search, "more": self.more, "points": list(self.points) or None}
        return {key: value for key, value in given.items() if value is not None}

    def _say(self, answer: Mapping[str, Any]) -> bool:
        # One that is followed has it in its log.
        if self.detach or not answer["reopened"]:
            of = f" of {answer['search']}"
            more = more_trials(answer["added"], answer.get("left", 0), answer["trials"], of)
            click.echo(f"{self.name}: {more}")
        return True


@click.command
@click.argument("name", shell_complete=completion.ensembles)
@table_options(BESTS)
@targeted
def best(name: str, output: Output, target: Target) -> None:
    """Show the best jobs of ensemble NAME, and the best trial of each search, with parameters.

    Those are the entries "best" under "metrics" of its document, and its searches.
    """
    with naming(target, name):
        (status,) = target.status(name)["ensembles"]
    rows = best_rows(status, target.label)
    if not rows:
        raise Failure(none_kept(target, name, status))
    if output.as_json:
        kept: Any = {key: status.get(key, []) for key in ("best", "searches")}
        print_json(kept)
    else:
        output.show(BESTS, rows)
        for sentence in (*none_best(target, status), *ties(target, status)):
            say(sentence)


def _chosen(searches: list[SearchStatus], name: str, id: str | None) -> list[SearchStatus]:
    """Return all searches, or the requested one.

    Raises:
        Failure: there is none.
    """
    if not searches:
        raise Failure(f"ensemble {name!r} has no search")
    chosen = [search for search in searches if id in (None, search["id"])]
    if not chosen:
        from flux_ensemble.suggestions import hint

        ids = [search["id"] for search in searches]
        known = f"{hint(id or '', ids)}searches: {', '.join(ids)}"
        raise Failure(f"ensemble {name!r} has no search {id!r} ({known})")
    return chosen


def _row(search: SearchStatus, status: EnsembleStatus) -> dict[str, Any]:
    """Return a row of the table of searches; `status` is the ensemble's."""
    keys, ways = search["objective"].split(", "), search["direction"].split(", ")
    return {
        **search,
        "state": shown_search(search, status),
        "trials": f"{ended_trials(search)}/{search['trials']}",
        "infeasible": search.get("infeasible", 0) or "",
        "canceled": search["canceled"] or "",
        "pruned": search.get("pruned", 0) or "",
        "objective": ", ".join(f"{way[:3]} {key}" for way, key in zip(ways, keys, strict=True)),
        "best": found(search),
        "ask_seconds": search["ask_seconds"] or "",
        "trial_seconds": search["trial_seconds"] or "",
    }


COMMANDS = (search, best)
