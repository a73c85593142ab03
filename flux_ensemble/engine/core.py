"""The core of an engine: the state that its parts share, and the methods that several of them call.

    core < actions < observer, requests, evaluation < engine

A part knows the core and the parts to its left, and calls nothing to its right. In particular no
part evaluates rules: it returns them as `TriggerQueue`, and `evaluation` does the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from flux_ensemble import eventlog
from flux_ensemble.document.job_sets import JobSet
from flux_ensemble.document.keys.rules import RUNNING_TRIGGER
from flux_ensemble.document.model import REQUEST_RULE, RETRY_RULE, Rule, Spec
from flux_ensemble.engine.absences import Absence
from flux_ensemble.engine.commands import (
    CancelJobs,
    Command,
    Finish,
    Record,
    StartTimer,
    StopTimer,
)
from flux_ensemble.engine.feature import Hooks
from flux_ensemble.engine.firings import Firing, Firings
from flux_ensemble.engine.idle_rules import used_up
from flux_ensemble.engine.job_keys import MAX_ID, named, ordinal_of
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.lifecycle import ACTING_STATES, FINAL_STATES, TRANSITIONS
from flux_ensemble.engine.nodes import Nodes
from flux_ensemble.engine.pending import Answer, Origin, Pending, PendingTable
from flux_ensemble.engine.records import Records
from flux_ensemble.engine.rule_state import RuleState
from flux_ensemble.engine.rules import RuleIndex
from flux_ensemble.engine.submissions import Submissions
from flux_ensemble.engine.trigger_queue import Cause, TriggerQueue
from flux_ensemble.engine.workload import Workload
from flux_ensemble.metrics.names import INTERRUPTED
from flux_ensemble.metrics.paths import LEFT
from flux_ensemble.metrics.streams import Metrics

#: The most rules that may fire each other with no job or time between them.
CHAIN_LIMIT = 100

#: The seconds by which a job's time limit must be shorter than the rest of the allocation. Flux
#: compares the two when it receives the job, and refuses the job if its limit is longer.
SUBMISSION_SECONDS = 5.0

#: Key of the heartbeat's timer.
HEARTBEAT = "heartbeat"

#: Attributes of `Core` that a snapshot holds as they are.
_DUMPED = ("state", "reason", "t", "t_start", "t_end", "firings")


class Core:
    """The state that the parts of one engine share.

    Args:
        spec: the checked document.

    Attributes:
        state: one of `lifecycle.TRANSITIONS`; `enter` changes it.
        reason: the reason for the final state, present or coming.
        t: time of the latest event.
        t_start, t_end: when the ensemble began and ended, or None.
        firings: the number of firings of all rules.
        failed: the number of jobs that failed or ran out of time, and did not run again.
        timed_out: how many of them ran out of time.
        rerun: the number of the retry that runs a job again which was over, by the rule, the number
            and the index of each of its attempts.
        replaced: how many attempts of such jobs there are, by group and outcome; those that were
            interrupted are counted apart in any case.
        t_walltime: when the allocation expires, once its end is near and nothing is submitted any
            more; else None.
        stats: counts and streams.
        rules: the rules, and an index of them by the events that trigger them.
        workload: the ensemble's jobs.
        hooks: what features have of the engine.
        records: the records of jobs that are gone.
        foreign: foreign jobs that rules select, by id.
        pending_table: commands without an outcome, held actions, and calls to be repeated.
        answers: the answers to requests of rules for which rules have not been evaluated yet.
        nodes: the nodes of the queue, as it reports them.
        function_states: the states of custom functions, by name.
        not_started: groups with too long a time limit (see `too_long`) that were logged as such.
        member_names: the names of the members that have not ended, by their numbers.
        refused: the number of jobs of each group that the queue refused for good.
        refusal: the first such refusal, in a sentence, or None.
        unsent: the firings with jobs that waited when the ensemble was cancelled, or failed, and so
            are in no record; without jobs that run again, and trials.
        deferred: rules on `idle` that wait for commands, with the idle group or combination.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.state = "running"
        self.reason = ""
        self.t = 0.0
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.firings = 0
        self.failed = 0
        self.timed_out = 0
        self.rerun: dict[tuple[str, int, int], int] = {}
        self.replaced: dict[str, dict[str, int]] = {}
        self.t_walltime: float | None = None
        self.stats = Metrics(spec.groups, spec.statistics, spec.bests, spec.rate_window, spec.by)
        self.rules = RuleIndex(spec)
        self.workload = Workload(spec.groups, spec.limits.active_jobs, bool(spec.members))
        self.hooks = Hooks()
        self.nodes = Nodes(self.rules, self.stats, self.hooks)
        self.records = Records(spec.limits.records if spec.records else 0)
        self.foreign: dict[int, ActiveJob] = {}
        self.pending_table = PendingTable()
        self.answers: deque[Answer] = deque()
        self.function_states: dict[str, Any] = {}
        self.not_started: list[str] = []
        self.deferred: dict[tuple[RuleState, str | None], None] = {}
        self.refused: dict[str, int] = {}
        self.refusal: str | None = None
        self.unsent = Firings()
        self.member_names: dict[int, str] = {}
        #: The final state and its reason, once the ensemble is ending.
        self._final: tuple[str, str] | None = None
        #: The commands of the current event.
        self._out: list[Command] = []
        self._submissions = Submissions(spec.groups)
        self.watch()

    @property
    def acting(self) -> bool:
        """True if rules can fire; while paused, their actions wait."""
        return self.state in ACTING_STATES

    @property
    def interrupted(self) -> int:
        """The number of interrupted attempts, in all groups."""
        return sum(counts[INTERRUPTED] for counts in self.stats.counts.values())

    @property
    def ran_again(self) -> bool:
        """True if an attempt was interrupted, or a user has had a job run again."""
        return bool(self.rerun or self.interrupted)

    def metrics(self, t: float) -> dict[str, Any]:
        """Return all metrics at time `t`, nested as in `Metrics.snapshot`."""
        return self.stats.snapshot(lambda group, gauge: self.workload.ages(group, gauge, t))

    # -- output ---------------------------------------------------------------------

    def emit(self, command: Command) -> None:
        """Add a command to those of the current event."""
        self._out.append(command)

    def record(self, entry: eventlog.Entry) -> None:
        """Add an entry to the eventlog."""
        self._out.append(Record(self.t, entry.tag, entry.to_json()))

    def outcome(self, origin: Origin, **context: Any) -> None:
        """Record the success of a firing's action."""
        self.record(eventlog.Outcome(rule=origin.rule, firing=origin.number, ok=True, **context))
        self.make_up_for(origin.rule)

    def member_of(self, key: int) -> str | None:
        """Return the name of the member that a job is on; None on the enclosing instance."""
        return self.member_names.get(ordinal_of(key)) if self.member_names else None

    def where(self, key: int) -> dict[str, str]:
        """Return an event's key for the member of a job; empty on the enclosing instance."""
        name = self.member_of(key)
        return {} if name is None else {"member": name}

    def send(self, pending: Pending) -> None:
        """Emit a command, and keep it as pending until its outcome comes back."""
        self.pending_table.add(pending)
        self._out.append(pending.command)

    # -- rules ----------------------------------------------------------------------

    def add_rule(self, rule: Rule, chain: tuple[str, ...]) -> Sequence[TriggerQueue]:
        """Add a rule that a custom function returned.

        Args:
            rule: a checked rule.
            chain: the rules that led here with no job or time between.
        """
        state = self.rules.add(rule)
        self.watch()
        self.start_timer(state)
        return self._at_once(state, {"trigger": "added"}, chain)

    def watch(self) -> None:
        """Watch the combinations, streams and rates that the rules need."""
        for group in self.rules.wants_rates:
            self.stats.watch_rate(group)
        self.stats.of_members.want(self.rules.wants_of_members)
        for state in self.rules.states.values():
            for group in state.rule.groups if state.rule.by else ():
                self.workload.watch(group, state.rule.by)
            if state.rule.detector is not None:
                self.stats.watch(state.rule.id, state.rule.detector)
        for state in self.rules.wants_tallies:
            if state.live:
                self.workload.tally(state.rule.id, state.rule.groups, state.rule.by)

    def enable(
        self, state: RuleState, reason: str, chain: tuple[str, ...]
    ) -> Sequence[TriggerQueue]:
        """Enable a rule; an enabled one stays as it is."""
        if state.enabled:
            return ()
        state.enabled = True
        state.error = None
        self.record(eventlog.RuleEnabled(rule=state.rule.id, reason=reason))
        if state.rule.trigger == "time-left" and not state.timer:
            self.start_timer(state)
        return self._at_once(state, {"trigger": "enabled"}, chain)

    def disable(self, state: RuleState, reason: str) -> None:
        """Disable a rule; a disabled one stays as it is."""
        if state.enabled:
            state.enabled = False
            self.record(eventlog.RuleDisabled(rule=state.rule.id, reason=reason))

    def make_up_for(self, rule: str) -> None:
        """Clear the error of a rule, unless the rule was disabled.

        Args:
            rule: the rule's id; an id of no rule is ignored.
        """
        state = self.rules.states.get(rule)
        if state is not None and state.enabled:
            state.error = None

    def _at_once(
        self, state: RuleState, event: Mapping[str, Any], chain: tuple[str, ...]
    ) -> Sequence[TriggerQueue]:
        """Return the rule if it is to be evaluated at once when it is added or enabled."""
        trigger = state.rule.trigger
        if trigger == "start" or (trigger == "metric" and state.condition is not None):
            return (TriggerQueue(state, Cause(event, None, chain)),)
        return ()

    def start_timer(self, state: RuleState) -> None:
        """Start the timer of a rule on `timer`, `time-left` or `job-running`."""
        rule = state.rule
        if rule.trigger == "time-left" and rule.below is not None and state.armed:
            t_expires = self.stats.t_expires
            if t_expires is not None and self.t_start is not None:
                state.timer = True
                after = max(0.0, t_expires - rule.below - self.t)
                self.emit(StartTimer(f"rule:{rule.id}", after))
        if rule.trigger not in ("timer", RUNNING_TRIGGER):
            return
        every = rule.every or 0.0
        after = rule.after if rule.after is not None else every
        state.timer = True
        self.emit(StartTimer(f"rule:{rule.id}", after, every))

    def stop_timer(self, state: RuleState) -> None:
        """Stop the timer of a rule, if it is set."""
        if state.timer:
            state.timer = False
            self.emit(StopTimer(f"rule:{state.rule.id}"))

    def chain_may_grow(self, chain: tuple[str, ...]) -> bool:
        """Return whether a chain of rules may continue; if not, fail the ensemble."""
        if len(chain) <= CHAIN_LIMIT:
            return True
        names = ", ".join(dict.fromkeys(chain))
        self.fail(f"rules fire each other with no job or time between them: {names}")
        return False

    # -- jobs -----------------------------------------------------------------------

    def too_long(self) -> Collection[str]:
        """Return the groups with a time limit that is longer than the allocation lasts."""
        if self.stats.t_expires is None:
            return ()
        left = self.stats.lookup(LEFT) - SUBMISSION_SECONDS
        return [name for name, group in self.spec.groups.items() if group.longest > max(left, 0.0)]

    def why_not(self, group: str) -> str:
        """Return the reason why the jobs of a group that is `too_long` are not started."""
        left, limit = self.stats.lookup(LEFT) or 0.0, self.spec.groups[group].longest
        return (
            f"its jobs are not started: they may take {limit:g} seconds, and the allocation lasts "
            f"for {left:.0f} more"
        )

    def cancel_jobs(self, groups: Iterable[str], reason: str, origin: Origin | None = None) -> int:
        """Cancel the active jobs of groups, and drop waiting ones.

        Args:
            groups: names of groups.
            reason: the reason, for Flux.
            origin: the firing that cancels; None for a request.

        Returns:
            The number of active jobs that are being cancelled.
        """
        groups = frozenset(groups)
        self._give_up_waiting(groups)
        jobs, _ = self.workload.withdraw(groups)
        for withdrawn in self.hooks.withdrawn:
            withdrawn(groups)
        if jobs:
            number = self.pending_table.next_number
            origin = origin or Origin(REQUEST_RULE, number(REQUEST_RULE))
            self.cancel(tuple(job.id for job in jobs), reason, origin)
        return len(jobs)

    def _give_up_waiting(self, groups: Collection[str]) -> None:
        for firing in self.workload.firings:
            if firing.group in groups:
                self.give_up(firing)

    def give_up(self, firing: Firing) -> None:
        """Give up the waiting jobs of a firing: stop their timer, and count retries as finished."""
        if firing.delayed:
            self.emit(StopTimer(firing.timer))
        counts = self.stats.counts[firing.group]
        if firing.work is not None:
            for given_up in self.hooks.given_up:
                counts["finished"] += given_up(firing)
        elif firing.rule == RETRY_RULE:
            counts["finished"] += firing.waiting

    def cancel(self, jobs: tuple[int, ...], reason: str, origin: Origin) -> None:
        """Cancel jobs by their ids."""
        self.send(Pending(origin, CancelJobs(self.pending_table.next_id(), jobs, reason)))

    def job_name(self, key: int) -> int | str:
        """Return the id of a job as expressions have it; `member:id` for one on a member."""
        return key if key <= MAX_ID else named(self.member_names, key)

    def job_of(self, job: ActiveJob) -> tuple[JobSet, dict[str, Any]]:
        """Return the job set and the parameters of a job of the ensemble."""
        assert job.firing is not None
        return self.job_at(job.firing, job.index)

    def job_at(self, firing: Firing, index: int) -> tuple[JobSet, dict[str, Any]]:
        """Return the job set and the parameters of a job of a firing."""
        of_job: tuple[JobSet, dict[str, Any]] = self._submissions.of(firing)[index]
        return of_job

    @property
    def wants_foreign(self) -> bool:
        """True if the engine needs events of foreign jobs."""
        return self.acting and self.rules.wants_foreign

    def wants_job(self, name: str | None) -> bool:
        """Return whether the engine needs events of a foreign job with this name."""
        return self.acting and self.rules.wants_job(name)

    def forget_foreign(self) -> None:
        """Forget the foreign jobs that no rule needs any more."""
        self.foreign = {id: job for id, job in self.foreign.items() if self.wants_job(job.group)}

    # -- the life of the ensemble -----------------------------------------------------

    def enter(self, state: str) -> None:
        """Change the state.

        Raises:
            AssertionError: the transition is not in `lifecycle.TRANSITIONS`.
        """
        assert state in TRANSITIONS[self.state], f"from {self.state!r} to {state!r}"
        self.state = state

    def refuse(self, group: str, jobs: int, reason: str) -> None:
        """Note that the queue refused jobs for good.

        The other jobs continue; the ensemble fails after them.

        Args:
            group: the group of the jobs.
            jobs: the number of jobs.
            reason: the queue's reason.
        """
        self.refused[group] = self.refused.get(group, 0) + jobs
        if self.refusal is None:
            self.refusal = f"the queue refused jobs of group {group!r}: {reason}"

    def fail(self, reason: str) -> None:
        """End the ensemble as failed."""
        self.end("failed", reason)

    def end(self, state: str, reason: str, *, cancel: bool = False) -> None:
        """End the ensemble: rules stop firing, and waiting jobs are dropped.

        Args:
            state: the final state.
            reason: one sentence or phrase.
            cancel: cancel the ensemble's jobs, and end when they are gone.
        """
        if not self.acting:
            return
        self._final = (state, reason)
        self.enter("ending")
        self.reason = reason
        self.forget_foreign()
        if self.spec.heartbeat:
            self.emit(StopTimer(HEARTBEAT))
        for rule in self.rules.states.values():
            self.stop_timer(rule)
        for id, tally in self.workload.tallies.items() if state == "completed" else ():
            for reason in tally.missing():
                self.record(eventlog.NotJoined(rule=id, reason=reason))
        for rule in self.rules.states.values() if state == "completed" else ():
            spent = used_up(rule, self.stats.lookup, self.workload.busy_of)
            if spent is not None:
                self.record(eventlog.UsedUp(rule=rule.rule.id, reason=spent))
        for key in self.pending_table.abandon():
            self.emit(StopTimer(key))
        for feature in self.hooks.features:
            if feature.ends is not None:
                feature.ends()
        self.answers.clear()
        self.deferred.clear()
        if state != "completed":
            self._keep_unsent()
        if cancel:
            self.cancel_jobs(list(self.spec.groups), reason)
        else:
            self._give_up_waiting(self.spec.groups)
            self.workload.drop_waiting()
            self.finish()

    def _keep_unsent(self) -> None:
        """Keep the waiting jobs that are about to be dropped, of which nothing else is left."""
        for firing in self.workload.firings:
            if _is_first(firing) and firing.waiting:
                self.unsent.close(firing.rule, firing.number)
                self.unsent.open(firing.rest())

    def left(self) -> list[Firing]:
        """Return the firings with jobs that were never submitted, each as its `rest`.

        Besides `unsent`, these are jobs that were on their way to the queue when the ensemble was
        cancelled, or failed, and did not reach it.
        """
        left = {(rest.rule, rest.number): rest for rest in self.unsent}
        for firing in self.workload.firings if self.state in ("canceled", "failed") else ():
            lost = firing.lost and not firing.unseen and firing.group not in self.refused
            if lost and _is_first(firing):
                key = firing.rule, firing.number
                rest = firing.rest()
                rest.stop = left.get(key, firing).stop
                left[key] = rest
        return list(left.values())

    def finish(self) -> None:
        """Enter the final state, from "ending"."""
        assert self._final is not None
        state, self.reason = self._final
        self.enter(state)
        self.t_end = self.t
        self.record(eventlog.Finish(state=state, reason=self.reason))
        self.emit(Finish(state, self.reason))

    def reopen(self) -> None:
        """Go on after the end: rules fire again, and timers of rules begin anew.

        Raises:
            AssertionError: the ensemble has not ended.
        """
        assert self._final is not None
        assert self.t_end is not None
        assert self.state in FINAL_STATES
        for rest in self.left():
            self.unsent.close(rest.rule, rest.number)
            self.unsent.open(rest)
        self.state, self.reason, self._final = "running", "", None
        self.workload.absences.add(Absence(self.t_end, self.t, over=True))
        self.t_end = None
        self.workload.reopen()
        if self.spec.heartbeat:
            self.emit(StartTimer(HEARTBEAT, self.spec.heartbeat, self.spec.heartbeat))
        for state in self.rules.states.values():
            once = state.rule.trigger == "timer" and not state.rule.every
            if not (once and state.fired):
                self.start_timer(state)
        for feature in self.hooks.features:
            if feature.reopened is not None:
                feature.reopened()

    def replace(
        self,
        group: str,
        attempt: tuple[str, int, int],
        outcome: str,
        retry: int,
        row: tuple[int, int | None] | None,
    ) -> None:
        """Note that a user has a job run again.

        Args:
            group: of the job.
            attempt: one of the job that is over, as in `rerun`.
            outcome: of the attempt.
            retry: the number of the retry that runs the job again.
            row: where the attempt is in the record, and its `ActiveJob.replaced`; None if unknown.
        """
        if row is None:
            self.records.attempts.known = False
        else:
            position, before = row
            self.records.attempts.rerun(position, self.rerun.get(attempt, before), retry)
        if attempt not in self.rerun and outcome != INTERRUPTED:
            counts = self.replaced.setdefault(group, {})
            counts[outcome] = counts.get(outcome, 0) + 1
        self.rerun[attempt] = retry

    # -- snapshots --------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return the core's own attributes as JSON, without those of the parts that it holds."""
        state = {**{name: getattr(self, name) for name in _DUMPED}, "final": self._final}
        if self.t_walltime is not None:
            state["t_walltime"] = self.t_walltime
        if self.refusal is not None:
            state["refused"] = [self.refused, self.refusal]
        if list(self.unsent):
            state["unsent"] = self.unsent.dump()
        if self.failed:
            state["failed"] = self.failed
        if self.timed_out:
            state["timed_out"] = self.timed_out
        if absences := self.workload.absences.dump():
            state["absences"] = absences
        if self.rerun:
            state["rerun"] = [[*job, number] for job, number in self.rerun.items()]
            state["replaced"] = {group: dict(counts) for group, counts in self.replaced.items()}
        return state

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the attributes from the result of `dump`."""
        for name in _DUMPED:
            setattr(self, name, value[name])
        self.t_walltime, self.failed = value.get("t_walltime"), value.get("failed", 0)
        self.timed_out = value.get("timed_out", 0)
        self.workload.absences.load(value.get("absences", ()))
        for rule, number, index, retry in value.get("rerun", ()):
            self.rerun[rule, number, index] = retry
        for group, counts in value.get("replaced", {}).items():
            self.replaced[group] = dict(counts)
        refused, self.refusal = value.get("refused", ({}, None))
        self.refused = dict(refused)
        if "unsent" in value:
            self.unsent.load(value["unsent"])
        self.stats.t, self.stats.t_start = self.t, self.t_start
        final = value["final"]
        self._final = None if final is None else (final[0], final[1])


def _is_first(firing: Firing) -> bool:
    """Return whether the jobs of a firing are no retries, copies or trials."""
    return firing.rule != RETRY_RULE and firing.work is None and firing.trial is None
