"""Jobs on their way to job-ingest."""

from __future__ import annotations

from functools import partial
from typing import Any

from flux.constants import FLUX_JOB_NOVALIDATE
from flux.core.handle import Flux
from flux.core.inner import ffi, lib

from flux_ensemble.members.flux.delivery import Answer
from flux_ensemble.members.flux.futures import Futures, error
from flux_ensemble.members.flux.inbox import Inbox
from flux_ensemble.runtime.ports import Loop

#: Seconds after which a response is not waited for any more. Long before that
#: `members.flux.delivery` has found out what became of the job.
LOST_SECONDS = 600.0


class Submissions:
    """The requests to submit a job that have no response yet.

    Args:
        handle: Flux handle.
        inbox: what the answers go through.
        loop: for the time.
    """

    def __init__(self, handle: Flux, inbox: Inbox, loop: Loop) -> None:
        self._handle = handle
        self._inbox = inbox
        self._id = ffi.new("flux_jobid_t *")
        self._futures = Futures(loop, LOST_SECONDS)

    def send(self, text: str, urgency: int, answer: Answer, *, validate: bool) -> None:
        """Submit a job.

        Args:
            text: its jobspec, encoded.
            urgency: 0 holds it.
            answer: gets its id, or an OSError; not if no response comes.
            validate: the validators of job-ingest are to look at it.

        Raises:
            OSError: it cannot be sent; there will be no answer.
        """
        flags = 0 if validate else FLUX_JOB_NOVALIDATE
        future = lib.flux_job_submit(self._handle.handle, text.encode(), urgency, flags)
        self._futures.add(future, partial(self._come, answer))

    def _come(self, answer: Answer, future: Any) -> None:
        """The response has come."""
        if lib.flux_job_submit_get_id(future, self._id) == 0:
            self._inbox.put(answer, int(self._id[0]))
        else:
            number = ffi.errno
            self._inbox.put(answer, error(number, lib.flux_future_error_string(future)))
