"""Words of the log about changes of sizes."""

from __future__ import annotations

#: Action -> what it does.
DEEDS = {"grow": "grow by {value}", "shrink": "shrink by {value}"}
