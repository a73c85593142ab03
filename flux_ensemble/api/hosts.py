"""The hosts that run an ensemble for `Ensemble`: the service of an instance, or the local queue.

Any thread may call their methods: each thread has a Flux handle of its own.
"""

from __future__ import annotations

import errno
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from flux_ensemble.api.local_session import LocalSession, Rerun, in_python
from flux_ensemble.api.threads import Stopped
from flux_ensemble.bindings import BindingsError
from flux_ensemble.client import Client, EnsembleError, is_named
from flux_ensemble.client.responses import EnsembleStatus, Entry, RunEnded, Summary, Why
from flux_ensemble.client.troubles import failed_jobs, sentence
from flux_ensemble.eventlog import Load
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.continuation import SIZES, Continuation
from flux_ensemble.queues.local.kinds import QueueName
from flux_ensemble.queues.local.root import StateError, advised, default_root
from flux_ensemble.run_names import cannot_resume, named_otherwise
from flux_ensemble.words import counted

if TYPE_CHECKING:
    from flux_ensemble.document.model import Spec
    from flux_ensemble.queues.virtual.cluster import VirtualCluster


#: What can be done with an ensemble that goes on after an interrupt.
_LEFT = "'await wait()' follows it again, and cancel() ends it"


class Host(ABC):
    """A host that runs one ensemble. Each method raises `EnsembleError`.

    Args:
        name: the ensemble.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def client(self) -> Client | LocalClient:
        """A client for the calling thread only."""

    @abstractmethod
    def follower(self, stopped: Event) -> Client | LocalClient:
        """Return a client whose waiting methods raise `Stopped` when `stopped` is set."""

    def naming(self, asked: str) -> str:
        """Return why the ensemble has another name than the one that was asked for.

        It is "" if that has been said.
        """
        return named_otherwise(asked, self.name, f"flux ensemble rm {asked}")

    def left(self) -> str:
        """Return what becomes of the ensemble after an interrupt of those who wait for it."""
        return f"ensemble {self.name!r} goes on: {_LEFT}"

    def status(self) -> EnsembleStatus:
        """Return the entry of `ensembles` in `Client.status`."""
        return self._status(self.client)

    def _status(self, client: Client | LocalClient) -> EnsembleStatus:
        status: EnsembleStatus = client.status(self.name)["ensembles"][0]
        return status

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Do as `Client.metrics`."""
        return self.client.metrics(self.name)

    def why(self, rule: str | None) -> Why:
        """Do as `Client.why`."""
        answer: Why = self.client.why(self.name, rule)
        return answer

    def jobs(self, **chosen: Any) -> Iterator[JobRow]:
        """Do as `Client.jobs`."""
        return iter(self.client.jobs(self.name, **chosen))

    def document(self) -> tuple[Any, str]:
        """Return the document as it was loaded, text or a mapping, and the directory of its paths.

        Raises:
            EnsembleError: the beginning of the log, which has the document, is not kept any more.
        """
        for entry in self.client.log(self.name):
            if entry["name"] == Load.tag:
                return entry["context"]["document"], self.status().get("directory", ".")
        raise EnsembleError(
            errno.ENODATA,
            f"the document of ensemble {self.name!r} is not kept any more, nor is the beginning of "
            "its log, where it was",
        )

    def log(self, *, follow: bool, stopped: Event) -> Iterator[Entry]:
        """Do as `Client.log`, until it ends or `stopped` is set."""
        return self.follower(stopped).log(self.name, follow=follow)

    def wait(self, timeout: float | None, stopped: Event) -> RunEnded:
        """Do as `Client.wait`, or until `stopped` is set."""
        client = self.follower(stopped)
        ended: RunEnded = {**client.wait(self.name, timeout), "trouble": ""}
        with suppress(EnsembleError):  # the service has gone since
            status = self._status(client)
            ended["reason"], ended["trouble"] = status["reason"], sentence(status)
        return ended

    def ask(self, op: str, **payload: Any) -> Mapping[str, Any]:
        """Send a request about the ensemble, and return the response."""
        answer: Mapping[str, Any] = self.client.call(op, name=self.name, **payload)
        return answer

    def reopen(
        self, op: str, asked: Mapping[str, Any], cluster: Callable[..., VirtualCluster]
    ) -> dict[str, Any]:
        """Send a request after which an ensemble that has ended goes on.

        Args:
            op: the request.
            asked: its payload, without the name.
            cluster: makes the cluster of a local run that goes on, by the sizes that it had as far
                as they are known.

        Returns:
            The response.
        """
        answer: dict[str, Any] = self.client.call(op, name=self.name, **asked)
        return answer


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


class FluxHost(Host):
    """The service of a Flux instance.

    Args:
        name: the ensemble.
        uri: the instance; None is the enclosing one.

    Attributes:
        resumed: the ensemble is one that the service had.
    """

    def __init__(self, name: str, uri: str | None = None) -> None:
        super().__init__(name)
        self.resumed = False
        self._uri = uri
        self._own = threading.local()

    @property
    def client(self) -> Client:
        client: Client | None = getattr(self._own, "client", None)
        if client is None:
            client = self._own.client = Client(uri=self._uri)
        return client

    def naming(self, asked: str) -> str:
        if not self.resumed:
            return super().naming(asked)
        return "" if self.status()["t_end"] is not None else f"going on with {self.name!r}"

    def follower(self, stopped: Event) -> Client:
        return StoppableClient(self._uri, stopped)


class LocalHost(Host):
    """The local queue: a run of this program, or of another process.

    Args:
        name: the ensemble.
        root: the state directory.
        session: the run, if it belongs to this program.
    """

    def __init__(self, name: str, root: Path, session: LocalSession | None = None) -> None:
        super().__init__(name)
        self._root = root
        self._session = session

    def begun(self) -> None:
        """Wait until the run has begun.

        Raises:
            EnsembleError: it cannot begin.
        """
        if self._session is not None:
            self._session.begun()
            self.name = self._session.name

    def naming(self, asked: str) -> str:
        session = self._session
        if session is None:
            return ""
        if session.resumed:
            return f"going on with {self.name!r}"
        return named_otherwise(asked, self.name, advised(self._root, "rm", asked), session.of_asked)

    def left(self) -> str:
        if self._session is None:
            return super().left()
        return (
            f"ensemble {self.name!r} goes on as long as this program or kernel: {_LEFT}; "
            "run(resume=True) goes on with it later"
        )

    @property
    def client(self) -> LocalClient:
        # A run writes its status once a second: this program has it write that now.
        if self._session is not None:
            self._session.write()
        return LocalClient(self._root)

    def _status(self, client: Client | LocalClient) -> EnsembleStatus:
        status = super()._status(client)
        if not status.get("resumable"):  # else the run says what is to be done
            status["reason"] = in_python(status["reason"])
        return status

    def follower(self, stopped: Event) -> LocalClient:
        def sleep(seconds: float) -> None:
            if stopped.wait(seconds):
                raise Stopped

        return LocalClient(self._root, sleep=sleep)

    def wait(self, timeout: float | None, stopped: Event) -> RunEnded:
        if self._session is not None:
            self._session.wait(timeout, stopped)
            timeout = 0.0
        return super().wait(timeout, stopped)

    def ask(self, op: str, **payload: Any) -> Mapping[str, Any]:
        if self._session is None:
            return super().ask(op, **payload)
        args = {key: value for key, value in payload.items() if value is not None}
        return self._session.ask(op, args)

    def reopen(
        self, op: str, asked: Mapping[str, Any], cluster: Callable[..., VirtualCluster]
    ) -> dict[str, Any]:
        status = self.status()
        if status["t_end"] is None and not status.get("resumable"):
            return super().reopen(op, asked, cluster)
        before = self._session
        if before is not None:
            before.wait(None, Event())  # its thread may be about to end
        if status.get("resumable"):
            raise EnsembleError(errno.EINVAL, f"ensemble {self.name!r}: {status['reason']}")
        session = self._again(op, asked, cluster)
        # Stored before it is waited for, so that an interrupt can end it.
        self._session = session
        try:
            session.begun()
        except EnsembleError:
            self._session = before
            raise
        if "reopened" not in session.answer:
            self._session = before
        return session.answer

    def _again(
        self, op: str, asked: Mapping[str, Any], cluster: Callable[..., VirtualCluster]
    ) -> LocalSession:
        """Return a run that goes on with this one, which has ended, by its document."""
        from flux_ensemble.document.loading import load_text
        from flux_ensemble.queues.local.state_dir import kept_of

        try:
            text, _, where, again = kept_of(self._root, self.name)
        except (StateError, OSError) as error:
            raise EnsembleError(errno.EIO, in_python(str(error))) from None
        document = Path(where, again.document())
        spec = load_text(text, name=self.name, file=str(document), directory=str(document.parent))
        known = again.sizes()
        if self._session is not None:
            known = {key: getattr(self._session.cluster, key) for key in SIZES}
        made = cluster(**known)
        sizes = (word for key in SIZES for word in (f"--{key}", str(getattr(made, key))))
        # It is typed in the directory of the run.
        root = self._root if Path(where) == Path.cwd() else self._root.absolute()
        command = advised(root, "rerun", *sizes, "--resume", self.name)
        rerun = Rerun(op, asked, where, Continuation(command))
        return LocalSession(spec, text, made, self._root, None, rerun)


def start_service(client: Client) -> None:
    """Start the service, if it does not run.

    Raises:
        EnsembleError: it cannot be started.
    """
    from flux_ensemble.deploy.service_start import DeployError, ensure_service

    try:
        ensure_service(client)
    except DeployError as error:
        raise EnsembleError(errno.ENOSYS, str(error)) from None


def load(client: Client, text: str) -> str:
    """Load a document into the service.

    Returns:
        The name of the ensemble.

    Raises:
        EnsembleError: the document is refused.
    """
    try:
        return client.load(text)["name"]
    except EnsembleError as error:
        raise EnsembleError(error.errno or errno.EIO, in_python(str(error))) from None


def kept(host: Host, text: str) -> bool:
    """Return whether there is an ensemble that a program with `resume=True` goes on with.

    Args:
        host: for its name.
        text: the document that it has to have.

    Raises:
        EnsembleError: it has another document, or was canceled.
    """
    try:
        status = host.status()
    except EnsembleError as error:
        if error.errno in (errno.ENOENT, errno.ENOSYS):
            return False  # neither it nor a service
        raise
    if status["state"] == "canceled":
        told = cannot_resume(host.name, search=bool(status.get("searches")))
        raise EnsembleError(errno.EINVAL, in_python(told))
    ended = status["t_end"] is not None
    if host.document()[0] != text:
        state = "has ended" if ended else "is running"
        anew = "without resume=True this one runs" if ended else "give this one another name"
        raise EnsembleError(
            errno.EINVAL, f"ensemble {host.name!r} {state}, and has another document: {anew}"
        )
    if ended:
        told = f"{host.name!r} has ended, so nothing runs again: it would without resume=True"
        # What `rerun` runs again: no trials.
        failed = 0 if status.get("searches") else failed_jobs(status)
        if failed:
            told += f", and rerun() runs the {counted(failed, 'failed job')} alone"
        print(f"flux-ensemble: {told}", file=sys.stderr)
    return True


def start_locally(
    spec: Spec,
    text: str,
    cluster: VirtualCluster,
    root: Path,
    resume: bool | None,
    queue: QueueName | None = None,
) -> LocalHost:
    """Return a run of this machine that is about to begin: see `LocalHost.begun`."""
    session = LocalSession(spec, text, cluster, root, resume, queue=queue)
    return LocalHost(spec.name, root, session)


def local_root() -> Path:
    """Return the state directory of the local queue.

    Raises:
        EnsembleError: the user has no home directory.
    """
    try:
        return default_root()
    except StateError as error:
        raise EnsembleError(errno.ENOENT, str(error)) from None


def flux_names() -> list[Summary]:
    """Return the ensembles of the service; none if no instance or no service is reached."""
    try:
        return Client().list()
    except (BindingsError, EnsembleError):
        return []


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
