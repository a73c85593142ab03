"""Troubles of an ensemble, although it may have completed: jobs, rules and searches.

What programs and notebooks get of its end, the final message of a command, its exit code, and the
file of `run --summary` derive from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from flux_ensemble.texts import one_line, shortened
from flux_ensemble.words import counted, ended_trials, known_jobs

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Most rules that a sentence names.
_MOST = 5

#: Characters of a rule's error that a sentence has.
_LONGEST = 120


def sentence(status: EnsembleStatus) -> str:
    """Return what went wrong, or "".

    >>> sentence({"failed": 6, "groups": {}, "searches": [{"trouble": "search 'a' gave up"}]})
    "6 jobs failed and search 'a' gave up"
    """
    parts = [one for wrong in KINDS.values() for one in wrong(status)]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def joined(status: EnsembleStatus) -> str:
    """Return what went wrong as the continuation of how an ensemble ended, or "".

    >>> joined({"state": "completed", "failed": 6, "groups": {"md": {"failed": 7, "timeout": 0}}})
    'but 6 jobs failed'
    """
    wrong = sentence(status)
    joint = "but" if status["state"] == "completed" else "and"
    return f"{joint} {wrong}" if wrong else ""


def failed_jobs(status: EnsembleStatus) -> int:
    """Return the number of jobs that failed or ran out of time, and were not tried again.

    >>> failed_jobs({"groups": {"md": {"failed": 7, "timeout": 1}}})
    8
    """
    return status.get("failed", _failed_attempts(status))


def failed_trials(status: EnsembleStatus) -> int:
    """Return the number of trials that failed: their jobs did, or gave no value.

    >>> failed_trials({"searches": [{"failed": 7}, {"failed": 1}]})
    8
    """
    return sum(search.get("failed", 0) for search in status.get("searches", ()))


def _failed_attempts(status: EnsembleStatus) -> int:
    groups = status.get("groups", {}).values()
    return sum(group["failed"] + group["timeout"] for group in groups)


def _jobs(status: EnsembleStatus) -> Iterator[str]:
    groups = list(status.get("groups", {}).values())
    number = failed_jobs(status)
    # A service of 0.2.0 does not count those of jobs, only those of attempts.
    late = sum(group["timeout"] for group in groups)
    late = min(number, status.get("timed_out", late))
    for many, what in ((number - late, "failed"), (late, "ran out of time")):
        if many:
            yield f"{many} job{'s'[: many != 1]} {what}"
    if never := unsent(status):
        yield never


def unsent(status: EnsembleStatus) -> str:
    """Return how many jobs were never submitted, or "".

    >>> group = {"waiting": 0, "pending": 0, "running": 2, "finished": 6}
    >>> unsent({"groups": {"md": {**group, "unsent": 12}, "post": group}})
    '12 of 28 jobs were never submitted'
    """
    groups = status.get("groups", {}).values()
    number = sum(group.get("unsent", 0) for group in groups)
    if not number:
        return ""
    jobs = counted(sum(known_jobs(group) for group in groups), "job")
    return f"{number:,} of {jobs} {'was' if number == 1 else 'were'} never submitted"


def left(
    status: EnsembleStatus, rerun: str, search: Callable[[str | None, int], str]
) -> Iterator[str]:
    """Yield what an ensemble that was cancelled, or has failed, did not run, and what runs it.

    Args:
        status: of the ensemble.
        rerun: the command or call that runs its jobs again.
        search: returns the one that goes on with a search, from its id, which is None if it is the
            only one, and the number of further trials.

    >>> group = {"waiting": 0, "pending": 0, "running": 0, "finished": 6, "unsent": 14}
    >>> group |= {"canceled": 2}
    >>> hpo = {"id": "hpo", "trials": 20, "active": 0, "complete": 4, "canceled": 2}
    >>> ended = {"state": "canceled", "groups": {"md": group}, "searches": [hpo]}
    >>> for sentence in left(ended, "rerun()", lambda id, more: f"search(more={more})"):
    ...     print(sentence)
    14 of 20 jobs were never submitted: rerun() runs them, and 2 that were canceled
    14 of 20 trials of search 'hpo' were never run: search(more=2) runs them, and 2 more
    """
    if (never := unsent(status)) and not status.get("resumable"):
        also = _canceled(status)
        runs = f"{rerun} runs {'it' if ' was ' in never else 'them'}"
        yield f"{never}: {runs}{f', and {also:,} that {_were(also)} canceled' if also else ''}"
    yield from left_of_searches(status, search)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _canceled(status: EnsembleStatus) -> int:
    """Return the number of cancelled jobs of an ensemble that has ended, but for trials."""
    searches = {search.get("group") for search in status.get("searches", ())}
    groups = status.get("groups", {}).items() if status["state"] != "ending" else ()
    return sum(group.get("canceled", 0) for name, group in groups if name not in searches)


def left_of_searches(
    status: EnsembleStatus, search: Callable[[str | None, int], str]
) -> Iterator[str]:
    """Yield which trials an ensemble did not run, and what runs them; see `left`.

    A run that was interrupted has none: it goes on with them.

    >>> hpo = {"id": "hpo", "trials": 20, "active": 0, "complete": 19}
    >>> ended = {"state": "canceled", "searches": [hpo]}
    >>> list(left_of_searches(ended, lambda id, more: f"search(more={more})"))
    ["1 of 20 trials of search 'hpo' was never run: search(more=1) runs it, and 1 more"]
    >>> hpo["canceled"] = 1
    >>> list(left_of_searches(ended, lambda id, more: f"search(more={more})"))
    ["1 of 20 trials of search 'hpo' was canceled: search(more=1) runs 1 more"]
    """
    searches = status.get("searches", ())
    for id, more in cut_short(status):
        one = next(search for search in searches if search["id"] == id)
        runs = search(None if len(searches) == 1 else id, more)
        of = f"of {counted(one['trials'], 'trial')} of search {id!r}"
        number = one["trials"] - one["active"] - ended_trials(one)
        if number > 0:
            were, them = ("was", "it") if number == 1 else ("were", "them")
            yield f"{number} {of} {were} never run: {runs} runs {them}, and {more} more"
        else:
            yield f"{more} {of} {'was' if more == 1 else 'were'} canceled: {runs} runs {more} more"


def cut_short(status: EnsembleStatus) -> Iterator[tuple[str, int]]:
    """Yield the searches that an ensemble did not end, and how many trials more they go on with.

    These are as many as were cancelled; a search goes on with one at least.

    >>> hpo = {"id": "hpo", "trials": 20, "active": 0, "complete": 17, "canceled": 3}
    >>> list(cut_short({"state": "canceled", "searches": [hpo]}))
    [('hpo', 3)]
    """
    ends = status["state"] in ("ending", "canceled", "failed")
    for one in status.get("searches", ()) if ends and not status.get("resumable") else ():
        cancelled = one["active"] + one.get("canceled", 0)
        if cancelled or one["trials"] > ended_trials(one):
            yield one["id"], max(1, cancelled)


def ways_on(status: EnsembleStatus, command: Callable[..., str]) -> str:
    """Return what can be done about an ensemble that has ended, what removes it last.

    Args:
        status: of the ensemble.
        command: returns a command about it, from its words.

    >>> group = {"failed": 2, "timeout": 0, "canceled": 0}
    >>> ended = {"name": "md", "state": "completed", "failed": 1, "groups": {"md": group}}
    >>> ways_on(ended, lambda *words: " ".join(words))
    "'rerun md' runs again what did not succeed, 'run' begins another run, and 'rm md' removes this"
    """
    name = status["name"]
    ways = [f"'{command('rerun', name)}' runs again what did not succeed"] * has_reruns(status)
    for search in status.get("searches", ())[:1]:
        of = () if len(status["searches"]) == 1 else (search["id"],)
        more = command("search", name, *of, "--more", "N")
        ways.append(f"'{more}' gives {'its' if not of else 'a'} search more trials")
    ways.append("'run' begins another run")
    removes = f"'{command('rm', name)}' removes this"
    return f"{', '.join(ways)}{',' * (len(ways) > 1)} and {removes}"


def has_reruns(status: EnsembleStatus) -> bool:
    """Return whether `rerun` has jobs to run, which trials of searches are not.

    >>> group = {"failed": 1, "timeout": 0, "canceled": 0}
    >>> has_reruns({"failed": 0, "groups": {"md": group}})  # It succeeded when tried again.
    False
    """
    searches = {search.get("group") for search in status.get("searches", ())}
    others = [group for name, group in status.get("groups", {}).items() if name not in searches]
    left = any(group.get("canceled") or group.get("unsent") for group in others)
    failed = any(group["failed"] or group["timeout"] for group in others)
    return left or (failed and failed_jobs(status) > 0)


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
KINDS: Mapping[str, Callable[[EnsembleStatus], Iterator[str]]] = {
    "job": _jobs,
    "rule": _rules,
    "search": _searches,
}
