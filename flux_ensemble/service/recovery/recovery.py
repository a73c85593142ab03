"""Recovery of the service: after a crash, and after a loss of the job manager.

    KVS ──restore──► ensembles as they stood ──catch_up──► journal in full ──► fence ──► ready

1. `restore` claims the ensembles, unless another service drives them (`service.claim`), by a synced
   commit of the number of this epoch. The KVS applies commits in the order in which they were sent,
   so it then has everything that the previous service had sent. For each ensemble, the contents
   of the KVS are replayed (`runtime.durability.replay`).
2. `catch_up` reads the journal in full and posts the new events to the engines (`catchup`).
3. A fence makes sure that every job which was ever sent is in the journal. Then the commands
   without an outcome are performed again; of submissions, only the jobs that are missing.

When the job manager ends its journal, steps 2 and 3 are repeated once it is back. No exception
leaves this module: an ensemble that cannot be restored stays in the KVS, and is reported as
`unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from flux_ensemble import __version__, eventlog
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
from flux_ensemble.service.recovery.ended_file import NOTHING_NOTED, Ended
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.store.errors import why_unreadable
from flux_ensemble.service.tracker import Tracker

#: Seconds until the journal, or a fence, is tried again: the first time, and at most.
RETRY_SECONDS = 0.1
RETRY_LIMIT = 2.0

#: Makes an ensemble, at once or in steps, from the payload of its load request, the store of its
#: log, and the reader of the log.
Make = Callable[[Mapping[str, Any], Any, "Reading"], Ensemble | Generator[None, None, Ensemble]]


class Stores(Protocol):
    """The stores of the logs: see `service.store.kvs.KvsStores`."""

    def names(self) -> Iterable[str]: ...

    def read(self, name: str) -> Any: ...


class Queue(Protocol):
    """The queue, as far as fences need it: see `queues.flux.queue.FluxQueue`."""

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
        recovery: receives the progress.
        name: of the ensemble.
        stored: contents of the KVS for it.
    """

    def __init__(self, recovery: Recovery, name: str, stored: Any) -> None:
        self._recovery = recovery
        self._name = name
        self._stored = stored

    def __call__(self, spec: Spec) -> Replayed:
        """Read the log at once."""
        return replay(*self._what(spec))

    def _what(self, spec: Spec) -> tuple[Any, ...]:
        stored, run = self._stored, self._stored.load["run"]
        whose, mark = identity(spec.name, run), self._recovery.mark(spec.name, run)
        return spec, whose, stored.snapshot, stored.values, stored.lines, mark

    def steps(self, spec: Spec) -> Generator[None, None, Replayed]:
        """Read the log in steps."""
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
    """Restores ensembles.

    Args:
        claim: claims the ensembles for this service, and returns the epoch.
        mark: makes the mark for the events of an ensemble (name, run) while they are replayed.
        stores: the KVS.
        journal: events of jobs.
        tracker: distributes the events to ensembles.
        ensembles: all ensembles.
        queue: makes fences.
        loop: for timers and the time.
        log_error: writes a line to the service's log.
        fleets: find the members of ensembles again.
        t_instance: when the Flux instance began; None if that is unknown.
        ended: what an earlier instance noted of the jobs that had ended.

    Attributes:
        epoch: number of services that have begun in this instance.
        ready: the journal is being read, and the ensembles have caught up with it.
        unreadable: why an ensemble could not be restored, by name.
        coming: progress of the ensembles that are still to be restored, by name.
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
        t_instance: float | None = None,
        ended: Mapping[str, Ended] = NOTHING_NOTED,
    ) -> None:
        self._claim = claim
        self._ended = ended
        self.mark = mark
        self._stores = stores
        self._journal = journal
        self._tracker = tracker
        self._ensembles = ensembles
        self._queue = queue
        self._loop = loop
        self._log_error = log_error
        self._fleets = fleets
        self._t_instance = t_instance
        self._catch_up: CatchUp | None = None
        self.epoch = 0
        self.ready = False
        self.unreadable = ensembles.unreadable
        self.coming = ensembles.coming
        #: The live ensembles: with their commands without an outcome, and the engine's time.
        self._restored: list[tuple[Ensemble, list[Effect], float]] = []
        self._then: Callable[[], None] = lambda: None
        self._attempts = 0
        self._blind = True

    def restore(self, make: Make) -> None:
        """Claim and restore the ensembles in the KVS; `make` raises if one cannot be restored."""
        for _ in self.restoring(make):
            pass

    def restoring(self, make: Make) -> Iterator[None]:
        """Do as `restore`, in steps, between which the service can do other work."""
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
                t = ensemble.engine.t
                self._restored.append((ensemble, ensemble.engine.pending, t))
                ensemble.absent = self._away(t)
        self.coming.clear()

    @property
    def behind(self) -> Mapping[str, str]:
        """Progress of the ensembles that have not handled the new events of their jobs, by name."""
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
        catch_up = self._catch_up = CatchUp(
            self._tracker, live, t_instance=self._t_instance, ended=self._ended
        )
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
        """Try again a little later, because the journal has ended."""
        self.ready = False
        self._blind = True
        self._queue.suspend()
        self._loop.timer(self._delay(), lambda: self.catch_up(self._then))

    def _delay(self) -> float:
        self._attempts += 1
        return float(min(RETRY_SECONDS * 2 ** (self._attempts - 1), RETRY_LIMIT))

    def _caught_up(self, catch_up: CatchUp) -> None:
        self._blind = False
        # Live entries that arrive meanwhile are about later events.
        self._journal.hold()
        run(self._take(catch_up), over=partial(self._overtaken, catch_up))

    def _take(self, catch_up: CatchUp) -> Steps:
        """Process the history of the journal, and the memos that the KVS has right."""
        yield from catch_up.read_memos(
            lambda job: partial(self._queue.eventlog, job), self._log_error
        )
        yield from self._in_turns(catch_up.applying())
        self._fleets.caught_up()
        self._queue.resume()
        run(self._settle(catch_up), over=partial(self._overtaken, catch_up))
        self._journal.release()

    def _in_turns(self, steps: Generator[None, None, Any]) -> Generator[Step, Any, Any]:
        """Perform steps, between which other work has its turn."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield self._turn

    def _turn(self, resume: Resume) -> None:
        self._loop.timer(0.0, partial(resume, None))

    def _settle(self, catch_up: CatchUp) -> Steps:
        """Find which jobs were submitted.

        Given up if the journal ends, since all is repeated then.
        """
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
        """Return True if the journal has ended meanwhile, so that all is repeated."""
        return self._blind or catch_up is not self._catch_up

    def _pause(self, resume: Resume) -> None:
        self._loop.timer(self._delay(), partial(resume, None))

    def _done(self, purged: bool = False) -> None:
        self._attempts = 0
        self._queue.resume()
        self.ready = True
        self._fleets.settle()
        restored, self._restored = self._restored, []
        for ensemble, unfinished, t in restored:
            try:
                ensemble.note(self._epoch(ensemble, t), sync=True)
                ensemble.go_on(unfinished, purged=purged)
            except ENDINGS:
                raise
            except BaseException as error:
                ensemble.broken(error)
        self._then()

    def _epoch(self, ensemble: Ensemble, t: float) -> eventlog.Epoch:
        """Return the entry of a service that goes on with an ensemble, restored as at time `t`."""
        entry = partial(eventlog.Epoch, epoch=self.epoch, version=__version__)
        absence = ensemble.engine.workload.absences.latest
        if absence is None or absence.until <= t:
            return entry()
        ago = max(0.0, self._loop.now() - absence.until)
        if absence.ended is None:
            return entry(away=absence.until - absence.since, ago=ago)
        away = absence.until - absence.ended
        return entry(away=away, ago=ago, undone=absence.undone, since=absence.since)

    def _away(self, t: float) -> float:
        """Return for how long there was no instance, since a time at which there was one."""
        begun = self._t_instance
        return 0.0 if begun is None or not 0 < t < begun else begun - t
