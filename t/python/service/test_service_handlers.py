"""Each topic has exactly one handler, or the service is not made."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.client.topics import TOPICS
from flux_ensemble.service.requests.registration import collect_handlers, request_handler


class Status:
    @request_handler("status")
    def status(self, message: Any, payload: Any) -> None:
        """Handle one topic."""


class Others:
    def __init__(self) -> None:
        self.handled: list[Any] = []

    @request_handler(*(topic for topic in TOPICS if topic != "status"))
    def other(self, message: Any, payload: Any) -> None:
        """Handle all other topics."""
        self.handled.append(payload)

    def helper(self) -> None:
        """Handle nothing."""


def test_each_topic_is_handled_by_the_object_that_declares_it() -> None:
    others = Others()
    handlers = collect_handlers(Status(), others)
    assert handlers.keys() == TOPICS.keys()
    handlers["list"](None, {"payload": 1})
    assert others.handled == [{"payload": 1}]


def test_a_topic_without_a_handler_is_an_error() -> None:
    with pytest.raises(TypeError, match="topic 'status': expected one request handler, not none"):
        collect_handlers(Others())


def test_a_topic_with_two_handlers_is_an_error_that_names_them() -> None:
    class Again:
        @request_handler("status")
        def again(self, message: Any, payload: Any) -> None: ...

    with pytest.raises(TypeError, match=r"'status': .*, not Status\.status, Again\.again"):
        collect_handlers(Status(), Others(), Again())


def test_a_handler_of_an_unknown_topic_is_an_error() -> None:
    class Odd:
        @request_handler("odd")
        def odd(self, message: Any, payload: Any) -> None: ...

    with pytest.raises(TypeError, match=r"Odd\.odd handles topic 'odd', which is not in"):
        collect_handlers(Status(), Others(), Odd())


@pytest.mark.flux
def test_the_service_has_a_handler_for_each_topic() -> None:
    from flux_ensemble.bindings import require_flux

    require_flux()
    from flux_ensemble.service.load import Loading
    from flux_ensemble.service.requests.attach import AttachRequests
    from flux_ensemble.service.requests.handlers import Handlers
    from flux_ensemble.service.requests.jobs import JobRequests, Reruns

    owners = [cls.__new__(cls) for cls in (Handlers, JobRequests, Reruns, Loading, AttachRequests)]
    assert collect_handlers(*owners).keys() == TOPICS.keys()
