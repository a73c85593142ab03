"""Searches held against what their jobs did: the points, what became of trials, which are stopped.

What a search has to be follows from its document and the events of its jobs. So it does not matter
what died meanwhile, nor where the jobs ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from witness import Job

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.features.search.advisers import described
from flux_ensemble.features.search.early_stop import stopping
from flux_ensemble.features.search.keys import MAX_BATCH
from flux_ensemble.features.search.model import INDEPENDENT, Search, searches_of
from flux_ensemble.features.search.paths import PRUNED
from flux_ensemble.features.search.suggester import suggesting
from flux_ensemble.features.search.trials import COMPLETE, FAILED, Trials

#: By number, the state of a trial whose job has ended, and its value.
Ends = Mapping[int, tuple[str, float | None]]


def check(
    document: Mapping[str, Any],
    told: Iterable[Mapping[str, Any]],
    rows: Iterable[Mapping[str, Any]],
    entries: Iterable[Mapping[str, Any]],
    jobs: Sequence[Job],
) -> tuple[list[str], Counter[str]]:
    """Each trial has the parameters that its number gives, and has ended once, as it had to.

    Args:
        document: with searches; points that depend on trials before are those of one slot.
        told: the searches, as the status has them.
        rows: the jobs, as the record has them.
        entries: of the eventlog.
        jobs: by what the queue says of them.

    Returns:
        What is wrong, and how many trials each policy stopped.
    """
    problems, pruned = list[str](), Counter[str]()
    by_id = {one["id"]: one for one in told}
    params: dict[str, dict[int, Any]] = {}
    known = _known(document, rows := list(rows))
    for row in rows:
        # What was interrupted runs again, with the parameters of its trial, and counts then.
        if "trial" in row:
            id, number, last = known[row["id"]]
            if last or number not in params.setdefault(id, {}):
                params.setdefault(id, {})[number] = row["params"]
    stops = [one["context"] for one in entries if one["name"] == "pruned"]
    for given in searches_of(load_mapping(document)):
        one, attempts = by_id[given.id], _attempts_of(given, jobs, known)
        own = {number: job for number, job, last in attempts if last}
        ends = {number: _end(job, given) for number, job in own.items()}
        if (one["state"], one["reason"]) != ("done", "trials"):
            problems.append(f"search {given.id!r} is {one['state']} ({one['reason']})")
            continue
        found_by = params.get(given.id, {})
        if unknown := sorted(set(range(given.trials)) - found_by.keys()):
            # Which jobs are those of a trial is in the record alone: no more can be said.
            problems.append(f"trials of {given.id!r} that are not in the record: {unknown}")
            continue
        for number, wanted in enumerate(_points(given, document["seed"], ends)):
            found = found_by[number]
            if found != wanted:
                problems.append(f"trial {number} of {given.id!r} has {found}, and not {wanted}")
        counts = {state: one.get(state, 0) for state in (COMPLETE, FAILED, PRUNED)}
        # A run that was killed when a trial was to be stopped has lost its job, not cancelled it.
        early = {stop["trial"] for stop in stops if stop["search"] == given.id}
        lost = {number for number in early & own.keys() if _was_lost(own[number])}
        states = Counter(PRUNED if number in lost else end[0] for number, end in ends.items())
        if counts != {state: states[state] for state in counts}:
            problems.append(f"search {given.id!r} says {counts}, and it was {dict(states)}")
        if given.stop is not None:
            numbers = [stop["trial"] for stop in stops if stop["search"] == given.id]
            pruned[given.stop.policy] += len(numbers)
            problems += _compare_stops(given, numbers, attempts)
    return problems, pruned


def check_stops(
    document: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    entries: Iterable[Mapping[str, Any]],
    jobs: Sequence[Job],
) -> tuple[list[str], Counter[str]]:
    """The trials were stopped that had to be, by the order of what all of them published.

    The arguments, and the result, are those of `check`.
    """
    problems, pruned = list[str](), Counter[str]()
    known = _known(document, rows)
    stops = [one["context"] for one in entries if one["name"] == "pruned"]
    for given in searches_of(load_mapping(document)):
        if given.stop is not None:
            numbers = [stop["trial"] for stop in stops if stop["search"] == given.id]
            pruned[given.stop.policy] += len(numbers)
            problems += _compare_stops(given, numbers, _attempts_of(given, jobs, known))
    return problems, pruned


def _compare_stops(
    given: Search, numbers: Sequence[int], attempts: Iterable[tuple[int, Job, bool]]
) -> Iterator[str]:
    right = _stopped(given, attempts)
    if numbers != right:
        pairs = enumerate(zip_longest(numbers, right))
        place, (was, right_one) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        yield (
            f"{len(numbers)} trials of {given.id!r} were stopped, and {len(right)} is "
            f"right; at place {place} trial {was}, and not {right_one}"
        )


def _known(
    document: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
) -> dict[int, tuple[str, int, bool]]:
    """By the id of each job of a trial: its search, its number, and whether it is the last one."""
    searches = {given["group"]: given["id"] for given in document["search"]}
    return {
        row["id"]: (searches[row["group"]], row["trial"], row["outcome"] != "interrupted")
        for row in rows
        if "trial" in row
    }


def _attempts_of(
    given: Search, jobs: Iterable[Job], known: Mapping[int, tuple[str, int, bool]]
) -> list[tuple[int, Job, bool]]:
    """The jobs of a search: the number of the trial, the job, and whether it is the last one."""
    found = [(job, known[job.id]) for job in jobs if job.id in known]
    return [(number, job, last) for job, (id, number, last) in found if id == given.id]


def _end(job: Job, given: Search) -> tuple[str, float | None]:
    """The state of a trial whose job has ended, and its value."""
    finish = job.first("finish")
    if finish is None or finish[1].get("status") != 0:
        kinds = {context.get("type") for name, _, context in job.events if name == "exception"}
        return (PRUNED if "cancel" in kinds else FAILED), None
    key = given.objectives[0].key
    values = [memo[key] for name, t, memo in job.events if name == "memo" and t <= finish[0]]
    return (COMPLETE, values[-1]) if values else (FAILED, None)


def _was_lost(job: Job) -> bool:
    return any(name == "exception" and context["type"] == "lost" for name, _, context in job.events)


def _points(given: Search, seed: int, ends: Ends) -> list[dict[str, Any]]:
    """The points of a search that nothing disturbs, one after the other."""
    if given.generator is not None:
        # It gives the same, and does not wait.
        given = replace(given, generator=replace(given.generator, name="generators:Learner"))
    trials, source = Trials(given), suggesting(described(given, seed))
    found: list[dict[str, Any]] = []
    if given.sampler in INDEPENDENT:
        while len(found) < given.trials:
            count = min(MAX_BATCH, given.trials - len(found))
            request = {"count": count, "points": [], "attributes": {}, "ends": []}
            found += [point["params"] for point in source.answer(request)["points"]]
        return found
    for number in range(given.trials):
        # It knows the points that it gave.
        seen = trials.seen(number, max(0, number - 1), number, number)
        (point,) = source.answer({"count": 1, **seen})["points"]
        found.append(point["params"])
        trials.add(point["params"], point.get("attributes"))
        trials.next(0.0)
        trials.end(number, *ends[number], 0.0)
    return found


def _stopped(given: Search, attempts: Iterable[tuple[int, Job, bool]]) -> list[int]:
    """The trials that are stopped early, as the order of memos and ends has it."""
    jobs = {number: job for number, job, last in attempts if last}
    assert given.stop is not None
    decides, stopped = stopping(given), list[int]()
    assert decides is not None
    key = given.objectives[0].key
    happened = sorted(
        (
            (t, number, name, context)
            for number, job, last in attempts
            for name, t, context in job.events
            if name == "memo" or name == ("finish" if last else "exception")
        ),
        key=lambda one: one[0],
    )
    over = set[int]()
    for _, number, name, context in happened:
        # A job that has finished can publish something still.
        if number in over:
            continue
        if name == "exception":
            decides.again(number)
        elif name == "finish":
            over.add(number)
            decides.end(number, _end(jobs[number], given)[0] == COMPLETE)
        elif number not in stopped and decides.publish(
            number, context[given.stop.step], context[key]
        ):
            stopped.append(number)
    return stopped
