"""Handles calls: one thread for each open call, and a time limit for each step.

    gRPC's server ── Calls ── Gate           limits
                       ├───── Patience       a missing request, a response that is not received
                       └───── Method.answer  on the event loop

gRPC's server with threads is used. The one for event loops ends when a single request names its
method in bytes that are not UTF-8, and cannot end a call whose client receives no response.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from flux_ensemble.k8s.grpc.admission import AdmittedCall, CallKind, Gate, Limits
from flux_ensemble.k8s.grpc.errors import RequestProblem
from flux_ensemble.k8s.grpc.protocol import SAID_BY_SERVICE
from flux_ensemble.k8s.grpc.requests import as_problem

#: Seconds between two checks whether a client takes too long.
_TICK_SECONDS = 0.25

#: Number of responses that may wait while one is being sent.
_AHEAD = 16


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service.

    Attributes:
        kind: of its calls.
        request: the class of its requests.
        answer: returns the responses to a request; runs on the event loop.
        failed: returns the response for a problem; None: the call fails with a status code.
        many: a call may have several requests, each with its response.
    """

    kind: CallKind
    request: type[Message]
    answer: Callable[[AdmittedCall, Any], AsyncGenerator[Message, None]]
    failed: Callable[[RequestProblem], Message] | None = None
    many: bool = False


class Patience:
    """Cancels calls whose clients are too slow."""

    def __init__(self) -> None:
        # Reentrant: an abandoned call is released when its generator is collected, in any thread.
        self._lock = threading.RLock()
        self._waits: dict[object, tuple[float, Any]] = {}

    @contextmanager
    def within(self, context: Any, seconds: float) -> Iterator[None]:
        """Cancel the call of a context if the body takes longer."""
        wait = object()
        with self._lock:
            self._waits[wait] = (time.monotonic() + seconds, context)
        try:
            yield
        finally:
            with self._lock:
                del self._waits[wait]

    async def watch(self) -> None:
        """Check the time limits until cancelled."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            with self._lock:
                waits = list(self._waits.values())
            for t_end, context in waits:
                if t_end <= time.monotonic():
                    context.cancel()


class Calls(grpc.GenericRpcHandler):
    """Serves the calls of methods.

    Args:
        methods: by full name, such as "/flux_ensemble.v1.EnsembleService/Status".
        gate: admits calls.
        limits: the bounds.
        patience: cancels slow calls.
        loop: runs the methods.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        gate: Gate,
        limits: Limits,
        patience: Patience,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._gate = gate
        self._limits = limits
        self._patience = patience
        self._loop = loop
        # Whatever the protocol declares, every method is served as a stream of bytes in both
        # directions: so the gate is passed before a request is parsed, and an invalid request is
        # refused here.
        self._handlers = {
            name: grpc.stream_stream_rpc_method_handler(partial(self._serve, method))
            for name, method in methods.items()
        }

    def service(self, details: Any) -> Any:
        """Return gRPC's handler of a method, or None if there is no such method."""
        return self._handlers.get(details.method)

    def _serve(self, method: Method, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Yield the responses of a call; runs in a thread that may block."""
        try:
            with self._gate.call(method.kind, context) as call:
                performer = _Performer(self._loop, call, context)
                for request in self._requests(method, requests, call, context):
                    for response in performer.responses(method.answer(call, request)):
                        yield from self._sent(response, context)
        except Exception as exc:
            if not context.is_active():
                return
            # As text: if a local name referred to the problem, the problem and this frame, with the
            # request in it, would keep each other alive.
            if method.failed is None:
                context.set_trailing_metadata(SAID_BY_SERVICE)
                context.abort(*_told(as_problem(exc)))
            else:
                yield from self._sent(method.failed(as_problem(exc)), context)

    def _requests(
        self, method: Method, requests: Iterator[bytes], call: AdmittedCall, context: Any
    ) -> Iterator[Message]:
        """Yield the requests of a call.

        Raises:
            Problem: INVALID_ARGUMENT, a request does not fit the method, or there is none.
        """
        first = True
        while first or method.many:
            seconds = self._limits.default_seconds
            if not call.by_client:
                # Otherwise both would end the call at once, and CANCELLED could arrive before the
                # right code.
                seconds = min(seconds, call.deadline - time.monotonic())
            with self._patience.within(context, seconds):
                data = next(requests, None)
            if data is not None:
                yield _parsed(method.request, data)
            elif first:
                raise RequestProblem(StatusCode.INVALID_ARGUMENT, "the call has no request")
            else:
                return
            first = False

    def _sent(self, response: Message, context: Any) -> Iterator[bytes]:
        """Yield one response, with a time limit for the client to receive it."""
        with self._patience.within(context, self._limits.send_seconds):
            yield response.SerializeToString()


class _Performer:
    """Passes the responses of a call from the event loop to its thread, until its client is gone.

    Args:
        loop: produces the responses.
        call: bounds their time.
        context: gRPC's context of the call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: AdmittedCall, context: Any) -> None:
        self._loop = loop
        self._call = call
        self._task: asyncio.Task[None] | None = None
        self._over = not context.add_callback(lambda: self._loop.call_soon_threadsafe(self._end))

    def responses(self, answer: AsyncGenerator[Message, None]) -> Iterator[Message]:
        """Yield the responses of an answer, until the call ends.

        Raises:
            Exception: that of the answer, or that it took too long.
        """
        ready: queue.SimpleQueue[Message | asyncio.Task[None]] = queue.SimpleQueue()
        places = asyncio.Semaphore(_AHEAD)

        async def perform() -> None:
            try:
                async with asyncio.timeout(self._call.deadline - time.monotonic()):
                    async with aclosing(answer):
                        async for response in answer:
                            await places.acquire()
                            ready.put(response)
            except TimeoutError:
                raise self._call.late from None

        def begin() -> None:
            self._task = self._loop.create_task(perform())
            self._task.add_done_callback(done)
            if self._over:
                self._task.cancel()

        def done(task: asyncio.Task[None]) -> None:
            # Otherwise asyncio logs the exception if the client has gone and nobody retrieves it.
            if not task.cancelled():
                task.exception()
            # The task is the last item, whatever its result.
            ready.put(task)

        self._loop.call_soon_threadsafe(begin)
        while not isinstance(item := ready.get(), asyncio.Task):
            yield item
            self._loop.call_soon_threadsafe(places.release)
        self._task = None
        try:
            if not item.cancelled():
                item.result()
        finally:
            # The exception refers to this frame, which refers to the request.
            del item

    def _end(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()


def once(
    answer: Callable[[AdmittedCall, Any], Any],
) -> Callable[[AdmittedCall, Any], AsyncGenerator[Message, None]]:
    """Turn a coroutine function that returns one response into an `answer` of a method."""

    async def answers(call: AdmittedCall, request: Any) -> AsyncGenerator[Message, None]:
        yield await answer(call, request)

    return answers


def _told(problem: RequestProblem) -> tuple[StatusCode, str]:
    return problem.code, str(problem)


def _parsed(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError as exc:
        raise RequestProblem(
            StatusCode.INVALID_ARGUMENT, f"the request is no {kind.DESCRIPTOR.full_name}: {exc}"
        ) from exc
