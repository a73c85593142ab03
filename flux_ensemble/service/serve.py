"""The service outside the broker: a client that registers it (`flux ensemble serve`).

A client that dies takes no Flux instance with it. The broker module `ensemble-keeper` runs it so
(`modules/ensemble-keeper.py`), and it is for debugging, and for Flux before 0.84, which has no
broker modules in Python.
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


class Keeper:
    """The keeper that has started this process, at the other end of a socket.

    Args:
        fd: this end.
    """

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.fd = fd

    def ready(self) -> None:
        """The service answers."""
        self._tell("0 ready")

    def refused(self, number: int, why: str) -> None:
        """The service does not begin, or ends: an errno and a sentence."""
        self._tell(f"{number} {' '.join(why.split())}")

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it is gone, which the reader finds out
            os.write(self.fd, line.encode("utf-8", "backslashreplace")[:4096] + b"\n")


def serve(
    handle: Flux, *, name: str = "ensemble", log_level: str = "info", keeper: Keeper | None = None
) -> None:
    """Serve until interrupted (SIGINT, SIGTERM) or disconnected from the broker, or the keeper.

    Args:
        handle: Flux handle.
        name: the service's name.
        log_level: a key of `logger.LEVELS`.
        keeper: is told when the service answers.

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
    mode = "client" if keeper is None else "process"
    service = Service(handle, mode=mode, log=log, stop=handle.reactor_stop, name=name)
    loop = FluxLoop(handle, guard(service.unexpected))
    try:
        with _signals(handle.reactor_stop, loop):
            if keeper is not None:
                loop.reader(keeper.fd, handle.reactor_stop)
                if service.over is None:
                    keeper.ready()
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
