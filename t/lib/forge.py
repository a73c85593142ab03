"""Submits jobs with the tags of others, as who copies a jobspec does: `forge.py URI/ID COUNT`.

The job ID of a member of an ensemble, which is at URI, has its tag; that, and those of the other
jobs of its firing, COUNT in all, are put on jobs of the member and of the enclosing instance.
Prints how each of these ended: a line with where it was, and the exception.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import flux
import flux.job

#: Seconds within which a job comes to its end.
PATIENCE = 120.0


def forged(jobspec: dict[str, Any], index: int) -> str:
    """The jobspec of a job that does something else in the name of the one with an index."""
    made = copy.deepcopy(jobspec)
    made["attributes"]["user"]["ensemble"]["index"] = index
    made["tasks"][0]["command"] = ["true"]
    return json.dumps(made)


def end_of(handle: Any, job: int) -> str:
    """The exception of a job that has ended, or the name of its last event."""
    future, last = flux.job.event_watch_async(handle, job), ""
    while not last.startswith("exception"):
        event = future.wait_for(PATIENCE).get_event()
        if event is None:
            break
        last = f"{event.name} {event.context.get('type')} {event.context.get('note')}"
    return last


def main(job: str, count: str) -> None:
    """Forge the tags, and wait for what becomes of them."""
    uri, _, id = job.rpartition("/")
    member, enclosing = flux.Flux(uri), flux.Flux()
    jobspec = flux.job.job_kvs_lookup(member, int(flux.job.JobID(id)), ["jobspec"])["jobspec"]
    sent = [
        (where, handle, flux.job.submit(handle, forged(jobspec, index)))
        for index in range(int(count))
        for where, handle in (("enclosing", enclosing), ("member", member))
    ]
    for where, handle, one in sent:
        print(where, end_of(handle, one))


if __name__ == "__main__":
    main(*sys.argv[1:])
