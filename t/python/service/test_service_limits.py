"""What the service takes on: sizes, rates, followers, ensembles, and what a site configures."""

from __future__ import annotations

import errno
import json
from contextlib import suppress

import pytest

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.elastic.settings import old_settings, read_scaler
from flux_ensemble.service.requests import limits as bounds
from flux_ensemble.service.requests.limits import Bounds, Bucket, check_ensembles, check_followers
from flux_ensemble.service.requests.protocol import parse
from flux_ensemble.service.settings import Settings, kept_directory, read_settings


class Door:
    """The bounds, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.t = 0.0
        self.bounds = Bounds(lambda: self.t)

    def guest(self, userid: int, requests: int) -> int:
        """How many of some requests of a guest at once are taken on."""
        taken = 0
        for _ in range(requests):
            with suppress(RequestError):
                self.bounds.guest("list", 2, 0, userid)
                taken += 1
        return taken


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_bucket_gives_what_it_holds_and_then_what_comes_in() -> None:
    bucket = Bucket(2, 4.0, 0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(0.25), bucket.take(0.25)] == [True, False]
    assert [bucket.take(100.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    bucket = Bucket(1, 1.0, 10.0)
    assert bucket.take(10.0)
    assert not bucket.take(5.0)


def test_a_guest_has_a_burst_and_then_a_rate(door: Door) -> None:
    assert door.guest(1, 100) == bounds.GUEST_BURST
    door.t += 2.0
    assert door.guest(1, 100) == int(2.0 * bounds.GUEST_RATE)


def test_one_guest_does_not_use_up_what_there_is_for_others(door: Door) -> None:
    door.guest(1, 10_000)
    assert door.guest(2, 100) == bounds.GUEST_BURST


def test_a_guest_who_is_too_fast_is_told_to_ask_later(door: Door) -> None:
    door.guest(1, 100)
    with pytest.raises(RequestError, match=r"^too many requests of guests: .* later$") as caught:
        door.bounds.guest("list", 2, 0, 1)
    assert caught.value.errno == errno.EAGAIN


def test_all_guests_together_are_bounded(door: Door) -> None:
    assert sum(door.guest(userid, 10) for userid in range(100)) == bounds.GUESTS_BURST


def test_guests_are_forgotten_when_there_are_many(door: Door) -> None:
    for userid in range(3 * bounds.MAX_GUESTS):
        door.guest(userid, 1)
    assert len(door.bounds._guest) == bounds.MAX_GUESTS


def test_the_owner_is_not_slowed_down(door: Door) -> None:
    for _ in range(10_000):
        door.bounds.owner("list", 2, 0)


def test_payloads_are_bounded_and_those_of_guests_more_so(door: Door) -> None:
    door.bounds.owner("load", bounds.MAX_PAYLOAD, 0)
    with pytest.raises(RequestError, match=r"ensemble\.load: expected a payload of at most"):
        door.bounds.owner("load", bounds.MAX_PAYLOAD + 1, 0)
    door.bounds.guest("status", bounds.MAX_GUEST_PAYLOAD, 0, 1)
    with pytest.raises(RequestError, match="at most 4096 bytes, not 4097"):
        door.bounds.guest("status", bounds.MAX_GUEST_PAYLOAD + 1, 0, 1)


@pytest.mark.parametrize(
    ("check", "most"),
    [
        (check_followers, bounds.MAX_FOLLOWERS),
        (check_ensembles, bounds.MAX_ENSEMBLES),
        (lambda count: Door().bounds.owner("submit", 2, count), bounds.MAX_WAITING),
    ],
)
def test_there_are_only_so_many_of_everything(check, most: int) -> None:
    check(most - 1)
    with pytest.raises(RequestError, match=str(most)) as caught:
        check(most)
    assert caught.value.errno == errno.EAGAIN


def test_a_payload_that_nests_without_end_is_refused() -> None:
    with pytest.raises(RequestError, match="nests too deep") as caught:
        parse("list", '{"a":' * 100_000)
    assert caught.value.errno == errno.EINVAL


def test_aliases_that_stand_for_ever_more_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 30):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    with pytest.raises(DocumentError, match="a document has at most 250000 values"):
        load_text("\n".join(lines), name="a")


def test_what_is_wrong_is_quoted_shortly() -> None:
    with pytest.raises(RequestError) as caught:
        parse("status", json.dumps({"name": [1] * 100_000}))
    assert str(caught.value).endswith("not a list with 100000 items")


def test_what_a_site_does_not_say_is_off() -> None:
    settings = read_settings({}, pytest.fail)
    assert settings == Settings(allow_guest_status=False, walltime_guard=10.0, reconnect_limit=60.0)


def test_only_a_plain_true_is_on() -> None:
    wrong: list[str] = []
    settings = read_settings(
        {
            "allow-guest-status": "yes",
            "service": "module",
            "colour": 1,
            "walltime-guard": "soon",
            "reconnect-limit": -1,
        },
        wrong.append,
    )
    assert settings == Settings()
    assert wrong == [
        "[ensemble] allow-guest-status: expected true or false, not 'yes'",
        "[ensemble] colour: unknown key (keys: allow-guest-status, walltime-guard, "
        "reconnect-limit, service, scaler, min-nodes, max-nodes, grace, start-limit, start-broker, "
        "grpc-target, grpc-cluster, tls-cert, tls-key, tls-ca)",
        "[ensemble] walltime-guard: expected a duration (seconds, or text such as '30s', '1.5h' or "
        "'100ms'), not 'soon'",
        "[ensemble] reconnect-limit: expected a duration (seconds, or text such as '30s', '1.5h' "
        "or '100ms'), not -1",
    ]


def test_keys_of_a_scaler_are_left_to_what_reads_them() -> None:
    for key in ("min-nodes", "min-size"):
        assert read_settings({"scaler": "instance", key: 0}, pytest.fail) == Settings()


def test_old_keys_of_a_scaler_are_read_as_the_new_ones() -> None:
    new = {"scaler": "minicluster", "grpc-target": "a:1", "grpc-cluster": "b", "max-nodes": 3}
    old = {"scaler": "minicluster", "grpc-target": "a:1", "grpc-member": "b", "max-size": 3}
    assert read_scaler(old) == read_scaler(new)
    assert old_settings(new) == []
    assert old_settings(old) == [
        "max-size is deprecated: use max-nodes",
        "grpc-member is deprecated: use grpc-cluster",
    ]


def test_an_old_key_of_a_scaler_beside_the_new_one_is_refused() -> None:
    table = {"scaler": "instance", "start-broker": "x", "min-size": 1, "min-nodes": 2}
    with pytest.raises(ValueError, match="min-size: 'min-nodes' is its new name"):
        read_scaler(table)


@pytest.mark.parametrize(
    ("attributes", "directory"),
    [
        ({"statedir": "/var/tmp/flux-x", "statedir-cleanup": "1"}, None),
        ({"statedir": "/home/me/state", "statedir-cleanup": "0"}, "/home/me/state"),
        ({"statedir": "/home/me/state"}, "/home/me/state"),
        ({}, None),
    ],
)
def test_a_statedir_counts_where_it_stays(
    attributes: dict[str, str], directory: str | None
) -> None:
    def attr_get(name: str) -> str:
        if name not in attributes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return attributes[name]

    assert kept_directory(attr_get) == directory
