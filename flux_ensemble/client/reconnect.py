"""Reading a log while the service goes away and returns.

A restarted service continues its ensembles, and sends the same log again. So a reader polls for the
service (`Outage`), requests the log again, and skips the entries that it has (`Received`). Used by
`client` and the commands.
"""

from __future__ import annotations

import errno
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.eventlog import JobEvent

#: Errors of requests while the service is away: it died, is not loaded, was removed, or is just
#: starting.
AWAY = frozenset({errno.EHOSTUNREACH, errno.ENOSYS, errno.ESHUTDOWN, errno.EAGAIN, errno.ETIMEDOUT})

#: Errors of a request that the service had received, or may have.
DIED = frozenset({errno.EHOSTUNREACH, errno.ETIMEDOUT})

#: Seconds to wait for a service that went away, in total.
PATIENCE = 60.0

#: Seconds between two attempts: the first, the longest, and the growth factor.
FIRST_PAUSE, LAST_PAUSE, GROWTH = 0.1, 2.0, 1.5

#: Timeout of an attempt in seconds; the service itself waits 5 s for others.
LOOK_TIMEOUT = 10.0

#: Seconds between two checks that the service is still the same. If a service outside the broker
#: (`flux ensemble serve`) dies, its requests get no error.
LOOK_INTERVAL = 5.0

#: Number of received entries that are remembered: as many as the service keeps.
KEPT_MARKS = 10_000


class Received:
    """The entries received of one log, so that none is taken twice after an outage.

    The service sends a log from the beginning, and can skip the first `count` entries. If the log
    was cut before it was read, these are the wrong ones, so entries are compared, too.

    Args:
        known: the service is known to have existed, with the ensemble.

    Attributes:
        count: number of entries received.

    >>> received = Received()
    >>> received.take({"timestamp": 1.0, "name": "start", "context": {}})
    True
    >>> received.begin_again()
    >>> received.take({"timestamp": 1.0, "name": "start", "context": {}})
    False
    """

    def __init__(self, known: bool = False) -> None:
        self.count = 0
        self._known = known
        self._marks: deque[int] = deque(maxlen=KEPT_MARKS)
        self._before: frozenset[int] = frozenset()

    def begin_again(self) -> None:
        """Prepare for the log to be sent again."""
        self._before = frozenset(self._marks)

    def waits_after(self, error: OSError) -> bool:
        """Return True if an error means that the service is away, and has existed before."""
        if self.count:
            return error.errno in AWAY
        # EAGAIN means that too many clients read logs already.
        return error.errno in (AWAY - {errno.EAGAIN} if self._known else DIED)

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Take an entry; return False if it was received before."""
        if entry["name"] == JobEvent.tag:
            return True  # not kept by the service, so not sent again
        mark = hash(json.dumps(entry, sort_keys=True))
        if mark in self._before:
            return False
        self._marks.append(mark)
        self.count += 1
        return True


class Outage:
    """An outage of the service: when to try again, and when to give up.

    >>> outage = Outage()
    >>> [outage.next_pause() for _ in range(2)]
    [0.1, 0.15000000000000002]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline = clock() + PATIENCE
        self._pause = FIRST_PAUSE

    def next_pause(self) -> float | None:
        """Return the seconds until the next attempt; None to give up."""
        if self._clock() >= self._deadline:
            return None
        pause, self._pause = self._pause, min(self._pause * GROWTH, LAST_PAUSE)
        return pause
