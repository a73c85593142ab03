"""Where the local queue keeps its state, and the error of all that is wrong with it there.

Commands that ask the service need no more than this of the local queue.
"""

from __future__ import annotations

import os
from pathlib import Path


class StateError(Exception):
    """A state directory that cannot be used, or has no such ensemble; one sentence."""


class UnreadableError(StateError):
    """What a run has left is damaged, or of a later version."""


def default_root() -> Path:
    """Where the directories of ensembles are, by the XDG Base Directory Specification.

    Raises:
        StateError: the user has no home directory.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    except RuntimeError:
        raise StateError(
            "you have no home directory: name a state directory with --state-dir"
        ) from None
    return base / "flux-ensemble"
