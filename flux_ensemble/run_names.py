"""Names of runs: an ended run keeps its name, and a second run of it gets a number.

A run is requested by a name: that of its document, or of its file. The first run has that name;
later ones, as long as the first is kept, are `sweep-2`, `sweep-3`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import TypedDict

from flux_ensemble.engine.lifecycle import FINAL_STATES

#: Longest name in characters: see `document.keys.forms.ENSEMBLE_NAME`.
_LONGEST = 128


class Listed(TypedDict):
    """An ensemble in a list, as far as names matter."""

    name: str
    state: str


def free_name(asked: str, taken: Container[str]) -> str:
    """Return the first name for a run that is not taken.

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
    """Return True if a run that was requested by a name can have got the other one.

    >>> can_be_named("sweep-12", "sweep"), can_be_named("sweep-b", "sweep")
    (True, False)
    """
    found = re.fullmatch(r"(.+)-([1-9][0-9]*)", name)
    if name == asked or found is None:
        return name == asked
    return found[1] == asked[: _LONGEST - len(found[2]) - 1]


def begun_as(asked: str, listed: Iterable[Listed]) -> str | None:
    """Return the name of the run that `--resume` goes on with, or None if none has begun.

    If the run of the name has ended, later ones got a number: the newest one that has not ended,
    else the newest one.

    Args:
        asked: the name by which it was requested.
        listed: all ensembles.

    >>> begun_as("sweep", [{"name": "sweep", "state": "failed"}])
    'sweep'
    """
    states = {one["name"]: one["state"] for one in listed if can_be_named(one["name"], asked)}
    if asked not in states:
        return None
    left = [name for name, state in states.items() if state not in FINAL_STATES]
    return asked if asked in left else max(left or states, key=lambda name: (len(name), name))


def named_otherwise(asked: str, name: str, remove: str, state: str = "has ended") -> str:
    """Return the message about a run whose name is not the requested one.

    Args:
        asked, name: the name that was asked for, and the run's.
        remove: the command that removes the run that has the name.
        state: of that run.

    >>> named_otherwise("sweep", "sweep-2", "flux ensemble rm sweep")
    "'sweep' has ended and is kept: this run is 'sweep-2' ('flux ensemble rm sweep' removes ..."
    """
    kept = f"{asked!r} {state} and is kept: this run is {name!r}"
    return f"{kept} ('{remove}' removes the earlier one)"


def cannot_resume(name: str, *, search: bool = False) -> str:
    """Return the sentence about a run that `--resume` would continue, had it not been canceled.

    Args:
        name: of the run.
        search: it has a search, which `rerun` does not go on with.

    >>> cannot_resume("sweep-2")
    "'sweep-2' was cancelled: 'run' without --resume starts it anew, and 'rerun sweep-2' runs ..."
    """
    again = way_on(name, search=search)
    return f"{name!r} was cancelled: 'run' without --resume starts it anew, and {again}"


def way_on(name: str, *, search: bool) -> str:
    """Return what goes on with a run that was canceled; arguments are those of `cannot_resume`.

    >>> way_on("sweep-2", search=False), way_on("tune", search=True)
    ("'rerun sweep-2' runs the rest of it", "'search tune --more N' goes on with its search")
    """
    if search:
        return f"'search {name} --more N' goes on with its search"
    return f"'rerun {name}' runs the rest of it"


def goes_on_already(name: str, watch: str, state: str = "running", *, alone: bool = False) -> str:
    """Return the refusal of a run whose name belongs to one that has not ended.

    Args:
        name: the name of that one.
        watch: the command that follows it.
        state: its state.
        alone: it goes on without a process of its user's.

    >>> goes_on_already("sweep-2", "flux ensemble watch sweep-2", "paused")
    "an ensemble named 'sweep-2' is paused already: 'flux ensemble watch sweep-2' follows it; ..."
    """
    goes_on = ", with or without its 'run'" if alone else ""
    return (
        f"an ensemble named {name!r} is {state} already{goes_on}: '{watch}' follows it; wait for "
        "its end, or give this one another name with --name"
    )
