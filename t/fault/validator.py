"""A validator of job-ingest that takes its time, as one does that asks a database.

With it hundreds of submissions of a service that was killed are still on their way when the
next one has recovered: what a fence is for.
"""

import time

from flux.job.validator import ValidatorPlugin

_SECONDS = 0.01


class Validator(ValidatorPlugin):
    """Finds nothing wrong with any job."""

    def __init__(self, parser: object) -> None:
        """Nothing to configure."""

    def validate(self, args: object) -> None:
        """Accept a job."""
        time.sleep(_SECONDS)
