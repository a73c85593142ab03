"""Stop the supervision of the ensemble service before the modules are removed.

Run by flux-modprobe(1) as part of rc3, in Flux's Python. Otherwise the module would be
loaded once more while the instance ends. See `flux_ensemble/deploy/supervision.py`; as a copy of
this file does not know where that is, the little that is needed of it stands here.
"""

import contextlib

from flux.modprobe import task


@task("release-ensemble", ranks="0", before=["*"])
def release_ensemble(context):
    """Delete the entry of the cron service; without it there is nothing to do."""
    with contextlib.suppress(OSError):
        for entry in context.rpc("cron.list", {}).get()["entries"]:
            if entry["name"] == "ensemble":
                context.rpc("cron.delete", {"id": entry["id"]}).get()
