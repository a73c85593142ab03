"""Reasons why an instance cannot be a member: another user owns it, or it runs another Flux.

The instance reports both once there is a connection. But there may be none: by default a broker
accepts its owner alone, and `flux proxy` refuses another Flux. Then its output is all that is
known.
"""

from __future__ import annotations

import errno
import os
import re

from flux_ensemble.texts import bounded

#: Output of Flux if a broker, or the directory of its socket, accepts its owner alone; preceded by
#: the name of the host if it is reached by ssh.
_CLOSED = re.compile(r"local://.*: (?:Operation not permitted|Permission denied)$")

#: Its output for an instance of another version.
_OTHER_FLUX = re.compile(r"proxy version (\S+) may not interoperate with broker version (\S+)")


class RefusedError(OSError):
    """The instance cannot be a member, and trying again is useless."""


def refuse_others(owner: int, user: int, theirs: str, ours: str) -> None:
    """Refuse an instance of another user, or of another Flux.

    Args:
        owner: userid of its owner.
        user: userid of the service.
        theirs, ours: versions of Flux.

    Raises:
        RefusedError: the instance is such a one.

    >>> refuse_others(1000, 1000, "0.88.1", "0.88.0-59-g4a5e79f56")
    >>> refuse_others(1001, 1000, "0.88.0", "0.88.0")
    Traceback (most recent call last):
    flux_ensemble.queues.nested.refusals.RefusedError: it belongs to the user with id 1001, and \
this service to 1000: a member has to be of the same user
    >>> refuse_others(1000, 1000, "0.89.0", "0.88.0")
    Traceback (most recent call last):
    flux_ensemble.queues.nested.refusals.RefusedError: it runs Flux 0.89.0, and this service \
Flux 0.88.0: a member has to have the same minor version
    """
    if owner != user:
        raise RefusedError(
            f"it belongs to the user with id {owner}, and this service to {user}: "
            "a member has to be of the same user"
        )
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        raise _another_flux(theirs, ours)


def no_way(uri: str, said: str) -> OSError:
    """Make the error for a `flux proxy` that has not reached an instance.

    Args:
        uri: of the instance.
        said: the last line that it printed.

    Returns:
        A `RefusedError` if no other attempt can succeed either.

    >>> print(no_way("local:///a", "flux-proxy: local:///a: No such file or directory").strerror)
    flux proxy local:///a: flux-proxy: local:///a: No such file or directory
    """
    if _CLOSED.search(said):
        return RefusedError(
            f"{bounded(uri)} lets nobody in but its owner, which is not the user with id "
            f"{os.getuid()}, whose this service is: a member has to be of the same user"
        )
    versions = _OTHER_FLUX.search(said)
    if versions is not None:
        ours, theirs = versions.groups()
        return _another_flux(theirs, ours)
    return OSError(errno.EHOSTUNREACH, f"flux proxy {uri}: {bounded(said)}")


def _another_flux(theirs: str, ours: str) -> RefusedError:
    return RefusedError(
        f"it runs Flux {theirs}, and this service Flux {ours}: "
        "a member has to have the same minor version"
    )
