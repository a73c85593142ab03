"""The client for programs with asyncio: each method of `Client`, as a coroutine or iterator.

    async with AsyncClient() as client:
        name = (await client.load(text))["name"]
        async for entry in client.log(name, follow=True):
            print(entry["name"])

Requests are sent through one handle, in a thread of its own, one after the other. Each log and each
wait also has its own handle and thread, since threads cannot share Flux handles.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from flux_ensemble.api.border import TOLD
from flux_ensemble.api.hosts import StoppableClient
from flux_ensemble.api.threads import in_thread, stream
from flux_ensemble.client import Client

if TYPE_CHECKING:
    from flux_ensemble.client.responses import Ended, Entry
    from flux_ensemble.metrics.job_row import JobRow

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _asked(
    method: Callable[Concatenate[Client, _P], _T],
) -> Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, _T]]:
    """Return a method of `Client` as one of `AsyncClient`."""

    @wraps(method)
    async def ask(self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._do(lambda client: method(client, *args, **kwargs))

    ask.__doc__ = f"Do as `Client.{method.__name__}`."
    return ask


class AsyncClient:
    """The ensemble service of one Flux instance; arguments and results are those of `Client`.

    Args:
        uri: the instance to connect to; None is the enclosing instance.

    Raises:
        BindingsError, EnsembleError: on entry, as `Client`.
    """

    def __init__(self, uri: str | None = None) -> None:
        self._uri = uri
        self._client: Client | None = None
        self._thread = ThreadPoolExecutor(1, "ensemble client")

    async def __aenter__(self) -> AsyncClient:
        await self._do(lambda client: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop sending requests."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    load = _asked(Client.load)
    list = _asked(Client.list)
    status = _asked(Client.status)
    metrics = _asked(Client.metrics)
    why = _asked(Client.why)
    scale = _asked(Client.scale)
    submit = _asked(Client.submit)
    rerun = _asked(Client.rerun)
    search = _asked(Client.search)
    pause = _asked(Client.pause)
    resume = _asked(Client.resume)
    terminate = _asked(Client.terminate)
    cancel = _asked(Client.cancel)
    unload = _asked(Client.unload)
    set_rule = _asked(Client.set_rule)
    action = _asked(Client.action)

    def jobs(self, name: str, **chosen: Any) -> AsyncIterator[JobRow]:
        """Do as `Client.jobs`."""
        return stream(
            lambda stopped: iter(StoppableClient(self._uri, stopped).jobs(name, **chosen))
        )

    def log(self, name: str, *, follow: bool = False, events: bool = False) -> AsyncIterator[Entry]:
        """Do as `Client.log`."""
        return stream(
            lambda stopped: StoppableClient(self._uri, stopped).log(
                name, follow=follow, events=events
            )
        )

    async def wait(self, name: str, timeout: float | None = None) -> Ended:
        """Do as `Client.wait`."""
        return await in_thread(
            lambda stopped: StoppableClient(self._uri, stopped).wait(name, timeout)
        )

    async def _do(self, request: Callable[[Client], _T]) -> _T:
        loop = get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, partial(self._call, request))
        except TOLD as error:
            raise error.with_traceback(None) from None

    def _call(self, request: Callable[[Client], _T]) -> _T:
        if self._client is None:
            self._client = Client(uri=self._uri)
        return request(self._client)
