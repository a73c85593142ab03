"""What a custom function gets and returns: `Action`, `Rule` and `Metrics`.

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


class Metrics(dict[str, Any]):
    """The metrics of the ensemble: `metrics["mean"]["md-duration"]`.

    >>> metrics = Metrics({"mean": {"md-duration": 60.0}, "count": {"md": {"success": 3}}})
    >>> metrics.models["mean"]["md-duration"].get()
    60.0
    >>> metrics.models["count"]["md"]["success"].get()
    3
    """

    @property
    def models(self) -> dict[str, Any]:
        """The same, with values as ensemble-python has them: `.get()` gives the number."""
        models: dict[str, Any] = _models(self)
        return models


class _Model:
    """A value that `get` returns."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value


def _models(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _models(item) for key, item in value.items()}
    return _Model(value)
