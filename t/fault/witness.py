"""Watches the jobs of an instance on its own, to hold them against what the service says.

A thread reads the job manager's journal in full from the start, so it has seen jobs that
are purged later, and it tells when a moment has come: so many jobs submitted, the first one
finished, a job that is nobody's (a fence).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

#: The events that say what became of a job.
_EVENTS = ("submit", "validate", "invalidate", "alloc", "start", "finish", "exception", "clean",
           "memo")  # fmt: skip

#: Seconds between attempts to open the journal.
_RETRY_SECONDS = 0.02


class Job:
    """A job: its id, its tag or None, its events as (name, time, context), and its ranks.

    Attributes:
        member: the tag of a member of an ensemble, which is a job too; None for other jobs.
        beaten: another job did the same, and succeeded before; see `verify.mark_beaten`.
    """

    __slots__ = ("_known", "beaten", "events", "id", "member", "ranks", "tag")

    def __init__(self, id: int) -> None:
        self.id = id
        self.tag: dict[str, Any] | None = None
        self.member: dict[str, Any] | None = None
        self.events: list[tuple[str, float, Mapping[str, Any]]] = []
        #: As in R (RFC 20): idsets.
        self.ranks: list[str] = []
        self.beaten = False
        self._known: set[tuple[str, float]] = set()

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take in an event; False where it is known already."""
        key = event["name"], event["timestamp"]
        if key in self._known:
            return False
        self._known.add(key)
        if event["name"] == "submit":
            # A local run that goes on submits again what waited.
            self.events = [one for one in self.events if one[0] != "submit"]
        self.events.append((*key, event.get("context") or {}))
        return True

    def first(self, name: str) -> tuple[float, Mapping[str, Any]] | None:
        """Time and context of the first event of a name."""
        found = next((one for one in self.events if one[0] == name), None)
        return None if found is None else (found[1], found[2])

    @property
    def submitted(self) -> float:
        """When it was."""
        submit = self.first("submit")
        assert submit is not None
        return submit[0]

    @property
    def counts(self) -> bool:
        """The queue accepted it."""
        return any(name == "validate" for name, _, _ in self.events)


class Witness:
    """Watches one instance, from now until `close` or the end of the instance.

    Args:
        uri: of the instance.
        starting: it may not answer yet, and nobody waits until it does.

    Attributes:
        jobs: all jobs seen that were not refused, by id.
        seen: how often (ensemble or "", event) was seen; "" is for jobs without a tag.
        sentinel: it has caught up with the journal.
        error: why it watches no more, where that is a fault of its own.
    """

    def __init__(self, uri: str, *, starting: bool = False) -> None:
        self._uri = uri
        self._starting = starting
        self._changed = threading.Condition()
        self._closed = False
        self.jobs: dict[int, Job] = {}
        self.seen: Counter[tuple[str, str]] = Counter()
        self.sentinel = False
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)
        self._thread.start()
        if not starting and not self.wait(lambda: self.sentinel, 60):
            raise RuntimeError("the job manager does not answer")

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds; False where it still does not after so many seconds."""
        with self._changed:
            return self._changed.wait_for(until, seconds)

    def wait_seen(self, ensemble: str, event: str, many: int, seconds: float = 60) -> bool:
        """Wait until so many jobs of an ensemble have had an event; False if they have not."""
        return self.wait(lambda: self.seen[ensemble, event] >= many, seconds)

    def check(self) -> None:
        """Raise what went wrong in watching."""
        if self.error is not None:
            raise RuntimeError(f"the witness has failed: {self.error!r}")

    def started(self, ensemble: str) -> list[Job]:
        """The jobs of an ensemble that have nodes, and have not ended."""
        return [
            job for job in self.of(ensemble) if job.first("alloc") and job.first("finish") is None
        ]

    def of(self, ensemble: str) -> list[Job]:
        """The jobs of an ensemble that the queue accepted, oldest first."""
        with self._changed:
            found = [
                job
                for job in self.jobs.values()
                if job.tag is not None and job.tag["name"] == ensemble and job.counts
            ]
        return sorted(found, key=lambda job: job.id)

    def members(self) -> list[Job]:
        """The jobs that are members of ensembles."""
        with self._changed:
            return [job for job in self.jobs.values() if job.member is not None]

    def forget(self, ensemble: str) -> None:
        """Forget the jobs of an ensemble, which are all over."""
        with self._changed:
            self.jobs = {
                job.id: job
                for job in self.jobs.values()
                if job.tag is None or job.tag["name"] != ensemble
            }

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._thread.join(10)

    def connected(self, handle: Any) -> None:
        """There is a handle of the instance."""

    def _connect(self) -> Any:
        """A handle of the instance; None where there is none."""
        # Not needed by those who only fold the events of jobs.
        import flux

        while not self._closed:
            try:
                return flux.Flux(self._uri)
            except OSError:
                if not self._starting:
                    break
                time.sleep(_RETRY_SECONDS)
        return None

    def _watch(self) -> None:
        handle = self._connect()
        if handle is None:
            return
        while not self._closed:
            try:
                self.connected(handle)
                self._follow(handle)
            except BrokenPipeError:
                return  # the instance is gone
            except OSError:
                self.sentinel = False
                time.sleep(_RETRY_SECONDS)
            except Exception as error:
                self.error = error
                return

    def _follow(self, handle: Any) -> None:
        from flux.constants import FLUX_RPC_STREAMING

        request = {"full": True, "allow": dict.fromkeys(_EVENTS, 1)}
        topic = "job-manager.events-journal"
        stream = handle.rpc(topic, request, flags=FLUX_RPC_STREAMING)
        try:
            while not self._closed:
                try:
                    stream.wait_for(0.2)
                except TimeoutError:
                    continue
                self._told(stream.get_str())
                stream.reset()
        except OSError:
            self._read_rest(handle, stream)
            raise

    def _read_rest(self, handle: Any, stream: Any) -> None:
        """Read what an instance that is gone has sent before, which is not handed out any more."""
        from flux.constants import FLUX_O_NONBLOCK

        with contextlib.suppress(OSError):
            while stream.is_ready():
                self._told(stream.get_str())
                stream.reset()
        with contextlib.suppress(OSError):
            while (message := handle.recv(flags=FLUX_O_NONBLOCK)) is not None:
                if '"events"' in (message.payload_str or ""):
                    self._told(message.payload_str)

    def _told(self, text: str) -> None:
        with self._changed:
            self._take(json.loads(text))
            self._changed.notify_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        if message["id"] == -1:
            self.sentinel = True
            return
        job = self.jobs.setdefault(message["id"], Job(message["id"]))
        if job.tag is None and message.get("jobspec"):
            user = message["jobspec"]["attributes"].get("user") or {}
            tag = user.get("ensemble") or {}
            # A fence is nobody's job.
            job.tag = tag if "name" in tag else None
            job.member = user.get("ensemble-member")
        if message.get("R"):
            job.ranks = [part["rank"] for part in message["R"]["execution"]["R_lite"]]
        whose = "" if job.tag is None else job.tag["name"]
        for event in message["events"]:
            if job.take(event):
                self.seen[whose, event["name"]] += 1
            if event["name"] == "invalidate":
                # It is refused; when job-ingest is loaded anew its id may be another's.
                self.jobs.pop(job.id, None)
