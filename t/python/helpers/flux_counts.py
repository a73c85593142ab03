"""What the sharness tests expect of the examples on Flux."""

from __future__ import annotations

import re
from pathlib import Path

_TESTS = Path(__file__).parents[2]

#: Those that run examples.
_FILES = ("t2000-examples.t", "t2002-parity.t", "t7000-members.t")

#: Examples whose counts depend on how fast jobs are: which trials are stopped early.
VARY = frozenset({"tune", "asha", "median-stop"})

#: By example, but for those that vary: GROUP=success/failed/canceled/timeout, as words.
EXPECTED: dict[str, str] = dict(
    re.findall(
        r"^\s+(?:run_example |on_flux |counts_are )?([\w-]+)"
        r"((?: [\w-]+=\d+/\d+/\d+/\d+)+)(?: &&)?$",
        "".join((_TESTS / name).read_text() for name in _FILES),
        re.MULTILINE,
    )
)
