"""The process of custom functions, from its service's side: its start, messages, output and end.

Nothing here blocks on the process. The channel is a socket pair of its own, so that output of the
user's code cannot be taken for a message; the output is a pipe, of which the last part is kept.
Ending the process ends its whole process group. If the service dies, a pipe whose other end the
process watches (the lifeline) has the same effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flux_ensemble.runtime.custom import child

if TYPE_CHECKING:
    from flux_ensemble.runtime.ports import Handle, Loop

#: Bytes of output that are kept until they are taken.
MAX_OUTPUT = 64 << 10

#: Bytes that are read at once, bytes of output before a pause, and the pause. A function that
#: prints without end is slowed down to 12 MB/s instead of keeping the service busy.
_CHUNK = 64 << 10
_BURST = 256 << 10
_PAUSE_SECONDS = 0.02

#: Seconds between attempts to write what the socket did not take, and between attempts to reap.
_RETRY_SECONDS = 0.01

#: Number of checks whether a process that closed its channel has ended by itself.
_GRACE_TRIES = 50


class FunctionProcess:
    """A running process.

    Args:
        loop: for timers and file descriptors.
        name: shown in the list of processes.
        environment, cwd: of the process.
        on_message: called with each message of the process.
        on_end: called once when the process has ended or misbehaves, with a phrase such as
            "exited with status 3". The owner then has to call `end`, once, after which neither
            callback is called.

    Raises:
        OSError: the process cannot be started; ValueError: a value with a null byte.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        environment: Mapping[str, str],
        cwd: str,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end
        self._channel, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._output, output = os.pipe()
        try:
            self._process = subprocess.Popen(
                # -E -P: the user's PYTHON* variables and files are for the user's code.
                [sys.executable, "-E", "-P", child.__file__,
                 str(theirs.fileno()), str(lifeline), name],
                env=environment, cwd=cwd, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=(theirs.fileno(), lifeline),
            )  # fmt: skip
        except BaseException:
            self._close_fds()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
            os.close(output)
        self._channel.setblocking(False)
        os.set_blocking(self._output, False)
        self._unsent = bytearray()
        self._received = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._burst = 0
        self._watched: dict[str, Handle] = {
            "channel": loop.reader(self._channel.fileno(), self._readable),
            "output": loop.reader(self._output, self._printed),
        }
        self._ended = False
        self._patience = _GRACE_TRIES

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; the part that the socket does not take now is sent later."""
        self._unsent += json.dumps(message, allow_nan=False).encode() + b"\n"
        self._write()

    def take_output(self) -> tuple[str, int]:
        """Return the latest output since the last call, and the number of bytes lost before it."""
        # Output that was printed before the last message is in the pipe by now.
        self._read_output(_BURST)
        text, dropped = self._tail.decode("utf-8", "replace"), self._dropped
        self._tail.clear()
        self._dropped = 0
        return text, dropped

    def end(self) -> None:
        """Kill the process and its descendants, and stop listening."""
        self._ended = True
        for handle in self._watched.values():
            handle.cancel()
        self._watched.clear()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._close_fds()
        self._reap()

    def _reap(self) -> None:
        if self._process.poll() is None:
            self._loop.timer(_RETRY_SECONDS, self._reap)

    def _close_fds(self) -> None:
        self._channel.close()
        os.close(self._lifeline)
        os.close(self._output)

    def _write(self) -> None:
        self._stop("write")
        while self._unsent:
            try:
                sent = self._channel.send(self._unsent[:_CHUNK])
            except BlockingIOError:
                self._watched["write"] = self._loop.timer(_RETRY_SECONDS, self._write)
                return
            except OSError:
                # The reader notices the end of the process.
                return
            del self._unsent[:sent]

    def _readable(self) -> None:
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop("channel")
            self._await_end()
            return
        self._received += data
        lines = self._received.split(b"\n")
        self._received = lines.pop()
        if len(self._received) > child.MAX_REPLY:
            lines = [bytearray(b"an unfinished line that is longer than any message")]
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._on_end("sent the service something that is no message")
                return
            self._on_message(message)
            if self._ended:
                return

    def _await_end(self) -> None:
        status = self._process.poll()
        if status is not None:
            self._on_end(_ending(status))
        elif self._patience == 0:
            self._on_end("closed its connection to the service")
        else:
            self._patience -= 1
            self._watched["await"] = self._loop.timer(_RETRY_SECONDS, self._await_end)

    def _printed(self) -> None:
        if not self._read_output(_CHUNK):
            # Closed by the process and all its descendants.
            self._stop("output")
        elif self._burst >= _BURST:
            self._stop("output")
            self._watched["pause"] = self._loop.timer(_PAUSE_SECONDS, self._listen)

    def _listen(self) -> None:
        self._stop("pause")
        self._burst = 0
        self._watched["output"] = self._loop.reader(self._output, self._printed)

    def _read_output(self, limit: int) -> bool:
        """Read up to about `limit` bytes of output; return False at its end."""
        while limit > 0:
            try:
                data = os.read(self._output, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            limit -= len(data)
            self._burst += len(data)
            self._tail += data
            excess = len(self._tail) - MAX_OUTPUT
            if excess > 0:
                del self._tail[:excess]
                self._dropped += excess
        return True

    def _stop(self, name: str) -> None:
        handle = self._watched.pop(name, None)
        if handle is not None:
            handle.cancel()


def _ending(status: int) -> str:
    """Describe how a process ended, from `Popen.returncode`."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-status}{name}"
