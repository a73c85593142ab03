"""The number of the format in which ensembles are stored; it changes with the format.

The number is in each snapshot, in each batch of a log, in each chunk beside snapshots (with the
record of jobs), and in the directory of each local run. A reader checks it first, so that data of a
later version are not taken for damaged ones. Tests compare all these forms with those that belong
to the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.texts import clip

#: Raise this with any change that an earlier version cannot read. Data without it are of format 1.
FORMAT = 3

#: The key of the number, and that of the version of flux-ensemble that wrote it.
KEY = "format"
BY = "by"

#: Both, as JSON without braces.
NUMBERED = f'"{KEY}":{FORMAT},"{BY}":"{__version__}"'


class LaterFormatError(ValueError):
    """The data were written by a later version."""


def numbered() -> dict[str, Any]:
    """Return the number of the format, and the version of flux-ensemble that has it."""
    return {KEY: FORMAT, BY: __version__}


def check_format(
    stored: Mapping[str, Any], what: str, drop: str = "drop it with 'flux ensemble unload NAME'"
) -> None:
    """Check that stored data can be read.

    Args:
        stored: the data, as JSON.
        what: the name of the data, for the sentence.
        drop: advice on how to remove them.

    Raises:
        LaterFormatError: the data cannot be read.

    >>> check_format({"format": FORMAT}, "the snapshot")
    >>> check_format({}, "the snapshot")
    >>> check_format({"format": FORMAT + 1, "by": "9.0"}, "the log")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    flux_ensemble.runtime.durability.format.LaterFormatError: the log was written by \
flux-ensemble 9.0, in format ...; this one (...) reads up to ...: nothing is damaged; go on \
with the version that wrote it, or drop it with 'flux ensemble unload NAME'
    """
    number, by = stored.get(KEY, 1), stored.get(BY)
    if type(number) is not int or number > FORMAT:
        whose = f"flux-ensemble {clip(by)}" if isinstance(by, str) else "a later flux-ensemble"
        raise LaterFormatError(
            f"{what} was written by {whose}, in format {number!r}; this one ({__version__}) reads "
            f"up to {FORMAT}: nothing is damaged; go on with the version that wrote it, or {drop}"
        )
