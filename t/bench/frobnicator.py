"""A frobnicator of job-ingest that makes every job a mock job, which runs no process.

For programs whose jobs cannot ask for that themselves.
"""

from __future__ import annotations

from typing import Any

from flux.job.frobnicator import FrobnicatorPlugin


class Frobnicator(FrobnicatorPlugin):
    """Sets the attribute of mock execution."""

    def __init__(self, parser: object) -> None:
        """Nothing to configure."""

    def frob(self, jobspec: Any, userid: int, urgency: int, flags: int) -> None:
        """Change a jobspec."""
        jobspec.setattr("system.exec.test.run_duration", "0.001s")
