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

#: Raise this with any change that an earlier version cannot read. Data without it are of format 1.
FORMAT = 2

#: The key of the number.
KEY = "format"


class LaterFormatError(ValueError):
    """The data were written by a later version."""


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
    """
    number = stored.get(KEY, 1)
    if type(number) is not int or number > FORMAT:
        raise LaterFormatError(
            f"{what} was written by a later version of flux-ensemble (format {number!r}, and "
            f"{__version__} reads formats up to {FORMAT}): nothing is damaged; go on with the "
            f"version that wrote it, or {drop}"
        )
