"""The service outside the broker: a client that registers it (`flux ensemble serve`).

For Flux before 0.84, which has no broker modules in Python, and for debugging: a client
that dies takes no Flux instance with it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator

from flux.core.handle import Flux

from flux_ensemble.members.flux.loop import FluxLoop, guard
from flux_ensemble.service.logger import logger
from flux_ensemble.service.service import Service


def serve(handle: Flux, *, name: str = "ensemble", log_level: str = "info") -> None:
    """Serve until interrupted (SIGINT, SIGTERM) or disconnected from the broker.

    Args:
        handle: Flux handle.
        name: the service's name.
        log_level: a key of `logger.LEVELS`.

    Raises:
        OSError: EEXIST where the service is there already; EBUSY where another service drives the
            ensembles, or has come to; or the broker went away.
        ValueError: no such log level.
    """
    log = logger(handle, log_level)
    handle.flux_log_set_appname(name)
    try:
        handle.service_register(name).get()
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        raise OSError(
            errno.EEXIST,
            f"a service named {name!r} is registered already; is the broker module loaded? "
            "(see 'flux module list')",
        ) from None
    service = Service(handle, mode="client", log=log, stop=handle.reactor_stop, name=name)
    try:
        with _signals(handle.reactor_stop, FluxLoop(handle, guard(service.unexpected))):
            handle.reactor_run()
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(OSError):  # the broker may be what has gone away
            service.close()
            handle.service_unregister(name).get()
    if service.over is not None:
        raise OSError(errno.EBUSY, service.over)


@contextlib.contextmanager
def _signals(stop: Callable[[], None], loop: FluxLoop) -> Iterator[None]:
    """Call `stop` from the loop at SIGINT and SIGTERM.

    Through a pipe, because numpy has threads: a signal that one of these gets is not seen
    by Flux's signal watchers, which block it in the main thread only.
    """
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    old_fd = signal.set_wakeup_fd(write)
    reader = loop.reader(read, stop)
    try:
        yield
    finally:
        reader.cancel()
        signal.set_wakeup_fd(old_fd)
        for number, handler in old.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
