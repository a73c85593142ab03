"""The enclosing instance, and the allocation that it gives to this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import flux.job
from flux.core.handle import Flux

#: Seconds to wait for the enclosing instance.
RESPONSE_SECONDS = 10.0


def expiration(attr_get: Callable[[str], Any]) -> float | None:
    """Return the time when the job of an instance expires.

    None if the instance is no job, or has no time limit. This blocks until the enclosing instance
    answers, for `RESPONSE_SECONDS` at most.

    Args:
        attr_get: `flux.Flux.attr_get` of a handle of the instance.

    Raises:
        OSError: the enclosing instance does not answer, or does not know the job.
    """
    try:
        uri, job = attr_get("parent-uri"), attr_get("jobid")
    except OSError:
        return None
    if not uri or not job:
        return None
    request = {"id": int(flux.job.JobID(job)), "keys": ["R"], "flags": 0}
    future = Flux(uri).rpc("job-info.lookup", request)
    future.wait_for(RESPONSE_SECONDS)
    given = future.get()["R"]
    execution = (json.loads(given) if isinstance(given, str) else given)["execution"]
    return execution.get("expiration") or None
