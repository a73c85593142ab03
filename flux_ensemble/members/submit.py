"""Jobs on their way to job-ingest, by Flux's C functions alone.

A burst is thousands of these at once. The bindings make several objects for each, and one more
to look at its response; that takes as long as everything else that is done for a job.

There is no limit of time: a future that has timed out gives its matchtag back (flux-core
`src/common/libflux/rpc.c`), and a response that comes after all would be taken for that of
whatever job got the matchtag next. `members.outcomes` looks after those that are late.
"""

from __future__ import annotations

import os
import time
from typing import Any

from flux.core.handle import Flux
from flux.core.inner import ffi, lib

from flux_ensemble.members.inbox import Inbox
from flux_ensemble.members.outcomes import Answer

#: Seconds after which a response is not waited for any more. It can still come: destroying the
#: future keeps its matchtag until then.
LOST_SECONDS = 600.0


@ffi.callback("void(flux_future_t *, void *)")
def _came(_future: Any, submission: Any) -> None:
    ffi.from_handle(submission).come()


class Submissions:
    """The requests to submit a job that have no response yet.

    Args:
        handle: Flux handle.
        inbox: what the answers go through.
    """

    def __init__(self, handle: Flux, inbox: Inbox) -> None:
        self._handle = handle
        self._inbox = inbox
        self._id = ffi.new("flux_jobid_t *")
        #: Oldest first. Flux has pointers to them.
        self._open: dict[_Submission, None] = {}

    def send(self, text: str, urgency: int, answer: Answer) -> None:
        """Submit a job.

        Args:
            text: its jobspec, encoded.
            urgency: 0 holds it.
            answer: gets its id, or an OSError; not if no response comes.

        Raises:
            OSError: it cannot be sent; there will be no answer.
        """
        now = time.monotonic()
        self._forget(now - LOST_SECONDS)
        future = lib.flux_job_submit(self._handle.handle, text.encode(), urgency, 0)
        if future == ffi.NULL:
            raise _error(ffi.errno)
        submission = _Submission(self, future, now, answer)
        self._open[submission] = None
        if lib.flux_future_then(future, -1.0, _came, submission.pointer) < 0:
            number = ffi.errno
            self._end(submission)
            raise _error(number)

    def come(self, submission: _Submission) -> None:
        """The response to one has come."""
        answer: int | OSError
        if lib.flux_job_submit_get_id(submission.future, self._id) == 0:
            answer = int(self._id[0])
        else:
            number = ffi.errno
            answer = _error(number, lib.flux_future_error_string(submission.future))
        self._end(submission)
        self._inbox.put(submission.answer, answer)

    def _end(self, submission: _Submission) -> None:
        del self._open[submission]
        lib.flux_future_destroy(submission.future)

    def _forget(self, t: float) -> None:
        """Forget those that were sent before a time."""
        while self._open and (oldest := next(iter(self._open))).t < t:
            self._end(oldest)


class _Submission:
    """One of them.

    Attributes:
        future: Flux's.
        t: when it was sent, in seconds of the monotonic clock.
        answer: gets the answer.
        pointer: to this.
    """

    __slots__ = ("__weakref__", "_all", "answer", "future", "pointer", "t")

    def __init__(self, all: Submissions, future: Any, t: float, answer: Any) -> None:
        self._all = all
        self.future = future
        self.t = t
        self.answer = answer
        self.pointer = ffi.new_handle(self)

    def come(self) -> None:
        """The response has come."""
        self._all.come(self)


def _error(number: int, text: Any = ffi.NULL) -> OSError:
    """The error of an errno, with Flux's own sentence if there is one."""
    if text == ffi.NULL:
        return OSError(number, os.strerror(number))
    return OSError(number, ffi.string(text).decode(errors="replace"))
