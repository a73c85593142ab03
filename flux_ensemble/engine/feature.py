"""The part of a feature in an engine, and the hooks that the engine calls of all features.

The engine knows no feature by name. It makes those of `flux_ensemble.feature_list` and puts their
hooks into tuples, which are empty where nobody waits for an event:

    for begun in self._hooks.began:
        begun(job)

Hooks are bound methods, and there is no base class: a feature gives those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from flux_ensemble.document.model import Action
from flux_ensemble.engine.events import CommandDone, CommandFailed
from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.job_changes import Change
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Call, Origin, Pending
from flux_ensemble.engine.trigger_queue import TriggerQueue

#: Performs an action of a firing; returns the rules that it triggers.
Perform = Callable[[Origin, Call], Iterable[TriggerQueue]]

#: Does what an event leaves to be done; yields the rules that this triggers.
Settle = Callable[[], Iterable[TriggerQueue]]


class CommandHooks(NamedTuple):
    """The hooks on commands of one type, which a feature sends.

    Args:
        done: a command has succeeded. Returns the rules that it triggers.
        failed: a command has failed. Returns the firing whose action fails by that; None if no
            action does.
        needs: returns the state of the feature that a driver needs to perform a command; None if
            the command was given up in the meantime.
    """

    done: Callable[[Pending, CommandDone], Iterable[TriggerQueue]]
    failed: Callable[[Pending, CommandFailed], Origin | None]
    needs: Callable[[Any], Any] | None = None


class Standing(Enum):
    """The meaning of an attempt that is over for its job, if it is not the only one."""

    #: Another attempt is under way: the job is not finished, and does not run again.
    CONTINUES = "continues"
    #: Another attempt was the job's before: rules on outcomes do not see this one.
    DECIDED = "decided"


@dataclass(frozen=True)
class JobHooks:
    """The hooks on the ensemble's jobs, in the order of their lives.

    Args:
        admitted: a job has appeared in the queue.
        began: a job runs.
        ended: a job that ran does so no more.
        published: a job that runs has sent a memo.
        judged: the outcome of a job is known, which may be changed.
        concluded: the attempt of a job is over and counted. Returns what that means for the job;
            None if it is an attempt like others.
        tried: the attempt of a job with a `Firing.trial` is over, at this time, and the job runs
            again or not. Returns the changes of metrics; None if the feature runs the job again.
        given_up: the jobs of a firing that wait are given up. Returns how many are finished by
            that; asked of firings that do the work of another job.
        withdrawn: the jobs of these groups are cancelled, and those that wait are dropped.
        refused: the queue refused jobs of a firing for good.
        unaccepted: a job of a firing was sent, and was never accepted.
        continues: returns whether another job goes on with the work of one that was interrupted.
        gone: a job leaves the queue.
        links: the end of one job has effects on others.
        reacts: events of jobs can have effects without a rule.
    """

    admitted: Callable[[ActiveJob], None] | None = None
    began: Callable[[ActiveJob], None] | None = None
    ended: Callable[[ActiveJob], None] | None = None
    published: Callable[[ActiveJob, Mapping[str, Any]], None] | None = None
    judged: Callable[[ActiveJob], None] | None = None
    concluded: Callable[[ActiveJob], Standing | None] | None = None
    tried: Callable[[ActiveJob, float, bool], tuple[Change, ...] | None] | None = None
    given_up: Callable[[Firing], int] | None = None
    withdrawn: Callable[[Collection[str]], None] | None = None
    refused: Callable[[Firing], None] | None = None
    unaccepted: Callable[[Firing], None] | None = None
    continues: Callable[[ActiveJob], bool] | None = None
    gone: Callable[[ActiveJob], None] | None = None
    links: bool = False
    reacts: bool = False


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A user's request to a feature, which can be performed.

    Args:
        group: the group of which it has jobs submitted.
        perform: performs it, given whether the ensemble had ended; returns the response.
    """

    group: str
    perform: Callable[[bool], Mapping[str, Any]]


@dataclass(frozen=True)
class Feature:
    """A feature in one engine.

    Args:
        name: what its state is called in a snapshot.
        actions: the actions that it performs, by name.
        effective: of these actions, what returns whether one would have an effect now. A rule
            whose actions have none keeps no ensemble from ending.
        refuses: of these actions, what returns why a user cannot request one; None if it can be.
        requests: what checks the arguments of users' requests that it performs, by their name, or
            raises `RequestError`. An ensemble that has ended goes on with such a request.
        fields: what expressions know of a job by it, by the name of the field.
        quiet: reasons of cancellations that follow from what was recorded before: no outcome of a
            firing is recorded of them.
        commands: the hooks on commands that only this feature sends, by their type.
        late: a command has its outcome that is not pending any more. Returns the rules that this
            triggers.
        timer: a timer has fired, with this key. Returns whether it is one of the feature.
        submits: returns the groups of which it may still submit jobs, given what tells whether a
            rule can still run an action on a label.
        again: the groups of which it may submit a job once more.
        dump: returns its state as JSON; None if there is nothing to keep.
        load: takes what `dump` returned, None where a snapshot has nothing of it.
        status: returns what the status of an ensemble says of it.
        of_nodes: returns what the status says of the nodes of a queue, besides their number.
        shrunk: the instance has fewer nodes than before.
        ends: the ensemble ends, and rules fire no more.
        check: raises AssertionError if an invariant that holds after each event is broken.
        reopened: the ensemble goes on after its end, by a request.
    """

    name: str
    actions: Mapping[str, Perform] = field(default_factory=dict)
    effective: Mapping[str, Callable[[Action], bool]] = field(default_factory=dict)
    refuses: Mapping[str, Callable[[Action], str | None]] = field(default_factory=dict)
    requests: Mapping[str, Callable[[Mapping[str, Any]], CheckedRequest]] = field(
        default_factory=dict
    )
    fields: Mapping[str, Callable[[ActiveJob], Any]] = field(default_factory=dict)
    quiet: frozenset[str] = frozenset()
    commands: Mapping[type, CommandHooks] = field(default_factory=dict)
    late: Callable[[CommandDone | CommandFailed], Iterable[TriggerQueue]] | None = None
    timer: Callable[[str], bool] | None = None
    submits: Callable[[Callable[[str, str], bool]], Iterable[str]] | None = None
    again: Collection[str] = ()
    dump: Callable[[], Any] | None = None
    load: Callable[[Any], None] | None = None
    status: Callable[[], Mapping[str, Any]] | None = None
    of_nodes: Callable[[str], Mapping[str, Any]] | None = None
    shrunk: Callable[[], None] | None = None
    ends: Callable[[], None] | None = None
    check: Callable[[], None] | None = None
    reopened: Callable[[], None] | None = None


class Hooks:
    """The hooks of the features of one engine.

    Those on jobs are of the features that follow them now; see `follow`.

    Attributes:
        features: the features, in order.
        fields: what expressions know of a job by features.
        commands: the hooks on commands, by type.
        effective, refuses, late, timers, of_nodes, shrunk: as of `Feature`.
        unsettled: what features have to do at the end of the event, by the name of the feature; a
            feature adds it, and removes it when it is done.
        singly: True if a feature is to be told of each job, and not of many at once.
        links: True if the end of one job has effects on others.
        reacts: True if events of jobs can have effects without a rule.
        admitted, began, ended, published, judged, concluded, tried, given_up, withdrawn, refused,
            unaccepted, continues, gone: as of `JobHooks`.
    """

    def __init__(self) -> None:
        self.features: list[Feature] = []
        self.fields: dict[str, Callable[[ActiveJob], Any]] = {}
        self.commands: dict[type, CommandHooks] = {}
        self.effective: dict[str, Callable[[Action], bool]] = {}
        self.refuses: dict[str, Callable[[Action], str | None]] = {}
        self.late: tuple[Callable[[CommandDone | CommandFailed], Iterable[TriggerQueue]], ...] = ()
        self.timers: tuple[Callable[[str], bool], ...] = ()
        self.of_nodes: tuple[Callable[[str], Mapping[str, Any]], ...] = ()
        self.unsettled: dict[str, Settle] = {}
        self.shrunk: tuple[Callable[[], None], ...] = ()
        self._following: list[JobHooks] = []
        self._join()

    def add(self, feature: Feature) -> None:
        """Add a feature behind the others."""
        self.features.append(feature)
        self.fields.update(feature.fields)
        self.commands.update(feature.commands)
        self.effective.update(feature.effective)
        self.refuses.update(feature.refuses)
        if feature.late is not None:
            self.late = (*self.late, feature.late)
        if feature.of_nodes is not None:
            self.of_nodes = (*self.of_nodes, feature.of_nodes)
        if feature.timer is not None:
            self.timers = (*self.timers, feature.timer)
        if feature.shrunk is not None:
            self.shrunk = (*self.shrunk, feature.shrunk)

    def follow(self, hooks: JobHooks) -> None:
        """Tell a feature of jobs, until `leave`."""
        self._following.append(hooks)
        self._join()

    def leave(self, hooks: JobHooks) -> None:
        """Tell a feature of jobs no more."""
        self._following.remove(hooks)
        self._join()

    def _join(self) -> None:
        following = self._following
        self.admitted = tuple([one.admitted for one in following if one.admitted is not None])
        self.began = tuple([one.began for one in following if one.began is not None])
        self.ended = tuple([one.ended for one in following if one.ended is not None])
        self.published = tuple([one.published for one in following if one.published is not None])
        self.judged = tuple([one.judged for one in following if one.judged is not None])
        self.concluded = tuple([one.concluded for one in following if one.concluded is not None])
        self.tried = tuple([one.tried for one in following if one.tried is not None])
        self.given_up = tuple([one.given_up for one in following if one.given_up is not None])
        self.withdrawn = tuple([one.withdrawn for one in following if one.withdrawn is not None])
        self.refused = tuple([one.refused for one in following if one.refused is not None])
        self.unaccepted = tuple([one.unaccepted for one in following if one.unaccepted is not None])
        self.continues = tuple([one.continues for one in following if one.continues is not None])
        self.gone = tuple([one.gone for one in following if one.gone is not None])
        self.singly = bool(self.began or self.ended or self.gone)
        self.links = any(one.links for one in following)
        self.reacts = any(one.reacts for one in following)
