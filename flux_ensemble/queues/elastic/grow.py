"""Growing a Flux instance (`queues.elastic.scaler`): brokers start, come online, and are used."""

from __future__ import annotations

import errno
from collections.abc import Set

from flux_ensemble.engine.intervals import joined
from flux_ensemble.queues.elastic.ranks import REASON, Ranks, to_grow
from flux_ensemble.queues.elastic.resize import Resize, because
from flux_ensemble.queues.flux.steps import Steps


class Growth:
    """A growing instance: offline brokers are started, and undrained when they are online.

    A rank is drained before its broker is started, unless it is drained already. So a broker
    that comes up after the change has ended is not used until it is requested again.

    Args:
        resize: the change to carry out.
        ranks: their present state.
        limit: seconds that the change may take.

    Raises:
        OSError: the instance cannot grow with these ranks.
    """

    def __init__(self, resize: Resize, ranks: Ranks, limit: float) -> None:
        self._resize = resize
        self._limit = limit
        self._coming = to_grow(ranks, resize.parents, resize.to)
        self._started: set[int] = set()
        self._failed: dict[int, str] = {}
        self._draining = self._undraining = False
        self._in_use = ranks.in_use
        self._online = ranks.online
        resize.timer("limit", limit, self._late)

    def step(self, ranks: Ranks) -> None:
        resize = self._resize
        self._in_use = ranks.in_use
        self._online = ranks.online
        missing = self._coming - ranks.in_use
        if not missing:
            resize.end(len(ranks.in_use))
            return
        taken = missing & ranks.theirs
        if taken:
            raise OSError(
                errno.EBUSY,
                f"{resize.named(taken)} was drained by somebody else meanwhile "
                f"({ranks.drained[min(taken)]!r}); the size is {len(ranks.in_use)}",
            )
        failed = missing & self._failed.keys()
        if missing <= self._lost(ranks):
            raise OSError(
                errno.EIO,
                f"cannot start {resize.named(missing)}: {self._failed[min(failed)]}; "
                f"the size is {len(ranks.in_use)}",
            )
        new = missing - ranks.ours - self._started
        if new and not self._draining:
            self._draining = True
            resize.run(self._drain(new))
        start = (missing & ranks.ours) - self._started
        if not resize.instance.provisioner.together:
            # A broker whose parent is just ending would end with it.
            there = ranks.online - resize.instance.stopping.keys()
            start = frozenset(
                rank for rank in start - ranks.online if resize.parents.get(rank, -1) in there
            )
        if start:
            self._started |= start
            resize.instance.provisioner.start(
                resize.instance, start, ranks.online | self._coming, self._not_started
            )
        # A broker that was told to stop goes offline first, and is started after that.
        back = (missing & ranks.leaving) - resize.instance.stopping.keys()
        if back and not self._undraining:
            self._undraining = True
            resize.run(self._undrain(back))

    def _lost(self, ranks: Ranks) -> Set[int]:
        """Return the missing ranks that will not come up: failed ones, and those below them."""
        # A broker that failed to start may still be online: it was started before.
        lost = self._failed.keys() - ranks.online
        parents = self._resize.parents
        while below := {rank for rank in self._coming - lost if parents.get(rank, -1) in lost}:
            lost |= below
        return lost

    def _drain(self, ranks: Set[int]) -> Steps:
        request = {"targets": joined(ranks), "reason": REASON}
        what = f"drain {self._resize.named(ranks)}"
        yield from self._resize.ask("resource.drain", request, what)
        self._draining = False
        yield from self._resize.look()

    def _undrain(self, ranks: Set[int]) -> Steps:
        # In this mode, a rank that was undrained meanwhile is no error.
        request = {"targets": joined(ranks), "mode": "update"}
        what = f"undrain {self._resize.named(ranks)}"
        yield from self._resize.ask("resource.undrain", request, what)
        self._undraining = False
        yield from self._resize.look()

    def _not_started(self, ranks: Set[int], reason: str) -> None:
        self._failed.update(dict.fromkeys(ranks, reason))
        self._resize.look_again()

    def _late(self) -> None:
        missing = self._coming - self._in_use
        reasons = sorted({self._failed[rank] for rank in missing & self._failed.keys()})
        provisioner = self._resize.instance.provisioner
        self._resize.end(
            OSError(
                errno.ETIMEDOUT,
                f"{self._resize.named(missing)} did not come up within {self._limit:g} s; "
                f"{because(*reasons, provisioner.trouble)}"
                f"the size is {len(self._in_use)}",
            )
        )
        # After the end, which abandons all requests; skipped if a new change has begun already.
        if not self._resize.instance.changing:
            provisioner.withdraw(max(self._online - missing, default=0) + 1)
