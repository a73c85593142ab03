"""Limits of the service: sizes and rates of requests, number of followers and ensembles.

Requests within these bounds cannot fill the service's memory, nor keep it from the journal. The
owner's bounds are wide: they protect from a script that has gone wrong. Those of guests, who are
other people, are narrow. `document.yaml_reader` bounds the documents themselves.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable

from flux_ensemble.engine.errors import RequestError

#: Bytes of a request's payload: a document of the largest size as JSON text, and an environment.
MAX_PAYLOAD = 16 * 1024 * 1024

#: Bytes of the payload of a guest's request, which holds little more than a name.
MAX_GUEST_PAYLOAD = 4096

#: Requests that wait for their response.
MAX_WAITING = 10_000

#: Requests that follow logs, of all ensembles together.
MAX_FOLLOWERS = 1000

#: Ensembles that have not ended.
MAX_ENSEMBLES = 1000

#: Requests of one guest, and of all guests: how many at once, and then per second.
GUEST_BURST, GUEST_RATE = 20, 5.0
GUESTS_BURST, GUESTS_RATE = 100, 25.0

#: Guests who are counted individually; the guest whose latest request is oldest is forgotten.
MAX_GUESTS = 1000


class Bucket:
    """A token bucket: a number of tokens at once, and then a number per second.

    Args:
        burst: capacity in tokens, which is also the initial number.
        rate: tokens added per second.
        t: the time, in seconds of any clock.
    """

    def __init__(self, burst: int, rate: float, t: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = float(burst)
        self._t = t

    def take(self, t: float) -> bool:
        """Take a token; return False if there is none."""
        self._tokens = min(self._burst, self._tokens + max(0.0, t - self._t) * self._rate)
        self._t = t
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Bounds:
    """Decides whether a request is accepted.

    Args:
        clock: returns the time in seconds, which never decreases.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._guests = Bucket(GUESTS_BURST, GUESTS_RATE, clock())
        self._guest: OrderedDict[int, Bucket] = OrderedDict()

    def owner(self, method: str, size: int, waiting: int) -> None:
        """Accept a request of the owner.

        Args:
            method: of the request.
            size: of the payload, in bytes.
            waiting: number of requests that wait for their response.

        Raises:
            RequestError: EINVAL, the payload is too large; EAGAIN, too many are waiting.
        """
        self._check_size(method, size, MAX_PAYLOAD)
        self._check_waiting(waiting)

    def guest(self, method: str, size: int, waiting: int, userid: int) -> None:
        """Accept a request of a guest.

        Args:
            method, size, waiting: as for `owner`.
            userid: of the guest.

        Raises:
            RequestError: EINVAL, the payload is too large; EAGAIN, too many requests are waiting,
                or
                they arrive too fast.
        """
        now = self._clock()
        bucket = self._guest.pop(userid, None) or Bucket(GUEST_BURST, GUEST_RATE, now)
        self._guest[userid] = bucket
        if len(self._guest) > MAX_GUESTS:
            self._guest.popitem(last=False)
        # The guest's own bucket first, so that a guest who sends requests all the time does not use
        # up the bucket of all guests.
        if not (bucket.take(now) and self._guests.take(now)):
            raise RequestError(
                errno.EAGAIN,
                f"too many requests of guests: expected at most {GUEST_RATE:g} a second, and "
                f"{GUESTS_RATE:g} of all guests together; ask again later",
            )
        self._check_size(method, size, MAX_GUEST_PAYLOAD)
        self._check_waiting(waiting)

    @staticmethod
    def _check_size(method: str, size: int, most: int) -> None:
        if size > most:
            raise RequestError(
                errno.EINVAL,
                f"ensemble.{method}: expected a payload of at most {most} bytes, not {size}",
            )

    @staticmethod
    def _check_waiting(waiting: int) -> None:
        if waiting >= MAX_WAITING:
            raise RequestError(
                errno.EAGAIN,
                f"too many pending requests ({waiting}); retry later",
            )


def check_followers(followers: int) -> None:
    """Accept one more follower of a log.

    Raises:
        RequestError: EAGAIN; there are too many already.
    """
    if followers >= MAX_FOLLOWERS:
        raise RequestError(
            errno.EAGAIN,
            f"{followers} requests follow logs already: end some of them, or read the log "
            "without 'follow'",
        )


def check_ensembles(live: int) -> None:
    """Accept one more ensemble.

    Raises:
        RequestError: EAGAIN; there are too many already.
    """
    if live >= MAX_ENSEMBLES:
        raise RequestError(
            errno.EAGAIN,
            f"{live} ensembles are loaded that have not ended: load this one when some of them "
            "have",
        )
