"""Jobs that are over and run again because a user wants it: the request `rerun`.

    the record ──`runtime.rerun` chooses──► Request "rerun" ──► a retry for each job

The engine has forgotten jobs that are gone. So the request says of each what the record has of it:
its last attempt, and what of it was counted. The job is then not over any more: it is submitted
once more as its last attempt was, with its parameters and resources, as if it had not run: its
attempts begin at 0. What was counted of its attempts stays, as for `retries`. An ensemble that has
ended goes on (`Core.reopen`), on other members if it had some, and ends once more when nothing is
left to do.

Two requests that chose the same job run it again once. Trials of searches do not run again: their
search has counted them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.texts import ATTEMPT
from flux_ensemble.engine.core import Core
from flux_ensemble.engine.dispatch import pools_of
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.engine.members import Members
from flux_ensemble.engine.submitter import Submitter


class Reruns:
    """Runs jobs of one engine again."""

    def __init__(self, core: Core, sending: Submitter, members: Members | None) -> None:
        self._core = core
        self._sending = sending
        self._members = members

    def run(self, firings: Iterable[Mapping[str, Any]], *, unsent: bool = False) -> dict[str, Any]:
        """Run jobs again, and go on with an ensemble that has ended.

        Args:
            firings: `rule`, `firing`, `group` and, where there are some, `each`, `params` and
                `overrides` of a `Firing`; and `jobs`, the last attempts of jobs of it: [index, key,
                outcome, whether it is one of `Core.failed`, whether it gave up, retry, *others].
                The retry is the one that was to run it again, and was dropped; None without one.
                The others are the [rule, firing, outcome] of each other attempt of the job. In
                requests of earlier versions there is no `rows`, which has for each of the jobs the
                [position in the record, `ActiveJob.replaced`] of these attempts, the last one
                first.
            unsent: run the jobs of `Core.unsent`, too.

        Returns:
            The reply: how many `jobs` run, of which `unsent` had never been sent, and whether the
            ensemble was `reopened`.
        """
        core = self._core
        chosen = [
            (_firing(one), job, rows)
            for one in firings
            for job, rows in zip(one["jobs"], one.get("rows") or repeat(None), strict=False)
            if core.rerun.get((one["rule"], one["firing"], job[0])) == job[5]
        ]
        rests = core.left() if unsent else []
        waiting = sum(rest.waiting for rest in rests)
        jobs = len(chosen) + waiting
        if not jobs:
            return {"jobs": 0, "reopened": False}
        t_end = core.t_end
        entry = partial(eventlog.Rerun, jobs=jobs, unsent=waiting or None)
        if t_end is None:
            core.record(entry())
        else:
            groups = {firing.group for firing in (*(firing for firing, *_ in chosen), *rests)}
            self.reopen(groups, entry)
        for firing, (index, key, outcome, failed, gave_up, _, *others), rows in chosen:
            self._uncount(firing.group, key, failed=failed, gave_up=gave_up)
            # An earlier version had not counted those of its time.
            core.timed_out = max(0, core.timed_out - (failed and outcome == "timeout"))
            overrides = {
                name: value for name, value in (firing.overrides or {}).items() if name != ATTEMPT
            }
            number = self._sending.retry(firing, index, overrides or None, 0.0, 0, (), rerun=True)
            attempts = ((firing.rule, firing.number, outcome), *others)
            for (rule, of, ended), row in zip(attempts, rows or repeat(None), strict=False):
                # As JSON has it, it is a list.
                place = None if row is None else (row[0], row[1])
                core.replace(firing.group, (rule, of, index), ended, number, place)
        for rest in rests:
            core.unsent.close(rest.rule, rest.number)
            core.workload.put_back(rest)
        reply = {"jobs": jobs, "reopened": t_end is not None}
        return {**reply, "unsent": waiting} if waiting else reply

    def reopen(self, groups: Iterable[str], entry: Callable[..., eventlog.Entry]) -> None:
        """Go on with the ensemble, which has ended; its members start once more.

        Args:
            groups: of which jobs are to run.
            entry: makes the entry of the log, of the state in which it had `ended` and the seconds
                since, `away`.
        """
        core, before, t_end = self._core, self._core.state, self._core.t_end
        assert t_end is not None
        core.reopen()
        core.record(entry(ended=before, away=max(0.0, core.t - t_end)))
        if self._members is not None:
            self._members.reopen({pool for group in groups for pool in pools_of(core.spec, group)})

    def _uncount(self, group: str, key: int, *, failed: bool, gave_up: bool) -> None:
        """Take back that a job is over."""
        core = self._core
        core.workload.total -= 1
        core.failed -= bool(failed)
        names = ["finished", *["gave-up"] * bool(gave_up)]
        counts = core.stats.counts[group]
        for name in names:
            # A rerun that the queue never had was taken back before, and did not count again.
            counts[name] = max(0, counts[name] - 1)
        ordinal = ordinal_of(key)
        if self._members is not None and ordinal:
            member = self._members.name_of(ordinal)
            pool = member.rpartition(".")[0]
            for name in names:
                counts[f"{name}@{pool}"] = max(0, counts[f"{name}@{pool}"] - 1)
                if ordinal in self._members.known:
                    core.stats.of_members.count(member, group, name, -1)


def _firing(value: Mapping[str, Any]) -> Firing:
    return Firing(
        value["rule"],
        value["firing"],
        value["group"],
        0,
        0,
        value.get("each"),
        value.get("params"),
        overrides=value.get("overrides"),
    )
