"""The place of the local queue's state, and the errors for a state that cannot be used.

Commands that send requests to the service need no more than this of the local queue.
"""

from __future__ import annotations

import os
from pathlib import Path

from flux_ensemble.own_command import own_command
from flux_ensemble.queues.local.kinds import USUAL, QueueName


class StateError(Exception):
    """The state directory cannot be used, or has no such ensemble; the text is one sentence."""


class UnreadableError(StateError):
    """The files of a run are damaged, or written by a later version."""


def default_root() -> Path:
    """Return the directory of all ensembles, by the XDG Base Directory Specification.

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


def advised(root: Path, *words: str, queue: QueueName | None = None) -> str:
    """A command about runs in a state directory, as somebody can type it who has just been there.

    Args:
        root: the state directory.
        words: the sub-command and its arguments.
        queue: the user chose it with `--queue`.

    >>> advised(Path("/data/runs"), "rm", "sweep")
    'flux-ensemble rm sweep --state-dir /data/runs'
    """
    try:
        usual = root == default_root()
    except StateError:
        usual = False
    place = [] if usual else ["--state-dir", str(root)]
    if usual and (queue or os.environ.get("FLUX_URI")):
        place = ["--queue", queue or USUAL]
    return own_command(*words, *place)
