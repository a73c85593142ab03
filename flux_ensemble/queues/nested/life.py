"""The phases of a member, as a table.

ASKED ──► QUEUED ──► CONNECTING ──► UP ──► ENDING ──► GONE
                         ▲          │        │
                         └─way lost─┤        │ it does not end
                                    └────────┴──► FENCING ──► GONE
"""

from __future__ import annotations

from enum import Enum

#: Reason for cancelling a member that was to end.
UNNEEDED = "it is not needed any more"


class Phase(Enum):
    """A phase in the life of a member."""

    #: Its job was sent.
    ASKED = "asked"
    #: Its job is in the queue of the enclosing instance.
    QUEUED = "queued"
    #: A connection is being made, for the first time or again.
    CONNECTING = "connecting"
    #: Jobs can be sent to it.
    UP = "up"
    #: The service has told it to end.
    ENDING = "ending"
    #: Its job was cancelled, and has to become clean.
    FENCING = "fencing"
    #: Nothing of it can run any more, as far as the enclosing instance knows.
    GONE = "gone"


#: The phases that may follow each phase.
NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.ASKED: frozenset((Phase.QUEUED, Phase.CONNECTING, Phase.FENCING, Phase.GONE)),
    Phase.QUEUED: frozenset((Phase.CONNECTING, Phase.FENCING, Phase.GONE)),
    Phase.CONNECTING: frozenset((Phase.UP, Phase.FENCING, Phase.GONE)),
    Phase.UP: frozenset((Phase.CONNECTING, Phase.ENDING, Phase.FENCING, Phase.GONE)),
    Phase.ENDING: frozenset((Phase.FENCING, Phase.GONE)),
    Phase.FENCING: frozenset((Phase.GONE,)),
    Phase.GONE: frozenset(),
}


def silent(prints: str) -> str:
    """Return the reason for giving up a member whose service does not call.

    Args:
        prints: what shows the output of its job.
    """
    return f"its service does not call; {prints} shows what that prints"
