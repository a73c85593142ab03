"""Which keys of a rule belong to which triggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flux_ensemble.document.model import RUNNING_TRIGGER
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.metrics.detector import DETECTORS
from flux_ensemble.texts import listed

#: Keys of a rule that only some triggers have; "job-" is a prefix.
RULE_KEYS = {
    "name": ("metric", "job-", "idle", "scale-", "search-", "member-", *DETECTORS),
    "group": ("job-", "idle"),
    "scope": ("job-",),
    "after": ("timer",),
    "every": ("timer", RUNNING_TRIGGER),
    "by": ("idle",),
    "below": ("time-left",),
    "detector": tuple(DETECTORS),
}


def check_keys(entry: Mapping[str, Any], trigger: str, problems: Problems, at: Path) -> None:
    """Check that a rule has no key that means nothing to its trigger.

    >>> problems = Problems()
    >>> check_keys({"trigger": "start", "after": "5s"}, "start", problems, ("rules", 0))
    >>> problems.sentences()
    "rules[0].after: 'after' means nothing to the trigger 'start' (only to: timer)"
    """
    for key, prefixes in RULE_KEYS.items():
        if key == "scope" and entry.get("scope") == "member":
            continue
        if key in entry and not trigger.startswith(prefixes):
            only = listed(f"{prefix}*" if prefix.endswith("-") else prefix for prefix in prefixes)
            problems.add(
                (*at, key),
                f"{key!r} means nothing to the trigger {trigger!r} (only to: {only})",
            )
