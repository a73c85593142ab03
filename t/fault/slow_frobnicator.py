"""A frobnicator of job-ingest that takes its time, as one does that asks a database.

With it hundreds of submissions of a service that was killed are still on their way when the
next one has recovered: what a fence is for. While there is a file HOLD in the instance's
directory for temporary files, none of them gets any further.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from flux.job.frobnicator import FrobnicatorPlugin

HOLD = "hold"

_SECONDS = 0.01


class Frobnicator(FrobnicatorPlugin):
    """Changes nothing of any job."""

    def __init__(self, parser: object) -> None:
        """Nothing to configure."""

    def frob(self, jobspec: Any, userid: int, urgency: int, flags: int) -> None:
        """Take a look at a job."""
        hold = Path(tempfile.gettempdir(), HOLD)
        while True:
            time.sleep(_SECONDS)
            if not hold.exists():
                return
