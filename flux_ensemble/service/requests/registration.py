"""Declares which method handles a topic, beside the method.

    class Handlers:
        @request_handler("list")
        def list_ensembles(self, message, payload): ...

The table `client.topics.TOPICS` defines the topics. Each topic has exactly one handler. This is
checked when the handlers are collected, so that a service that lacks one is never made.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flux_ensemble.client.topics import TOPICS

#: Handles a request: receives its message, and its payload as `protocol.parse` returns it.
Handler = Callable[[Any, Mapping[str, Any]], None]

Method = TypeVar("Method", bound=Callable[..., None])

#: The attribute of a method that holds its topics.
_DECLARED = "_request_topics"


def request_handler(*topics: str) -> Callable[[Method], Method]:
    """Declare that a method handles requests.

    Args:
        topics: keys of `client.topics.TOPICS`.
    """

    def declare(method: Method) -> Method:
        setattr(method, _DECLARED, topics)
        return method

    return declare


def collect_handlers(*owners: object) -> dict[str, Handler]:
    """Find the handlers that objects declare.

    Args:
        owners: objects with methods that are declared by `request_handler`.

    Returns:
        The handler of each topic, bound to its object.

    Raises:
        TypeError: a topic has no handler, or more than one, or is not in `client.topics.TOPICS`.
    """
    declared: defaultdict[str, list[tuple[str, Handler]]] = defaultdict(list)
    for owner in owners:
        for name, method in inspect.getmembers(type(owner), inspect.isfunction):
            for topic in getattr(method, _DECLARED, ()):
                handler = f"{type(owner).__name__}.{name}", getattr(owner, name)
                declared[topic].append(handler)
    for topic in (*TOPICS, *declared):
        names = ", ".join(name for name, _ in declared[topic]) or "none"
        if topic not in TOPICS:
            raise TypeError(f"{names} handles topic {topic!r}, which is not in TOPICS")
        if len(declared[topic]) != 1:
            raise TypeError(f"topic {topic!r}: expected one request handler, not {names}")
    return {topic: handler for topic, [(_, handler)] in declared.items()}
