"""The data of the live view at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flux_ensemble.cli.display.progress import Progress
from flux_ensemble.client.responses import Entry, MemberStatus, RuleReason, Summary
from flux_ensemble.results.failures import FailureKind
from flux_ensemble.results.hosts import members_of, runs_of


@dataclass(frozen=True)
class Picture:
    """The data known at one moment.

    Args:
        t: the moment, in epoch seconds.
        ensembles: all of them, or the one that was named.
        status: of the chosen ensemble; None if there is none.
        whole: its progress.
        groups: progress of its groups that have jobs.
        rules: why they fire or do not.
        failures: the kinds of failures, the most frequent first.
        log: the last entries of its log.
        t_log: when its first entry was written, from which the times of `log` count.
        trouble: why the data is not current: a sentence, or "".
    """

    t: float
    ensembles: Sequence[Summary] = ()
    status: Mapping[str, Any] | None = None
    whole: Progress | None = None
    groups: Sequence[Progress] = ()
    rules: Sequence[RuleReason] = ()
    failures: Sequence[FailureKind] = ()
    log: Sequence[Entry] = field(default_factory=list)
    t_log: float | None = None
    trouble: str = ""

    @property
    def searches(self) -> Sequence[Mapping[str, Any]]:
        """The searches of the ensemble."""
        return () if self.status is None else self.status.get("searches", ())

    @property
    def members(self) -> Sequence[MemberStatus]:
        """The members of the ensemble that have not ended."""
        return () if self.status is None else members_of(self.status)

    @property
    def runs(self) -> Mapping[str, str]:
        """The kind of jobs of each of these members: "jobs" of Flux, or "tasks"."""
        return {} if self.status is None else runs_of(self.status)

    @property
    def name(self) -> str | None:
        """The chosen ensemble."""
        return None if self.status is None else self.status["name"]
