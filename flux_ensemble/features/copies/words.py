"""Words of the log about copies."""

from __future__ import annotations

#: Action -> what it does.
DEEDS = {"copy": "copy the triggering job"}
