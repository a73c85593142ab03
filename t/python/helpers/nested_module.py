"""A broker module with a connection to a nested instance; loaded by flux_nested.py.

Arguments: the `local:` URI, then directories for `sys.path`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from flux.constants import FLUX_MSGTYPE_REQUEST


def mod_main(handle: Any, uri: str, *paths: str) -> None:
    """Entry point for Flux's module loader."""
    sys.path += paths
    from flux_ensemble.queues.flux.broker import Broker
    from flux_ensemble.queues.flux.journal import Journal
    from flux_ensemble.queues.flux.loop import FluxLoop, guard
    from flux_ensemble.queues.flux.stream import StreamingRequest
    from flux_ensemble.queues.nested.pump import Pump
    from flux_ensemble.queues.nested.route import connect

    state: dict[str, Any] = {"ready": False, "lost": False, "errors": []}
    kept: list[Any] = []

    def report(error: BaseException) -> None:
        state["errors"].append(repr(error))

    def opened(member: Any) -> None:
        pump = Pump(member, loop, lambda: state.update(lost=True), report)
        broker = Broker(member, report, main=handle, more=pump.more)
        journal = Journal(
            partial(StreamingRequest, member, broker.inbox),
            event=lambda *_: None,
            backlog=lambda *_: None,
            lost=state["errors"].append,
        )
        journal.require(frozenset(("clean",)), False, lambda: state.update(ready=True))
        kept.extend((pump, broker, journal))

    def tell(_handle: Any, _watcher: Any, message: Any, _: Any) -> None:
        handle.respond(message, state)

    loop = FluxLoop(handle, guard(report))
    connect(uri, loop, opened)
    watcher = handle.msg_watcher_create(tell, FLUX_MSGTYPE_REQUEST, "nested_module.state")
    watcher.start()
    handle.reactor_run()
