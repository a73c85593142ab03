"""Checks before a load that the functions which a document names can be called.

The functions that plugins define are known only in the process that calls custom functions. So that
process is started and asked, while the service continues with other work.

    load request ──► FunctionChecks.run ──► a process, which the ensemble is then made with
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flux.message import Message

from flux_ensemble.document.functions import unresolved
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.eventlog import Entry
from flux_ensemble.faults import ENDINGS
from flux_ensemble.runtime.custom.caller import FunctionCaller, FunctionResult
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.requests.messages import Responder


class Prepared:
    """A caller whose process is started before its ensemble is made.

    Attributes:
        caller: the caller; None if it is not needed yet.
        ensemble: receives the errors of the process, once the ensemble is made.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self.caller: FunctionCaller | None = None
        self.ensemble: Ensemble | None = None
        self._fail = fail

    def broken(self, error: BaseException) -> None:
        """Report the fault of a callback of the caller."""
        if self.ensemble is None:
            self._fail(error)
        else:
            self.ensemble.broken(error)

    def note(self, entry: Entry) -> None:
        """Add an entry to the log of the ensemble, if there is one."""
        if self.ensemble is not None:
            self.ensemble.note(entry)


class FunctionChecks:
    """The checks that are under way.

    Args:
        responder: refuses the load requests of documents whose functions cannot be called.
        start: starts the process of a document, given the payload of the load request.
    """

    def __init__(
        self,
        responder: Responder,
        start: Callable[[Spec, Mapping[str, Any], Prepared], FunctionCaller],
    ) -> None:
        self._responder = responder
        self._start = start
        self._open: dict[str, tuple[Message, Prepared]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def run(
        self,
        message: Message,
        spec: Spec,
        load: Mapping[str, Any],
        then: Callable[[Prepared | None], None],
    ) -> None:
        """Check the functions of a document.

        Args:
            message: the request to load it.
            spec: the document.
            load: the payload of the request.
            then: called when all functions are found, with the process that has them if one was
                started; it may raise a `RequestError`.
        """
        functions = unresolved(spec)
        if functions is None:
            then(None)
            return
        prepared = Prepared(partial(self._break, spec.name))
        prepared.caller = self._start(spec, load, prepared)
        self._open[spec.name] = message, prepared
        file = load.get("file") or "document"
        prepared.caller.check(functions, partial(self._checked, spec.name, file, then))

    def close(self, reason: str) -> None:
        """End the checks that are under way, and refuse the requests that wait for them."""
        for name in list(self._open):
            message = self._end(name)
            self._responder.refuse(message, errno.EAGAIN, reason)

    def _end(self, name: str) -> Message:
        message, prepared = self._open.pop(name)
        if prepared.caller is not None:
            prepared.caller.close()
        return message

    def _break(self, name: str, error: BaseException) -> None:
        if name in self._open:
            self._responder.fail("load", self._end(name), error)

    def _checked(
        self,
        name: str,
        file: str,
        then: Callable[[Prepared | None], None],
        result: FunctionResult,
    ) -> None:
        if not result.ok:
            reason = f"{file}: {result.reason}\n{result.detail}".rstrip()
            self._responder.refuse(self._end(name), errno.EINVAL, reason)
            return
        message, prepared = self._open.pop(name)
        try:
            then(prepared)
        except ENDINGS:
            raise
        except BaseException as error:
            if prepared.ensemble is None and prepared.caller is not None:
                prepared.caller.close()
            if isinstance(error, RequestError):
                self._responder.refuse(message, error.errno, str(error))
            else:
                self._responder.fail("load", message, error)
