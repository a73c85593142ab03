"""Failures of requests: each becomes a gRPC status code and one sentence."""

from __future__ import annotations

import errno

from grpc import StatusCode

from flux_ensemble.client import EnsembleError
from flux_ensemble.k8s.grpc import backend as base
from flux_ensemble.k8s.grpc.threads import LaneFull

#: Longest sentence that is sent, in bytes as gRPC encodes it. By default a client accepts 8 KiB of
#: all metadata together, and fails the call with another text if there is more.
SENTENCE_BYTES = 4096


class RequestProblem(Exception):
    """A request fails with this status code; the text is a sentence, clipped if it is long."""

    def __init__(self, code: StatusCode, sentence: str) -> None:
        super().__init__(_clipped(sentence))
        self.code = code


#: Status code by errno of the ensemble service (docs/rpc.md) and of the connection to Flux.
_BY_ERRNO = {
    errno.EINVAL: StatusCode.INVALID_ARGUMENT,
    errno.ENOENT: StatusCode.NOT_FOUND,
    errno.EEXIST: StatusCode.ALREADY_EXISTS,
    errno.EAGAIN: StatusCode.FAILED_PRECONDITION,
    errno.EPERM: StatusCode.PERMISSION_DENIED,
    errno.EIO: StatusCode.INTERNAL,
    errno.EPROTO: StatusCode.INTERNAL,
    errno.ETIMEDOUT: StatusCode.DEADLINE_EXCEEDED,
    errno.ESHUTDOWN: StatusCode.UNAVAILABLE,
    errno.ENOSYS: StatusCode.UNAVAILABLE,
    errno.EHOSTUNREACH: StatusCode.UNAVAILABLE,
    errno.ECONNRESET: StatusCode.UNAVAILABLE,
}

_BY_BACKEND = {
    base.Refused: StatusCode.FAILED_PRECONDITION,
    base.BadSize: StatusCode.INVALID_ARGUMENT,
    base.UnknownCluster: StatusCode.NOT_FOUND,
    base.Unavailable: StatusCode.UNAVAILABLE,
    base.Contended: StatusCode.ABORTED,
}


def problem(exc: Exception) -> RequestProblem | None:
    """Return the problem for an exception; None if the exception is a bug."""
    if isinstance(exc, RequestProblem):
        return exc
    if isinstance(exc, EnsembleError):
        code = _BY_ERRNO.get(exc.errno or 0, StatusCode.UNKNOWN)
        return RequestProblem(code, str(exc))
    if isinstance(exc, base.BackendError):
        return RequestProblem(_BY_BACKEND.get(type(exc), StatusCode.UNAVAILABLE), str(exc))
    if isinstance(exc, LaneFull):
        return RequestProblem(StatusCode.RESOURCE_EXHAUSTED, f"{exc}: try again later")
    return None


def _clipped(sentence: str) -> str:
    """Return the part of a sentence that can be sent; characters that are no Unicode as numbers."""
    text = sentence[:SENTENCE_BYTES].encode(errors="backslashreplace").decode()
    size = 0
    for position, character in enumerate(text):
        # gRPC sends printable ASCII as it is, and every other byte as "%" and two digits.
        plain = " " <= character <= "~" and character != "%"
        size += 1 if plain else 3 * len(character.encode())
        if size > SENTENCE_BYTES:
            return f"{text[:position]} [...]"
    return text if len(sentence) <= SENTENCE_BYTES else f"{text} [...]"
