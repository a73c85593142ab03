"""The custom functions of a local run: checked before it begins, and called by a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.document.functions import unresolved
from flux_ensemble.document.model import Spec
from flux_ensemble.eventlog import Entry
from flux_ensemble.queues.local.listener import FunctionsError, RunError
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.runtime.custom.output import PrintedOutput
from flux_ensemble.runtime.custom.worker import Worker, WorkerResult


class FunctionWorker:
    """The worker of a run, started when it is needed.

    Args:
        spec: the ensemble.
        loop: of the run.
        printed: writes the output of functions to the eventlog.
        note: receives other messages about functions.
        environment, cwd: of the worker.
    """

    def __init__(
        self,
        spec: Spec,
        loop: LocalLoop,
        printed: Callable[[Entry], None],
        note: Callable[[str], None],
        *,
        environment: Mapping[str, str],
        cwd: str,
    ) -> None:
        self._spec = spec
        self._loop = loop
        self._printed = printed
        self._note = note
        self._environment = environment
        self._cwd = cwd
        self._checked: Worker | None = None

    def check(self, over: Callable[[], bool]) -> None:
        """Check that the functions that the document names can be called.

        Args:
            over: returns True if the run has to end.

        Raises:
            FunctionsError: they cannot be called.
            RunError: a signal came first.
        """
        functions = unresolved(self._spec)
        if functions is None:
            return
        results: list[WorkerResult] = []
        self._checked = self._start({})
        self._checked.check(functions, results.append)
        self._loop.run(lambda: over() or bool(results))
        if not results:
            raise RunError("interrupted while its custom functions were being loaded")
        if not results[0].ok:
            raise FunctionsError(f"{results[0].reason}\n{results[0].detail}".rstrip())

    def worker(self, states: Mapping[str, Any]) -> Worker:
        """Return the worker that was checked, or a new one with the functions' states."""
        return self._checked or self._start(states)

    def close(self) -> None:
        """End the worker that was checked."""
        if self._checked is not None:
            self._checked.close()

    def _start(self, states: Mapping[str, Any]) -> Worker:
        spec = self._spec
        return Worker(
            self._loop,
            source=spec.custom,
            source_at=spec.custom_at,
            plugins=spec.plugins,
            environment=self._environment,
            cwd=self._cwd,
            info={"name": spec.name, "directory": spec.directory},
            log=self._said,
            states=states,
            printed=PrintedOutput(self._printed).take,
        )

    def _said(self, level: str, text: str) -> None:
        # Level "info" is their output, which is in the eventlog.
        if level != "info":
            self._note(text)
