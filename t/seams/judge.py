"""The judge: what has to hold of an ensemble, whatever its features and whatever happened to it.

    problems = judge(features, evidence, Happened())

Each invariant stands here once. It compares what is told in one place with what is told in another,
and above all with what the jobs themselves have put down.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .evidence import Began, Evidence, Row
from .features import BOUND, Feature

OUTCOMES = ("success", "failed", "canceled", "timeout", "interrupted")

#: What the report calls them.
_WORDS = {"success": "succeeded", "failed": "failed", "canceled": "canceled",
          "timeout": "ran out of time", "interrupted": "interrupted, and run again"}  # fmt: skip


@dataclass(frozen=True)
class Happened:
    """What was done to a run, as far as it changes what may be asked of it.

    Args:
        interrupted: jobs were ended from outside, so that there may be more attempts.
        forgets: the queue may have forgotten jobs that have run.
        stated: the run was followed to its end by a command whose code and words count.
        reran: jobs that had not succeeded were run again after its end.
    """

    reran: bool = False
    interrupted: bool = False
    forgets: bool = False
    stated: bool = True


class Problems(list[str]):
    """What is wrong, as sentences."""

    def same(self, what: str, expected: object, found: object) -> None:
        """Two places say the same."""
        if expected != found:
            self.append(f"{what}: {found!r}, and it has to be {expected!r}")

    def close(self, what: str, expected: float, found: Any) -> None:
        """Two numbers are the same, but for the last digits."""
        if not isinstance(found, (int, float)) or not math.isclose(
            expected, found, rel_tol=1e-9, abs_tol=1e-12
        ):
            self.append(f"{what}: {found!r}, and it has to be {expected!r}")


def judge(features: Sequence[Feature], seen: Evidence, happened: Happened) -> list[str]:
    """Hold against each other what is told of an ensemble.

    Args:
        features: what its document was made of.
        seen: all that is known of it.
        happened: what was done to it.

    Returns:
        What is wrong, a sentence each.
    """
    problems = Problems()
    _end(seen, happened, problems)
    _counts(features, seen, happened, problems)
    _side_effects(seen, happened, problems)
    _log(seen, happened, problems)
    _exports(seen, problems)
    _report(seen, problems)
    _failures(features, seen, problems)
    _statistics(seen, happened, problems)
    _best(features, seen, problems)
    _searches(features, seen, problems)
    if seen.replay is not None:
        problems.same("the exit code of replay", 0, seen.replay.code)
        if seen.replay.code == 0 and not seen.replay.out.rstrip().endswith(seen.status["state"]):
            problems.append(f"replay ends otherwise: {seen.replay.out!r}")
    return list(problems)


def interrupted(row: Row) -> bool:
    """Whether the end of an attempt was no doing of its job."""
    return bool(row["interrupted"])


def standing(rows: Iterable[Row]) -> list[Row]:
    """The attempts but for those that were over, and whose jobs a user has run again."""
    return [row for row in rows if not row.get("replaced") or row["outcome"] == "interrupted"]


def spelled(value: Any) -> str:
    """How the value of a parameter stands in a command, where it is no text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


# -- the end --------------------------------------------------------------------------------


def _end(seen: Evidence, happened: Happened, problems: Problems) -> None:
    """The state, the exit code and the last words agree, and nothing is left over."""
    status = seen.status
    problems.same("the state", "completed", status["state"])
    problems.same("errors in the status", [], status["errors"])
    problems.same("violations", 0, status["violations"])
    for key in ("state", "reason", "t_start", "t_end"):
        problems.same(f"{key} in list", status[key], seen.listed[key])
    for key in ("waiting", "active"):
        problems.same(f"{key} jobs", 0, status["jobs"][key])
        problems.same(f"{key} in list", 0, seen.listed[key])
    problems.same("finished in list", sum(one["finished"] for one in status["groups"].values()),
                  seen.listed["finished"])  # fmt: skip
    problems.same("failed in list", status["failed"], seen.listed["failed"])
    for rule in status["rules"]:
        problems.same(f"the error of rule {rule['id']}", None, rule["error"])
    problems.same("the exit code of wait", 0, seen.wait.code)
    if f"{seen.name}: {status['state']}" not in seen.wait.out + seen.wait.err:
        problems.append(f"wait says otherwise: {seen.wait.out!r}")
    if seen.run is None or not happened.stated:
        return
    problems.same("the exit code of run", 0, seen.run.code)
    if not re.search(rf"^{seen.name}: {status['state']}\b", seen.run.out, re.MULTILINE):
        problems.append(f"the last words of run are not of {status['state']}: "
                        f"{seen.run.out[-300:]!r}")  # fmt: skip
    if seen.summary is not None and "error" in seen.summary:
        problems.append(f"the summary has an error: {seen.summary['error']!r}")
    elif seen.summary is not None:
        for key in ("name", "state", "reason", "t_start", "t_end"):
            problems.same(f"{key} in the summary", status[key], seen.summary.get(key))
        problems.same("exit_code in the summary", seen.run.code, seen.summary["exit_code"])
        for outcome in OUTCOMES:
            problems.same(f"{outcome} jobs in the summary", _total(seen, outcome),
                          seen.summary["jobs"][outcome])  # fmt: skip


def _total(seen: Evidence, outcome: str) -> int:
    return sum(group[outcome] for group in seen.status["groups"].values())


# -- counts ---------------------------------------------------------------------------------


def _counts(
    features: Sequence[Feature], seen: Evidence, happened: Happened, problems: Problems
) -> None:
    """The counts of groups are those of the record, and what has to come of the features."""
    groups = seen.status["groups"]
    rows = Counter((row["group"], row["outcome"]) for row in standing(seen.rows))
    apart = Counter(row["group"] for row in seen.rows if interrupted(row))
    for name, group in groups.items():
        for outcome in OUTCOMES:
            problems.same(f"{outcome} rows of {name} in jobs", group[outcome], rows[name, outcome])
        for key, value in group.items():
            # Metrics have each attempt.
            counted = happened.reran and key in (*OUTCOMES, "attempts")
            if key in seen.metrics["count"][name] and not counted:
                problems.same(f"count.{name}.{key} in metrics", value,
                              seen.metrics["count"][name][key])  # fmt: skip
        problems.same(f"attempts of {name}", sum(group[outcome] for outcome in OUTCOMES),
                      group["attempts"])  # fmt: skip
        problems.same(f"submitted of {name}, and its rows",
                      sum(row["group"] == name for row in seen.rows),
                      group["submitted"])  # fmt: skip
        if not happened.interrupted:
            problems.same(f"interrupted jobs of {name}", 0, apart[name])
        problems.same(f"interrupted of {name}", apart[name], group["interrupted"])
    for feature in features:
        for name, many in feature.ends.items():
            problems.same(f"finished of {name}", many, groups[name]["finished"])
        for name, many in feature.succeeded.items():
            problems.same(f"success of {name}", many, groups[name]["success"])
            bad = groups[name]["failed"] + groups[name]["timeout"]
            expected = feature.failed.get(name, 0)
            # Of those that were to fail the first time some may have been interrupted then.
            if not happened.interrupted or expected == 0:
                problems.same(f"failed attempts of {name}", expected, bad)
            elif bad > expected:
                problems.append(f"failed attempts of {name}: {bad}, more than {expected}")
    for name in groups:
        done = Counter(str(row["params"]) for row in standing(seen.rows)
                       if row["group"] == name and row["outcome"] == "success")  # fmt: skip
        for params, times in done.items():
            problems.same(f"successes of {name} with {params}", 1, times)


# -- side effects ---------------------------------------------------------------------------


def _side_effects(seen: Evidence, happened: Happened, problems: Problems) -> None:
    """Each job of the record did what it says, and no job has run that is not in it."""
    found = _matched(seen)
    for row in seen.rows:
        began = found.get(id(row))
        what = f"job {row['id']} of {row['group']}, which counts as {row['outcome']},"
        if row["outcome"] == "success":
            if began is None:
                problems.append(f"{what} has not begun")
            elif began.code != 0:
                problems.append(f"{what} has ended with {began.code}")
        elif began is not None and row["outcome"] == "failed" and not interrupted(row):
            problems.same(f"the exit code of {what[:-1]}", began.code, row["returncode"])
        if began is not None:
            # A memo that was sent as the job was ended may have come too late.
            late = row["outcome"] != "success"
            if not late or (not happened.interrupted and row["outcome"] == "failed"):
                problems.same(f"the memo of {what[:-1]}", began.memo, row["memo"])
            if began.code == 0 and row["outcome"] in ("failed", "timeout") and not interrupted(row):
                problems.append(f"{what} has ended with 0")
    known = {id(one) for one in found.values()}
    for began in seen.began:
        if id(began) not in known and not happened.forgets:
            problems.append(f"{began} has run, and is not in the record")


def _matched(seen: Evidence) -> dict[int, Began]:
    """For each row, by its `id()`, the job by its own words."""
    where: dict[tuple[str, int], list[Began]] = defaultdict(list)
    for began in seen.began:
        where[began.group, began.id].append(began)
    found = {}
    for row in seen.rows:
        candidates = where.get((row["group"], row["id"]), [])
        # Jobs of several members can have one id.
        same = [one for one in candidates if _same_params(row["params"], one.params)]
        if same:
            found[id(row)] = same[0]
            candidates.remove(same[0])
    return found


def _same_params(params: Mapping[str, Any], told: Mapping[str, str]) -> bool:
    return params.keys() == told.keys() and all(
        _same_value(value, told[name]) for name, value in params.items()
    )


def _same_value(value: Any, told: str) -> bool:
    if spelled(value) == told:
        return True
    try:
        return float(value) == float(told)
    except (TypeError, ValueError):
        return False


# -- the log --------------------------------------------------------------------------------


def _log(seen: Evidence, happened: Happened, problems: Problems) -> None:
    """The log agrees with the status: firings, retries, trials, the end."""
    names = Counter(entry["name"] for entry in seen.entries)
    # What a function returns is a firing of the rule that has called it, which has fired once.
    fired = Counter(
        entry["context"]["rule"]
        for entry in seen.entries
        if entry["name"] == "fire" and entry["context"]["cause"]["trigger"] != "custom"
    )
    for rule in seen.status["rules"]:
        problems.same(f"firings of {rule['id']} in the log", rule["fired"], fired[rule["id"]])
    for name in ("load", "start", "finish"):
        ends = 2 if name == "finish" and happened.reran else 1
        problems.same(f"entries {name!r} in the log", ends, names[name])
    problems.same("entries 'retry' in the log", seen.status["retries"], names["retry"])
    keys = Counter((entry["context"]["rule"], entry["context"]["firing"])
                   for entry in seen.entries if entry["name"] == "fire")  # fmt: skip
    for (rule_id, number), times in keys.items():
        problems.same(f"entries of firing {number} of {rule_id}", 1, times)
    for entry in seen.entries:
        if entry["name"] == "finish":
            for key in ("state", "reason"):
                problems.same(f"{key} in the log", seen.status[key], entry["context"][key])
    for what in ("error", "custom-error", "violation", "stopped"):
        problems.same(f"entries {what!r} in the log", 0, names[what])
    problems.same("entries 'trial-failed' in the log",
                  sum(one["failed"] for one in seen.status.get("searches", ())),
                  names["trial-failed"])  # fmt: skip


# -- what is written ------------------------------------------------------------------------


def _exports(seen: Evidence, problems: Problems) -> None:
    """What is exported is what `jobs` shows, and parameters are spelled as the jobs got them."""
    kept = [row for row in seen.rows if not row.get("replaced")]
    problems.same("rows that jobs shows", kept, list(seen.shown))
    problems.same("rows in JSON lines", list(seen.rows), list(seen.jsonl))
    for kind, rows in (("csv", seen.csv), ("sqlite", seen.sqlite)):
        problems.same(f"rows in {kind}", [(str(row["id"]), row["outcome"]) for row in seen.rows],
                      [(str(row["id"]), row["outcome"]) for row in rows])  # fmt: skip
    found = _matched(seen)
    for row, written in zip(seen.rows, seen.csv, strict=False):
        began = found.get(id(row))
        for name, told in began.params.items() if began else ():
            problems.same(f"params.{name} of {began} in csv", told, written[f"params.{name}"])


def _report(seen: Evidence, problems: Problems) -> None:
    """The report has the jobs, and says how many ended how."""
    problems.same("jobs in the report", len(seen.rows), seen.report.rows)
    problems.same("outcomes in the report", Counter(row["outcome"] for row in seen.rows),
                  Counter(seen.report.outcomes))  # fmt: skip
    for outcome, word in _WORDS.items():
        problems.same(f"how many {word} by the report", _total(seen, outcome),
                      seen.report.said.get(word, 0))  # fmt: skip


def _failures(features: Sequence[Feature], seen: Evidence, problems: Problems) -> None:
    """What `failures`, `run` and the report say of failures is what is counted."""
    bad = _total(seen, "failed") + _total(seen, "timeout")
    first = re.match(r"([\d,]+) of ([\d,]+)", seen.failures)
    problems.same("how many failed by failures", bad, int(first[1]) if first else 0)
    # A job counts once, however often it has run.
    jobs = sum(group["finished"] for group in seen.status["groups"].values())
    said = re.match(r"[\d,]+ of ([\d,]+) (?:jobs?|attempts? at ([\d,]+) jobs?) ", seen.failures)
    if said:
        problems.same("how many jobs there are by failures", jobs, int(said[2] or said[1]))
    ended = re.search(r"^\d+ of (\d+) jobs? failed: see ", seen.run.out if seen.run else "", re.M)
    if ended:
        problems.same("how many jobs there are by run", jobs, int(ended[1]))
    kinds = sum(int(number) for number in re.findall(
        r"^\S.*: (\d+) (?:jobs?|attempts?)$", seen.failures, re.MULTILINE))  # fmt: skip
    problems.same("the kinds of failures by failures, together", bad, kinds)
    attempts = sum(_total(seen, outcome) for outcome in OUTCOMES if outcome != "interrupted")
    headline = re.match(r"(?:([\d,]+) of )?([\d,]+) (?:jobs?|attempts?) ", seen.report.headline)
    tried = re.search(r"; ([\d,]+) of ([\d,]+) attempts? did", seen.report.headline)
    if tried:
        # Jobs are told apart from attempts where some had several.
        assert headline is not None
        problems.same("how many jobs failed by the report", seen.status["failed"],
                      int(headline[1] or 0))  # fmt: skip
        problems.same("how many jobs ended by the report", jobs, int(headline[2]))
    said = tried or headline
    problems.same("how many failed by the report", bad, int(said[1] or 0) if said else 0)
    problems.same("how many ended by the report", attempts, int(said[2]) if said else 0)
    lost = sum(many - feature.succeeded[name] for feature in features
               for name, many in feature.finished.items() if name in feature.succeeded)  # fmt: skip
    if seen.run is not None:
        problems.same("how many jobs failed by run", lost, _bad(seen.run.out, seen.name))
    problems.same("how many jobs failed by wait", lost, _bad(seen.wait.out, seen.name))


def _bad(printed: str, name: str) -> int:
    """How many jobs failed, or ran out of time, by what a command says at the end."""
    lines = [line for line in printed.splitlines() if line.startswith(f"{name}: ")]
    return sum(map(int, re.findall(r"(\d+) jobs? (?:failed|ran out of time)", " ".join(lines))))


# -- statistics -----------------------------------------------------------------------------


def _statistics(seen: Evidence, happened: Happened, problems: Problems) -> None:
    """Statistics are of the values that jobs have published, each once.

    What an interrupted attempt has published counts only as that of the attempt in its place.
    """
    published: dict[str, list[float]] = defaultdict(list)
    found = _matched(seen)
    again = {id(found[id(row)]) for row in seen.rows
             if row["outcome"] == "interrupted" and id(row) in found}  # fmt: skip
    for began in (one for one in seen.began if id(one) not in again):
        for memo in began.memos:
            for key, value in memo.items():
                published[f"{began.group}-{key}"].append(value)
    counted = seen.metrics.get("n", {})
    for name, values in published.items():
        many = counted.get(name)
        # What a trial that is stopped has published last may have come too late.
        stopped = name.startswith("stopping-")
        if happened.forgets or stopped:
            if (many or 0) > len(values):
                problems.append(f"n.{name}: {many}, of {len(values)} values")
            continue
        problems.same(f"n.{name}", len(values), many)
        for statistic, expected in (("max", max(values)), ("min", min(values)),
                                    ("mean", sum(values) / len(values))):  # fmt: skip
            problems.close(f"{statistic}.{name}", expected, seen.metrics[statistic].get(name))
    for name, group in seen.status["groups"].items():
        if group["success"] and not happened.interrupted:
            problems.same(f"n.{name}-duration", group["success"], counted.get(f"{name}-duration"))


# -- the best -------------------------------------------------------------------------------


def _extreme(jobs: Iterable[tuple[float, Any]], mode: str) -> tuple[float, Any] | None:
    """The first of those that are best."""
    choose = max if mode == "max" else min
    return choose(jobs, key=lambda one: one[0], default=None)


def _best(features: Sequence[Feature], seen: Evidence, problems: Problems) -> None:
    """What is best is the extreme among the jobs that succeeded, by their own words."""
    found = _matched(seen)
    shown = []
    for best in (feature.best for feature in features if feature.best):
        jobs = [(found[id(row)].memo[best.key], row) for row in seen.rows
                if row["group"] == best.group and row["outcome"] == "success"
                and id(row) in found]  # fmt: skip
        extreme = _extreme(jobs, best.mode)
        told = seen.metrics.get("best", {}).get(best.name)
        stated = seen.status.get("best")
        if isinstance(stated, Mapping):
            problems.same(f"best.{best.name} in status", told, stated.get(best.name))
        if extreme is None or told is None:
            problems.append(f"best.{best.name}: {told}, and it has to be {extreme}")
            continue
        problems.close(f"best.{best.name}.value", extreme[0], told["value"])
        problems.same(f"best.{best.name}.params", extreme[1]["params"], told["params"])
        shown.append(extreme[0])
    shown += [search["best"][0]["value"] for search in seen.status.get("searches", ())
              if search["best"]]  # fmt: skip
    if shown and seen.report.best is not None:
        try:
            value = float(seen.report.best[0].replace(",", ""))
        except ValueError:
            problems.append(f"the best point in the report: {seen.report.best}")
            return
        if not any(math.isclose(value, one, rel_tol=2e-3, abs_tol=1e-6) for one in shown):
            problems.append(f"the best point in the report: {value}, and it has to be of {shown}")


# -- searches -------------------------------------------------------------------------------


#: States of trials that were tried to their end.
_OVER = ("complete", "infeasible", "pruned")


def _searches(features: Sequence[Feature], seen: Evidence, problems: Problems) -> None:
    """Each trial was tried to its end, once, and the best one is the best."""
    found = _matched(seen)
    states = {search["id"]: search for search in seen.status.get("searches", ())}
    for one in seen.searches:
        state = states[one["id"]]
        problems.same("searches by search", state, {key: one[key] for key in one if key in state})
        if "all_trials" in one:
            over = [trial for trial in one["all_trials"] if trial["trial_state"] in _OVER]
            counted = sum(state.get(name, 0) for name in _OVER)
            problems.same(f"all trials of {one['id']} that are over", counted, len(over))
    for feature in features:
        for name, trials in feature.trials.items():
            search = states[name]
            problems.same(f"state and reason of search {name}", ("done", "trials"),
                          (search["state"], search["reason"]))  # fmt: skip
            problems.same(f"failed and canceled trials of {name}", (0, 0),
                          (search["failed"], search["canceled"]))  # fmt: skip
            problems.same(f"trials of {name} that are over", trials,
                          sum(search.get(state, 0) for state in _OVER))  # fmt: skip
            _trials(search, [row for row in seen.rows if row.get("trial") is not None
                             and row["group"] == search["group"]], found, problems)  # fmt: skip


def _trials(
    search: Row, rows: Sequence[Row], found: Mapping[int, Began], problems: Problems
) -> None:
    name, objective, repeats = search["id"], search["objective"], search.get("repeats", 1)
    ended = Counter(row["trial"] for row in rows if row["trial_state"] in _OVER)
    problems.same(
        f"how often jobs of trials of {name} are over",
        dict.fromkeys(range(search["trials"]), repeats),
        dict(sorted(ended.items())),
    )
    points: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        points[row["trial"]].add(str(row["params"]))
    for trial, params in points.items():
        problems.same(f"points of trial {trial} of {name}", repeats, len(params))
    for state in _OVER:
        problems.same(f"jobs of {state} trials of {name}", repeats * search.get(state, 0),
                      sum(row["trial_state"] == state for row in rows))  # fmt: skip
    if "subject_to" in search:
        over = [row for row in rows if id(row) in found and row["trial_state"] in _OVER]
        beyond = [row["trial"] for row in over if found[id(row)].memo[objective] < BOUND]
        told = [row["trial"] for row in over if row["trial_state"] == "infeasible"]
        problems.same(f"infeasible trials of {name}", beyond, told)
    mode = "min" if search["direction"] == "minimize" else "max"
    extreme = _extreme(
        ((found[id(row)].memo[objective], row) for row in rows
         if row["trial_state"] == "complete" and id(row) in found), mode)  # fmt: skip
    if extreme is None:
        return
    if not search["best"]:
        problems.append(f"search {name} has no best trial")
        return
    told = search["best"][0]
    problems.close(f"the best value of {name}", extreme[0], told["value"])
    # A job has some value of a variable, too, whose condition does not hold for its trial.
    best = {one: extreme[1]["params"][one] for one in told["params"]}
    problems.same(f"the best point of {name}", best, told["params"])
    entered = search["best"]
    problems.same(f"the best trials of {name}, in order",
                  sorted((one["value"] for one in entered), reverse=mode == "max"),
                  [one["value"] for one in entered])  # fmt: skip
