"""Sends every request of the service as a guest: `python guest_matrix.py MODE NAME SECRET...`.

MODE is "closed" where guests may ask for nothing, or "open" where the site has set
allow-guest-status. NAME is an ensemble that is loaded. The requests are made from
`client.topics.TOPICS`: each with what is required, with each optional key, with all of them, and
with mistakes. What is not open must be refused with EPERM, an answer may have only the keys
that docs/rpc.md names, and neither an answer nor an error may contain a SECRET.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from typing import Any

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402
from flux.constants import FLUX_RPC_STREAMING  # noqa: E402

from flux_ensemble.client.topics import TOPICS  # noqa: E402

DOCUMENT = "name: from-a-guest\nfinish: never\njobs: [{name: a, command: a}]\n"

#: Requests that Flux gives every service, and those that end a stream.
OTHERS = ("shutdown", "stats-clear", "config-reload", "log-cancel")

#: What guests may see of a job.
JOB = {"id", "group", "nnodes", "outcome", "runtime", "t_run", "t_submit", "t_end", "name", "state"}

#: What guests may see of an ensemble or a job, by request.
TIMES = {"name", "state", "t_start", "t_end"}
ALLOWED = {
    "list": TIMES | {"active", "waiting", "finished", "failed"},
    "status": TIMES | {"groups", "jobs"},
    "jobs": JOB,
}


def payloads(method: str, name: str) -> Iterator[Any]:
    """Requests of a kind, well-formed ones first."""
    given = {
        "name": name,
        "group": "hidden",
        "id": "rule-0",
        "enabled": False,
        "action": {"name": "terminate", "cancel": True},
        "text": DOCUMENT,
        "cwd": "/",
    }
    of_kind: dict[type, Any] = {str: "guest", bool: True, int: 1, dict: {}, list: []}
    fields = TOPICS[method].fields
    values = {key: given.get(key, of_kind[field.kind]) for key, field in fields.items()}
    required = {key: values[key] for key, field in fields.items() if field.required}
    yield required
    for key in values.keys() - required.keys():
        yield {**required, key: values[key]}
    yield values
    yield {**values, "name": "nobody"}
    yield {**values, "name": None}
    yield {**values, "unknown": 1}
    yield []


def ask(handle: Any, method: str, payload: Any) -> tuple[str, Any]:
    """The name of the errno with the error's text, or "" with the answer."""
    streaming = method in TOPICS and TOPICS[method].streaming
    future = handle.rpc(f"ensemble.{method}", payload, flags=FLUX_RPC_STREAMING if streaming else 0)
    try:
        future.wait_for(30)
        return "", future.get()
    except OSError as error:
        return errno.errorcode[error.errno or 0], str(error.strerror)


def check(mode: str, method: str, payload: Any, number: str, answer: Any) -> str | None:
    """What is wrong with an answer, or None."""
    if mode == "closed" or method not in ALLOWED:
        return None if number == "EPERM" else f"expected EPERM, not {number or 'an answer'}"
    if number:
        good = payload in ({}, {"name": sys.argv[2]})
        return "expected an answer" if good else None
    if method == "status" and set(answer) != {"service", "nodes", "queue", "ensembles"}:
        return f"unexpected keys: {sorted(answer)}"
    if method == "status" and set(answer["service"]) != {"version"}:
        return f"unexpected keys of the service: {sorted(answer['service'])}"
    listed = answer["jobs" if method == "jobs" else "ensembles"]
    wrong = {key for one in listed for key in one} - ALLOWED[method]
    return f"unexpected keys: {sorted(wrong)}" if wrong else None


def main() -> int:
    """Send the requests; print each with its answer, and what is wrong."""
    mode, name, *secrets = sys.argv[1:]
    handle = flux.Flux()
    cases = [(method, one) for method in TOPICS for one in payloads(method, name)]
    cases += [(method, {}) for method in OTHERS]
    bad = 0
    for method, payload in cases:
        number, answer = ask(handle, method, payload)
        text = json.dumps(answer)
        wrong = check(mode, method, payload, number, answer)
        if any(secret in text for secret in secrets):
            wrong = "it reveals a secret"
        print(method, json.dumps(payload), "->", number, text)
        if wrong:
            print(f"WRONG: {wrong}")
            bad += 1
    print(f"{len(cases)} requests, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
