"""Pass on what is sent to job-ingest to that of rank 1, in its place, and lose the ids of jobs.

    flux python forgetting_ingest.py FILE

Whoever submits a job is told EAGAIN, though the job is in the queue. Nothing is passed on before
FILE exists. Prints "ready" when it has taken the place.
"""

import errno
import os
import sys
from typing import Any

import flux
from _flux._core import ffi, lib
from flux.constants import FLUX_MSGTYPE_REQUEST

handle = flux.Flux()
handle.service_register("job-ingest").get()
waiting: list[Any] = []


def take(handle, _watcher, message, _args):
    """Keep a request until it is passed on."""
    waiting.append(message)


def pass_on(handle, *_):
    """Pass on what waits."""
    while waiting and os.path.exists(sys.argv[1]):
        message = waiting.pop(0)
        future = handle.rpc(message.topic, message.payload, nodeid=1)
        future.then(answer, message)


def answer(future, message):
    """Answer a request: a refusal as it is, an id not at all."""
    try:
        result = future.get()
    except OSError as error:
        text = ffi.new("char[]", (error.strerror or "").encode())
        lib.flux_respond_error(handle.handle, message.handle, error.errno, text)
        return
    if message.topic == "job-ingest.submit":
        lib.flux_respond_error(handle.handle, message.handle, errno.EAGAIN, ffi.NULL)
    else:
        handle.respond(message, result)


requests = handle.msg_watcher_create(take, FLUX_MSGTYPE_REQUEST, "job-ingest.*")
requests.start()
timer = handle.timer_watcher_create(0, pass_on, 0.05)
timer.start()
print("ready", flush=True)
handle.reactor_run()
