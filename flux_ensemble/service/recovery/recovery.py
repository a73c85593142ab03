"""How the service comes back: after a crash, and after the job manager was gone.

    KVS ──restore──► ensembles as they stood ──catch_up──► journal in full ──► fence ──► ready

1. `restore` claims the ensembles, where no other service drives them (`service.claim`), by a
   synced commit of the number of this epoch. The KVS makes commits in the order in which they
   were sent, so all that the service before this one had sent is in it then. What the KVS holds
   of each ensemble is replayed (`runtime.durability.replay`).
2. `catch_up` reads the journal in full and tells the engines what happened (`catchup`).
3. A fence makes sure that every job which was ever sent has shown. Then the commands without
   an outcome are performed again; of submissions only what has not shown.

When the job manager ends its journal, steps 2 and 3 are done again as soon as it is back.
Nothing here raises: an ensemble that cannot be restored is left in the KVS, and said to be
`unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from flux_ensemble import __version__
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.commands import Effect
from flux_ensemble.faults import ENDINGS
from flux_ensemble.queues.flux.journal import Journal
from flux_ensemble.queues.flux.steps import Resume, Step, Steps, run
from flux_ensemble.runtime.durability.batches import identity
from flux_ensemble.runtime.durability.replay import Replayed, count_events, replay, replaying
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import FLEET_EVENTS, Loop, Marker
from flux_ensemble.service.recovery.catchup import CatchUp
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.store.errors import why_unreadable
from flux_ensemble.service.tracker import Tracker

#: Seconds until the journal, or a fence, is tried again: the first time, and at most.
RETRY_SECONDS = 0.1
RETRY_LIMIT = 2.0

#: Makes an ensemble of what it was loaded with, the store of its log, and what reads that; at once,
#: or in steps.
Make = Callable[[Mapping[str, Any], Any, "Reading"], Ensemble | Generator[None, None, Ensemble]]


class Stores(Protocol):
    """Where the logs are: see `service.store.kvs.KvsStores`."""

    def names(self) -> Iterable[str]: ...

    def read(self, name: str) -> Any: ...


class Queue(Protocol):
    """What fences are for: see `queues.flux.queue.FluxQueue`."""

    def fence(self, done: Callable[[Exception | None], None]) -> None: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def newest(self, done: Callable[[int | Exception], None]) -> None: ...

    def eventlog(self, job: int, done: Callable[[list[Any] | Exception], None]) -> None: ...


class Fleets(Protocol):
    """The members of ensembles: see `service.fleets.Fleets`."""

    @property
    def needed(self) -> bool: ...

    @property
    def busy(self) -> bool: ...

    def history(
        self, job: int, jobspec: Mapping[str, Any], entries: list[Mapping[str, Any]]
    ) -> None: ...

    def caught_up(self) -> None: ...

    def settle(self) -> None: ...


class Reading:
    """Reads the log of an ensemble, at once or in steps.

    Args:
        recovery: is told how far that is.
        name: of the ensemble.
        stored: what the KVS has of it.
    """

    def __init__(self, recovery: Recovery, name: str, stored: Any) -> None:
        self._recovery = recovery
        self._name = name
        self._stored = stored

    def __call__(self, spec: Spec) -> Replayed:
        """Read it at once."""
        return replay(*self._what(spec))

    def _what(self, spec: Spec) -> tuple[Any, ...]:
        stored, run = self._stored, self._stored.load["run"]
        whose, mark = identity(spec.name, run), self._recovery.mark(spec.name, run)
        return spec, whose, stored.snapshot, stored.values, stored.lines, mark

    def steps(self, spec: Spec) -> Generator[None, None, Replayed]:
        """Read it in steps."""
        spec, whose, snapshot, values, lines, mark = self._what(spec)
        lines, after = list(lines), 0 if snapshot is None else snapshot.get("number", 0)
        total, done = count_events(lines, after), 0
        steps = replaying(spec, whose, snapshot, values, lines, mark)
        while True:
            self._recovery.coming[self._name] = f"{done:,} of {total:,} events"
            yield
            try:
                done += next(steps)
            except StopIteration as end:
                replayed: Replayed = end.value
                return replayed


class Recovery:
    """Brings ensembles back.

    Args:
        claim: claims the ensembles for this service, and gives the epoch.
        mark: makes what notes the events of an ensemble (name, run) while they are replayed.
        stores: the KVS.
        journal: events of jobs.
        tracker: hands them to ensembles.
        ensembles: those there are.
        queue: makes fences.
        loop: for timers and the time.
        log_error: writes a line to the service's log.
        fleets: find the members again that ensembles have.

    Attributes:
        epoch: how many services have begun in this instance.
        ready: the journal is being read, and nothing is left to be caught up with.
        unreadable: why an ensemble could not be restored, by name.
        coming: the ensembles that are still to be restored, by name, with how far that is.
    """

    def __init__(
        self,
        claim: Callable[[], int],
        mark: Callable[[str, int], Marker],
        stores: Stores,
        journal: Journal,
        tracker: Tracker,
        ensembles: Ensembles,
        queue: Queue,
        loop: Loop,
        log_error: Callable[[str], None],
        fleets: Fleets,
    ) -> None:
        self._claim = claim
        self.mark = mark
        self._stores = stores
        self._journal = journal
        self._tracker = tracker
        self._ensembles = ensembles
        self._queue = queue
        self._loop = loop
        self._log_error = log_error
        self._fleets = fleets
        self._catch_up: CatchUp | None = None
        self.epoch = 0
        self.ready = False
        self.unreadable = ensembles.unreadable
        self.coming = ensembles.coming
        self._restored: list[tuple[Ensemble, list[Effect]]] = []
        self._then: Callable[[], None] = lambda: None
        self._attempts = 0
        self._blind = True

    def restore(self, make: Make) -> None:
        """Claim what the KVS holds, and bring it back; `make` raises where it cannot."""
        for _ in self.restoring(make):
            pass

    def restoring(self, make: Make) -> Iterator[None]:
        """As `restore`, in steps, between which the service does other things."""
        self.epoch = self._claim()
        restored: list[Ensemble] = []
        names = list(self._stores.names())
        self.coming.update(dict.fromkeys(names, "it waits for its turn"))
        for name in names:
            try:
                stored = self._stores.read(name)
                made = make(stored.load, stored.store, Reading(self, name, stored))
                restored.append((yield from made) if isinstance(made, Generator) else made)
            except ENDINGS:
                raise
            except BaseException as error:
                self.unreadable[name] = why_unreadable(error)
                self._log_error(
                    f"cannot restore ensemble {name!r}: {self.unreadable[name]}; "
                    f"its log stays in the KVS, at ensemble.{name}"
                )
            yield
        for ensemble in sorted(restored, key=lambda ensemble: ensemble.run):
            self._ensembles.add(ensemble)
            if ensemble.live:
                self._restored.append((ensemble, ensemble.engine.pending))
        self.coming.clear()

    @property
    def behind(self) -> Mapping[str, str]:
        """The ensembles that have not taken in yet what their jobs did meanwhile: how far it is."""
        return {} if self.ready or self._catch_up is None else self._catch_up.behind

    def catch_up(self, then: Callable[[], None]) -> None:
        """Read the journal in full; `then` is called when the service is ready."""
        self.ready = False
        self._then = then
        self._queue.suspend()
        live = [ensemble for ensemble in self._ensembles if ensemble.live]
        if not live and not self._fleets.needed:
            self._blind = False
            self._done()
            return
        names = frozenset[str]().union(*(ensemble.needs[0] for ensemble in live))
        if self._fleets.needed:
            names |= FLEET_EVENTS
        queue_wide = any(ensemble.needs[1] for ensemble in live)
        self._tracker.learning |= queue_wide
        catch_up = self._catch_up = CatchUp(self._tracker, live)
        self._journal.catch_up(
            names,
            queue_wide,
            partial(self._history, catch_up),
            partial(self._caught_up, catch_up),
            places=any(ensemble.needs_places for ensemble in live),
        )

    def _history(
        self,
        catch_up: CatchUp,
        job: int,
        jobspec: Mapping[str, Any],
        entries: list[Mapping[str, Any]],
    ) -> None:
        catch_up.history(job, jobspec, entries)
        self._fleets.history(job, jobspec, entries)

    def lost(self) -> None:
        """The journal has ended: try again, a little later."""
        self.ready = False
        self._blind = True
        self._queue.suspend()
        self._loop.timer(self._delay(), lambda: self.catch_up(self._then))

    def _delay(self) -> float:
        self._attempts += 1
        return float(min(RETRY_SECONDS * 2 ** (self._attempts - 1), RETRY_LIMIT))

    def _caught_up(self, catch_up: CatchUp) -> None:
        self._blind = False
        # What comes meanwhile happened later.
        self._journal.hold()
        run(self._take(catch_up), over=partial(self._overtaken, catch_up))

    def _take(self, catch_up: CatchUp) -> Steps:
        """Take in what the journal has told, and what the KVS tells better."""
        yield from catch_up.read_memos(
            lambda job: partial(self._queue.eventlog, job), self._log_error
        )
        yield from self._in_turns(catch_up.applying())
        self._fleets.caught_up()
        self._queue.resume()
        run(self._settle(catch_up), over=partial(self._overtaken, catch_up))
        self._journal.release()

    def _in_turns(self, steps: Generator[None, None, Any]) -> Generator[Step, Any, Any]:
        """Perform steps, between which other things have their turn."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield self._turn

    def _turn(self, resume: Resume) -> None:
        self._loop.timer(0.0, partial(resume, None))

    def _settle(self, catch_up: CatchUp) -> Steps:
        """Make sure which jobs were submitted; not if the journal ends: then all begins again."""
        while True:
            try:
                yield self._queue.fence
                newest = yield self._queue.newest
                break
            except Exception as error:
                self._log_error(
                    f"cannot make sure which jobs were submitted: {error}; trying again"
                )
            yield self._pause
        purged = yield from self._in_turns(catch_up.settling(self._loop.now(), newest))
        self._done(purged)

    def _overtaken(self, catch_up: CatchUp) -> bool:
        """The journal has ended meanwhile, so that all is done again."""
        return self._blind or catch_up is not self._catch_up

    def _pause(self, resume: Resume) -> None:
        self._loop.timer(self._delay(), partial(resume, None))

    def _done(self, purged: bool = False) -> None:
        self._attempts = 0
        self._queue.resume()
        self.ready = True
        self._fleets.settle()
        restored, self._restored = self._restored, []
        for ensemble, unfinished in restored:
            try:
                ensemble.note("epoch", {"epoch": self.epoch, "version": __version__}, sync=True)
                ensemble.go_on(unfinished, purged=purged)
            except ENDINGS:
                raise
            except BaseException as error:
                ensemble.broken(error)
        self._then()
