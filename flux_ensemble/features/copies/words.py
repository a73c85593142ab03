"""What the log says of copies."""

from __future__ import annotations

#: Action -> what it does.
DEEDS = {"copy": "copy the triggering job"}
