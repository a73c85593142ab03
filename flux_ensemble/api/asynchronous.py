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
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from flux_ensemble.api.border import TOLD
from flux_ensemble.api.hosts import StoppableClient
from flux_ensemble.api.threads import in_thread, stream
from flux_ensemble.client import Client
from flux_ensemble.job_ids import JobIds

if TYPE_CHECKING:
    from flux_ensemble.client.client import Summaries
    from flux_ensemble.client.responses import Ended, Entry, Loaded, State, Status, Why
    from flux_ensemble.metrics.job_row import JobRow

_T = TypeVar("_T")


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

    async def load(self, document: str | Mapping[str, Any], **more: Any) -> Loaded:
        """Do as `Client.load`."""
        return await self._do(lambda client: client.load(document, **more))

    async def list(self) -> Summaries:
        """Do as `Client.list`."""
        return await self._do(Client.list)

    async def status(self, name: str | None = None) -> Status:
        """Do as `Client.status`."""
        return await self._do(lambda client: client.status(name))

    async def metrics(self, name: str) -> dict[str, dict[str, Any]]:
        """Do as `Client.metrics`."""
        return await self._do(lambda client: client.metrics(name))

    async def why(self, name: str, rule: str | None = None) -> Why:
        """Do as `Client.why`."""
        return await self._do(lambda client: client.why(name, rule))

    async def scale(self, to: int) -> dict[str, int]:
        """Do as `Client.scale`."""
        return await self._do(lambda client: client.scale(to))

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

    async def submit(self, name: str, group: str, **more: Any) -> JobIds:
        """Do as `Client.submit`."""
        return await self._do(lambda client: client.submit(name, group, **more))

    async def rerun(self, name: str, **more: Any) -> dict[str, Any]:
        """Do as `Client.rerun`."""
        return await self._do(lambda client: client.rerun(name, **more))

    async def search(self, name: str, search: str | None = None, **more: Any) -> dict[str, Any]:
        """Do as `Client.search`."""
        return await self._do(lambda client: client.search(name, search, **more))

    async def pause(self, name: str) -> State:
        """Do as `Client.pause`."""
        return await self._do(lambda client: client.pause(name))

    async def resume(self, name: str) -> State:
        """Do as `Client.resume`."""
        return await self._do(lambda client: client.resume(name))

    async def terminate(self, name: str, *, cancel: bool = False) -> State:
        """Do as `Client.terminate`."""
        return await self._do(lambda client: client.terminate(name, cancel=cancel))

    async def cancel(self, name: str, group: str | None = None) -> State:
        """Do as `Client.cancel`."""
        return await self._do(lambda client: client.cancel(name, group))

    async def unload(self, name: str) -> State:
        """Do as `Client.unload`."""
        return await self._do(lambda client: client.unload(name))

    async def set_rule(self, name: str, rule: str, *, enabled: bool) -> None:
        """Do as `Client.set_rule`."""
        await self._do(lambda client: client.set_rule(name, rule, enabled=enabled))

    async def action(self, name: str, action: Mapping[str, Any]) -> dict[str, Any]:
        """Do as `Client.action`."""
        return await self._do(lambda client: client.action(name, action))

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
