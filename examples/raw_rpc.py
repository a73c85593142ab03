"""Talk to the ensemble service with nothing but Flux's own Python bindings.

    flux python examples/raw_rpc.py NAME GROUP

submits one more job of job group GROUP of the loaded ensemble NAME, prints what happens
to it until it has ended, and the counts of the group after that. Any program that can
send a Flux RPC can do the same, in any language; docs/rpc.md describes every topic. A
request is a JSON object, and a failure is an errno with one sentence.
"""

import json
import sys

import flux
from flux.constants import FLUX_RPC_STREAMING
from flux.job import JobID


def main(name: str, group: str) -> None:
    """Submit a job, follow it, and report.

    Args:
        name: the ensemble.
        group: the job group.
    """
    handle = flux.Flux()

    # A streaming request: each response is an entry of the ensemble's eventlog. With
    # "events", so is each event of its jobs. It is sent first, so that nothing is missed.
    request = {"name": name, "follow": True, "events": True}
    log = handle.rpc("ensemble.log", request, flags=FLUX_RPC_STREAMING)

    # One request, one response: the ids, once the queue has accepted the jobs.
    request = {"name": name, "group": group, "count": 1}
    ids = handle.rpc("ensemble.submit", request).get()["ids"]

    active = set(ids)
    while active:
        entry = log.get()
        log.reset()
        event = entry["context"]
        if entry["name"] == "job-event" and event["id"] in ids:
            print(JobID(event["id"]).f58, event["name"])
            if event["name"] == "clean":
                active.remove(event["id"])

    status = handle.rpc("ensemble.status", {"name": name}).get()
    print(json.dumps(status["ensembles"][0]["groups"][group]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} NAME GROUP")
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[0]}: {error.strerror}")
