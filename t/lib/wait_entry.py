"""Waits for an entry of an ensemble's eventlog: `flux python wait_entry.py NAME ENTRY [COUNT]`.

Ends when the log has COUNT (default 1) entries called ENTRY, and fails when the ensemble
ends before, or after three minutes.
"""

import signal
import sys

import flux

name, entry = sys.argv[1:3]
left = int(sys.argv[3]) if len(sys.argv) > 3 else 1

signal.alarm(180)
stream = flux.Flux().rpc(
    "ensemble.log", {"name": name, "follow": True}, flags=flux.constants.FLUX_RPC_STREAMING
)
while left:
    try:
        left -= stream.get()["name"] == entry
    except OSError as error:
        sys.exit(f"the log of {name!r} ended before {left} more {entry!r}: {error}")
    stream.reset()
