"""The part of a feature in an engine, and the hooks that the engine calls of all features.

The engine knows no feature by name. It makes those of `flux_ensemble.feature_list` and puts their
hooks into tuples, which are empty where nobody waits for an event:

    for begun in self._hooks.began:
        begun(job)

Hooks are bound methods, and there is no base class: a feature gives those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flux_ensemble.engine.firings import Firing
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.pending import Call, Origin
from flux_ensemble.engine.trigger_queue import TriggerQueue

#: Performs an action of a firing; returns the rules that it triggers.
Perform = Callable[[Origin, Call], Iterable[TriggerQueue]]


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
        judged: the outcome of a job is known, which may be changed.
        concluded: the attempt of a job is over and counted. Returns what that means for the job;
            None if it is an attempt like others.
        given_up: the jobs of a firing that wait are given up. Returns how many are finished by
            that; asked of firings that do the work of another job.
        refused: the queue refused jobs of a firing for good.
        continues: returns whether another job goes on with the work of one that was interrupted.
        gone: a job leaves the queue.
        links: the end of one job has effects on others.
    """

    admitted: Callable[[ActiveJob], None] | None = None
    began: Callable[[ActiveJob], None] | None = None
    ended: Callable[[ActiveJob], None] | None = None
    judged: Callable[[ActiveJob], None] | None = None
    concluded: Callable[[ActiveJob], Standing | None] | None = None
    given_up: Callable[[Firing], int] | None = None
    refused: Callable[[Firing], None] | None = None
    continues: Callable[[ActiveJob], bool] | None = None
    gone: Callable[[ActiveJob], None] | None = None
    links: bool = False


@dataclass(frozen=True)
class Feature:
    """A feature in one engine.

    Args:
        name: what its state is called in a snapshot.
        actions: the actions that it performs, by name.
        fields: what expressions know of a job by it, by the name of the field.
        quiet: reasons of cancellations that follow from what was recorded before: no outcome of a
            firing is recorded of them.
        dump: returns its state as JSON; what is empty is left out.
        load: takes what `dump` returned, None where a snapshot has nothing of it.
        status: returns what the status of an ensemble says of it.
        shrunk: the instance has fewer nodes than before.
        check: raises AssertionError if an invariant that holds after each event is broken.
    """

    name: str
    actions: Mapping[str, Perform] = field(default_factory=dict)
    fields: Mapping[str, Callable[[ActiveJob], Any]] = field(default_factory=dict)
    quiet: frozenset[str] = frozenset()
    dump: Callable[[], Any] | None = None
    load: Callable[[Any], None] | None = None
    status: Callable[[], Mapping[str, Any]] | None = None
    shrunk: Callable[[], None] | None = None
    check: Callable[[], None] | None = None


class Hooks:
    """The hooks of the features of one engine.

    Those on jobs are of the features that follow them now; see `follow`.

    Attributes:
        features: the features, in order.
        fields: what expressions know of a job by features.
        shrunk: as of `Feature`.
        singly: True if a feature is to be told of each job, and not of many at once.
        links: True if the end of one job has effects on others.
        admitted, began, ended, judged, concluded, given_up, refused, continues, gone: as of
            `JobHooks`.
    """

    def __init__(self) -> None:
        self.features: list[Feature] = []
        self.fields: dict[str, Callable[[ActiveJob], Any]] = {}
        self.shrunk: tuple[Callable[[], None], ...] = ()
        self._following: list[JobHooks] = []
        self._join()

    def add(self, feature: Feature) -> None:
        """Add a feature behind the others."""
        self.features.append(feature)
        self.fields.update(feature.fields)
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
        self.judged = tuple([one.judged for one in following if one.judged is not None])
        self.concluded = tuple([one.concluded for one in following if one.concluded is not None])
        self.given_up = tuple([one.given_up for one in following if one.given_up is not None])
        self.refused = tuple([one.refused for one in following if one.refused is not None])
        self.continues = tuple([one.continues for one in following if one.continues is not None])
        self.gone = tuple([one.gone for one in following if one.gone is not None])
        self.singly = bool(self.began or self.ended or self.gone)
        self.links = any(one.links for one in following)
