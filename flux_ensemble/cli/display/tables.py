"""The tables of ensembles, of their job groups and of their rules, and the rows of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flux_ensemble.cli.display.colours import colour, colour_off
from flux_ensemble.cli.display.formats import Pairs, Table
from flux_ensemble.cli.display.plain_tables import fsd
from flux_ensemble.client import Client
from flux_ensemble.results.best import best_job
from flux_ensemble.results.hosts import members_of, runs_of
from flux_ensemble.scalars import brief
from flux_ensemble.words import STATE_STYLES, elapsed, shown_state

if TYPE_CHECKING:
    from flux_ensemble.client.responses import (
        EnsembleStatus,
        RuleStatus,
        Summary,
    )

ENSEMBLES = Table(
    "list",
    {
        "name": "NAME",
        "state": "STATE",
        "active": "ACTIVE",
        "waiting": "WAITING",
        "finished": "FINISHED",
        "failed": "FAILED",
        "t_start": "T_START",
        "t_end": "T_END",
        "runtime": "RUNTIME",
        "reason": "REASON",
        "color_state": "",
        "color_failed": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "name, state and jobs",
            "format": "+:{name:<8} {color_state}+:{state:<9}{color_off} {waiting:>7} {active:>6} "
            "{finished:>8}{color_failed} ?:{failed:>6}{color_off} {runtime!F:>8} ?:{reason}",
        },
        "long": {
            "description": "with times",
            "format": "+:{name:<8} {color_state}+:{state:<9}{color_off} {waiting:>7} {active:>6} "
            "{finished:>8}{color_failed} ?:{failed:>6}{color_off} {runtime!F:>8} {t_start!D:<19} "
            "{t_end!D:<19} ?:{reason}",
        },
    },
    yields=("reason", "name"),
    drops=("waiting", "active", "finished", "runtime"),
)

GROUPS = Table(
    "groups",
    {
        "group": "GROUP",
        "waiting": "WAITING",
        "pending": "PENDING",
        "running": "RUNNING",
        "submitted": "SUBMITTED",
        "finished": "FINISHED",
        "success": "SUCCESS",
        "failed": "FAILED",
        "canceled": "CANCELED",
        "timeout": "TIMEOUT",
        "interrupted": "INTERRUPTED",
        "attempts": "ATTEMPTS",
        "tries": "ATTEMPTS",  # where some jobs had several: then outcomes are those of attempts
        "gave_up": "GAVE-UP",
        "color_success": "",
        "color_failed": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "jobs of each group by state and outcome",
            "format": "+:{group:<8} {waiting:>7} {pending:>7} {running:>7} {finished:>8} "
            "?:{tries:>8} {color_success}{success:>7}{color_off} "
            "{color_failed}{failed:>6}{color_off} {canceled:>8} {timeout:>7} ?:{interrupted:>11}",
        },
    },
    yields=("group",),
    drops=("timeout", "canceled", "interrupted", "pending", "waiting"),
)

RULES = Table(
    "rules",
    {
        "id": "RULE",
        "trigger": "TRIGGER",
        "action": "ACTION",
        "state": "STATE",
        "fired": "FIRED",
        "of": "OF",
        "color_state": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "rules and how often they ran",
            "format": "+:{id:<6} +:{trigger:<7} +:{action:<6} "
            "{color_state}{state:<8}{color_off} {fired:>5} +:{of:>4}",
        },
    },
    yields=("trigger", "action", "id"),
    drops=("of",),
)

MEMBERS = Table(
    "members",
    {
        "name": "MEMBER",
        "state": "STATE",
        "nodes": "NODES",
        "cores": "CORES",
        "runs": "RUNS",
        "jobs": "JOBS",
        "job": "JOBID",
        "left": "LEFT",
        "reason": "REASON",
        "color_state": "",
        "color_off": "",
    },
    {
        "default": {
            "description": "members that have not ended, and how long they last",
            "format": "+:{name:<8} {color_state}{state:<8}{color_off} {nodes:>5h} {cores:>5h} "
            "?:{runs:<5} {jobs:>4} {job:>12h} {left!F:>8h} ?:{reason}",
        },
    },
    yields=("reason", "name"),
    drops=("runs", "cores", "job", "nodes"),
)

BESTS = Table(
    "best",
    {
        "name": "NAME",
        "of": "OF",
        "value": "VALUE",
        "trial": "TRIAL",
        "job": "JOB",
        "params": "PARAMS",
    },
    {
        "default": {
            "description": "the best jobs, and the best trials of searches",
            "format": "+:{name:<4} +:{of:<8} {value:>10} ?:{trial:>5} +:{job:<8} {params}",
        },
    },
    yields=("params", "of", "name"),
    drops=("of",),
)

#: Most members for which the table has the number of a rule's firings.
MOST_MEMBERS = 4

#: Actions that the table of rules names of each.
MOST_ACTIONS = 4

MEMBER_STYLES = {"up": "good", "starting": "action", "draining": "warn", "lost": "bad"}


def ensemble_row(summary: Summary, now: float) -> dict[str, Any]:
    """Return a row of `ENSEMBLES`; `now` is in epoch seconds, for ensembles that still run."""
    t_start, t_end = summary["t_start"], summary["t_end"]
    took = elapsed(summary, now)
    failed = summary.get("failed")  # a service of before has none
    return {
        **summary,
        "failed": failed or "",
        "state": shown_state(summary),
        "reason": summary.get("reason", ""),  # guests do not see it
        "t_start": t_start or 0.0,
        "t_end": t_end or 0.0,
        "runtime": "" if took is None else took,
        "color_state": colour(STATE_STYLES.get(shown_state(summary), "")),
        "color_failed": colour("bad" if failed else ""),
        "color_off": colour_off(),
    }


def best_rows(status: EnsembleStatus, label: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the rows of `BESTS`: each best job of the document, and the best trial of each search.

    Args:
        status: of the ensemble, which has the best jobs.
        label: returns the text of a job id.
    """
    from flux_ensemble.metrics.units import with_unit

    rows = [
        {
            "name": best["name"],
            "of": with_unit(
                status, [best["group"]], best["of"], f"{best['mode']} {best['group']}-{best['of']}"
            ),
            "value": "-" if best["value"] is None else f"{best['value']:.6g}",
            "trial": "",
            "job": "-" if best["job"] is None else best_job(best["job"], label, best["running"]),
            "params": words_of(best["params"]),
        }
        for best in status.get("best", ())
    ]
    for search in status.get("searches", ()):
        keys, ways = search["objective"].split(", "), search["direction"].split(", ")
        of = ", ".join(
            with_unit(status, [search["group"]], key, f"{way[:3]} {key}")
            for way, key in zip(ways, keys, strict=True)
        )
        row = {"name": search["id"], "of": of, "value": "-", "trial": "", "job": "-", "params": ""}
        if "front_size" in search:
            row["value"] = f"front {search['front_size']}"
        elif search["best"]:
            trial = search["best"][0]
            row["value"], row["trial"] = f"{trial['value']:.6g}", str(trial["trial"])
            if (job := trial.get("job")) is not None:
                row["job"] = best_job(job, label)
            row["params"] = words_of(trial["params"])
        rows.append(row)
    return rows


def words_of(values: Mapping[str, Any]) -> Pairs:
    """Return parameters or published values as `x=1.5 y=4.0`, long fractions in six digits.

    >>> words_of({"x": 1 / 3, "y": 4.0, "mode": "fast", "exact": True})
    'x=0.333333 y=4.0 mode=fast exact=true'
    """
    return Pairs(f"{name}={brief(value)}" for name, value in values.items())


def group_rows(status: EnsembleStatus) -> list[dict[str, Any]]:
    """Return the rows of `GROUPS`."""
    return [
        {
            "group": group,
            **counts,
            "attempts": (attempts := counts.get("attempts", counts["finished"])),
            "tries": attempts if attempts > counts["finished"] else "",
            "gave_up": counts.get("gave-up", 0),
            "interrupted": counts.get("interrupted") or "",
            "color_success": colour("good" if counts["success"] else ""),
            "color_failed": colour("bad" if counts["failed"] else ""),
            "color_off": colour_off(),
        }
        for group, counts in status["groups"].items()
    ]


def member_rows(status: EnsembleStatus, now: float) -> list[dict[str, Any]]:
    """Return the rows of `MEMBERS`; `now` is in epoch seconds."""
    runs = runs_of(status)
    workers = "tasks" in runs.values()  # else the column says nothing
    return [
        {
            **{key: member[key] for key in ("name", "state", "jobs", "reason")},
            "nodes": "" if member["nodes"] is None else member["nodes"],
            "cores": "" if member["cores"] is None else member["cores"],
            "runs": runs[member["name"]] if workers else "",
            "job": _member_job(member.get("job")),
            "left": "" if member["t_expires"] is None else max(0.0, member["t_expires"] - now),
            "color_state": colour(MEMBER_STYLES.get(member["state"], "")),
            "color_off": colour_off(),
        }
        for member in members_of(status)
    ]


def _member_job(job: int | str | None) -> str:
    """Return the id of a member's job: one of Flux as Flux writes it, others as they are."""
    if job is None:
        return ""
    return job if isinstance(job, str) else Client.label(job)


def rule_row(rule: RuleStatus) -> dict[str, Any]:
    """Return a row of `RULES`."""
    repetitions, each = rule["repetitions"], rule.get("each")
    if rule["error"]:
        state, style = "failed", "bad"
    elif not rule["enabled"]:
        state, style = "disabled", "warn"
    elif repetitions is not None and rule["fired"] >= repetitions:
        state, style = "done", "good"
    else:
        state, style = "enabled", "action"
    return {
        "id": rule["id"],
        "trigger": rule["trigger"] + _times(rule) + _members(rule),
        "action": _some(rule["actions"], MOST_ACTIONS),
        "state": state,
        "fired": rule["fired"],
        "of": f"{each} each" if each else "unlimited" if repetitions is None else repetitions,
        "color_state": colour(style),
        "color_off": colour_off(),
    }


def _members(rule: RuleStatus) -> str:
    """Return a rule's firings for each member: ` on each member (pool.0 2x)`, or ""."""
    members = rule.get("members")
    if members is None:
        return ""
    each = [f"{name} {fired}x" for name, fired in members.items()]
    return f" on each member ({_some(each, MOST_MEMBERS)})" if each else " on each member"


def _some(words: Sequence[str], most: int) -> str:
    """The first of several words, and how many more there are."""
    more = len(words) - most
    return ", ".join([*words[:most], *([f"{more} more"] if more > 0 else ())])


def _times(rule: RuleStatus) -> str:
    """Return when a rule's timer is due: ` after 10s`, ` every 2s`, or ""."""
    # A service of an earlier version does not have these keys.
    times = (("after", rule.get("after")), ("every", rule.get("every")))
    return "".join(f" {key} {fsd(seconds)}" for key, seconds in times if seconds is not None)
