"""The best jobs of an ensemble, and the best trials of its searches, as records."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed
from flux_ensemble.words import unfeasible

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus
    from flux_ensemble.results.hosts import Target

#: Most jobs in which a published value is looked for.
_MOST_JOBS = 1000


def best_records(
    status: EnsembleStatus, label: Callable[[int], str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the best jobs for an export, and of each search its best trials, the best one first.

    Args:
        status: of the ensemble, which has the best jobs.
        label: returns the text of a job id; None leaves ids as the status has them.
    """
    for best in status.get("best", ()):
        if best["job"] is None:
            continue
        yield {
            "name": best["name"],
            "of": f"{best['group']}-{best['of']}",
            "value": best["value"],
            "job": best["job"] if label is None else best_job(best["job"], label, best["running"]),
            "trial": None,
            "params": best["params"],
        }
    for search in status.get("searches", ()):
        keys = search["objective"].split(", ")
        trials: Any = search["front"] if "front" in search else search["best"]
        for trial in trials:
            job = trial.get("job")  # a service of before has none
            values = trial.get("values") or [trial["value"]]
            for of, value in zip(keys, values, strict=True):
                yield {
                    "name": search["id"],
                    "of": of,
                    "value": value,
                    "job": job if label is None or job is None else best_job(job, label),
                    "trial": trial["trial"],
                    "params": trial["params"],
                }


def best_job(job: int | str, label: Callable[[int], str], running: bool = False) -> str:
    """Return the text of a job that is the best, or gave the best trial its value."""
    member, _, id = str(job).rpartition(":")
    text = f"{member}:{label(int(id))}" if member else label(int(id))
    return f"{text} (runs)" if running else text


def no_best(name: str, of: str = "GROUP-KEY") -> str:
    """Return why an ensemble has no best jobs, and what its document needs for that.

    Args:
        name: of the ensemble.
        of: a value that its jobs publish.
    """
    return (
        f"ensemble {name!r} keeps no best job: its document has no search, and under 'metrics' "
        f"no entry such as {{best: {{name: NAME, of: {of}}}}}"
    )


def for_guests(status: Mapping[str, Any]) -> bool:
    """Return whether a status is the short one that users get who do not own the instance."""
    return "rules" not in status


def none_kept(target: Target, name: str, status: Mapping[str, Any]) -> str:
    """Return why an ensemble has no best jobs, and the command that sorts its jobs.

    Args:
        target, name: the ensemble.
        status: of it.
    """
    if for_guests(status):
        return "only the owner of the instance may see the best jobs"
    for job in islice(target.jobs(name), _MOST_JOBS):
        for key, value in job.get("memo", {}).items():
            if type(value) in (int, float):
                command = target.command("jobs", name, "--sort", f"memo.{key}")
                reason = no_best(name, f"{job['group']}-{key}")
                return f"{reason}; '{command}' sorts its jobs (-memo.{key}: the largest first)"
    return no_best(name)


def none_best(target: Target, status: EnsembleStatus) -> Iterator[str]:
    """Yield why there is no best job or trial, for each entry `best` and search that has none."""
    from flux_ensemble.engine.lifecycle import FINAL_STATES
    from flux_ensemble.results.hosts import keys_of

    def keys(group: str) -> Collection[str]:
        return keys_of(islice(target.jobs(status["name"], group=group), _MOST_JOBS))["memo"]

    yet = "" if status["state"] in FINAL_STATES else " yet"
    for best in status.get("best", ()):
        counts = status["groups"][best["group"]]
        if best["job"] is None and not counts["success"]:
            did = "has succeeded" if yet else "succeeded" if counts["finished"] else "has run"
            yield f"{best['name']}: no job of group {best['group']!r} {did}{yet}"
    yield from _unpublished(status, keys)
    for search in status.get("searches", ()):
        if search["trouble"]:
            yield search["trouble"]
        elif not search.get("front", search["best"]):
            yield f"{search['id']}: {unfeasible(search, yet) or f'no trial is complete{yet}'}"


def unpublished_in(
    status: EnsembleStatus, metrics: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield of each entry `best` that the jobs that succeeded have no value for it."""
    from flux_ensemble.metrics.names import GAUGES, STREAMS
    from flux_ensemble.results.statistics import ignored_of, split_stream

    groups = list(metrics["count"])
    streams = [split_stream(path, groups) for path, n in metrics.get("n", {}).items() if n]

    def keys(group: str) -> Collection[str]:
        found = {key for of, key in streams if of == group}.difference(STREAMS, GAUGES)
        return found | ignored_of(metrics).get(group, {}).keys()

    return _unpublished(status, keys)


def _unpublished(
    status: EnsembleStatus, keys_of_group: Callable[[str], Collection[str]]
) -> Iterator[str]:
    for best in status.get("best", ()):
        group, key = best["group"], best["of"]
        if best["job"] is not None or not status["groups"][group]["success"]:
            continue
        keys = keys_of_group(group)
        if key not in keys:
            told = told_keys(key, keys)
            yield f"{best['name']}: no job of group {group!r} published {key!r} ({told})"
        else:
            yield (
                f"{best['name']}: no job of group {group!r} that succeeded published a finite "
                f"number {key!r}"
            )


def told_keys(key: str, keys: Collection[str]) -> str:
    """Return what jobs published in place of a key that they did not.

    >>> told_keys("loss", {"los", "time"})
    "did you mean 'los'? published: los, time"
    """
    if not keys:
        return f"they published nothing: a job does by 'flux-ensemble memo {key}=VALUE'"
    return f"{hint(key, keys)}published: {listed(sorted(keys))}"


#: A key that an expression can name without brackets.
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def ties(target: Target, status: EnsembleStatus) -> Iterator[str]:
    """Yield, for each best job or trial that is not the only one, which others are as good."""
    from flux_ensemble.metrics.names import STREAMS

    for best in status.get("best", ()):
        if best["job"] is None or best["of"] in STREAMS or not _PLAIN.fullmatch(best["of"]):
            continue
        key, value, name = best["of"], best["value"], status["name"]
        filter = f"memo.{key} == {value!r}"
        found = target.jobs(name, group=best["group"], outcome="success", filter=filter)
        others = sum(1 for _ in islice(found, _MOST_JOBS)) - 1
        if others > 0:
            more = " or more" if others + 1 == _MOST_JOBS else ""
            words = "jobs", name, "--group", best["group"], "--filter", filter
            yield (
                f"{best['name']}: {others:,}{more} other job{'s'[: others != 1]} "
                f"{'has' if others == 1 else 'have'} the same {key}: {target.command(*words)}"
            )
    for search in status.get("searches", ()):
        trials: Any = search.get("best", ())
        same = [one["trial"] for one in trials[1:] if one["value"] == trials[0]["value"]]
        if same and "front" not in search:
            noun, has = ("trial", "has") if len(same) == 1 else ("trials", "have")
            which = ", ".join(map(str, same))
            yield f"{search['id']}: {noun} {which} {has} the same {search['objective']}"


def best_of(
    target: Target,
    name: str,
    label: Callable[[int], str] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the best jobs and trials of an ensemble: see `best_records`.

    Args:
        target, name: the ensemble.
        label: as for `best_records`.
        say: receives the reasons for which there are none.

    Raises:
        EnsembleError: there is no such ensemble, or it keeps no best jobs.
    """
    (status,) = target.status(name)["ensembles"]
    if not status.get("best") and not status.get("searches"):
        raise EnsembleError(errno.ENODATA, none_kept(target, name, status))
    if say is not None:
        for sentence in none_best(target, status):
            say(sentence)
    return list(best_records(status, label))
