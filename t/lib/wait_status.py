"""Waits until the status is as it is to be: `flux python wait_status.py NAME [KEY VALUE ...]`.

NAME is an ensemble, or nothing for all that the service says; without a KEY it is enough that there
is a status. A KEY is a path such as `groups.sim.success`, in the status of the ensemble if that is
named; a VALUE is a text, or JSON. Fails, with the last status, after three minutes.
"""

import json
import sys
import time
from typing import Any

import flux

name, *pairs = sys.argv[1:]
wanted = list(zip(pairs[::2], pairs[1::2], strict=True))
handle = flux.Flux()


def value_of(status: Any, path: str) -> str | None:
    """What the status has there, as the shell function `json` prints it."""
    for key in path.split("."):
        try:
            status = status[int(key) if isinstance(status, list) else key]
        except (KeyError, IndexError, TypeError):
            return None
    return status if isinstance(status, str) else json.dumps(status)


def told() -> Any:
    """The status; None where it cannot be had."""
    try:
        answer = handle.rpc("ensemble.status", {"name": name} if name else {})
        status = answer.wait_for(10).get()
    except OSError:
        return None
    return status["ensembles"][0] if name else status


t_end = time.monotonic() + 180
while True:
    status = told()
    if status is not None and all(value_of(status, key) == value for key, value in wanted):
        break
    if time.monotonic() > t_end:
        sys.exit(f"it is not {wanted}: {json.dumps(status)}")
    time.sleep(0.05)
