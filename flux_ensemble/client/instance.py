"""The Flux instance of a client, and the client's user context for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flux_ensemble.client.payloads import is_text
from flux_ensemble.own_command import with_program


def is_named() -> bool:
    """Return True if the environment names a Flux instance.

    No other instance may then be used in its place, even if it cannot be reached.

    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", FLUX_URI="local:///run/flux/local"):
    ...     is_named()
    True
    """
    return bool(os.environ.get("FLUX_URI"))


def user_context(
    cwd: str | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the `cwd` and `environment` of a load request; default: those of this process.

    By default PATH finds flux-ensemble, which jobs call to publish values.

    >>> user_context("/scratch", {"LANG": "C"})
    {'cwd': '/scratch', 'environment': {'LANG': 'C'}}
    """
    variables = with_program(os.environ) if environment is None else environment
    return {
        "cwd": os.getcwd() if cwd is None else cwd,
        # A jobspec is JSON, so variables that are not UTF-8 cannot be passed to jobs.
        "environment": {key: value for key, value in variables.items() if is_text(f"{key}{value}")},
    }


def no_instance(exc: OSError, uri: str | None) -> str:
    """Return why there is no connection; `uri` is that of the instance, None for the usual one.

    >>> no_instance(FileNotFoundError(2, "No such file"), "local:///tmp/x")
    "there is no Flux instance at 'local:///tmp/x': No such file"

    One of another user may be there, and is not said to be gone.

    >>> no_instance(PermissionError(1, "Operation not permitted"), "local:///tmp/x")
    "the Flux instance at 'local:///tmp/x' is not open to this user: Operation not permitted"
    """
    if uri is not None:
        place = repr(uri)
    elif is_named():
        place = f"FLUX_URI {os.environ['FLUX_URI']!r}"
    else:
        return (
            "there is no Flux instance to talk to: run this inside one (`flux start` begins one), "
            "or set FLUX_URI"
        )
    if isinstance(exc, PermissionError):
        return f"the Flux instance at {place} is not open to this user: {exc.strerror}"
    return f"there is no Flux instance at {place}: {exc.strerror}"
