"""The hosts that run an ensemble for `Ensemble`: the service of an instance, or the local queue.

Both have the same methods, which any thread may call: each thread has a Flux handle of its own.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, cast

from flux_ensemble.api.local_session import LocalSession
from flux_ensemble.api.threads import Stopped
from flux_ensemble.bindings import BindingsError
from flux_ensemble.client import Client, EnsembleError, is_named
from flux_ensemble.client.responses import Ended, EnsembleStatus, Entry, Why
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.queues.local.root import StateError, default_root
from flux_ensemble.queues.local.states import States

if TYPE_CHECKING:
    from flux_ensemble.document.model import Spec
    from flux_ensemble.queues.virtual.cluster import VirtualCluster

#: Seconds between two reads of the files of the local queue.
LOOK_SECONDS = 0.2


class Host(Protocol):
    """A host that runs one ensemble. Each method raises `EnsembleError`."""

    name: str

    def status(self) -> EnsembleStatus:
        """Return the entry of `ensembles` in `Client.status`."""
        ...

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Do as `Client.metrics`."""
        ...

    def why(self, rule: str | None) -> Why:
        """Do as `Client.why`."""
        ...

    def jobs(self, **chosen: str | None) -> Iterator[JobRow]:
        """Do as `Client.jobs`."""
        ...

    def log(self, *, follow: bool, stopped: Event) -> Iterator[Entry]:
        """Do as `Client.log`, until it ends or `stopped` is set."""
        ...

    def wait(self, timeout: float | None, stopped: Event) -> Ended:
        """Do as `Client.wait`, or until `stopped` is set."""
        ...

    def ask(self, op: str, **payload: Any) -> Mapping[str, Any]:
        """Send a request about the ensemble, and return the response."""
        ...


class StoppableClient(Client):
    """A client whose streams end when nobody wants them any more.

    Args:
        uri: the instance; None is the enclosing one.
        stopped: set when nobody wants them any more.
    """

    def __init__(self, uri: str | None, stopped: Event) -> None:
        super().__init__(uri=uri)
        self._stopped = stopped

    def send(self, op: str, payload: Mapping[str, Any], *, stream: bool = False) -> Any:
        # A reader that follows checks from time to time that the service is still the same.
        if self._stopped.is_set():
            raise Stopped
        return super().send(op, payload, stream=stream)


class FluxHost:
    """The service of a Flux instance.

    Args:
        name: the ensemble.
        uri: the instance; None is the enclosing one.
    """

    def __init__(self, name: str, uri: str | None = None) -> None:
        self.name = name
        self._uri = uri
        self._own = threading.local()

    @property
    def client(self) -> Client:
        """A client for the calling thread only."""
        client: Client | None = getattr(self._own, "client", None)
        if client is None:
            client = self._own.client = Client(uri=self._uri)
        return client

    def status(self) -> EnsembleStatus:
        return self.client.status(self.name)["ensembles"][0]

    def metrics(self) -> dict[str, dict[str, Any]]:
        return self.client.metrics(self.name)

    def why(self, rule: str | None) -> Why:
        return self.client.why(self.name, rule)

    def jobs(self, **chosen: str | None) -> Iterator[JobRow]:
        return iter(self.client.jobs(self.name, **chosen))

    def log(self, *, follow: bool, stopped: Event) -> Iterator[Entry]:
        return StoppableClient(self._uri, stopped).log(self.name, follow=follow)

    def wait(self, timeout: float | None, stopped: Event) -> Ended:
        return StoppableClient(self._uri, stopped).wait(self.name, timeout)

    def ask(self, op: str, **payload: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self.client.call(op, name=self.name, **payload)
        return answer


class LocalHost:
    """The local queue: the files of a run, and the run itself if it belongs to this program.

    Args:
        name: the ensemble.
        root: the state directory.
        session: the run; None if it belongs to another process.
    """

    def __init__(self, name: str, root: Path, session: LocalSession | None = None) -> None:
        self.name = name
        self._states = States(root)
        self._session = session

    def begun(self) -> None:
        """Wait until the run has begun.

        Raises:
            EnsembleError: it cannot begin.
        """
        if self._session is not None:
            self._session.begun()
            self.name = self._session.name

    def status(self) -> EnsembleStatus:
        return cast(EnsembleStatus, _told(lambda: self._states.status(self.name)))

    def metrics(self) -> dict[str, dict[str, Any]]:
        metrics: dict[str, dict[str, Any]] = _told(lambda: self._states.metrics(self.name))
        return metrics

    def why(self, rule: str | None) -> Why:
        return cast(Why, _told(lambda: self._states.why(self.name, rule)))

    def jobs(self, **chosen: str | None) -> Iterator[JobRow]:
        from flux_ensemble.metrics.job_filter import compile_choice

        try:
            matches = compile_choice(chosen.pop("filter", None), **chosen)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, f"filter: {error}") from None
        yield from filter(matches, _told(lambda: list(self._states.jobs(self.name))))

    def log(self, *, follow: bool, stopped: Event) -> Iterator[Entry]:
        read = 0
        while True:
            # Checked before the log is read, so that no entry is written after the last read.
            over = not follow or self._over(self.status())
            for entry in self._entries(read):
                read += 1
                yield entry
            if over:
                return
            if stopped.wait(LOOK_SECONDS):
                raise Stopped

    def wait(self, timeout: float | None, stopped: Event) -> Ended:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status()
            if self._over(status):
                if self._session is not None:
                    self._session.check()
                    status = self.status()
                return {"name": self.name, "state": status["state"], "reason": status["reason"]}
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"ensemble {self.name!r} has not ended in time")
            if stopped.wait(LOOK_SECONDS):
                raise Stopped

    def ask(self, op: str, **payload: Any) -> Mapping[str, Any]:
        if self._session is None:
            raise EnsembleError(
                errno.ENOTSUP,
                f"the run of {self.name!r} belongs to another process: only that can {op} it",
            )
        args = {key: value for key, value in payload.items() if value is not None}
        return self._session.ask(op, args)

    def _entries(self, after: int) -> list[Any]:
        return list(_told(lambda: list(islice(self._states.log(self.name), after, None))))

    def _over(self, status: EnsembleStatus) -> bool:
        """Return True if the ensemble and its jobs have ended."""
        if self._session is not None:
            return not self._session.is_alive()
        return status["state"] in FINAL_STATES


def _told(read: Any) -> Any:
    """Return the result of reading files, with the client's kind of errors."""
    try:
        return read()
    except StateError as error:
        raise EnsembleError(errno.ENOENT, str(error)) from None
    except OSError as error:
        raise EnsembleError(
            error.errno or errno.EIO, f"cannot read {error.filename}: {error.strerror}"
        ) from None


def load(client: Client, text: str) -> str:
    """Load a document into the service, which is started if it does not run.

    Returns:
        The name of the ensemble.

    Raises:
        EnsembleError: the document is refused, or the service cannot be started.
    """
    from flux_ensemble.deploy.service_start import DeployError, ensure_service

    try:
        ensure_service(client)
    except DeployError as error:
        raise EnsembleError(errno.ENOSYS, str(error)) from None
    return client.load(text)["name"]


def start_locally(
    spec: Spec, text: str, cluster: VirtualCluster, root: Path, resume: bool | None
) -> LocalHost:
    """Return a run on the local queue that is about to begin: see `LocalHost.begun`."""
    session = LocalSession(spec, text, cluster, root, resume)
    return LocalHost(spec.name, root, session)


def local_root() -> Path:
    """Return the state directory of the local queue.

    Raises:
        EnsembleError: the user has no home directory.
    """
    root: Path = _told(default_root)
    return root


def reaches_flux() -> bool:
    """Return True if there is a Flux instance to connect to.

    Raises:
        BindingsError, EnsembleError: FLUX_URI names one that cannot be reached.
    """
    try:
        Client()
    except (BindingsError, EnsembleError):
        if is_named():
            raise
        return False
    return True
