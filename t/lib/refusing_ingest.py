"""Answer what is sent to job-ingest with an error, in its place, until standard input ends.

    flux python refusing_ingest.py ERRNO < FIFO

Prints "ready" when it has taken the place.
"""

import sys

import flux
from _flux._core import ffi, lib
from flux.constants import FLUX_MSGTYPE_REQUEST

number = int(sys.argv[1])
handle = flux.Flux()
handle.service_register("job-ingest").get()


def refuse(handle, _watcher, message, _args):
    """Answer one request."""
    lib.flux_respond_error(handle.handle, message.handle, number, ffi.NULL)


requests = handle.msg_watcher_create(refuse, FLUX_MSGTYPE_REQUEST, "job-ingest.*")
requests.start()
end = handle.fd_watcher_create(sys.stdin.fileno(), lambda *_: handle.reactor_stop())
end.start()
print("ready", flush=True)
handle.reactor_run()
handle.service_unregister("job-ingest").get()
