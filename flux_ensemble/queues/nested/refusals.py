"""Why an instance cannot be a member: it belongs to another user, or runs another Flux.

It says so itself once there is a connection. But there may be none: by default a broker lets nobody
in but its owner, and `flux proxy` refuses another Flux. Then what that prints is all that is known.
"""

from __future__ import annotations

import errno
import os
import re

from flux_ensemble.texts import bounded

#: What Flux prints where a broker lets in only its owner, or the directory of its socket does; with
#: the name of the host before it where it is reached by ssh.
_CLOSED = re.compile(r"local://.*: (?:Operation not permitted|Permission denied)$")

#: What it prints of an instance of another version.
_OTHER_FLUX = re.compile(r"proxy version (\S+) may not interoperate with broker version (\S+)")


class RefusedError(OSError):
    """The instance cannot be a member, and trying again is no use."""


def refuse_others(owner: int, user: int, theirs: str, ours: str) -> None:
    """Refuse an instance of another user, or of another Flux.

    Args:
        owner: its owner.
        user: the service's.
        theirs, ours: versions of Flux.

    Raises:
        RefusedError: it is one.

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
    """Why a `flux proxy` has not got to an instance.

    Args:
        uri: of the instance.
        said: the last line that it printed.

    Returns:
        A `RefusedError` where no other will get there either.

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
