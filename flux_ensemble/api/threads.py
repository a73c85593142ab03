"""Blocking calls for `await` and `async for`, each in a thread of its own.

Threads cannot share Flux handles, so each call opens its own. The threads are daemons, since a
program that ends must not wait for an ensemble that continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, TypeVar, cast

_T = TypeVar("_T")

#: Most items that are read ahead.
MOST_AHEAD = 1000

#: Seconds between two turns of a loop that waits for a thread.
WAKE_SECONDS = 0.2

_END = object()


class Stopped(Exception):
    """The end of a thread: nobody waits for the result any more."""


async def in_thread(function: Callable[[Event], _T]) -> _T:
    """Call a function in a thread.

    Args:
        function: receives an event that is set when nobody waits any more.

    >>> asyncio.run(in_thread(lambda stopped: 6 * 7))
    42
    """
    loop, stopped = asyncio.get_running_loop(), Event()
    future: asyncio.Future[_T] = loop.create_future()

    def call() -> None:
        try:
            result = function(stopped)
        except BaseException as error:
            _tell(loop, _settle, future, None, error)
        else:
            _tell(loop, _settle, future, result, None)

    Thread(target=call, daemon=True).start()
    try:
        with _awake(loop):
            return await future
    finally:
        stopped.set()


def apart(function: Callable[[Event], _T]) -> _T:
    """Call a function in a thread, and wait for it so that an interrupt ends the waiting.

    In the main thread SIGINT has its default action while Flux's bindings wait, so it would end the
    program.

    Args:
        function: as for `in_thread`.

    >>> apart(lambda stopped: 6 * 7)
    42
    """
    stopped = Event()
    results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def call() -> None:
        try:
            results.put((function(stopped), None))
        except BaseException as error:
            results.put((None, error))

    Thread(target=call, daemon=True).start()
    try:
        result, error = results.get()
    finally:
        stopped.set()
    if error is not None:
        raise error
    return cast(_T, result)


async def stream(iterate: Callable[[Event], Iterator[_T]]) -> AsyncIterator[_T]:
    """Iterate in a thread, at most `MOST_AHEAD` items ahead.

    Args:
        iterate: makes the iterator; receives an event that is set when no more items are wanted.

    >>> async def count():
    ...     return [number async for number in stream(lambda stopped: iter(range(3)))]
    >>> asyncio.run(count())
    [0, 1, 2]
    """
    loop, stopped, room = asyncio.get_running_loop(), Event(), Semaphore(MOST_AHEAD)
    items: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()

    def read() -> None:
        try:
            for item in iterate(stopped):
                while not room.acquire(timeout=1.0):
                    if stopped.is_set():
                        return
                if stopped.is_set() or not _tell(loop, items.put_nowait, (item, None)):
                    return
        except BaseException as error:
            _tell(loop, items.put_nowait, (_END, error))
        else:
            _tell(loop, items.put_nowait, (_END, None))

    Thread(target=read, daemon=True).start()
    try:
        while True:
            with _awake(loop):
                item, error = await items.get()
            if error is not None:
                raise error
            if item is _END:
                return
            room.release()
            yield cast(_T, item)
    finally:
        stopped.set()


@contextmanager
def _awake(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have a loop make a turn from time to time.

    An interrupt of a notebook's cell cancels its task from a handler of signals, and the loop
    does not notice before its next turn.
    """

    timer: asyncio.TimerHandle

    def turn() -> None:
        nonlocal timer
        timer = loop.call_later(WAKE_SECONDS, turn)

    turn()
    try:
        yield
    finally:
        timer.cancel()


def _settle(future: asyncio.Future[_T], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> bool:
    """Call back from the loop; return False if the loop has ended."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True
