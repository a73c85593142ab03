"""A service that went away while somebody read a log of it, and is waited for.

The service goes on with its ensembles when it is started again, and sends a log as it was
before. So whoever reads one looks for the service at intervals (`Outage`), asks for the log
once more, and takes what is new (`Received`). Used by `client` and by the commands.
"""

from __future__ import annotations

import errno
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

#: What a request fails with while the service is not there: it died, it is not loaded, it
#: was removed, or it has only begun.
AWAY = frozenset({errno.EHOSTUNREACH, errno.ENOSYS, errno.ESHUTDOWN, errno.EAGAIN, errno.ETIMEDOUT})

#: Seconds to wait for a service that went away, in all.
PATIENCE = 60.0

#: Seconds between two looks for it: at first, at most, and the growth.
FIRST_PAUSE, LAST_PAUSE, GROWTH = 0.1, 2.0, 1.5

#: Seconds that a look for it takes at most; the service itself waits 5 s for others.
LOOK_TIMEOUT = 10.0

#: Seconds between two looks whether it is still the same one. The requests of a service that
#: was a client of the broker (`flux ensemble serve`) get no error when it dies.
LOOK_INTERVAL = 5.0

#: How many of the entries that were received are known again, as many as the service holds.
KEPT_MARKS = 10_000


class Received:
    """What was received of one log, so that nothing is taken twice after an outage.

    The service sends a log again from its beginning, without the first `count` entries if
    it is asked to. That is not all of them where the log had been cut short before it was
    read, so entries are also compared.

    Attributes:
        count: how many entries were received.

    >>> received = Received()
    >>> received.take({"timestamp": 1.0, "name": "start", "context": {}})
    True
    >>> received.begin_again()
    >>> received.take({"timestamp": 1.0, "name": "start", "context": {}})
    False
    """

    def __init__(self) -> None:
        self.count = 0
        self._marks: deque[int] = deque(maxlen=KEPT_MARKS)
        self._before: frozenset[int] = frozenset()

    def begin_again(self) -> None:
        """The log is about to be sent again."""
        self._before = frozenset(self._marks)

    def waits_after(self, error: OSError) -> bool:
        """The log was being read, and this error says that it can be read again later."""
        return self.count > 0 and error.errno in AWAY

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Take an entry; False if it was received before."""
        if entry["name"] == "job-event":
            return True  # not kept by the service, so not sent again
        mark = hash(json.dumps(entry, sort_keys=True))
        if mark in self._before:
            return False
        self._marks.append(mark)
        self.count += 1
        return True


class Outage:
    """A service that went away: when to look for it again, and when to give up.

    >>> outage = Outage()
    >>> [outage.next_pause() for _ in range(2)]
    [0.1, 0.15000000000000002]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline = clock() + PATIENCE
        self._pause = FIRST_PAUSE

    def next_pause(self) -> float | None:
        """Seconds until the next look; None to give up."""
        if self._clock() >= self._deadline:
            return None
        pause, self._pause = self._pause, min(self._pause * GROWTH, LAST_PAUSE)
        return pause
