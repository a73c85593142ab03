"""Memos of local jobs: values that a running job publishes, as `flux job memo` does in Flux.

The queue listens on a datagram socket whose path is in the jobs' variable FLUX_ENSEMBLE_MEMO. A
datagram is a JSON object: `{"id": 7, "memo": {"fom": 1.5}}`. A job that sends faster than the
queue receives has to wait: the socket holds a few datagrams.

A memo is limited to what jansson reads, as in Flux, so that a job can publish the same values
in both places.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

#: The variable with the path of the socket.
VARIABLE = "FLUX_ENSEMBLE_MEMO"

#: Most bytes of one memo.
MAX_BYTES = 32 << 10

#: Most keys of the memos of all jobs together: each number becomes a stream.
MAX_KEYS = 10_000

#: Most levels of nested values.
MAX_DEPTH = 32

#: Number of memos that are received before the queue does other work. It is more than a socket
#: holds (net.unix.max_dgram_qlen), so all memos sent before that are among them.
AT_ONCE = 1024


class MemoError(ValueError):
    """A memo cannot be sent; the text is one sentence."""


def send(path: str, job: int, memo: Mapping[str, Any]) -> None:
    """Send a memo to the queue of a job, from within the job.

    Raises:
        MemoError: the memo is too large or has an invalid value, or the queue is gone.
    """
    check(memo)
    data = json.dumps({"id": job, "memo": dict(memo)}, allow_nan=False).encode()
    check_size(data)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.connect(path)
            out.send(data)
        except OSError as error:
            raise MemoError(f"the ensemble of this job cannot be reached: {error.strerror}") from (
                error
            )


def socket_path(directory: str) -> str:
    """Return the path of the socket in the scratch directory of a run."""
    return os.path.join(directory, "memo")


class MemoSocket:
    """A receiver of memos.

    Args:
        directory: for the socket; its path must be short (unix(7)).
        take: receives the job id and the values of each memo.
        warn: receives a sentence when a datagram is dropped, because it is no memo or has one key
            too many; once for each reason.
    """

    def __init__(
        self,
        directory: str,
        take: Callable[[int, dict[str, Any]], None],
        warn: Callable[[str], None],
    ) -> None:
        self.path = socket_path(directory)
        self._take = take
        self._warn = warn
        self._warned: set[str] = set()
        self._keys: set[str] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self.path)

    def fileno(self) -> int:
        """Return the descriptor of the socket, for a loop."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Receive waiting memos; other datagrams are dropped, since any job can send."""
        for _ in range(AT_ONCE):
            try:
                data = self._socket.recv(MAX_BYTES + 1)
            except BlockingIOError:
                return
            try:
                job, memo = self._parse(data)
            except (ValueError, RecursionError) as error:
                self._drop(str(error) if isinstance(error, MemoError) else "it is not JSON")
            else:
                self._take(job, memo)

    def _parse(self, data: bytes) -> tuple[int, dict[str, Any]]:
        if len(data) > MAX_BYTES:
            raise MemoError(f"it has more than {MAX_BYTES} bytes")
        message = json.loads(data, parse_constant=_refuse)
        job = message.get("id") if isinstance(message, dict) else None
        memo = message.get("memo") if isinstance(message, dict) else None
        if type(job) is not int or not isinstance(memo, dict):
            raise MemoError("it has not the form of a memo")
        check(memo)
        if not memo.keys() <= self._keys:
            if len(self._keys | memo.keys()) > MAX_KEYS:
                raise MemoError(f"memos of an ensemble have at most {MAX_KEYS} different keys")
            self._keys.update(memo)
        return job, memo

    def _drop(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            self._warn(f"a memo of a job was dropped: {why}")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def check(memo: Mapping[str, Any]) -> None:
    """Check that a memo has only values that one of Flux could have.

    Raises:
        MemoError: it has others.
    """
    level: list[Any] = [memo]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise MemoError("a text in it is not Unicode (a lone surrogate)") from None
            elif isinstance(value, float) and not math.isfinite(value):
                raise MemoError("a number in it is too large")
            elif type(value) is int and not -(2**63) <= value < 2**63:
                raise MemoError("an integer in it has more than 64 bits")
        if not below:
            return
        level = below
    raise MemoError(f"its values are nested more than {MAX_DEPTH} levels deep")


def check_size(data: bytes) -> None:
    """Check that a memo, as JSON, is not too large.

    Raises:
        MemoError: it is.
    """
    if len(data) > MAX_BYTES:
        raise MemoError(f"a memo has at most {MAX_BYTES} bytes, and this has {len(data)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
