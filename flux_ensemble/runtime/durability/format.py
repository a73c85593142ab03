"""The number of the format in which ensembles are stored: it changes whenever the format does.

It is in each snapshot, in each batch of a log, in each chunk beside snapshots, which has the record
of jobs, and in the directory of each local run. What is read is checked for it first, so that what
a later version has written is not taken for damaged. Tests hold the forms of all of them against
those that belong to the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble import __version__

#: Raise it with any change that an earlier version could not read. What has none is of format 1.
FORMAT = 2

#: The key that it has.
KEY = "format"


class LaterFormatError(ValueError):
    """A later version has written it."""


def check_format(
    stored: Mapping[str, Any], what: str, drop: str = "drop it with 'flux ensemble unload NAME'"
) -> None:
    """Check that something stored can be read.

    Args:
        stored: it, as JSON.
        what: it, for the sentence.
        drop: how to be rid of it.

    Raises:
        LaterFormatError: it cannot.

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
