"""What the service keeps in the KVS, on a real Flux instance."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE

from flux_ensemble.bindings import require_flux
from flux_ensemble.runtime.durability.batches import BATCH, Batch, Batches, line

if TYPE_CHECKING:
    from flux_ensemble.service.claim import Claims
    from flux_ensemble.service.store.kvs import KvsStore, KvsStores

pytestmark = pytest.mark.flux

#: Of a service that is killed when it has sent its commits; it sends them when it is told to.
KILLED = """
import os, signal, sys
from flux_ensemble.bindings import require_flux
require_flux()
import flux
from flux_ensemble.service.handles import beside, register
from flux_ensemble.service.store.kvs import KvsStores
from test_service_kvs import batch
handle = flux.Flux(sys.argv[1])
requests = beside(handle)
register(handle, requests, "killed")
store = KvsStores(handle, lambda callback: callback).create("killed", {})
print("registered", flush=True)
sys.stdin.readline()
for number in range(1, 101):
    store.commit([batch(number)], lambda error: None)
os.kill(os.getpid(), signal.SIGKILL)
"""


def batch(number: int, entries: int = 1, **more: Any) -> Batch:
    """A batch as a wal makes it."""
    text = line(1.0, BATCH, {"number": number, "events": []})
    text += "".join(line(1.0, "fire", {"rule": f"r{number}-{n}"}) for n in range(entries))
    return Batch(number, text, entries, **more)


class Bench:
    """A connection to an instance."""

    def __init__(self, uri: str) -> None:
        require_flux()
        import flux

        self.uri = uri
        self.handle = flux.Flux(uri)

    def stores(self) -> KvsStores:
        """As a service that begins has them."""
        from flux_ensemble.service.store.kvs import KvsStores

        return KvsStores(self.handle, lambda callback: callback)

    def wait(self, method: Callable[[Callable[[Exception | None], None]], None]) -> str:
        """Call a method and wait until it is done; the error's text, or nothing."""
        outcomes: list[Exception | None] = []

        def done(error: Exception | None) -> None:
            outcomes.append(error)
            self.handle.reactor_stop()

        method(done)
        if not outcomes:
            self.handle.reactor_run()
        assert len(outcomes) == 1
        return str(outcomes[0] or "")

    def commit(self, store: KvsStore, *batches: Batch) -> None:
        for one in batches:
            assert not self.wait(partial(store.commit, [one]))

    def flux(self, *command: str) -> str:
        """What a command prints."""
        return subprocess.run(
            ["flux", *command],
            env={**os.environ, "FLUX_URI": self.uri},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def keys(self, directory: str) -> list[str]:
        """What is in a directory of the KVS."""
        return self.flux("kvs", "ls", "-1", directory).split()

    def get(self, key: str) -> str:
        return self.flux("kvs", "get", "--raw", key)


@contextmanager
def instance(*options: str) -> Iterator[Bench]:
    """A Flux instance that lives until the end of the context."""
    command = ["flux", "start", *options, "sh", "-c", "echo $FLUX_URI; cat"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        yield Bench(process.stdout.readline().strip())
        process.stdin.close()


def claims(handle: Any, name: str = "ensemble") -> Claims:
    """As a service has them that is registered by a name."""
    from flux_ensemble.service.claim import Claims

    def unexpected(reason: str) -> None:
        raise AssertionError(reason)

    return Claims(
        handle, handle, lambda callback: callback, name=name, mode="client", lost=unexpected
    )


@pytest.fixture(scope="module")
def flux() -> Iterator[Bench]:
    with instance() as bench:
        yield bench


def numbers(lines: Iterator[str]) -> list[int]:
    """The batches in a log."""
    entries = map(json.loads, lines)
    return [entry["context"]["number"] for entry in entries if entry["name"] == BATCH]


def test_what_was_kept_is_read_again(flux: Bench) -> None:
    store = flux.stores().create("again", {"document": "é", "run": 7})
    batches = [
        batch(1),
        batch(2, snapshot='{"number": 2}', values="[1]"),
        batch(3, snapshot='{"number": 3}', values="[2]", sync=True),
        batch(4),
    ]
    flux.commit(store, *batches)
    stored = flux.stores().read("again")
    assert stored.load == {"document": "é", "run": 7}
    assert stored.snapshot == {"number": 3}
    assert list(stored.values) == [[1], [2]]
    assert "".join(stored.lines) == "".join(one.text for one in batches)


def test_a_store_goes_on_in_a_new_segment_with_a_new_chunk_of_values(flux: Bench) -> None:
    flux.commit(flux.stores().create("on", {}), batch(1, snapshot="{}", values="[1]"), batch(2))
    stored = flux.stores().read("on")
    assert numbers(stored.lines) == [1, 2]
    flux.commit(stored.store, batch(3), batch(4, snapshot="{}", values="[4]"))
    assert flux.keys("ensemble.on.log") == ["00000000", "00000001", "00000002"]
    stored = flux.stores().read("on")
    assert numbers(stored.lines) == [1, 2, 3, 4]
    assert list(stored.values) == [[1], [4]]


def test_every_key_shows_what_it_has_to_flux_kvs_get(flux: Bench) -> None:
    store = flux.stores().create("shown", {"run": 1})
    flux.commit(store, batch(1, snapshot='{"a": 1}', values="[]"))
    assert json.loads(flux.get("ensemble.shown.load")) == {"run": 1}
    assert flux.get("ensemble.shown.snapshot") == '{"a": 1}'
    assert flux.get("ensemble.shown.values.00000000") == "[]"
    assert flux.get("ensemble.shown.log.00000000") == batch(1).text


def test_a_segment_is_full_after_a_number_of_appends_and_becomes_one_value(flux: Bench) -> None:
    from flux_ensemble.service.store.kvs import APPENDS

    store = flux.stores().create("appends", {})
    flux.commit(store, *map(batch, range(1, APPENDS + 1)))
    key = "ensemble.appends.log.00000000"
    pieces = json.loads(flux.flux("kvs", "get", "--treeobj", key))["data"]
    assert len(pieces) == APPENDS
    flux.commit(store, batch(APPENDS + 1))
    assert len(json.loads(flux.flux("kvs", "get", "--treeobj", key))["data"]) == 1
    assert flux.get(key) == "".join(batch(n).text for n in range(1, APPENDS + 1))
    assert flux.get("ensemble.appends.log.00000001") == batch(APPENDS + 1).text


def test_a_segment_is_full_when_it_is_long(flux: Bench) -> None:
    from flux_ensemble.service.store.kvs import SEGMENT_BYTES

    long = batch(1, entries=SEGMENT_BYTES // 50)
    flux.commit(flux.stores().create("long", {}), long, batch(2))
    assert flux.keys("ensemble.long.log") == ["00000000", "00000001"]
    assert numbers(flux.stores().read("long").lines) == [1, 2]


def test_a_segment_of_large_pieces_stays_as_it_was_appended(flux: Bench) -> None:
    from flux_ensemble.service.store.kvs import SEGMENT_BYTES

    store = flux.stores().create("large", {})
    for number in range(1, 5):
        flux.commit(store, batch(number, entries=SEGMENT_BYTES // 150))
    key = "ensemble.large.log.00000000"
    assert flux.keys("ensemble.large.log") == ["00000000", "00000001"]
    assert len(json.loads(flux.flux("kvs", "get", "--treeobj", key))["data"]) > 1
    assert numbers(flux.stores().read("large").lines) == [1, 2, 3, 4]


def test_a_snapshot_drops_old_segments_as_long_as_the_rest_have_entries_to_read(
    flux: Bench,
) -> None:
    from flux_ensemble.runtime.eventlog import KEPT

    store = flux.stores().create("pruned", {})
    third = KEPT // 3 + 1
    flux.commit(store, *(batch(n, third, snapshot="{}") for n in range(1, 4)))
    assert flux.keys("ensemble.pruned.log") == ["00000000", "00000001", "00000002"]
    flux.commit(store, batch(4, third - 4), batch(5, 1, snapshot="{}"))
    # The last three hold one entry less than are kept.
    assert len(flux.keys("ensemble.pruned.log")) == 4
    flux.commit(store, batch(6, 1, snapshot="{}"))
    assert flux.keys("ensemble.pruned.log") == [f"{n:08}" for n in range(1, 5)]


def test_segments_after_the_last_snapshot_are_not_dropped(flux: Bench) -> None:
    from flux_ensemble.runtime.eventlog import KEPT

    store = flux.stores().create("unsaved", {})
    flux.commit(store, batch(1, snapshot="{}"), *(batch(n, KEPT) for n in (2, 3, 4)))
    assert numbers(flux.stores().read("unsaved").lines) == [1, 2, 3, 4]


def test_entries_of_before_a_restart_count_once(flux: Bench) -> None:
    from flux_ensemble.runtime.eventlog import KEPT

    flux.commit(flux.stores().create("counted", {}), batch(1, 2), batch(2, KEPT - 2))
    flux.flux(
        "kvs", "put", "--append", "--raw", "ensemble.counted.log.00000000=" + batch(1, 2).text
    )
    stored = flux.stores().read("counted")
    assert numbers(stored.lines) == [1, 2, 1]
    flux.commit(stored.store, batch(3, 1, snapshot="{}"), batch(4, KEPT - 2, snapshot="{}"))
    assert len(flux.keys("ensemble.counted.log")) == 3
    flux.commit(stored.store, batch(5, 1, snapshot="{}"))
    assert flux.keys("ensemble.counted.log") == ["00000001", "00000002", "00000003"]


def test_a_commit_without_an_answer_is_repeated(
    flux: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flux_ensemble.service.store import transactions as kvs_io
    from flux_ensemble.service.store.kvs import APPENDS

    monkeypatch.setattr(kvs_io, "PATIENCE", 5.0)
    store = flux.stores().create("repeated", {})
    flux.commit(store, batch(1))
    broker = int(flux.flux("getattr", "broker.pid"))
    os.kill(broker, signal.SIGSTOP)
    error = flux.wait(partial(store.commit, [batch(2)]))
    os.kill(broker, signal.SIGCONT)
    assert error == "cannot write ensemble.repeated in the KVS: no response (ETIMEDOUT)"
    flux.commit(store, batch(2), *map(batch, range(3, APPENDS + 1)))
    assert numbers(flux.stores().read("repeated").lines) == [1, 2, *range(2, APPENDS + 1)]
    flux.commit(store, batch(APPENDS + 1))
    assert numbers(flux.stores().read("repeated").lines) == list(range(1, APPENDS + 2))


def test_a_commit_works_when_the_kvs_is_there_again() -> None:
    with instance("--setattr=broker.rc1_path=", "--setattr=broker.rc3_path=") as flux:
        store = flux.stores().create("waiting", {})
        error = flux.wait(partial(store.commit, [batch(1)]))
        assert error.startswith("cannot write ensemble.waiting in the KVS: ")
        assert error.endswith(
            "(ENOSYS); is the module kvs loaded, and content-sqlite? see 'flux module list'"
        )
        for module in ("content", "kvs"):
            flux.flux("module", "load", module)
        flux.commit(store, batch(1), batch(2))
        assert numbers(flux.stores().read("waiting").lines) == [1, 2]


def test_a_new_ensemble_replaces_one_of_its_name_with_its_first_batch(flux: Bench) -> None:
    stores = flux.stores()
    old = stores.create("new", {"run": 1})
    flux.commit(old, batch(1, snapshot="{}", values="[]"))
    new = stores.create("new", {"run": 2})
    flux.commit(old, batch(2))
    assert not flux.wait(old.remove)
    assert flux.stores().read("new").load == {"run": 1}
    flux.commit(new, batch(1))
    stored = flux.stores().read("new")
    assert (stored.load, stored.snapshot, list(stored.values)) == ({"run": 2}, None, [])
    assert numbers(stored.lines) == [1]


def test_an_ensemble_that_was_removed_is_gone(flux: Bench) -> None:
    stores = flux.stores()
    store = stores.create("gone", {})
    flux.commit(store, batch(1))
    assert "gone" in stores.names()
    assert not flux.wait(store.remove)
    assert not flux.wait(store.remove)
    flux.commit(store, batch(2))
    assert "gone" not in stores.names()


def test_names_are_those_that_a_document_can_give(flux: Bench) -> None:
    flux.commit(flux.stores().create("a-Name_1", {}), batch(1))
    flux.flux("kvs", "put", "ensemble.a:b.load=1", "ensemble.value=1")
    names = flux.stores().names()
    assert "a-Name_1" in names
    assert not {"a:b", "value"}.intersection(names)


def test_a_batch_can_be_on_disk_before_it_is_done(flux: Bench) -> None:
    from flux.kvs import kvs_checkpoint_lookup

    def checkpoint() -> int:
        return int(kvs_checkpoint_lookup(flux.handle)[0]["sequence"])

    store, before = flux.stores().create("disk", {}), checkpoint()
    flux.commit(store, batch(1))
    assert checkpoint() == before
    flux.commit(store, batch(2, sync=True))
    assert checkpoint() > before


#: The service after it: asks to be registered when it is told to, and prints what is in the log.
NEXT = """
import sys
from flux_ensemble.bindings import require_flux
require_flux()
import flux
from flux_ensemble.service.handles import beside, register
from flux_ensemble.service.store.kvs import KvsStores
from test_service_kvs import claims, numbers
handle = flux.Flux(sys.argv[1])
requests = beside(handle)
print("connected", flush=True)
sys.stdin.readline()
while True:  # until the broker has noticed that the other one is dead
    try:
        register(handle, requests, "killed")
        break
    except FileExistsError:
        continue
claims(handle, "killed").take()
stores = KvsStores(handle, lambda callback: callback)
print(*numbers(stores.read("killed").lines))
"""


def waits_for_an_answer(process: subprocess.Popen[str]) -> bool:
    """A process sleeps, as it does when it has sent a request."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_what_a_killed_service_had_sent_is_there_when_the_next_one_begins(flux: Bench) -> None:
    broker = int(flux.flux("getattr", "broker.pid"))
    start = partial(
        subprocess.Popen,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with (
        start([sys.executable, "-c", KILLED, flux.uri]) as killed,
        start([sys.executable, "-c", NEXT, flux.uri]) as follower,
    ):
        assert killed.stdout
        assert follower.stdin
        assert follower.stdout
        assert killed.stdout.readline() == "registered\n"
        assert follower.stdout.readline() == "connected\n"
        # What both send while the broker is stopped it reads in turns, when it goes on.
        os.kill(broker, signal.SIGSTOP)
        try:
            killed.communicate("go\n", timeout=PATIENCE)
            follower.stdin.write("go\n")
            follower.stdin.flush()
            deadline = time.monotonic() + PATIENCE
            while not waits_for_an_answer(follower):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            os.kill(broker, signal.SIGCONT)
        found = follower.communicate(timeout=PATIENCE)[0]
    assert killed.returncode == -signal.SIGKILL
    assert found.split() == [str(number) for number in range(1, 101)]


def test_commits_leave_nothing_to_the_collector(flux: Bench) -> None:
    from flux_ensemble.queues.flux.futures import _Open

    store = flux.stores().create("clean", {})
    gc.collect()
    # Those that other tests left open; held, so that none of ours can be taken for one of them.
    before = [one for one in gc.get_objects() if isinstance(one, _Open)]
    gc.disable()
    try:
        flux.commit(store, *map(batch, range(1, 51)))
        ours = [one for one in gc.get_objects() if isinstance(one, _Open) and one not in before]
    finally:
        gc.enable()
    assert not ours


def test_batches_that_are_not_known_to_be_durable_are_in_each_commit(flux: Bench) -> None:
    store = flux.stores().create("again", {"run": 1})
    batches = [batch(1), batch(2, snapshot='{"number": 2}', values="[2]"), batch(3)]
    outcomes: list[Exception | None] = []
    for number in range(1, 4):
        store.commit(batches[:number], outcomes.append)
    assert not flux.wait(partial(store.commit, batches))
    assert outcomes == [None, None, None]
    stored = flux.stores().read("again")
    assert stored.load == {"run": 1}
    assert stored.snapshot == {"number": 2}
    assert list(stored.values) == [[2]]
    assert [batch.number for batch in Batches(stored.lines, begin="")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("load", "{", "expected JSON, not '{'"),
        ("load", "[]", "expected a JSON object, not '[]'"),
        ("load.a", "1", "expected a value"),
        ("snapshot", '"' + "x" * 99, "expected JSON, not '\"" + "x" * 36 + "...'"),
        ("log", "1", "expected a directory"),
        ("log.00000000", "x\n", "expected JSON, not 'x\\n'"),
        ("log.00000000", '{"a":1}\n', "expected an entry of a log, not '{\"a\":1}\\n'"),
        (
            "log.00000000",
            '{"name":"batch","context":{"number":1e999}}\n',
            'expected an entry of a log, not \'{"name":"batch","context":{"number":1...\'',
        ),
        ("values.00000000", "", "expected JSON, not ''"),
    ],
)
def test_what_is_damaged_is_named_with_what_to_do(
    flux: Bench, key: str, value: str, reason: str
) -> None:
    from flux_ensemble.service.store.errors import StoreError

    flux.commit(flux.stores().create("bad", {}), batch(1, snapshot="{}", values="[]"))
    flux.flux("kvs", "put", "--raw", f"ensemble.bad.{key}={value}")

    def read() -> None:
        stored = flux.stores().read("bad")
        assert [*stored.values, *stored.lines]

    with pytest.raises(StoreError) as caught:
        read()
    at = f"ensemble.bad.{key.removesuffix('.a')}"
    assert str(caught.value) == (
        f"{at} in the KVS is damaged: {reason}; 'flux kvs get --raw {at}' shows it, and "
        "'flux kvs unlink -R ensemble.bad' drops it for good"
    )
