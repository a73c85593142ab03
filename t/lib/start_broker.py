"""Run by `flux python`: have `flux start` start the broker of a rank, as a site's command would.

    start_broker.py RANK

A broker that is about to end is waited for; one that goes on is left to run.
"""

from __future__ import annotations

import os
import sys
import time

import flux

rank = int(sys.argv[1])
start = flux.Flux(os.environ["FLUX_START_URI"])
for _ in range(50):
    if start.rpc("start.status").get()["procs"][rank]["pid"] == -1:
        start.rpc("start.run", {"rank": rank}).get()
        break
    # Not start.wait: whoever waited before, and was killed, still does for flux start.
    time.sleep(0.1)
