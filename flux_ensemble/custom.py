"""What a custom function gets and returns: `Action` and `Rule`.

Both are the mappings of the document (see docs/custom.md), with their keys readable as
attributes: `rule.action.label` is `rule["action"]["label"]`, and a key with a hyphen is
read with an underscore, `rule.on_error`. They are checked where they are used, by the
service, as an action or a rule of the document is.

>>> action = Action(name="submit", label="echo")
>>> action.label
'echo'
>>> Rule({"trigger": "start", "action": action}).action.name
'submit'
"""

from __future__ import annotations

from typing import Any


class _Entry(dict[str, Any]):
    """A mapping of the document, with its keys readable as attributes."""

    def __getattr__(self, name: str) -> Any:
        for key in (name, name.replace("_", "-")):
            if key in self:
                return self[key]
        known = ", ".join(map(str, self)) or "none"
        raise AttributeError(f"the {type(self).__name__} has no key {name!r} (keys: {known})")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class Action(_Entry):
    """What to do: `Action({"name": "submit", "label": "echo"})`."""


class Rule(_Entry):
    """When to do what: `Rule({"trigger": "start", "action": {...}})`.

    A plain mapping under `action` becomes an `Action`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        action = self.get("action")
        if isinstance(action, dict) and not isinstance(action, Action):
            self["action"] = Action(action)
