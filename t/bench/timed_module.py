"""The broker module, and when it had what: `flux module load timed_module.py`.

It is the service as it is, but for two calls, around which the time is noted: when the journal
has brought the finish of a job, and when the request for a job has been handed to Flux. At the
end the notes go to the file of the argument `out=FILE` as a JSON object: `came`, pairs of a
job's id and epoch seconds, and `sent`, pairs of a jobspec's tag and epoch seconds.
"""

import json
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from flux_ensemble.modules import ensemble


def mod_main(handle: Any, *args: str) -> None:
    """Entry point for Flux's module loader."""
    out = next(arg for arg in args if arg.startswith("out="))
    rest = tuple(arg for arg in args if arg != out)
    ensemble.add_to_path(ensemble.parse(rest)[0])
    from flux_ensemble.queues.flux.queue import FluxQueue
    from flux_ensemble.service.tracker import Tracker

    came: list[tuple[int, float]] = []
    sent: list[tuple[str, float]] = []
    event, send = Tracker.event, FluxQueue.send

    def timed_event(tracker: Any, job: int, entry: Any, jobspec: Any) -> None:
        if entry["name"] == "finish":
            came.append((job, time.time()))
        event(tracker, job, entry, jobspec)

    def timed_send(queue: Any, text: str, *more: Any, **named: Any) -> None:
        send(queue, text, *more, **named)
        sent.append((text, time.time()))

    Tracker.event = timed_event  # type: ignore[assignment, method-assign]
    FluxQueue.send = timed_send  # type: ignore[assignment, method-assign]
    ensemble.mod_main(handle, *rest)
    tags = [(json.loads(text)["attributes"]["user"]["ensemble"], t) for text, t in sent]
    file = Path(urllib.parse.unquote(out.partition("=")[2]))
    file.with_suffix(".new").write_text(json.dumps({"came": came, "sent": tags}))
    file.with_suffix(".new").rename(file)
