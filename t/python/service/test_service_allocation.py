"""When the allocation ends: which limits are believed after its guard has fired."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.bindings import BindingsError, require_flux

try:
    require_flux()
except BindingsError as missing:
    pytest.skip(str(missing), allow_module_level=True)

from flux_ensemble.service import allocation
from flux_ensemble.service.allocation import LASTING_SECONDS, Allocation

#: When the instance began, and when its allocation of a minute is to expire.
T_BEGIN, T_END = 1000.0, 1060.0
GUARD = 10.0


class World:
    """A broker that says what a test has it say, and a clock that the test sets.

    Attributes:
        t: the time.
        limit: until when Flux says that the allocation lasts; 0 for no limit.
        queue: "started" or "stopped".
        ending: how often the end was announced.
        updates: what was set as the limit.
        before_update: called before a limit is set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.t = T_BEGIN
        self.limit = T_END
        self.queue = "started"
        self.ending = 0
        self.updates: list[float] = []
        self.parent: float | None = None
        self.asked: Callable[[], None] = lambda: None
        self._due: Callable[[], None] = lambda: None
        monkeypatch.setattr(allocation, "time", SimpleNamespace(time=lambda: self.t))
        monkeypatch.setattr(allocation, "expiration", self._expiration)
        self.handle = self.loop = self
        self.errors: list[str] = []
        self.allocation = Allocation(
            self,  # type: ignore[arg-type]
            GUARD,
            lambda: None,
            self._announce,
            self.errors.append,
        )

    def look(self, t: float, limit: float | None = None) -> None:
        """It is `t`, and the next look is due."""
        self.t = t
        self.limit = self.limit if limit is None else limit
        self._due()

    def _announce(self, t_expires: float) -> None:
        self.ending += 1

    def _expiration(self, attr_get: Callable[[str], Any]) -> float | None:
        self.asked()
        return self.parent

    # -- what a broker has --------------------------------------------------------------

    def timer(self, after: float, callback: Callable[[], None]) -> World:
        self._due = callback
        return self

    def cancel(self) -> None:
        """Another one is set at once."""

    def attr_get(self, name: str) -> str:
        assert name == "broker.starttime"
        return str(T_BEGIN)

    def rpc(self, topic: str, payload: dict[str, Any], nodeid: int) -> Any:
        if topic == "resource.expiration-update":
            self.limit = payload["expiration"]
            self.updates.append(self.limit)
            return SimpleNamespace(get=dict)
        execution = {"expiration": self.limit, "starttime": 0.0}
        return SimpleNamespace(get=lambda: {"R": {"execution": execution}})

    def response(
        self, future: Any, receive: Callable[[Any], Any] = lambda _: None, seconds: float = 0.0
    ) -> Callable[[Callable[[Any], None]], None]:
        return lambda resume: resume(receive(future))

    def start_queues(self, start: bool, reason: str, report: Callable[..., None]) -> None:
        self.queue = "started" if start else "stopped"
        report(None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    made.allocation.watch()
    return made


def guarded(world: World) -> None:
    """The guard has fired: five percent of a minute before the end."""
    world.look(T_END - 3.5)
    assert (world.queue, world.ending) == ("started", 0)
    world.look(T_END - 2.9)
    assert (world.queue, world.ending) == ("stopped", 1)


def test_a_limit_that_is_gone_after_the_end_starts_nothing(world: World) -> None:
    guarded(world)
    for second in range(30):
        world.look(T_END + second, 0.0)
    assert world.queue == "stopped"
    assert world.allocation.t_expires == T_END
    assert not world.allocation.outlasts(T_END)


def test_nor_does_one_that_is_gone_just_before_the_end_and_stays_away(world: World) -> None:
    guarded(world)
    for tenth in range(50):
        world.look(T_END - 0.5 + tenth / 10, 0.0)
    assert world.queue == "stopped"
    assert world.allocation.t_expires == T_END


def test_a_limit_that_was_taken_away_in_time_is_believed_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.limit = T_BEGIN + 3600
    world.allocation.watch()
    world.look(world.limit - GUARD + 1)
    assert world.queue == "stopped"
    t = world.t + 1
    world.look(t, 0.0)
    assert world.queue == "stopped"
    world.look(t + LASTING_SECONDS)
    assert world.queue == "started"
    assert world.allocation.t_expires is None
    assert world.allocation.outlasts(T_BEGIN + 3600)


def test_an_extension_is_believed_at_once(world: World) -> None:
    guarded(world)
    world.look(T_END - 1, T_END + 600)
    assert world.queue == "started"
    assert world.allocation.t_expires == T_END + 600


def test_a_limit_that_was_seen_as_gone_and_is_back_is_the_old_one(world: World) -> None:
    guarded(world)
    world.look(T_END - 2, 0.0)
    world.look(T_END - 1, T_END)
    assert world.queue == "stopped"
    assert world.allocation.t_expires == T_END


def test_a_service_that_begins_after_the_end_of_its_own_instance_does_not_renew_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.t = T_END + 5
    world.allocation.watch()
    assert world.updates == []
    assert world.queue == "stopped"


def test_the_limit_of_an_earlier_instance_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.limit, world.parent = T_BEGIN - 100, T_BEGIN + 500
    world.t = T_BEGIN + 1
    world.allocation.watch()
    assert world.updates == [T_BEGIN + 500]
    assert world.allocation.t_expires == T_BEGIN + 500


def test_what_flux_has_set_meanwhile_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.limit = T_BEGIN - 100
    world.t = T_BEGIN + 1

    def sync() -> None:
        world.limit = T_BEGIN + 700

    world.asked = sync
    world.allocation.watch()
    assert world.updates == []
    assert world.allocation.t_expires == T_BEGIN + 700


def test_the_end_of_time_as_fluxion_writes_it_is_no_limit(world: World) -> None:
    world.look(T_END - 1000, 9223372036.0)
    assert world.allocation.t_expires is None
    assert world.queue == "started"
