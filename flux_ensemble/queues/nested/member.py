"""The jobs of one ensemble in a member that is an instance of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from flux_ensemble.engine.commands import SubmitJobs
from flux_ensemble.engine.events import CommandFailed, Tag
from flux_ensemble.queues.flux.member import FluxMember
from flux_ensemble.queues.flux.steps import Step, run
from flux_ensemble.queues.flux.submission import EnsembleRun
from flux_ensemble.queues.nested.attempts import ATTEMPT, Attempt
from flux_ensemble.queues.nested.commits import Commits, Durable
from flux_ensemble.queues.nested.instance import Instance
from flux_ensemble.runtime.ports import Done, Outcome


class NestedMember(FluxMember):
    """The jobs of one ensemble in a member: a `runtime.ports.Queue`.

    In the service's own instance a commit and the jobs of its commands go to one broker, which
    handles them in the order in which they were sent. The jobs of another instance go to another
    broker, so the commit has to be waited for.

    Args:
        instance: the member.
        ensemble, warn, news: as for `FluxMember`.
        durable: waits for the commits, `WriteAheadLog.barrier`.
        number: returns the number of the next attempt at an intent, since several attempts share
            one tag.
    """

    def __init__(
        self,
        instance: Instance,
        ensemble: EnsembleRun,
        *,
        durable: Durable,
        number: Callable[[Tag], int] = lambda tag: 0,
        warn: Callable[[str], None] = lambda text: None,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(instance.queue, ensemble, warn=warn, news=news)
        self._instance = instance
        self._attempts = instance.attempts
        self._commits = Commits(durable)
        self._number = number

    def submit(self, command: SubmitJobs, done: Done) -> None:
        """Submit jobs when the command is durable.

        The commands of a lost member have no outcome: see `MemberCallbacks.gone`.
        """
        indices = range(command.first, command.first + command.count)
        tags = [Tag(command.group, command.rule, command.firing, index) for index in indices]
        attempts = [Attempt(tag, self._number(tag)) for tag in tags]
        for attempt in attempts:
            self._attempts.sent(attempt)
        run(self._submit(command, attempts), done, over=lambda: self._instance.closed)

    def _submit(
        self, command: SubmitJobs, attempts: Sequence[Attempt]
    ) -> Generator[Step, Any, Outcome]:
        yield self._commits.step
        outcome: Outcome = yield partial(super().submit, command)
        if isinstance(outcome, CommandFailed):
            for attempt in attempts:
                self._attempts.withdrawn(attempt)
        return outcome

    def _tag_of(self, tag: Tag) -> dict[str, Any]:
        return {**super()._tag_of(tag), ATTEMPT: self._number(tag)}
