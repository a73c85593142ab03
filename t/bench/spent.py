"""Runs a command, and says what it and all that it started took: `spent.py FILE WORDS...`.

Writes into FILE a JSON list: the seconds from its start to its exit, and the seconds of processor
time of its processes, with those that it left behind until they had ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

#: Of prctl(2): what a process leaves behind becomes a child of this one.
_SUBREAPER = 36


def main(file: str, words: list[str]) -> int:
    """Run it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    begin = time.monotonic()
    code = subprocess.run(words).returncode
    seconds = time.monotonic() - begin
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(file).write_text(json.dumps([seconds, used.ru_utime + used.ru_stime]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
