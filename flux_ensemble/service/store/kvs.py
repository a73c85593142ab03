"""Where the service keeps its ensembles: Flux's KVS.

    ensemble.NAME.load               what the ensemble was loaded with: JSON
    ensemble.NAME.snapshot           its state after one of its batches: JSON
    ensemble.NAME.values.NNNNNNNN    what its streams took in before a snapshot: JSON
    ensemble.NAME.log.NNNNNNNN       a segment of its log: RFC 18 entries, a line of JSON each

`flux kvs get --raw KEY` shows each of them. A batch of the log
(`runtime.durability.batches.Batch`) is one transaction: all of it is there or
nothing is. The KVS makes transactions one after the other, those of one sender in the order
they were sent. A job that was sent to job-ingest after a transaction gets into the KVS after
it, too: all this goes through one broker, first in, first out.

Segments: a batch is appended to the last segment, which is full after `APPENDS` appends
or `SEGMENT_BYTES` of text. What was appended Flux holds as a list of pieces, and
it writes the list anew at each append, so a full segment is rewritten as one value in the
transaction of the batch after it, unless its pieces are so large that this would cost more than it
saves those who read them. A snapshot ends a segment too, and so does the end of a service, which
leaves its last one as it is.

Pruning: once there is a snapshot, the segments before it are needed by people only. The
oldest are dropped in the snapshot's transaction, as long as the rest hold `runtime.eventlog.KEPT`
entries for people (all lines but the headers of batches). Segments after the last snapshot
are never dropped, nor are values. The whole directory is dropped by `KvsStore.remove`, and
replaced when another ensemble of the name is created.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flux.core.handle import Flux

from flux_ensemble.document.schema_terms import ENSEMBLE_NAME, matches
from flux_ensemble.queues.flux.loop import Guard
from flux_ensemble.runtime.durability.batches import BATCH, Batch
from flux_ensemble.runtime.eventlog import KEPT
from flux_ensemble.service.store.errors import damaged
from flux_ensemble.service.store.transactions import Change, Done, Kvs, parse, parse_object

#: Part of a transaction.
_Step = Callable[[Change], None]

#: When a segment is full.
APPENDS = 100
SEGMENT_BYTES = 256 * 1024

#: Pieces that are on average as large stay as they are.
PIECE_BYTES = 4096

ROOT = "ensemble"


class _Segment:
    """The segment that is appended to.

    Attributes:
        entries: how many of its lines are for people.
        pieces: what was appended.
        size: of the pieces, in characters, which are bytes but for rare ones.
    """

    __slots__ = ("entries", "key", "number", "pieces", "size")

    def __init__(self, name: str, number: int) -> None:
        self.number = number
        self.key = _key(name, "log", number)
        self.entries = 0
        self.pieces: list[str] = []
        self.size = 0

    def append(self, batch: Batch) -> None:
        """It gets a batch."""
        self.entries += batch.entries
        self.pieces.append(batch.text)
        self.size += len(batch.text)

    @property
    def full(self) -> bool:
        return len(self.pieces) >= APPENDS or self.size >= SEGMENT_BYTES

    @property
    def scattered(self) -> bool:
        """It is worth being one value, and is not yet."""
        return len(self.pieces) > 1 and self.size < PIECE_BYTES * len(self.pieces)


class KvsStore:
    """The durable log of one ensemble: a `runtime.durability.storage.Store`, made by `KvsStores`.

    What a batch changes is decided when it is first given. Given again, because it is not
    known to be durable yet, it gives the same keys the same values; only its text may be in
    its segment several times until that is rewritten. When its ensemble has been removed, or
    replaced by another of its name, a store keeps nothing more.

    Attributes:
        name: of the ensemble, in the key.
    """

    def __init__(self, stores: KvsStores, name: str, load: str | None = None) -> None:
        self._stores = stores
        self.name = name
        # It goes with the first batch, so that there is never an ensemble without its
        # log, or with the log of an earlier one of its name.
        self._load = load
        self._segment = _Segment(name, 0)
        # The segments before it with their entries, and the last of them while it is still
        # to be rewritten.
        self._older: list[tuple[int, int]] = []
        self._rewrite: _Segment | None = None
        self._chunks = 0
        # What the batches change that are not known to be durable, by their numbers.
        self._plans: dict[int, list[_Step]] = {}

    def commit(self, batches: Sequence[Batch], done: Done) -> None:
        """Make batches durable.

        Args:
            batches: all that are not known to be, in order.
            done: gets a `StoreError` or None.
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
        """What the next batch changes."""
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
        """Drop all of the ensemble, after the commit that is under way; it takes no more.

        Args:
            done: gets a `StoreError`, and then it can be removed once more, or None.
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
        """Go on in a segment and with a chunk of values that are not there yet."""
        self._segment = _Segment(self.name, segment)
        self._chunks = chunk

    def count(self, segment: int, entries: int) -> None:
        """A segment of an earlier service has so many entries for people."""
        self._older.append((segment, entries))

    def _surplus(self, entries: int) -> int:
        """How many of the older segments are dropped at a snapshot.

        Args:
            entries: those of the segment that ends at the snapshot.
        """
        held = entries + sum(entries for _, entries in self._older)
        for index, (_, entries) in enumerate(self._older):
            held -= entries
            if held < KEPT:
                return index
        return len(self._older)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the KVS has of an ensemble; values and lines are read as they are asked for.

    Attributes:
        load: what it was loaded with.
        snapshot: the last one, or None.
        values: of its streams, a chunk for each snapshot, oldest first.
        lines: of its log, oldest first. A batch that was committed twice is there twice.
        store: goes on where the log ends; to be used when `lines` has been read.
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
        guard: wraps what is called from the reactor.
    """

    def __init__(self, handle: Flux, guard: Guard) -> None:
        self._kvs = Kvs(handle, guard)
        self._stores: dict[str, KvsStore] = {}

    # -- when a service begins: these wait for the KVS -----------------------------

    def names(self) -> list[str]:
        """The ensembles there are, sorted.

        Keys that are no directories, or have a name that no document can give, are not ours.

        Raises:
            StoreError: the KVS does not answer, or `ensemble` is no directory.
        """
        return [
            name
            for name, kind in self._kvs.keys(ROOT).items()
            if kind in ("dir", "dirref") and matches(ENSEMBLE_NAME, name)
        ]

    def read(self, name: str) -> Stored:
        """What there is of an ensemble.

        Args:
            name: one of `names`.

        Raises:
            StoreError: something cannot be read, or is damaged; the iterators raise it too.
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
        return Stored(load, snapshot, values, self._lines(name, segments, store), store)

    def _numbers(self, name: str, directory: str) -> list[int]:
        """The numbered keys in a directory of an ensemble, in order."""
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
            # Not splitlines, which knows more ends of lines than JSON does.
            for line in io.StringIO(self._kvs.text(key)):
                number = _batch_number(key, line)
                if number is not None:
                    again = number <= latest
                    latest = max(latest, number)
                elif not again:
                    entries += 1
                yield line
            store.count(segment, entries)

    # -- while it runs: nothing waits ----------------------------------------------

    def create(self, name: str, load: Mapping[str, Any]) -> KvsStore:
        """A new ensemble, which replaces what there is of its name.

        The transaction of its first batch does that, so what is found under a name is always of
        one ensemble, and no ensemble is found without its log.

        Args:
            name: as a document can give it (a dot would make directories).
            load: what it was loaded with, as JSON.
        """
        store = KvsStore(self, name, json.dumps(load))
        self._stores[name] = store
        return store

    def has(self, name: str, store: KvsStore) -> bool:
        """The store is that of the ensemble of a name."""
        return self._stores.get(name) is store

    def forget(self, name: str, store: KvsStore) -> None:
        """The ensemble of a store has been removed."""
        if self.has(name, store):
            del self._stores[name]

    def send(self, name: str, change: Change, done: Done, *, sync: bool = False) -> None:
        """Change something of an ensemble; `done` and `sync` as for `Kvs.send`."""
        self._kvs.send(change, _key(name), done, sync=sync)


def _key(name: str, what: str | None = None, number: int | None = None) -> str:
    key = f"{ROOT}.{name}" if what is None else f"{ROOT}.{name}.{what}"
    return key if number is None else f"{key}.{number:08}"


def _unlink(key: str, change: Change) -> None:
    change.unlink(key)


def _next(numbers: list[int]) -> int:
    return numbers[-1] + 1 if numbers else 0


def _batch_number(key: str, line: str) -> int | None:
    """The number of the batch that a line begins, or None."""
    entry = parse_object(key, line)
    try:
        return int(entry["context"]["number"]) if entry["name"] == BATCH else None
    except (KeyError, OverflowError, TypeError, ValueError):
        raise damaged(key, "expected an entry of a log", line) from None
