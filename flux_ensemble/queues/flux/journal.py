"""The job manager's journal: one stream of job events for all ensembles, and how it widens.

The journal (`job-manager.events-journal`, flux-core `src/modules/job-manager/journal.c`)
sends the events of all jobs whose names are in its request's `allow`. The stream begins
with one message for each active job, the backlog, then a sentinel with id -1, then one
message for each event as it is posted. The filter of a stream cannot be changed, so when
an ensemble needs more events a second stream is started. Nothing is lost or repeated, because:

1. The job manager handles the request for the new stream B in one step: it sends the
   whole backlog and puts B on its list. Events posted before that step went to the old
   stream A only, events posted later go to A and to B.
order (`queues.flux.stream`). So when B's first message is handled, all that was sent
to A before step 1 has been handled.
3. From that message on A is ignored, and cancelled, and B's backlog is not taken for
events. All that follows B's sentinel is exactly what was posted after step 1.

Events that only B lets through are seen from step 1 on. A consumer that acts after the callback
of `require`, for instance submits its jobs, misses none of their events.

The backlog shows the jobs that are active already, from which ensembles may learn (`learn`), and
those with a tag. The time and place of a job's allocation are added to its `start` event for
ensembles that need them (`queues.flux.allocations`).

After a gap, that is when the service begins or the job manager was gone, `catch_up` opens a stream
whose backlog is everything: all jobs that the job manager knows, including inactive ones, with all
their events (`history`). These jobs come in no particular order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from errno import errorcode
from typing import Any, NamedTuple, Protocol

from flux_ensemble.document.job_sets import TAG_KEY
from flux_ensemble.queues.flux.allocations import ALLOC, Allocations
from flux_ensemble.queues.flux.nested_jobs import read_json
from flux_ensemble.texts import MAX_LINE, clip

#: Most characters of a context as JSON, as of a local job's memo. The owner of a job writes the
#: note of an exception and the values of a memo, at any length; what an ensemble takes in goes into
#: its log, and to all clients that follow it.
MAX_CONTEXT = 32 * 1024

TOPIC = "job-manager.events-journal"

#: The id of the message that ends the backlog (FLUX_JOBID_ANY).
SENTINEL = -1

#: Strings that are in all messages about jobs, and in those about jobs of ensembles.
_JOBSPEC, _TAG = '"jobspec"', f'"{TAG_KEY}"'


class Open(Protocol):
    """A stream that has been opened."""

    def cancel(self) -> None:
        """Request the end of the stream."""
        ...


#: Receive the stream, and the payload of a response as text or the error that ended the stream.
Receive = Callable[[Any, str], None]
Ended = Callable[[Any, OSError], None]

#: Receives a response's payload when it is read, as UTF-8; True if there is nothing more to do.
Aside = Callable[[bytes], bool]


def nothing(_: bytes) -> bool:
    """Leave a payload to its receiver, as an `Aside`."""
    return False


#: Opens a stream, from its topic and payload, and the receivers of responses and of the end.
OpenStream = Callable[[str, Mapping[str, Any], Receive, Ended, Aside], Open]


#: Receives a job of the history: its id, its jobspec, and its RFC 18 entries in order.
History = Callable[[int, Mapping[str, Any], list[Mapping[str, Any]]], None]


class Filter(NamedTuple):
    """The events that a stream lets through, with what else is needed of it.

    Args:
        names: names of events.
        learn: its backlog is used.
        places: `start` has the time and place of the job's allocation.
    """

    names: frozenset[str]
    learn: bool
    places: bool

    def covers(self, other: Filter) -> bool:
        """True if it lets through all that `other` does."""
        return (
            self.names >= other.names and self.learn >= other.learn and self.places >= other.places
        )

    def join(self, other: Filter) -> Filter:
        """Combine two filters: let through what either lets through."""
        return Filter(
            self.names | other.names, self.learn or other.learn, self.places or other.places
        )


NOTHING = Filter(frozenset(("submit",)), False, False)


class Journal:
    """The events of all jobs, from a stream that widens when more is required.

    Args:
        open_stream: sends the request; `queues.flux.stream.StreamingRequest` with a Flux handle.
        event: receives each live event: job id, the RFC 18 entry, and for "submit" the
            jobspec (without its environment), else None.
        backlog: receives the id and jobspec of each job that was active when a stream with
            `learn` began.
        tagged: receives the id, the jobspec and the entries of each job with a tag that was
            active when a stream without history began.
        lost: receives a sentence when the stream has ended by itself; no events come any more
            until the next `require`.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        *,
        event: Callable[[int, Mapping[str, Any], Mapping[str, Any] | None], None],
        backlog: Callable[[int, Mapping[str, Any]], None],
        lost: Callable[[str], None],
        tagged: History = lambda job, jobspec, entries: None,
    ) -> None:
        self._open_stream = open_stream
        self._event = event
        self._backlog = backlog
        self._lost = lost
        self._tagged = tagged
        self._wanted = NOTHING
        self._waiting: list[tuple[Filter, Callable[[], None]]] = []
        self._live: Open | None = None
        self._live_filter = NOTHING
        self._caught_up = False
        self._next: Open | None = None
        self._next_filter = NOTHING
        self._history: History | None = None
        self._held: list[tuple[Open, str]] | None = None
        self._allocations = Allocations()

    def catch_up(
        self,
        names: frozenset[str],
        learn: bool,
        history: History,
        ready: Callable[[], None],
        *,
        places: bool = False,
    ) -> None:
        """Begin with all that happened before; there must be no stream yet.

        Args:
            names, learn, ready, places: as for `require`.
            history: receives each job of the instance, before `ready` is called.
        """
        assert self._live is None
        assert self._next is None
        self._history = history
        self.require(names, learn, ready, places=places)

    def require(
        self,
        names: frozenset[str],
        learn: bool,
        ready: Callable[[], None],
        *,
        places: bool = False,
    ) -> None:
        """Let these event names through from now on, besides those required before.

        Args:
            names: names of job events (RFC 21).
            learn: pass the jobs that are active already to `backlog`.
            ready: called once when the stream does so, perhaps before this returns.
            places: add the time and place of a job's allocation to its `start` event.
        """
        need = Filter(names, learn, places)
        self._wanted = self._wanted.join(need)
        self._waiting.append((need, ready))
        self._advance()

    def hold(self) -> None:
        """Pass nothing on until `release`."""
        self._held = []

    def release(self) -> None:
        """Pass on what has come since `hold`, and go on."""
        held, self._held = self._held or [], None
        for stream, text in held:
            self._on_response(stream, text)

    @property
    def is_open(self) -> bool:
        """True while a stream is open."""
        return self._live is not None

    @property
    def is_steady(self) -> bool:
        """True if the stream brings all that was required."""
        return self._caught_up and self._next is None and not self._waiting

    def stop(self) -> None:
        """End the stream and forget what was required."""
        for stream in (self._live, self._next):
            if stream is not None:
                stream.cancel()
        self._forget()

    def _forget(self) -> None:
        self._live = self._next = None
        self._history = self._held = None
        self._caught_up = False
        self._wanted = self._live_filter = self._next_filter = NOTHING
        self._waiting.clear()
        self._allocations.clear()

    def _advance(self) -> None:
        """Call back all that are served, and start a wider stream for the others."""
        if self._caught_up:
            served = [one for one in self._waiting if self._live_filter.covers(one[0])]
            self._waiting = [one for one in self._waiting if one not in served]
            for _, ready in served:
                ready()
        if self._waiting and self._next is None and not self._starting:
            self._next_filter = self._wanted
            # The place of a job comes with an event of its own.
            more = {ALLOC} if self._wanted.places else set()
            allow = dict.fromkeys(sorted(self._wanted.names | more), 1)
            # If the event itself is wanted, it has to be passed on in its turn.
            aside = nothing if ALLOC in self._wanted.names else self._allocations.take_text
            self._next = self._open_stream(
                TOPIC,
                {"full": self._history is not None, "allow": allow},
                self._on_response,
                self._on_end,
                aside,
            )

    @property
    def _starting(self) -> bool:
        """True while the live stream is in its backlog; it may serve those that wait after that."""
        return self._live is not None and not self._caught_up

    def _on_response(self, stream: Open, text: str) -> None:
        if self._held is not None:
            self._held.append((stream, text))
            return
        if stream is self._next:
            old, self._live, self._next = self._live, stream, None
            self._live_filter = self._next_filter
            self._caught_up = False
            if old is not None:
                old.cancel()
        if stream is not self._live or self._is_nobodys(text):
            return
        message = read_json(text)
        job = message["id"]
        if len(text) > MAX_LINE:
            shorten(message)
        if self._live_filter.places:
            self._allocations.take(message)
        if self._caught_up:
            jobspec = message.get("jobspec")
            for entry in message["events"]:
                if entry["name"] != ALLOC or ALLOC in self._live_filter.names:
                    self._event(job, entry, jobspec)
        elif job == SENTINEL:
            self._caught_up = True
            self._history = None
            self._advance()
        else:
            if self._history is not None:
                self._history(job, message["jobspec"], message["events"])
            elif _TAG in text:
                self._tagged(job, message["jobspec"], message["events"])
            if self._live_filter.learn:
                self._backlog(job, message["jobspec"])

    def _is_nobodys(self, text: str) -> bool:
        """True for a job that cannot matter: it is in a backlog that is not used, and has no tag.

        A busy instance has thousands of these, and they alone delay the first job of an ensemble
        that has had none for a while.
        """
        looked_at = self._caught_up or self._history is not None or self._live_filter.learn
        return not looked_at and _JOBSPEC in text and _TAG not in text

    def _on_end(self, stream: Open, error: OSError) -> None:
        if stream is not self._live and stream is not self._next:
            return
        for other in (self._live, self._next):
            if other is not None and other is not stream:
                other.cancel()
        self._forget()
        name = errorcode.get(error.errno or 0, str(error.errno))
        self._lost(
            f"the job manager ended its journal of job events ({name}: {error.strerror}); "
            "it is opened again when the job manager is back"
        )


def shorten(message: Mapping[str, Any]) -> None:
    """Shorten the long contexts in a message of the journal.

    A long text loses its middle. If the context is still too long, its longest values are left
    out, so that numbers stay.
    """
    for entry in message.get("events", ()):
        context = entry.get("context")
        if context and len(json.dumps(context)) > MAX_LINE:
            entry["context"] = _shortened(context)


def _shortened(context: Mapping[str, Any]) -> dict[str, Any]:
    clipped = {key: clip(value) if type(value) is str else value for key, value in context.items()}
    sizes = {key: len(key) + _size(value) for key, value in clipped.items()}
    left, kept = MAX_CONTEXT, set()
    for key in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[key]
        if left < 0:
            break
        kept.add(key)
    return {key: value for key, value in clipped.items() if key in kept}


def _size(value: Any) -> int:
    return len(value if type(value) is str else json.dumps(value))
