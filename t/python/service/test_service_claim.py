"""Which service drives the ensembles of an instance, on a real Flux instance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from test_service_kvs import Bench, instance

if TYPE_CHECKING:
    from flux_ensemble.service.claim import Claims

pytestmark = pytest.mark.flux

KEY = "ensemble-service"


class Service:
    """As much of a service as makes a claim, with a connection of its own.

    Args:
        uri: of the broker.
        name: that it is registered by.

    Attributes:
        all: those that have not left.
        lost: why it does not drive the ensembles any more.
    """

    all: ClassVar[list[Service]] = []

    def __init__(self, uri: str, name: str = "ensemble") -> None:
        import flux

        from flux_ensemble.service.claim import Claims

        self.handle = flux.Flux(uri)
        self.handle.service_register(name).get()
        self.lost: list[str] = []

        def lost(reason: str) -> None:
            self.lost.append(reason)
            self.handle.reactor_stop()

        self.claims: Claims = Claims(
            self.handle, self.handle, lambda callback: callback, name=name, mode="client", lost=lost
        )
        self.all.append(self)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run its reactor until something holds."""

        def look(*_: Any) -> None:
            if condition():
                self.handle.reactor_stop()

        timer = self.handle.timer_watcher_create(0.0, look, repeat=0.01)
        timer.start()
        self.handle.reactor_run()
        timer.stop()

    def end(self) -> None:
        """It leaves."""
        self.all.remove(self)
        self.claims.close()
        self.handle.service_unregister(self.claims._name).get()


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    with instance("--test-size=2") as made:
        yield made


@pytest.fixture
def bench(shared: Bench) -> Iterator[Bench]:
    """An instance in which nobody has made a claim."""
    yield shared
    while Service.all:
        Service.all[0].end()
    shared.flux("kvs", "unlink", "-f", KEY)


def other_uri(bench: Bench) -> str:
    """The URI of rank 1."""
    return bench.flux("exec", "-r1", "flux", "getattr", "local-uri").strip()


def claim(bench: Bench) -> Any:
    return json.loads(bench.get(KEY))


def put(bench: Bench, text: str) -> None:
    bench.flux("kvs", "put", "--raw", f"{KEY}={text}")


def test_each_service_has_an_epoch_and_a_token_of_its_own(bench: Bench) -> None:
    tokens = set()
    for epoch in (1, 2, 3):
        service = Service(bench.uri)
        assert service.claims.take() == epoch
        now = claim(bench)
        tokens.add(now["token"])
        assert (now["epoch"], now["rank"], now["name"], now["mode"]) == (
            epoch,
            0,
            "ensemble",
            "client",
        )
        service.end()
    assert len(tokens) == 3


def test_a_claim_of_an_earlier_version_is_followed(bench: Bench) -> None:
    put(bench, '{"epoch": 4}')
    assert Service(bench.uri).claims.take() == 5


def test_a_key_that_is_not_known_is_left_out(bench: Bench) -> None:
    put(bench, '{"epoch": 4, "flavour": "later"}')
    assert Service(bench.uri).claims.take() == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("7", "expected a JSON object, not '7'; 'flux kvs get"),
        ('{"epoch": null}', r'expected {"epoch": NUMBER, ...}, not .*\bnull'),
        ('{"token": "t", "epoch": 1}', 'expected {"epoch": NUMBER, ...}, not .*token'),
        ('{"rank": 1}', 'expected {"epoch": NUMBER, ...}, not'),
        (
            '{"epoch": 1, "rank": 0, "name": "a", "mode": "module", "pid": 1, "token": "t", '
            '"elsewhere": ["x"]}',
            "expected ranks in elsewhere, not",
        ),
    ],
)
def test_a_damaged_claim_is_named_with_what_to_do(bench: Bench, text: str, reason: str) -> None:
    from flux_ensemble.service.store.errors import StoreError

    put(bench, text)
    service = Service(bench.uri)
    with pytest.raises(StoreError, match=reason):
        service.claims.take()
    bench.flux("kvs", "unlink", "-R", KEY)
    assert service.claims.take() == 1


def test_a_claim_on_a_rank_that_there_is_not_holds_nobody_up(bench: Bench) -> None:
    lost = {"rank": 77, "name": "ensemble", "mode": "client", "pid": 1, "token": "t"}
    put(bench, json.dumps({"epoch": 1, **lost, "elsewhere": []}))
    assert Service(bench.uri).claims.take() == 2


def test_the_ranks_where_earlier_services_were_are_kept_until_all_has_shown(bench: Bench) -> None:
    first = Service(other_uri(bench))
    first.claims.take()
    first.end()
    second = Service(bench.uri)
    second.claims.take()
    assert second.claims.elsewhere == (1,)
    second.end()
    third = Service(bench.uri)
    third.claims.take()
    assert third.claims.elsewhere == (1,)
    third.claims.settle()
    third.run_until(lambda: claim(bench)["elsewhere"] == [])
    assert not third.lost
    third.end()


def test_a_service_whose_claim_is_followed_by_another_is_told(bench: Bench) -> None:
    service = Service(bench.uri)
    service.claims.take()
    mine = claim(bench)
    put(bench, json.dumps({**mine, "token": "another", "rank": 1, "pid": 7}))
    service.handle.reactor_run()
    assert service.lost == [
        "'flux ensemble serve' on rank 1 (pid 7) drives the ensembles of this instance now, as "
        "epoch 1: this service, epoch 1, has stopped"
    ]


def test_a_watch_outlives_the_module_that_serves_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flux_ensemble.service.store import transactions as kvs_io

    monkeypatch.setattr(kvs_io, "RENEW_SECONDS", 0.5)
    service = Service(bench.uri)
    service.claims.take()
    mine = claim(bench)
    bench.flux("module", "reload", "kvs-watch")
    put(bench, json.dumps({**mine, "epoch": 2, "token": "another"}))
    service.handle.reactor_run()
    assert len(service.lost) == 1


def test_a_claim_that_is_dropped_or_replaced_by_an_older_one_is_put_there_again(
    bench: Bench,
) -> None:
    put(bench, '{"epoch": 4}')
    service = Service(bench.uri)
    service.claims.take()
    mine = claim(bench)

    def mine_again() -> bool:
        try:
            return bool(claim(bench) == mine)
        except (ValueError, OSError):
            return False

    for text in ('{"epoch": 3}', "nonsense"):
        put(bench, text)
        service.run_until(mine_again)
    assert not service.lost
