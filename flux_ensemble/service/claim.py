"""Which service drives the ensembles of an instance: one at a time.

    begin ──► the claim in the KVS ──ask who made it──► answers, or is silent: refused
                                          └───────────► is gone: claim, read back, held
    held ───► watch the claim ──► another one that is as new, or newer: lost

The services of an instance keep their ensembles in one KVS, whatever their names and ranks are,
so the claim is there too, and is of all of them:

    ensemble-service    {"epoch": 3, "rank": 0, "name": "ensemble", "mode": "module", "pid": 4711,
                         "token": "...", "elsewhere": []}

The epoch counts the services that have begun here; the token tells a service from all others. A
service answers `NAME.claim` with its claim. Flux itself says of one that is dead, or whose broker
is, that it is not there (ENOSYS, EHOSTUNREACH), so nobody waits for it. One that is stopped or busy
is silent, and is never put aside, because it would go on where it stopped: nothing begins beside
it, so that it may go on when it wakes up.

What a process was asked before it died is never answered. So the answer to `NAME.claim` has its
age, too, in seconds: whoever was asked before that was another one.

Two that begin at the same moment both see that nobody is there. The KVS makes their claims one
after the other: the later one counts, and the other service is told by its watch.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from flux.constants import FLUX_MSGTYPE_REQUEST
from flux.core.handle import Flux
from flux.message import Message

from flux_ensemble.queues.flux.errors import errno_name, sentence
from flux_ensemble.queues.flux.loop import Guard
from flux_ensemble.service.store.errors import StoreError, damaged
from flux_ensemble.service.store.transactions import Change, KeyWatch, Kvs, parse_object

KEY = "ensemble-service"

#: Seconds to wait for the answer of a service that is there.
ANSWER_SECONDS = 10.0

#: What Flux says of a service that is not there: its broker has nobody of the name, or is gone.
_GONE = frozenset((errno.ENOSYS, errno.EHOSTUNREACH))


class ClaimedError(Exception):
    """Another service drives the ensembles; one sentence."""


#: What a claim holds; one that an earlier version of flux-ensemble made has an epoch only.
_TYPES = {
    "epoch": int,
    "rank": int,
    "name": str,
    "mode": str,
    "pid": int,
    "token": str,
    "elsewhere": list,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What the key holds.

    Args:
        epoch: how many services have begun in this instance.
        rank: of the broker that it is registered with; -1 where that is not said.
        name: that it is registered by.
        mode: "module", "process" (of a keeper) or "client".
        pid: of its process.
        token: no other service has it.
        elsewhere: other ranks where jobs may be on their way that earlier services sent, until a
            fence has been there.
    """

    epoch: int
    rank: int = -1
    name: str = ""
    mode: str = ""
    pid: int = 0
    token: str = ""
    elsewhere: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Claim:
        """The claim in the key's value; keys that this version does not know are left out.

        Raises:
            StoreError: it is none.
        """
        value = parse_object(KEY, text)
        keys = _TYPES if "token" in value else ("epoch",)
        given: dict[str, Any] = {key: value.get(key) for key in keys}
        if "elsewhere" in given:
            given["elsewhere"] = value.get("elsewhere", [])
        if any(type(one) is not _TYPES[key] for key, one in given.items()):
            raise damaged(KEY, 'expected {"epoch": NUMBER, ...}', text)
        ranks: list[Any] = given.pop("elsewhere", None) or []
        if any(type(rank) is not int for rank in ranks):
            raise damaged(KEY, "expected ranks in elsewhere", text)
        return cls(**given, elsewhere=tuple(ranks))

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @property
    def where(self) -> str:
        """Who made it."""
        if self.mode == "module":
            return f"the module {self.name!r} on rank {self.rank} (pid {self.pid})"
        if self.mode == "process":
            return f"the process of 'ensemble-keeper' on rank {self.rank} (pid {self.pid})"
        if self.mode:
            return f"'flux ensemble serve' on rank {self.rank} (pid {self.pid})"
        return "an earlier version of flux-ensemble"

    @property
    def remedy(self) -> str:
        """What ends it."""
        if self.mode == "module":
            return f"'flux exec -r {self.rank} flux module remove {self.name}'"
        if self.mode == "process":
            return f"'flux exec -r {self.rank} flux module remove ensemble-keeper'"
        return f"'flux exec -r {self.rank} kill {self.pid}'"


class Claims:
    """The claim of one service, and those of others.

    Args:
        handle: Flux handle of the service.
        requests: the one that it is registered by already.
        guard: wraps what is called from the reactor.
        name: the service's.
        mode: "module", "process" (of a keeper) or "client".
        lost: called with a sentence when another service has made a claim; once.
        t_begin: when the service began, by the monotonic clock, before it was registered; None for
            a module.
    """

    def __init__(
        self,
        handle: Flux,
        requests: Flux,
        guard: Guard,
        *,
        name: str,
        mode: str,
        lost: Callable[[str], None],
        t_begin: float | None = None,
    ) -> None:
        self._handle = handle
        self._requests = requests
        self._t_begin = t_begin
        self._kvs = Kvs(handle, guard)
        self._rank = int(handle.attr_get("rank"))
        self._name = name
        self._mode = mode
        self._lost = lost
        self._mine: Claim | None = None
        self._watch: KeyWatch | None = None
        answer = guard(self._answer)
        self._watcher = requests.msg_watcher_create(
            lambda _handle, _watcher, message, _args: answer(message),
            FLUX_MSGTYPE_REQUEST,
            f"{name}.claim",
        )
        self._watcher.start()

    def take(self) -> int:
        """Claim the ensembles of the instance; waits until all that earlier services sent is there.

        Returns:
            The epoch: 1 for the first service, and one more for each after it.

        Raises:
            ClaimedError: another service drives them.
            StoreError: the KVS does not answer, or the claim in it is damaged.
        """
        if self._mine is not None:
            return self._mine.epoch
        last = self._read()
        while last is not None and self._asks(last):
            self._flush(last.rank)
            # Somebody else may have begun meanwhile.
            asked, last = last, self._read()
            if last == asked:
                break
        if last is None:
            last = Claim(0)
        ranks = {last.rank, *last.elsewhere} - {-1, self._rank}
        mine = Claim(
            last.epoch + 1,
            self._rank,
            self._name,
            self._mode,
            os.getpid(),
            uuid.uuid4().hex,
            tuple(sorted(ranks)),
        )
        self._kvs.commit(_put(mine), KEY, sync=True)
        now = self._find()
        if now is not None and now.token != mine.token:
            raise ClaimedError(_refusal(now))
        self._mine = mine
        self._watch = self._kvs.watch(KEY, self._changed)
        return mine.epoch

    @property
    def elsewhere(self) -> tuple[int, ...]:
        """As in the claim of this service."""
        return () if self._mine is None else self._mine.elsewhere

    def settle(self) -> None:
        """All that earlier services sent has shown."""
        if self._mine is not None and self._mine.elsewhere:
            self._mine = replace(self._mine, elsewhere=())
            self._kvs.send(_put(self._mine), KEY, lambda _: None)

    def close(self) -> None:
        """Watch no more, and answer nobody."""
        if self._watch is not None:
            self._watch.stop()
        self._watcher.destroy()
        self._requests.del_watcher(self._watcher)

    def _read(self) -> Claim | None:
        """The claim, when a commit is back that was sent behind all of an earlier service.

        Then this rank has the KVS as rank 0 has it, too.
        """
        self._kvs.commit(Change(), KEY)
        return self._find()

    def _find(self) -> Claim | None:
        text = self._kvs.find(KEY)
        return None if text is None else Claim.parse(text)

    def _asks(self, last: Claim) -> bool:
        """Ask the service of a claim whether it is there.

        Returns:
            False: there was nobody to ask. Of one name a broker has one service, and that is
            this one now.

        Raises:
            ClaimedError: it is there.
        """
        if not last.token or (last.rank, last.name) == (self._rank, self._name):
            return False
        try:
            future = self._handle.rpc(f"{last.name}.claim", {}, last.rank)
            answer = future.wait_for(ANSWER_SECONDS).get()
        except OSError as error:
            if error.errno in _GONE:
                return True
            raise ClaimedError(_silence(last, error)) from None
        if isinstance(answer, dict) and answer.get("token") == last.token:
            raise ClaimedError(_refusal(last))
        return True

    def _flush(self, rank: int) -> None:
        """Wait until all commits that were sent by way of another rank are on their way to rank 0.

        Its module kvs passes them on as they come, and then it answers. Where the broker is gone
        nothing comes from it any more.
        """
        with contextlib.suppress(OSError):
            self._handle.rpc("kvs.ping", {"seq": 0}, rank).wait_for(ANSWER_SECONDS).get()

    def _answer(self, message: Message) -> None:
        """Somebody asks whether this service is there."""
        answer = {} if self._mine is None else self._mine.to_json()
        if self._t_begin is not None:
            answer["age"] = time.monotonic() - self._t_begin
        self._requests.respond(message, answer)

    def _changed(self, text: str | None) -> None:
        """The key has another value, or none."""
        assert self._mine is not None
        now = _understood(text)
        if now is None or now.epoch < self._mine.epoch:
            # Somebody dropped it, or put an old one there.
            self._kvs.send(_put(self._mine), KEY, lambda _: None)
        elif now.token != self._mine.token:
            self.close()
            self._lost(
                f"{now.where} drives the ensembles of this instance now, as epoch {now.epoch}: "
                f"this service, epoch {self._mine.epoch}, has stopped"
            )


def _put(claim: Claim) -> Change:
    change = Change()
    change.put(KEY, json.dumps(claim.to_json()))
    return change


def _understood(text: str | None) -> Claim | None:
    """The claim in the key's value, or None where there is none."""
    try:
        return None if text is None else Claim.parse(text)
    except StoreError:
        return None


def _refusal(claim: Claim) -> str:
    return (
        f"{claim.where} drives the ensembles of this instance, and one service does: use that "
        f"one, or end it first ({claim.remedy})"
    )


def _silence(claim: Claim, error: OSError) -> str:
    if error.errno == errno.ETIMEDOUT:
        why = f"has not answered within {ANSWER_SECONDS:g} seconds"
    else:
        why = f"does not answer: {sentence(error)} ({errno_name(error)})"
    return (
        f"{claim.where} drives the ensembles of this instance, and {why}: it may be stopped or "
        f"busy; try again later, or end it first ('flux exec -r {claim.rank} kill -9 {claim.pid}')"
    )
