"""Failures of requests: one error class, with an errno and one or more sentences."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from flux_ensemble.client.reconnect import PATIENCE, Received

SERVICE = "ensemble"

#: The broker module that restarts the service, if that is a process beside the broker.
KEEPER = "ensemble-keeper"

#: What can be done when the broker has gone, whatever of the instance is left.
AFTER_LOSS = (
    "its broker has ended; once there is an instance with the same statedir, "
    "`flux ensemble run --resume FILE` goes on with what that has kept"
)


class EnsembleError(OSError):
    """A request failed: `errno` is the service's, and `str()` is one or more sentences."""

    def __str__(self) -> str:
        return str(self.strerror)


def failure(exc: OSError, op: str) -> EnsembleError:
    """Return the error of request `op`, with a helpful sentence if Flux has none.

    >>> failure(OSError(errno.EHOSTUNREACH, "No route to host"), "list")
    EnsembleError(113, 'the ensemble service went away')
    """
    number, text = exc.errno or errno.EIO, str(exc.strerror or exc)
    if is_unloaded(exc):
        text = (
            "the ensemble service is not loaded: `flux ensemble run FILE` starts it, with --resume "
            "to go on with a run that this instance has kept, and `flux ensemble supervise` starts "
            "it alone, with all that is kept"
        )
    elif number == errno.ENOSYS:
        text = f"the ensemble service does not know the request {SERVICE}.{op}"
    elif number == errno.EHOSTUNREACH:
        text = "the ensemble service went away"
    elif number in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
        number, text = errno.ECONNRESET, f"the connection to Flux was lost ({text}): {AFTER_LOSS}"
    return EnsembleError(number, text)


def is_unloaded(exc: OSError) -> bool:
    """Return True if a request failed because there is no service, so that nobody received it.

    >>> is_unloaded(OSError(errno.ENOSYS, "No service matching ensemble.list is registered"))
    True
    """
    return exc.errno == errno.ENOSYS and str(exc.strerror or exc).startswith("No service")


def silence(seconds: float) -> str:
    """Return the message about a service that exists and does not answer.

    >>> silence(20.0).partition(",")[0]
    'the ensemble service has answered nothing for 20 s: it is stopped'
    """
    return (
        f"the ensemble service has answered nothing for {seconds:.0f} s: it is stopped, or waits "
        "for something such as a disk. What was asked may still be done; jobs go on. "
        "'flux ensemble supervise' has a keeper start it again when that happens, and 'flux dmesg' "
        "may say what it was doing"
    )


def not_kept(kept: Mapping[str, Any]) -> str:
    """Return why there is no service, given the report `kept` of its keeper.

    >>> not_kept({"state": "waiting", "last_exit": "was killed by SIGKILL"})
    'the ensemble service died, and is being started again: retry later'
    """
    if kept["state"] == "given up":
        return (
            f"the ensemble service died too often to be started again; the last one "
            f"{kept['last_exit']}: `flux dmesg` says why, and `flux ensemble supervise` begins anew"
        )
    return "the ensemble service died, and is being started again: retry later"


def given_up(*names: str) -> EnsembleError:
    """Return the error for a service that did not return while ensembles were followed.

    >>> str(given_up("a", "b")).partition(":")[0]
    "the ensemble service did not come back within 60 s, and 'a' and 'b' had not ended"
    """
    return EnsembleError(
        errno.EHOSTUNREACH,
        f"the ensemble service did not come back within {PATIENCE:.0f} s, and "
        f"{' and '.join(map(repr, names))} had not ended: `flux ensemble doctor` may tell why",
    )


def given_up_loading() -> EnsembleError:
    """Return the error for a service that did not return while it loaded a document.

    >>> str(given_up_loading()).partition(",")[0]
    'the ensemble service went away while it loaded the document'
    """
    return EnsembleError(
        errno.EHOSTUNREACH,
        "the ensemble service went away while it loaded the document, and did not come back "
        f"within {PATIENCE:.0f} s: `flux ensemble list` tells whether it did load it",
    )


def log_failure(exc: OSError, name: str, received: Received) -> EnsembleError:
    """Return the error of a request for the log of `name`, given the entries received before.

    >>> received = Received()
    >>> str(log_failure(OSError(errno.ENOENT, "no ensemble 'demo'"), "demo", received))
    "no ensemble 'demo'"
    >>> received.take({"name": "start"})
    True
    >>> str(log_failure(OSError(errno.ENOENT, "no ensemble 'demo'"), "demo", received))
    "the ensemble service came back without ensemble 'demo'"
    """
    error = exc if isinstance(exc, EnsembleError) else failure(exc, "log")
    if error.errno == errno.ENOENT and received.count:
        error = EnsembleError(
            errno.ENOENT, f"the ensemble service came back without ensemble {name!r}"
        )
    return error
