"""Memos of local jobs: values that a running job publishes, as `flux job memo` does in Flux.

The queue listens on a datagram socket whose path its jobs find in FLUX_ENSEMBLE_MEMO. A
datagram is a JSON object: `{"id": 7, "memo": {"fom": 1.5}}`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.members.nesting import read_json

#: The variable that has the path of the socket.
VARIABLE = "FLUX_ENSEMBLE_MEMO"

#: Most bytes of one memo.
MAX_BYTES = 32 << 10


class MemoError(ValueError):
    """A memo that cannot be sent, in one sentence."""


def send(path: str, job: int, memo: Mapping[str, Any]) -> None:
    """Send a memo to the queue of a job; from within the job.

    Raises:
        MemoError: it is too large or has what no memo has, or the queue is gone.
    """
    try:
        data = _encoded({"id": job, "memo": dict(memo)})
    except ValueError:
        raise MemoError("a memo has finite numbers and UTF-8 text only") from None
    if len(data) > MAX_BYTES:
        raise MemoError(f"a memo has at most {MAX_BYTES} bytes, and this has {len(data)}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        try:
            out.connect(path)
            out.send(data)
        except OSError as error:
            raise MemoError(f"the ensemble of this job cannot be reached: {error.strerror}") from (
                error
            )


class MemoSocket:
    """Receives memos.

    Args:
        directory: where the socket is made; its path must be short (unix(7)).
        take: gets the job id and the values of each memo.
    """

    def __init__(self, directory: str, take: Callable[[int, dict[str, Any]], None]) -> None:
        self.path = os.path.join(directory, "memo")
        self._take = take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self.path)

    def fileno(self) -> int:
        """For a loop to watch."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Take in the memos that are there. What is no memo is dropped: any job can write."""
        while True:
            try:
                data = self._socket.recv(MAX_BYTES + 1)
            except BlockingIOError:
                return
            try:
                message = read_json(data.decode())
                job, memo = message["id"], message["memo"]
                _encoded(memo)
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if type(job) is int and type(memo) is dict:
                self._take(job, memo)

    def close(self) -> None:
        """Receive no more."""
        self._socket.close()


def _encoded(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        ValueError: it has NaN, infinity or a number that was too large and so became that, or
            text with a lone surrogate. Flux has none of these, and nobody could print or keep it.
    """
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
