"""Names of runs: that of one that has ended is kept, and a second run of it gets a number.

A run is asked for by a name: that of its document, or of its file. The first one has that name;
later ones, as long as it is kept, are `sweep-2`, `sweep-3`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Container

#: Characters of a name at most: see `document.keys.forms.ENSEMBLE_NAME`.
_LONGEST = 128


def free_name(asked: str, taken: Container[str]) -> str:
    """The first name for a run that is not taken.

    >>> free_name("sweep", ["hello"]), free_name("sweep", ["sweep", "sweep-2"])
    ('sweep', 'sweep-3')
    """
    name, number = asked, 1
    while name in taken:
        number += 1
        end = f"-{number}"
        name = asked[: _LONGEST - len(end)] + end
    return name


def can_be_named(name: str, asked: str) -> bool:
    """Whether a run that was asked for by a name can have got another one.

    >>> can_be_named("sweep-12", "sweep"), can_be_named("sweep-b", "sweep")
    (True, False)
    """
    found = re.fullmatch(r"(.+)-([1-9][0-9]*)", name)
    if name == asked or found is None:
        return name == asked
    return found[1] == asked[: _LONGEST - len(found[2]) - 1]


def named_otherwise(asked: str, name: str, command: str) -> str:
    """Say which name a run has, where that is not the one that was asked for.

    >>> named_otherwise("sweep", "sweep-2", "flux ensemble")
    "'sweep' has ended and is kept ('flux ensemble rm sweep' removes it): this run is 'sweep-2'"
    """
    removes = f"('{command} rm {asked}' removes it)"
    return f"{asked!r} has ended and is kept {removes}: this run is {name!r}"
