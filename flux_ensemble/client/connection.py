"""The connection to the ensemble service of an instance: requests, and waiting for its return."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flux_ensemble.bindings import require_flux
from flux_ensemble.client.errors import (
    KEEPER,
    SERVICE,
    EnsembleError,
    failure,
    is_unloaded,
    not_kept,
    silence,
)
from flux_ensemble.client.instance import no_instance
from flux_ensemble.client.payloads import sendable
from flux_ensemble.client.reconnect import LOOK_INTERVAL, LOOK_TIMEOUT
from flux_ensemble.client.topics import READING
from flux_ensemble.own_command import own_command

#: Seconds that requests wait for a service that is being restarted, and between two attempts.
RETURN_SECONDS = 10.0
RETURN_PAUSE = 0.2

#: Seconds until the first check whether the service that received a request still lives: the keeper
#: restarts it within about one.
FIRST_LOOK = 1.5

#: Seconds after which a service that answers nothing at all is given up.
SILENT_SECONDS = 60.0


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Have an interrupt do after the block what it did before.

    Flux's bindings give SIGINT its default action while they wait in the main thread, and leave it
    so after an error: the next interrupt would end the program.

    >>> with keeping_interrupts():
    ...     _ = signal.signal(signal.SIGINT, signal.SIG_DFL)
    >>> signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    False
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # A handler that is not Python's is None, and cannot be set.
        if handler is not None and signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


class Connection:
    """A connection to the ensemble service of one Flux instance.

    Args:
        handle: an open `flux.Flux`; None opens one.
        uri: the instance to connect to; None is the enclosing instance.

    Raises:
        BindingsError: Flux's Python bindings are not usable.
        EnsembleError: there is no Flux instance to connect to.
    """

    #: What the ensembles are in, and a job as it is named to commands.
    KIND = "Flux"
    EXAMPLE = "ƒ2Hu4Rn"

    def __init__(self, handle: Any = None, *, uri: str | None = None) -> None:
        require_flux()
        if handle is None:
            import flux

            try:
                handle = flux.Flux() if uri is None else flux.Flux(uri)
            except OSError as exc:
                raise EnsembleError(exc.errno or errno.ENOENT, no_instance(exc, uri)) from None
        self.handle = handle

    def send(self, op: str, payload: Mapping[str, Any], *, stream: bool = False) -> Any:
        """Send a request and return its future, for programs that run a reactor.

        Args:
            op: the topic without "ensemble."
            payload: the request; keys whose value is None are left out, and values of Python
                become JSON as those of a document do.
            stream: ask for several responses (`log`).

        Raises:
            EnsembleError: EINVAL, the payload cannot be sent; or the connection was lost.
        """
        import flux.constants

        try:
            request = sendable(op, payload)
        except ValueError as error:
            raise EnsembleError(errno.EINVAL, str(error)) from None
        flags = flux.constants.FLUX_RPC_STREAMING if stream else 0
        try:
            return self.handle.rpc(f"{SERVICE}.{op}", request, flags=flags)
        except OSError as exc:
            raise failure(exc, op) from exc

    def call(self, op: str, **payload: Any) -> Any:
        """Send a request, wait for the response and return it.

        Raises:
            EnsembleError: the request failed.

        >>> client.call("submit", name="nothing", group="echo")
        Traceback (most recent call last):
        flux_ensemble.client.errors.EnsembleError: no ensemble named 'nothing' (ensembles: demo)
        """
        with keeping_interrupts():
            try:
                return self._call(op, payload)
            except EnsembleError as error:
                # Neither the frames below nor the error of Flux's bindings say more.
                raise error.with_traceback(None) from None

    def _call(self, op: str, payload: Mapping[str, Any]) -> Any:
        try:
            return self._answer(op, payload)
        except EnsembleError:
            raise
        except OSError as exc:
            # A request that only reads can be repeated, whether it was answered or not.
            lost = exc.errno == errno.EHOSTUNREACH and op in READING
            if not ((is_unloaded(exc) or lost) and self.comes_back()):
                raise self._failure(exc, op) from exc
        try:
            return self._answer(op, payload)
        except EnsembleError:
            raise
        except OSError as exc:
            raise failure(exc, op) from exc

    def _failure(self, exc: OSError, op: str) -> EnsembleError:
        """Return the error of request `op`, which depends on the state of a keeper."""
        kept = self.keeper() if is_unloaded(exc) else None
        return failure(exc, op) if kept is None else EnsembleError(errno.ENOSYS, not_kept(kept))

    def _answer(self, op: str, payload: Mapping[str, Any]) -> Any:
        t_sent = time.monotonic()
        return self.response(self.send(op, payload), t_sent)

    def response(self, future: Any, t_sent: float) -> Any:
        """Wait for the next response to a request, and return it.

        Flux answers requests that a module has not answered when it dies, but not those of a
        process.

        Args:
            future: the result of `send`.
            t_sent: when the request was sent, by the monotonic clock.

        Raises:
            OSError: the request failed; EHOSTUNREACH if the service that received it has died.
            EnsembleError: ETIMEDOUT; the service answers nothing any more.
        """
        pause = FIRST_LOOK
        t_answered = time.monotonic()
        while True:
            try:
                future.wait_for(pause)
                return future.get()
            except OSError as exc:
                if exc.errno != errno.ETIMEDOUT or future.is_ready():
                    raise
            pause = LOOK_INTERVAL
            if self.has_died(t_sent) and not future.is_ready():
                raise OSError(errno.EHOSTUNREACH, "the service was started again")
            if self._answers():
                t_answered = time.monotonic()
            elif time.monotonic() - t_answered > SILENT_SECONDS and not future.is_ready():
                raise EnsembleError(errno.ETIMEDOUT, silence(SILENT_SECONDS))

    def _answers(self) -> bool:
        """Return True if the service answers a request that needs only itself; an error counts."""
        try:
            self.send("claim", {}).wait_for(LOOK_TIMEOUT)
        except OSError as exc:
            return exc.errno != errno.ETIMEDOUT
        return True

    def has_died(self, t_sent: float) -> bool:
        """Return True if the service that received a request has died, as far as that is known.

        Args:
            t_sent: when the request was sent, by the monotonic clock.
        """
        t_asked = time.monotonic()
        age = (self.keeper() or {}).get("age")
        if age is None:
            try:
                future = self.send("claim", {})
                future.wait_for(LOOK_TIMEOUT)
                age = future.get().get("age")
            except OSError as exc:
                return is_unloaded(exc)
        return age is not None and bool(age < t_asked - t_sent)

    def keeper(self) -> dict[str, Any] | None:
        """Return the report of the module `ensemble-keeper` on the service; None without a keeper.

        Its "state" is "starting", "running", "waiting" or "given up". "age" is the age of the
        process in seconds or None, "restarts" the number of its restarts, and "last_exit" how it
        ended.

        >>> client.keeper() is None
        True
        """
        try:
            future = self.handle.rpc(f"{KEEPER}.stats-get", {}, nodeid=0)
            future.wait_for(LOOK_TIMEOUT)
            stats: dict[str, Any] = future.get()
        except OSError:
            return None
        return stats

    def host_of(self, rank: int) -> str | None:
        """Return the host on which a broker of the instance runs; None if it is unknown.

        >>> client.host_of(0) == client.handle.attr_get("hostlist").partition(",")[0]
        True
        """
        from flux.hostlist import Hostlist

        try:
            host: str = Hostlist(self.handle.attr_get("hostlist"))[rank]
        except (OSError, IndexError):
            return None
        return host

    def interrupted(self, name: str) -> None:
        """Return the status of an ensemble whose run was interrupted: a service goes on itself.

        >>> client.interrupted("demo")
        """

    def kept_file(self, name: str, job: int) -> None:
        """Return the file for the output of a job whose document names none: Flux keeps it.

        >>> client.kept_file("demo", 1)
        """

    def owner(self, name: str) -> int:
        """Return the user who owns the instance, and so each ensemble `name` in it.

        >>> from os import getuid
        >>> client.owner("demo") == getuid()
        True
        """
        return int(self.handle.attr_get("security.owner"))

    def facts(self, status: Mapping[str, Any]) -> dict[str, str]:
        """Return facts about the service and the instance, as a report has them.

        Args:
            status: the response to `status`.

        >>> list(client.facts(client.status()))
        ['Service', 'Flux']
        """
        service = status["service"]
        return {
            "Service": f"flux-ensemble {service['version']}, Python {service['python']}",
            "Flux": str(self.handle.attr_get("version")),
        }

    def command(self, *words: str) -> str:
        """Return a command about ensembles of the instance, as text for a shell.

        >>> client.command("jobs", "my demo")
        "flux ensemble jobs 'my demo'"
        """
        return own_command(*words, flux=True)

    @staticmethod
    def label(id: int) -> str:
        """Return a job id as Flux prints it, f58 (RFC 19).

        >>> client.job_id(client.label(1234567))
        1234567
        """
        from flux.job.JobID import id_encode

        return str(id_encode(id))

    @staticmethod
    def job_id(text: str) -> int:
        """Return the job id of a text in a form of RFC 19.

        Raises:
            ValueError: it is none.

        >>> client.job_id("0x10")
        16
        """
        from flux.job import JobID

        return int(JobID(text))

    def stream(self, op: str, payload: Mapping[str, Any]) -> Iterator[Any]:
        """Send a request, and yield the responses to it.

        Raises:
            EnsembleError: the request failed.
        """
        t_sent = time.monotonic()
        future = self.send(op, payload, stream=True)
        try:
            while True:
                yield self.response(future, t_sent)
                future.reset()
        except EnsembleError:
            raise
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                raise failure(exc, op) from exc

    def comes_back(self) -> bool:
        """Wait some seconds for a service that is away; return True if it is back.

        A keeper restarts the service (`flux ensemble supervise`); without a keeper there is no
        wait.

        >>> client.comes_back()
        False
        """
        deadline = time.monotonic() + RETURN_SECONDS
        while time.monotonic() < deadline:
            if (self.keeper() or {}).get("state", "given up") == "given up":
                return False
            time.sleep(RETURN_PAUSE)
            try:
                self._answer("list", {})
                return True
            except OSError as exc:
                if not is_unloaded(exc):
                    return True
        return False
