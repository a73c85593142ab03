"""Prints the jobs of an ensemble as the queue recorded them: `flux python jobs.py NAME`.

One JSON list, in the order of submission: `{"id", "tag", "events": [{"name", "timestamp",
"context"}]}`. It is read from the journal alone, and so can be held against what the
service says.
"""

import json
import sys
from typing import Any

import flux
from flux.job import JournalConsumer

jobs: dict[int, dict[str, Any]] = {}
journal = JournalConsumer(flux.Flux(), include_sentinel=True).start()
while not (event := journal.poll(timeout=60)).is_empty():
    if event.name == "submit":
        # Jobs of others may have anything there.
        user = event.jobspec["attributes"].get("user")
        tag = user.get("ensemble") if isinstance(user, dict) else None
        tag = tag if isinstance(tag, dict) else {}
        if tag.get("name") == sys.argv[1]:
            jobs[event.jobid] = {"id": int(event.jobid), "tag": tag, "events": []}
    if event.jobid in jobs:
        jobs[event.jobid]["events"].append(
            {"name": event.name, "timestamp": event.timestamp, "context": event.context}
        )
print(json.dumps(list(jobs.values())))
