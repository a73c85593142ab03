"""The claim of a service on the ensembles of an instance: only one service drives them at a time.

    begin ──► the claim in the KVS ──ask its maker──► answers, or is silent: refused
                                          └─────────► is gone: claim, read back, held
    held ───► watch the claim ──► another one that is as new, or newer: lost

All services of an instance keep their ensembles in one KVS, whatever their names and ranks are. So
the claim is there, too, and covers all of them:

    ensemble-service    {"epoch": 3, "rank": 0, "name": "ensemble", "mode": "module", "pid": 4711,
                         "token": "...", "elsewhere": []}

The epoch counts the services that have begun in this instance; the token is unique to a service. A
service answers `NAME.claim` with its claim. If a service is dead, or its broker is, Flux itself
responds at once with ENOSYS or EHOSTUNREACH. A service that is stopped or busy is silent. It is
never put aside, because it would continue from where it stopped: no other service begins beside it,
so that it can continue when it wakes up.

A request that a process received before it died is never answered. So the answer to `NAME.claim`
holds the age of the service in seconds, too: any request older than that went to another service.

Two services that begin at the same moment both find no other one. The KVS applies their claims one
after the other: the later one counts, and the other service learns of it by its watch.
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

#: Seconds to wait for the answer of another service.
ANSWER_SECONDS = 10.0

#: Errors of a request to a service that is gone: its broker has no such service, or is gone, too.
_GONE = frozenset((errno.ENOSYS, errno.EHOSTUNREACH))


class ClaimedError(Exception):
    """Another service drives the ensembles; the text is one sentence."""


#: Keys of a claim with their types; an earlier version of flux-ensemble stored the epoch alone.
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
    """The value of the key.

    Args:
        epoch: number of services that have begun in this instance.
        rank: of the broker that the service is registered with; -1 if unknown.
        name: that the service is registered by.
        mode: "module", "process" (of a keeper) or "client".
        pid: of its process.
        token: unique to the service.
        elsewhere: other ranks from which jobs of earlier services may still arrive, until a fence
            has passed there.
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
        """Parse the key's value; ignore keys that this version does not know.

        Raises:
            StoreError: the value is not a claim.
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
        """Return the claim as JSON."""
        return asdict(self)

    @property
    def where(self) -> str:
        """The service that made the claim, in words."""
        if self.mode == "module":
            return f"the module {self.name!r} on rank {self.rank} (pid {self.pid})"
        if self.mode == "process":
            return f"the process of 'ensemble-keeper' on rank {self.rank} (pid {self.pid})"
        if self.mode:
            return f"'flux ensemble serve' on rank {self.rank} (pid {self.pid})"
        return "an earlier version of flux-ensemble"

    @property
    def remedy(self) -> str:
        """The command that ends that service."""
        if self.mode == "module":
            return f"'flux exec -r {self.rank} flux module remove {self.name}'"
        if self.mode == "process":
            return f"'flux exec -r {self.rank} flux module remove ensemble-keeper'"
        return f"'flux exec -r {self.rank} kill {self.pid}'"


class Claims:
    """The claim of one service, and its checks of other services' claims.

    Args:
        handle: Flux handle of the service.
        requests: the handle that the service is registered by already.
        guard: wraps the callbacks of the reactor.
        name: of the service.
        mode: "module", "process" (of a keeper) or "client".
        lost: called once, with a sentence, when another service has made a claim.
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
        """Claim the ensembles of the instance, once all that earlier services sent has arrived.

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
            # Another service may have begun meanwhile.
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
        """Ranks from which jobs may still arrive, as in the claim of this service."""
        return () if self._mine is None else self._mine.elsewhere

    def settle(self) -> None:
        """Note in the claim that everything earlier services sent has arrived."""
        if self._mine is not None and self._mine.elsewhere:
            self._mine = replace(self._mine, elsewhere=())
            self._kvs.send(_put(self._mine), KEY, lambda _: None)

    def close(self) -> None:
        """Stop watching the claim and answering requests."""
        if self._watch is not None:
            self._watch.stop()
        self._watcher.destroy()
        self._requests.del_watcher(self._watcher)

    def _read(self) -> Claim | None:
        """Return the claim, once a commit sent behind all commits of an earlier service is back.

        After that, this rank sees the KVS as rank 0 does.
        """
        self._kvs.commit(Change(), KEY)
        return self._find()

    def _find(self) -> Claim | None:
        text = self._kvs.find(KEY)
        return None if text is None else Claim.parse(text)

    def _asks(self, last: Claim) -> bool:
        """Ask the service of a claim whether it lives.

        Returns:
            False if there was nobody to ask: a broker has one service of a name, and this service
            has the name now.

        Raises:
            ClaimedError: the service lives, or is silent.
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
        """Wait until all commits that were sent through another rank are on their way to rank 0.

        The module kvs of that rank forwards them in order, and then answers the ping. If the broker
        is gone, nothing arrives from it any more.
        """
        with contextlib.suppress(OSError):
            self._handle.rpc("kvs.ping", {"seq": 0}, rank).wait_for(ANSWER_SECONDS).get()

    def _answer(self, message: Message) -> None:
        """Answer another service that asks whether this one lives."""
        answer = {} if self._mine is None else self._mine.to_json()
        if self._t_begin is not None:
            answer["age"] = time.monotonic() - self._t_begin
        self._requests.respond(message, answer)

    def _changed(self, text: str | None) -> None:
        """Handle a changed or removed key: store the claim again, or report that it is lost."""
        assert self._mine is not None
        now = _understood(text)
        if now is None or now.epoch < self._mine.epoch:
            # The key was removed, or has an older claim.
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
    """Return the claim in the key's value, or None if there is none."""
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
