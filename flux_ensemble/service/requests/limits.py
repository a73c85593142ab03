"""How much the service takes on: sizes and rates of requests, followers, ensembles.

Requests within these bounds cannot fill the service's memory, nor keep it from the
journal. The owner's are wide, and are there for a script that has gone wrong; those of
guests, who are other people, are narrow. `document.yaml_reader` bounds the documents themselves.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable

from flux_ensemble.engine.errors import RequestError

#: Bytes of a request's payload: a document of the largest size as JSON text, and an
#: environment.
MAX_PAYLOAD = 16 * 1024 * 1024

#: Bytes of a guest's: they have no more to say than a name.
MAX_GUEST_PAYLOAD = 4096

#: Requests that wait for their response.
MAX_WAITING = 10_000

#: Those who follow logs, of all ensembles together.
MAX_FOLLOWERS = 1000

#: Ensembles that have not ended.
MAX_ENSEMBLES = 1000

#: Requests of one guest, and of all guests: how many at once, and then a second.
GUEST_BURST, GUEST_RATE = 20, 5.0
GUESTS_BURST, GUESTS_RATE = 100, 25.0

#: Guests who are told apart; one who has not asked for long is forgotten.
MAX_GUESTS = 1000


class Bucket:
    """A token bucket: so many at once, and then so many a second.

    Args:
        burst: tokens that it holds, and begins with.
        rate: tokens that come in a second.
        t: the time, in seconds of any clock.
    """

    def __init__(self, burst: int, rate: float, t: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = float(burst)
        self._t = t

    def take(self, t: float) -> bool:
        """Take a token, if there is one."""
        self._tokens = min(self._burst, self._tokens + max(0.0, t - self._t) * self._rate)
        self._t = t
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Bounds:
    """Decides whether a request is taken on.

    Args:
        clock: the time in seconds, which does not go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._guests = Bucket(GUESTS_BURST, GUESTS_RATE, clock())
        self._guest: OrderedDict[int, Bucket] = OrderedDict()

    def owner(self, method: str, size: int, waiting: int) -> None:
        """Take on a request of the owner.

        Args:
            method: what is asked for.
            size: of the payload, in bytes.
            waiting: how many requests wait for their response.

        Raises:
            RequestError: EINVAL, it is too large; EAGAIN, too many are waiting.
        """
        self._check_size(method, size, MAX_PAYLOAD)
        self._check_waiting(waiting)

    def guest(self, method: str, size: int, waiting: int, userid: int) -> None:
        """Take on a request of a guest.

        Args:
            method, size, waiting: as for `owner`.
            userid: of the guest.

        Raises:
            RequestError: EINVAL, it is too large; EAGAIN, too many are waiting, or they
                come too fast.
        """
        now = self._clock()
        bucket = self._guest.pop(userid, None) or Bucket(GUEST_BURST, GUEST_RATE, now)
        self._guest[userid] = bucket
        if len(self._guest) > MAX_GUESTS:
            self._guest.popitem(last=False)
        # The guest's own first, so that one who asks all the time does not use up what
        # there is for all.
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
    """Take on one more who follows a log.

    Raises:
        RequestError: EAGAIN; there are enough.
    """
    if followers >= MAX_FOLLOWERS:
        raise RequestError(
            errno.EAGAIN,
            f"{followers} requests follow logs already: end some of them, or read the log "
            "without 'follow'",
        )


def check_ensembles(live: int) -> None:
    """Take on one more ensemble.

    Raises:
        RequestError: EAGAIN; there are enough.
    """
    if live >= MAX_ENSEMBLES:
        raise RequestError(
            errno.EAGAIN,
            f"{live} ensembles are loaded that have not ended: load this one when some of them "
            "have",
        )
