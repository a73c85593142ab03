"""Reading and writing Flux's KVS: values as text, in transactions, with errors that help.

`Kvs.send` and `Kvs.watch` do not wait, and are for a running service. The other methods of `Kvs`
wait, and are for a service that begins. libkvs is called directly for what `flux.kvs` lacks:
appending, time limits, and raw values (`flux.kvs.get` parses values as JSON if it can).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

from flux.constants import FLUX_KVS_SYNC
from flux.core.handle import Flux
from flux.core.inner import ffi, lib
from flux.future import Future
from flux.kvs import RAW

from flux_ensemble.queues.flux.errors import errno_name, sentence
from flux_ensemble.queues.flux.futures import Futures, error
from flux_ensemble.queues.flux.loop import FluxLoop, Guard
from flux_ensemble.queues.flux.relay import wait
from flux_ensemble.runtime.ports import Handle
from flux_ensemble.service.store.errors import LateError, StoreError, damaged

#: Seconds to wait for a response: to `Kvs.send`, and in the methods that wait.
PATIENCE = 10.0
PATIENCE_AT_START = 60.0

#: Seconds until a watch that has ended begins again, and until any watch does: when the module
#: kvs-watch is reloaded it forgets its watchers without notifying them (Flux 0.88).
AGAIN_SECONDS = 1.0
RENEW_SECONDS = 60.0

#: A private namespace, which FLUX_KVS_NAMESPACE may name, would not survive a restart.
_NAMESPACE = b"primary"

#: Called with None after success, or with the reason why success is unknown.
Done = Callable[[Exception | None], None]


class Change:
    """A transaction: all of its changes are made, in this order, or none is."""

    def __init__(self) -> None:
        self._txn = ffi.gc(lib.flux_kvs_txn_create(), lib.flux_kvs_txn_destroy)

    def put(self, key: str, text: str, flags: int = 0) -> None:
        """Set the value of a key."""
        data = text.encode()
        if lib.flux_kvs_txn_put_raw(self._txn, flags, key.encode(), data, len(data)) < 0:
            raise error(ffi.errno)

    def append(self, key: str, text: str) -> None:
        """Append to the value of a key."""
        self.put(key, text, lib.FLUX_KVS_APPEND)

    def unlink(self, key: str) -> None:
        """Drop a key, or a directory with its contents; it need not exist."""
        if lib.flux_kvs_txn_unlink(self._txn, 0, key.encode()) < 0:
            raise error(ffi.errno)

    def commit(self, handle: Flux, *, sync: bool) -> Any:
        """Send the transaction.

        Returns:
            A future: a C pointer.

        Raises:
            OSError: it cannot be sent.
        """
        flags = FLUX_KVS_SYNC if sync else 0
        future = lib.flux_kvs_commit(handle.handle, _NAMESPACE, flags, self._txn)
        if future == ffi.NULL:
            raise error(ffi.errno)
        return future


class Kvs:
    """Access to the KVS.

    Args:
        handle: Flux handle.
        guard: wraps the callbacks of the reactor.
    """

    def __init__(self, handle: Flux, guard: Guard) -> None:
        self._handle = handle
        self._guard = guard
        self._loop = FluxLoop(handle, guard)
        self._sent = Futures(self._loop, PATIENCE)

    def send(self, change: Change, key: str, done: Done, *, sync: bool = False) -> None:
        """Make a change.

        Args:
            change: the change.
            key: that is changed, for the error.
            done: called once, with a `StoreError` or None.
            sync: the change is on disk, with a checkpoint, before `done` is called.
        """

        def answered(future: Any) -> None:
            if lib.flux_future_get(future, ffi.NULL) == 0:
                done(None)
            else:
                number = ffi.errno
                text = lib.flux_future_error_string(future)
                done(_not_written(key, error(number, text)))

        def late() -> None:
            done(_not_written(key, OSError(errno.ETIMEDOUT, "")))

        try:
            future = change.commit(self._handle, sync=sync)
            self._sent.add(future, self._guard(answered), self._guard(late))
        except OSError as failed:
            done(_not_written(key, failed))

    def watch(self, key: str, changed: Callable[[str | None], None]) -> KeyWatch:
        """Call back with the value of a key, now and whenever it changes.

        Args:
            key: the key.
            changed: receives the value, or None if there is none.
        """
        return KeyWatch(self._handle, self._loop, self._guard, key, changed)

    def commit(self, change: Change, key: str, *, sync: bool = False) -> None:
        """Make a change, and wait for it; arguments as for `send`.

        Raises:
            StoreError: it is unknown whether the change is made.
        """
        try:
            future = Future(change.commit(self._handle, sync=sync))
            wait(self._handle, future, PATIENCE_AT_START)
            future.get()
        except OSError as failed:
            raise _not_written(key, failed) from None

    def keys(self, directory: str) -> dict[str, str]:
        """Return the entries of a directory, sorted: names with their types (RFC 11).

        Returns:
            Nothing if there is no such directory.

        Raises:
            StoreError: it cannot be read, or is no directory.
        """
        text = self._lookup(directory, lib.FLUX_KVS_READDIR, _treeobj)
        entries = {} if text is None else json.loads(text)["data"]
        return {name: entries[name]["type"] for name in sorted(entries)}

    def find(self, key: str) -> str | None:
        """Return the value of a key, or None if there is none.

        Raises:
            StoreError: it cannot be read, or is not text.
        """
        data = self._lookup(key, 0, _raw)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise damaged(key, "expected UTF-8 text") from None

    def text(self, key: str) -> str:
        """Return the value of a key that must exist.

        Raises:
            StoreError: the key does not exist, or cannot be read, or is not text.
        """
        text = self.find(key)
        if text is None:
            raise damaged(key, "there is no such key")
        return text

    def _lookup(self, key: str, flags: int, get: Callable[[Future], bytes]) -> bytes | None:
        try:
            future = Future(RAW.flux_kvs_lookup(self._handle, _NAMESPACE, flags, key))
            wait(self._handle, future, PATIENCE_AT_START)
            future.get()
            return get(future)
        except OSError as failed:
            if failed.errno == errno.ENOENT:
                return None
            if failed.errno in (errno.EISDIR, errno.ENOTDIR):
                expected = "a directory" if flags else "a value"
                raise damaged(key, f"expected {expected}") from None
            raise StoreError(f"cannot read {key} in the KVS: {_why(failed)}") from None


class KeyWatch:
    """A watch of a key that reports its value, until stopped: see `Kvs.watch`."""

    def __init__(
        self,
        handle: Flux,
        loop: FluxLoop,
        guard: Guard,
        key: str,
        changed: Callable[[str | None], None],
    ) -> None:
        self._handle = handle
        self._loop = loop
        self._came = guard(self._take)
        self._key = key
        self._changed = changed
        self._future: Future | None = None
        self._timer: Handle | None = None
        self._begin()

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        future, self._future = self._future, None
        if future is not None:
            RAW.flux_kvs_lookup_cancel(future)

    def _begin(self) -> None:
        self.stop()
        flags = lib.FLUX_KVS_WATCH | lib.FLUX_KVS_WATCH_UNIQ
        self._future = Future(RAW.flux_kvs_lookup(self._handle, _NAMESPACE, flags, self._key))
        self._future.then(self._came)
        self._timer = self._loop.timer(RENEW_SECONDS, self._begin)

    def _take(self, future: Future) -> None:
        if self._future is None or future is not self._future:
            return
        text = None
        try:
            text = _raw(future).decode(errors="replace")
            future.reset()
        except OSError as failed:
            # A watch of a key without a value ends.
            self._future = None
            self.stop()
            self._timer = self._loop.timer(AGAIN_SECONDS, self._begin)
            if failed.errno != errno.ENOENT:
                return
        self._changed(text)


def _raw(future: Future) -> bytes:
    data, size = ffi.new("void *[1]"), ffi.new("size_t *")
    RAW.flux_kvs_lookup_get_raw(future.pimpl, data, size)
    return bytes(ffi.buffer(data[0], size[0])) if size[0] else b""


def _treeobj(future: Future) -> bytes:
    text = ffi.new("char *[1]")
    RAW.flux_kvs_lookup_get_treeobj(future.pimpl, text)
    return bytes(ffi.string(text[0]))


def parse(key: str, text: str) -> Any:
    """Parse the JSON in a key's value, or in a line of it.

    Raises:
        StoreError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(key, "expected JSON", text) from None


def parse_object(key: str, text: str) -> dict[str, Any]:
    """Do as `parse`, for an object.

    Raises:
        StoreError: it is not a JSON object.
    """
    value = parse(key, text)
    if not isinstance(value, dict):
        raise damaged(key, "expected a JSON object", text)
    return value


def _not_written(key: str, error: OSError) -> StoreError:
    kind = LateError if error.errno == errno.ETIMEDOUT else StoreError
    return kind(f"cannot write {key} in the KVS: {_why(error)}")


def _why(error: OSError) -> str:
    reason = "no response" if error.errno == errno.ETIMEDOUT else sentence(error)
    if error.errno == errno.ENOSYS:
        # A synced commit needs the backing store of the module content, too.
        hint = "; is the module kvs loaded, and content-sqlite? see 'flux module list'"
    else:
        hint = ""
    return f"{reason} ({errno_name(error)}){hint}"
