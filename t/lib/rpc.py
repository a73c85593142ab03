"""Sends one request and prints the response: `flux python rpc.py TOPIC [KEY=VALUE ...]`.

`key=text` is a string, `key:=json` any JSON value, `key=@file` the text of a file, and
`:=text` is the whole payload, as it is. `ensemble.log` is a streaming request, and prints a
line for each response. A failure prints the errno's name and the sentence, and exits
with 1. Uses Flux's bindings alone, as any other tool would.
"""

import errno
import json
import pathlib
import sys
from typing import Any

import flux
from flux.constants import FLUX_RPC_STREAMING

topic, *arguments = sys.argv[1:]
payload: Any = {}
for argument in arguments:
    key, _, value = argument.partition("=")
    if argument.startswith(":="):
        payload = value
    elif key.endswith(":"):
        payload[key[:-1]] = json.loads(value)
    elif value.startswith("@"):
        payload[key] = pathlib.Path(value[1:]).read_text()
    else:
        payload[key] = value
streaming = topic == "ensemble.log"
future = flux.Flux().rpc(topic, payload, flags=FLUX_RPC_STREAMING if streaming else 0)
try:
    print(json.dumps(future.get()), flush=True)
    while streaming:
        future.reset()
        print(json.dumps(future.get()), flush=True)
except OSError as error:
    if error.errno != errno.ENODATA:
        print(errno.errorcode[error.errno or 0], error.strerror)
        sys.exit(1)
