"""Checks of the KVS: that it is durable, that it works, and what it holds."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from typing import Any

from flux_ensemble.deploy.checks.instance import PATIENCE, Finding, InstanceInfo, config
from flux_ensemble.service.settings import kept_directory

#: Seconds of a commit to the KVS from which it delays every rule noticeably.
SLOW_COMMIT = 1.0

#: Free space for the KVS, in bytes, below which there is a warning.
LITTLE_ROOM = 1 << 30

#: A key that nobody else uses.
SCRATCH = "ensemble-doctor"


def statedir(instance: InstanceInfo) -> Finding:
    """Check that the KVS outlives the instance."""
    directory = kept_directory(instance.attribute)
    if directory is not None:
        return Finding("statedir", "ok", directory)
    return Finding(
        "statedir",
        "warning",
        "none: ensembles, their logs and all jobs are gone when the instance ends",
        "start it with `flux start -Sstatedir=DIRECTORY`, a directory on a disk that stays",
    )


def content(instance: InstanceInfo) -> Finding:
    """Check that the KVS is on a disk, with enough free space."""
    modules = instance.modules or frozenset()
    backing = sorted(modules & {"content-sqlite", "content-files", "content-s3"})
    if not backing:
        return Finding(
            "content",
            "warning",
            "the KVS is in memory only: no module backs it",
            "load one, such as `flux module load content-sqlite`",
        )
    text = backing[0]
    if text == "content-sqlite":
        stats = instance.ask("content-sqlite.stats-get", {})
        size, room = stats["dbfile_size"], stats["dbfile_free"]
        text += f", {_bytes(size)} used, {_bytes(room)} free"
        if room < LITTLE_ROOM:
            return Finding("content", "warning", text, "make room on that disk")
    return Finding("content", "ok", text)


def checkpoint(instance: InstanceInfo) -> Finding:
    """Check that a crash of the broker loses little."""
    period = config(instance, "kvs").get("checkpoint-period")
    if period:
        return Finding("checkpoint", "ok", f"the KVS is made safe every {period}")
    if kept_directory(instance.attribute) is None:
        return Finding("checkpoint", "ok", "not set; without a statedir it would keep nothing")
    return Finding(
        "checkpoint",
        "warning",
        "kvs.checkpoint-period is not set: a crash of the broker, not of the service, loses "
        "all since the instance began",
        'set `checkpoint-period = "1m"` in [kvs] of its configuration, or load documents with '
        "`durability: strict`",
    )


def kvs(instance: InstanceInfo) -> Finding:
    """Check that a key can be written durably, and read."""
    import flux.kvs
    from flux.constants import FLUX_KVS_SYNC

    handle, value = instance.handle, f"{os.getpid()} {time.time()}"
    begun = time.monotonic()
    try:
        flux.kvs.put(handle, SCRATCH, value)
        flux.kvs.commit_async(handle, FLUX_KVS_SYNC).wait_for(PATIENCE).get()
        seconds = time.monotonic() - begun
        right = flux.kvs.get(handle, SCRATCH) == value
        flux.kvs.put_unlink(handle, SCRATCH)
        flux.kvs.commit_async(handle).wait_for(PATIENCE).get()
    except OSError as error:
        if error.errno == errno.EPERM:
            return Finding("kvs", "warning", "guests may not write to it", "ask as the owner")
        return Finding("kvs", "problem", f"it fails: {error.strerror}", "see `flux dmesg`")
    text = f"written, made safe and read; that took {seconds * 1000:.0f} ms"
    if not right:
        return Finding("kvs", "problem", "it gave back another value than was written", "")
    if seconds > SLOW_COMMIT:
        return Finding("kvs", "warning", text, "a statedir on a local disk is faster")
    return Finding("kvs", "ok", text)


def logs(instance: InstanceInfo) -> Finding:
    """Report how much the KVS holds of ensembles."""
    try:
        names = _directory(instance, "ensemble")
    except OSError as error:
        if error.errno == errno.ENOENT:
            return Finding("logs", "ok", "the KVS holds no ensembles")
        if error.errno == errno.EPERM:
            return Finding("logs", "warning", "guests may not read them", "ask as the owner")
        raise
    values = sum(_count(instance, f"ensemble.{name}", tree) for name, tree in names.items())
    what = f"{len(names)} ensemble{'s'[: len(names) != 1]}"
    return Finding("logs", "ok", f"the KVS holds {what} in {values} values")


def _directory(instance: InstanceInfo, key: str) -> dict[str, Any]:
    """Return the entries of a directory of the KVS, as tree objects (RFC 11)."""
    from flux.constants import FLUX_KVS_READDIR

    request = {"key": key, "flags": FLUX_KVS_READDIR, "namespace": "primary"}
    entries: dict[str, Any] = instance.ask("kvs.lookup", request)["val"]["data"]
    return entries


def _count(instance: InstanceInfo, key: str, tree: Mapping[str, Any]) -> int:
    """Count the values of a key of the KVS, where `tree` is its tree object."""
    if tree["type"] == "valref":
        return len(tree["data"])  # a key that was appended to has several
    if tree["type"] not in ("dir", "dirref"):
        return 1
    try:
        entries = _directory(instance, key)
    except FileNotFoundError:
        return 0  # removed meanwhile
    return sum(_count(instance, f"{key}.{name}", entry) for name, entry in entries.items())


def _bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
