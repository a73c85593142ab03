"""Jobs on their way to job-ingest.

Jobs are signed here: without flux-security, `flux_job_submit` leaks the memory of each jobspec that
it signs (flux-core 0.88, `src/common/libjob/submit.c`), and a service lives long.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from functools import cache, partial
from typing import Any

from flux.constants import FLUX_JOB_NOVALIDATE, FLUX_JOB_PRE_SIGNED
from flux.core.handle import Flux
from flux.core.inner import ffi, lib

from flux_ensemble.queues.flux.delivery import Answer
from flux_ensemble.queues.flux.futures import Futures, error
from flux_ensemble.queues.flux.inbox import Inbox
from flux_ensemble.runtime.ports import Loop

#: Seconds after which a response is no longer awaited. Long before that `queues.flux.delivery` has
#: found out the outcome of the job.
LOST_SECONDS = 600.0


def signed(jobspec: str) -> bytes:
    """Sign a jobspec as the owner of the instance does: see RFC 15, mechanism `none`."""
    return b"%b.%b.none" % (_header(), b2a_base64(jobspec.encode(), newline=False))


@cache
def _header() -> bytes:
    header = f"version\0i1\0mechanism\0snone\0userid\0i{os.getuid()}\0"
    return b2a_base64(header.encode(), newline=False)


class Submissions:
    """The requests to submit a job that have no response yet.

    Args:
        handle: Flux handle.
        inbox: the queue through which the answers go.
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
            answer: receives its id, or an OSError; it is not called if no response comes.
            validate: the validators of job-ingest are to check the job.

        Raises:
            OSError: the request cannot be sent; there will be no answer.
        """
        flags = FLUX_JOB_PRE_SIGNED | (0 if validate else FLUX_JOB_NOVALIDATE)
        future = lib.flux_job_submit(self._handle.handle, signed(text), urgency, flags)
        self._futures.add(future, partial(self._come, answer))

    def _come(self, answer: Answer, future: Any) -> None:
        """Pass the response on."""
        if lib.flux_job_submit_get_id(future, self._id) == 0:
            self._inbox.put(answer, int(self._id[0]))
        else:
            number = ffi.errno
            self._inbox.put(answer, error(number, lib.flux_future_error_string(future)))
