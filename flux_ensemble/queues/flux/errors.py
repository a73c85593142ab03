"""Errors of Flux, as an errno's name and as a sentence."""

from __future__ import annotations

import errno

from flux_ensemble.texts import bounded


def errno_name(error: Exception) -> str:
    """Return the errno name of an exception; EINVAL if it has none."""
    return errno.errorcode.get(getattr(error, "errno", None) or errno.EINVAL, "EINVAL")


def sentence(error: BaseException) -> str:
    """Return an error as a sentence of bounded length, in Flux's words if it is Flux's error."""
    if isinstance(error, OSError):
        return bounded(error.strerror or str(error))
    return bounded(str(error) if isinstance(error, ValueError) else f"internal error: {error!r}")
