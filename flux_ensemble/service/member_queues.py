"""Asks the instances that a document names by their URI which queues they have.

A group may name a queue of such an instance. Which ones there are is known only there, so each is
asked before the ensemble is made, in a process of its own and with a time limit.

    load request ──► a first look at the document: which instances? ──► ask ──► queues, or why not
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from flux_ensemble.queues.nested.proxy import proxy_environment
from flux_ensemble.runtime.command import Command, CommandResult
from flux_ensemble.runtime.ports import Loop
from flux_ensemble.texts import bounded

#: Seconds within which the instances have to answer.
SECONDS = 10.0

#: Prints the queues as JSON; where there are none, an empty object.
_COMMAND = ("flux", "config", "get", "--default={}", "queues")

#: The names of the queues of an instance, or why they are not known.
Answer = frozenset[str] | str


class WantedQueues:
    """The queues of instances by their URIs, which notes the instances that were not asked.

    Attributes:
        missing: the URIs of those, in order.
        unknown: why the queues of an instance are not known, by its URI.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}
        self.missing: dict[str, None] = {}
        self.unknown: dict[str, str] = {}

    def __call__(self, uri: str) -> frozenset[str] | None:
        if uri not in self._known and uri not in self.unknown:
            self.missing[uri] = None
        return self._known.get(uri)

    def take(self, answers: Mapping[str, Answer]) -> None:
        """Add what the missing instances have said."""
        for uri, answer in answers.items():
            if isinstance(answer, str):
                self.unknown[uri] = answer
            else:
                self._known[uri] = answer
        self.missing.clear()


def ask(loop: Loop, uris: Iterable[str], take: Callable[[dict[str, Answer]], None]) -> None:
    """Ask instances for their queues, all at once, and call back once.

    Args:
        loop: of the service.
        uris: of the instances, one or more.
        take: receives their answers; not called from within this call.
    """
    wanted = list(uris)
    answers: dict[str, Answer] = {}

    def ended(uri: str, outcome: CommandResult) -> None:
        late = f"no answer within {SECONDS:g} s"
        answers[uri] = late if outcome.late else queues(outcome.output, outcome.said)
        if len(answers) == len(wanted):
            take(answers)

    for uri in wanted:
        words = ["flux", "proxy", uri, *_COMMAND]
        done, environment = partial(ended, uri), proxy_environment()
        Command(loop, words, done, limit=SECONDS, environment=environment)


def queues(output: str, said: str) -> Answer:
    """Read the answer of an instance, which stands in the last line.

    Args:
        output, said: standard output and error of the command.

    >>> sorted(queues('{"debug":{},"batch":{"requires":["batch"]}}\\n', "a banner"))
    ['batch', 'debug']
    >>> queues("", "ssh: connect to host n1 port 22: Connection refused\\n")
    'ssh: connect to host n1 port 22: Connection refused'
    """
    try:
        found = json.loads((output.splitlines() or [""])[-1])
    except ValueError:
        found = None
    if isinstance(found, dict):
        return frozenset(found)
    return bounded((said.splitlines() or ["it says nothing"])[-1])
