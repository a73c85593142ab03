"""A run of this machine from its files on: the same for commands and for `Ensemble` in Python.

    document, state directory ──► RunHost ──make──► LocalRun ──begin, reopen──► drive, finish

It finds the name and the files of the run, begins it or goes on with an earlier one, and has it
answer the requests of other processes. Who hosts it is its `Listener`, and drives it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from flux_ensemble.client import user_context
from flux_ensemble.client.payloads import sendable
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.local.continuation import Continuation
from flux_ensemble.queues.local.kinds import QueueName
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.run import Listener, LocalRun, MakeHome, RunError
from flux_ensemble.queues.local.state_dir import StateLog
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.runtime.recording import Recorder
from flux_ensemble.service.requests.protocol import parse


class RunHost:
    """A run that is about to begin, or to go on; its files are closed after the `with`.

    Args:
        root: the state directory.
        spec: the ensemble.
        text: its document, without `use`.
        source: the document as it was written, if that has `use`.
        resume, queue: as for `queues.local.state_dir.StateLog`.
        kept: the directory of a run that has its document already; with `resume` it was
            interrupted, else it has ended, and goes on by a request.

    Attributes:
        spec: the ensemble, with the name of the run.
        log: its files.
        loop: of the run.
        stack: closes what belongs to the run.

    Raises:
        StateError: as for that `StateLog`.
    """

    def __init__(
        self,
        root: Path,
        spec: Spec,
        text: str,
        *,
        source: str | None = None,
        resume: bool | None = None,
        queue: QueueName | None = None,
        kept: str | None = None,
    ) -> None:
        self._text = text
        self._kept = kept
        with ExitStack() as stack:
            is_kept = kept is not None
            self.log = StateLog(root, spec.name, text, resume, source, kept=is_kept, queue=queue)
            stack.callback(self.log.close)
            self.spec = spec if self.log.name == spec.name else spec.renamed(self.log.name)
            self.loop = LocalLoop()
            stack.callback(self.loop.close)
            self.stack = stack.pop_all()
        self._run: LocalRun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def make(
        self, cluster: VirtualCluster, listener: Listener, recorder: Recorder | None = None
    ) -> LocalRun:
        """Make the run.

        Args:
            cluster: resources of the local queue.
            listener: receives its news.
            recorder: writes a recording, if given.

        Raises:
            UnsatisfiableError, RunError, StateError: it cannot run here.
            OSError: its files cannot be opened, or no process can be started.
        """
        self._run = LocalRun(
            self.stack,
            self.spec,
            cluster,
            self.loop,
            self.log,
            listener,
            **user_context(self._kept),
            recorder=recorder,
            home=_home(self.spec),
            text=self._text,
        )
        return self._run

    def begin(self, again: Continuation) -> None:
        """Begin the run, or go on with the one that was interrupted.

        Args:
            again: goes on with it if it is interrupted.

        Raises:
            RunError, StateError: its functions cannot be called, or its files cannot be written.
        """
        if self._kept is None:
            self.log.note_again(again)
        else:
            self.log.begin_again(again)
        if self.log.resumed:
            self._run.recover(self._text)
        else:
            self._run.begin(self._text)
        self._run.listen(parse)

    def reopen(
        self,
        op: str,
        asked: Mapping[str, Any],
        again: Continuation,
        told: Callable[[Mapping[str, Any]], object] = lambda report: None,
    ) -> dict[str, Any]:
        """Go on with the run, which has ended, by a request.

        Args:
            op: the request.
            asked: its payload, without the name.
            again: goes on with the run if it is interrupted.
            told: receives which jobs run again, before they do; it is not called for a request of
                a feature.

        Returns:
            The response, as the service gives it. It has no `reopened` if there is nothing to do.

        Raises:
            RequestError: the request is refused.
            RunError, StateError: the run cannot go on, or its files cannot be written.
        """
        try:
            request = self._run.request(self._text, op, checked(op, self.spec.name, asked))
        except (RequestError, RunError):
            self.log.drop()
            raise
        answer = dict(request.report)
        if answer:
            told(answer)
        if not request.goes_on:
            self.log.drop()
            return answer

        def answered(result: Mapping[str, Any] | RequestError) -> None:
            if not isinstance(result, RequestError):
                answer.update(result)

        self.log.begin_again(again)
        request.perform(answered)
        self._run.listen(parse)
        return {**answer, "reopened": True, "state": self._run.state}


def checked(op: str, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a request as a run receives it from another process: as JSON.

    What is no JSON could not be kept, and the run would end.

    Args:
        op: the request.
        name: the ensemble.
        args: the payload, without the name.

    Raises:
        RequestError: the payload is none of such a request.

    >>> checked("submit", "demo", {"group": "md", "params": {"t": (280, 300)}})
    {'group': 'md', 'params': {'t': [280, 300]}}
    """
    try:
        payload = parse(op, json.dumps({"name": name, **sendable(op, args)}))
    except ValueError as error:
        raise RequestError(errno.EINVAL, str(error)) from None
    del payload["name"]
    return payload


def _home(spec: Spec) -> MakeHome | None:
    """Return what makes the home of members, if the document has some that can have one."""
    if not spec.members or not all(pool.calls_home for pool in spec.members):
        return None
    from flux_ensemble.service.home import Home

    return Home
