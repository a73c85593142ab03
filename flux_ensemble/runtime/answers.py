"""The open requests of an ensemble: each is answered exactly once, in all cases."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.engine.commands import Reply
from flux_ensemble.engine.errors import RequestError

#: Receives the result of a request, or the error by which it is refused.
Answer = Callable[[Mapping[str, Any] | RequestError], None]


class Answers:
    """The open requests of an ensemble, and the one that loaded it.

    Args:
        last_request: the number of the last request in its log.

    Attributes:
        closed: the error for all further requests, or None.
    """

    def __init__(self, last_request: int) -> None:
        self._last_request = last_request
        self._open: dict[int, Answer] = {}
        self._loader: Answer | None = None
        self.closed: RequestError | None = None

    def open(self, answer: Answer) -> int:
        """Add a request, and return its number."""
        self._last_request += 1
        self._open[self._last_request] = answer
        return self._last_request

    def reply(self, reply: Reply) -> None:
        """Answer the request of an engine's reply, if it is still open."""
        answer = self._open.pop(reply.request, None)
        if answer is None:
            return
        if reply.errno is None:
            answer(reply.result)
        else:
            answer(RequestError(getattr(errno, reply.errno, errno.EINVAL), reply.reason))

    def owe_loader(self, answer: Answer) -> None:
        """Add the request that loaded the ensemble."""
        self._loader = answer

    def loaded(self, result: Mapping[str, Any]) -> None:
        """Answer the request that loaded the ensemble, if it is still open."""
        loader, self._loader = self._loader, None
        if loader is not None:
            loader(result)

    def refuse_all(self, error: RequestError) -> None:
        """Answer the open requests with an error."""
        answers, self._open = self._open, {}
        loader, self._loader = self._loader, None
        for answer in (*answers.values(), *(() if loader is None else (loader,))):
            answer(error)

    def close(self, error: RequestError) -> None:
        """Refuse the open requests and all further ones."""
        self.closed = error
        self.refuse_all(error)
