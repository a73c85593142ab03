"""The store of the service's ensembles: Flux's KVS.

    ensemble.NAME.load               payload of the load request: JSON
    ensemble.NAME.snapshot           state of the ensemble after one of its batches: JSON
    ensemble.NAME.values.NNNNNNNN    values that its streams took in before a snapshot: JSON
    ensemble.NAME.log.NNNNNNNN       a segment of its log: RFC 18 entries, a line of JSON each

`flux kvs get --raw KEY` prints each of them. A batch of the log
(`runtime.durability.batches.Batch`) is one transaction: either all of it is stored or nothing is.
The KVS applies transactions one after the other, those of one sender in the order in which they
were sent. A job that was sent to job-ingest after a transaction also gets into the KVS after it,
because both pass through one broker, first in, first out.

Segments: a batch is appended to the last segment, which is full after `APPENDS` appends or
`SEGMENT_BYTES` of text. Flux holds appended text as a list of pieces, and writes the list anew at
each append. So a full segment is rewritten as one value in the transaction of the next batch,
unless its pieces are so large that this would cost more than it saves its readers. A snapshot ends
a segment, too, and so does the end of a service, which leaves its last segment as it is.

Pruning: once there is a snapshot, the segments before it are needed by people only. The oldest are
dropped in the snapshot's transaction, as long as the rest hold `runtime.eventlog.KEPT` entries for
people (all lines but the headers of batches). Segments after the last snapshot are never dropped,
nor are values. `KvsStore.remove` drops the whole directory, and a new ensemble of the same name
replaces it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flux.core.handle import Flux

from flux_ensemble.document.keys.forms import ENSEMBLE_NAME, matches
from flux_ensemble.queues.flux.loop import Guard
from flux_ensemble.runtime.durability.batches import BATCH, Batch
from flux_ensemble.runtime.eventlog import KEPT
from flux_ensemble.service.store.errors import damaged
from flux_ensemble.service.store.transactions import Change, Done, Kvs, parse, parse_object

#: Part of a transaction.
_Step = Callable[[Change], None]

#: Limits at which a segment is full.
APPENDS = 100
SEGMENT_BYTES = 256 * 1024

#: Segments whose pieces have at least this average size are not rewritten.
PIECE_BYTES = 4096

ROOT = "ensemble"


class _Segment:
    """The segment that is appended to.

    Attributes:
        entries: number of its lines that are for people.
        pieces: the appended texts.
        size: of the pieces, in characters, which mostly are bytes.
    """

    __slots__ = ("entries", "key", "number", "pieces", "size")

    def __init__(self, name: str, number: int) -> None:
        self.number = number
        self.key = _key(name, "log", number)
        self.entries = 0
        self.pieces: list[str] = []
        self.size = 0

    def append(self, batch: Batch) -> None:
        """Add a batch."""
        self.entries += batch.entries
        self.pieces.append(batch.text)
        self.size += len(batch.text)

    @property
    def full(self) -> bool:
        return len(self.pieces) >= APPENDS or self.size >= SEGMENT_BYTES

    @property
    def scattered(self) -> bool:
        """The segment has many small pieces, so it is worth rewriting as one value."""
        return len(self.pieces) > 1 and self.size < PIECE_BYTES * len(self.pieces)


class KvsStore:
    """The durable log of one ensemble: a `runtime.durability.wal.Store`, made by `KvsStores`.

    The changes of a batch are decided when it is first given. A batch is given again while it is
    not known to be durable. It then writes the same values to the same keys; only its text may be
    in its segment several times until that is rewritten. A store whose ensemble has been removed,
    or replaced by another of its name, keeps nothing more.

    Attributes:
        name: of the ensemble, in the key.
    """

    def __init__(self, stores: KvsStores, name: str, load: str | None = None) -> None:
        self._stores = stores
        self.name = name
        # Stored with the first batch, so that there is never an ensemble without its log, or with
        # the log of an earlier ensemble of its name.
        self._load = load
        self._segment = _Segment(name, 0)
        # The earlier segments with their entries, and the last of them while it has yet to be
        # rewritten.
        self._older: list[tuple[int, int]] = []
        self._rewrite: _Segment | None = None
        self._chunks = 0
        # The changes of the batches that are not known to be durable, by batch number.
        self._plans: dict[int, list[_Step]] = {}

    def commit(self, batches: Sequence[Batch], done: Done) -> None:
        """Make batches durable.

        Args:
            batches: all that are not known to be durable, in order.
            done: receives a `StoreError` or None.
        """
        if not self._stores.has(self.name, self):
            done(None)
            return
        change = Change()
        for batch in batches:
            if batch.number not in self._plans:
                self._plans[batch.number] = list(self._plan(batch))
            for step in self._plans[batch.number]:
                step(change)
        last = batches[-1].number

        def answered(error: Exception | None) -> None:
            if error is None:
                self._plans = {key: plan for key, plan in self._plans.items() if key > last}
            done(error)

        sync = any(batch.sync for batch in batches)
        self._stores.send(self.name, change, answered, sync=sync)

    def _plan(self, batch: Batch) -> Iterator[_Step]:
        """Yield the changes of the next batch."""
        load, self._load = self._load, None
        if load is not None:
            yield lambda change: change.unlink(_key(self.name))
            yield lambda change: change.put(_key(self.name, "load"), load)
        rewrite, self._rewrite = self._rewrite, None
        if rewrite is not None:
            text = "".join(rewrite.pieces)
            yield lambda change: change.put(rewrite.key, text)
        segment = self._segment
        segment.append(batch)
        key = segment.key
        yield lambda change: change.append(key, batch.text)
        if batch.snapshot is not None:
            yield from self._plan_snapshot(batch.snapshot, batch.values, segment)
        if segment.full or batch.snapshot is not None:
            self._older.append((segment.number, segment.entries))
            self._rewrite = segment if segment.scattered else None
            self._segment = _Segment(self.name, segment.number + 1)

    def _plan_snapshot(
        self, snapshot: str, values: str | None, segment: _Segment
    ) -> Iterator[_Step]:
        yield lambda change: change.put(_key(self.name, "snapshot"), snapshot)
        if values is not None:
            chunk = _key(self.name, "values", self._chunks)
            self._chunks += 1
            yield lambda change: change.put(chunk, values)
        surplus = self._surplus(segment.entries)
        dropped = [_key(self.name, "log", number) for number, _ in self._older[:surplus]]
        del self._older[:surplus]
        for old in dropped:
            yield partial(_unlink, old)

    def remove(self, done: Done) -> None:
        """Drop everything of the ensemble, after the commit under way; nothing more is stored.

        Args:
            done: receives None, or a `StoreError`, after which the removal can be tried again.
        """
        if not self._stores.has(self.name, self):
            done(None)
            return
        change = Change()
        change.unlink(_key(self.name))

        def answered(error: Exception | None) -> None:
            if error is None:
                self._stores.forget(self.name, self)
            done(error)

        self._stores.send(self.name, change, answered)

    def go_on(self, *, segment: int, chunk: int) -> None:
        """Continue in a segment, and with a chunk of values, that do not exist yet."""
        self._segment = _Segment(self.name, segment)
        self._chunks = chunk

    def count(self, segment: int, entries: int) -> None:
        """Note how many entries for people a segment of an earlier service has."""
        self._older.append((segment, entries))

    def _surplus(self, entries: int) -> int:
        """Return how many of the older segments are dropped at a snapshot.

        Args:
            entries: of the segment that ends at the snapshot.
        """
        held = entries + sum(entries for _, entries in self._older)
        for index, (_, entries) in enumerate(self._older):
            held -= entries
            if held < KEPT:
                return index
        return len(self._older)


@dataclass(frozen=True, slots=True)
class StoredEnsemble:
    """The contents of the KVS for an ensemble; values and lines are read lazily.

    Attributes:
        load: payload of its load request.
        snapshot: the last one, or None.
        values: of its streams, a chunk for each snapshot, oldest first.
        lines: of its log, oldest first. A batch that was committed twice occurs twice.
        store: continues where the log ends; to be used when `lines` has been read.
    """

    load: dict[str, Any]
    snapshot: dict[str, Any] | None
    values: Iterator[Any]
    lines: Iterator[str]
    store: KvsStore


class KvsStores:
    """The ensembles in the KVS.

    Args:
        handle: Flux handle.
        guard: wraps the callbacks of the reactor.
    """

    def __init__(self, handle: Flux, guard: Guard) -> None:
        self._kvs = Kvs(handle, guard)
        self._stores: dict[str, KvsStore] = {}

    # -- when a service begins: these methods wait for the KVS ---------------------

    def names(self) -> list[str]:
        """Return the names of the ensembles, sorted.

        Keys that are no directories, or have a name that no document can give, are not ours.

        Raises:
            StoreError: the KVS does not answer, or `ensemble` is no directory.
        """
        return [
            name
            for name, kind in self._kvs.keys(ROOT).items()
            if kind in ("dir", "dirref") and matches(ENSEMBLE_NAME, name)
        ]

    def read(self, name: str) -> StoredEnsemble:
        """Read the contents of the KVS for an ensemble.

        Args:
            name: one of `names`.

        Raises:
            StoreError: something cannot be read, or is damaged; the iterators raise it, too.
        """
        load = parse_object(_key(name, "load"), self._kvs.text(_key(name, "load")))
        snapshot = None
        if "snapshot" in self._kvs.keys(_key(name)):
            snapshot = parse_object(_key(name, "snapshot"), self._kvs.text(_key(name, "snapshot")))
        chunks, segments = self._numbers(name, "values"), self._numbers(name, "log")
        store = KvsStore(self, name)
        store.go_on(segment=_next(segments), chunk=_next(chunks))
        self._stores[name] = store
        values = self._values(name, chunks)
        return StoredEnsemble(load, snapshot, values, self._lines(name, segments, store), store)

    def _numbers(self, name: str, directory: str) -> list[int]:
        """Return the numbered keys in a directory of an ensemble, in order."""
        keys = self._kvs.keys(_key(name, directory))
        return sorted(int(key) for key in keys if key.isdecimal())

    def _values(self, name: str, chunks: Iterable[int]) -> Iterator[Any]:
        for chunk in chunks:
            key = _key(name, "values", chunk)
            yield parse(key, self._kvs.text(key))

    def _lines(self, name: str, segments: Iterable[int], store: KvsStore) -> Iterator[str]:
        latest, again = 0, False
        for segment in segments:
            key = _key(name, "log", segment)
            entries = 0
            # Not splitlines, which splits at more characters than JSON escapes.
            for line in io.StringIO(self._kvs.text(key)):
                number = _batch_number(key, line)
                if number is not None:
                    again = number <= latest
                    latest = max(latest, number)
                elif not again:
                    entries += 1
                yield line
            store.count(segment, entries)

    # -- while the service runs: these methods do not wait -------------------------

    def create(self, name: str, load: Mapping[str, Any]) -> KvsStore:
        """Create the store of a new ensemble, which replaces an ensemble of the same name.

        The transaction of its first batch replaces the old contents. So everything under a name
        always belongs to one ensemble, and no ensemble is found without its log.

        Args:
            name: as a document can give it (a dot would make directories).
            load: payload of its load request, as JSON.
        """
        store = KvsStore(self, name, json.dumps(load))
        self._stores[name] = store
        return store

    def has(self, name: str, store: KvsStore) -> bool:
        """Return True if the store is that of the current ensemble of the name."""
        return self._stores.get(name) is store

    def forget(self, name: str, store: KvsStore) -> None:
        """Forget the store of an ensemble that has been removed."""
        if self.has(name, store):
            del self._stores[name]

    def send(self, name: str, change: Change, done: Done, *, sync: bool = False) -> None:
        """Send a change of an ensemble; `done` and `sync` as for `Kvs.send`."""
        self._kvs.send(change, _key(name), done, sync=sync)


def _key(name: str, what: str | None = None, number: int | None = None) -> str:
    key = f"{ROOT}.{name}" if what is None else f"{ROOT}.{name}.{what}"
    return key if number is None else f"{key}.{number:08}"


def _unlink(key: str, change: Change) -> None:
    change.unlink(key)


def _next(numbers: list[int]) -> int:
    return numbers[-1] + 1 if numbers else 0


def _batch_number(key: str, line: str) -> int | None:
    """Return the number of the batch that a line begins, or None."""
    entry = parse_object(key, line)
    try:
        return int(entry["context"]["number"]) if entry["name"] == BATCH else None
    except (KeyError, OverflowError, TypeError, ValueError):
        raise damaged(key, "expected an entry of a log", line) from None
