"""The arguments and results of custom functions: `Action`, `Rule` and `Metrics`.

`Action` and `Rule` are the mappings of the document (see docs/custom.md), with their keys readable
as attributes: `rule.action.label` is `rule["action"]["label"]`, and a key with a hyphen is read
with an underscore, `rule.on_error`. The service checks them when they are used, like an action or a
rule of the document.

>>> action = Action(name="submit", label="echo")
>>> action.label
'echo'
>>> Rule({"trigger": "start", "action": action}).action.name
'submit'
"""

from __future__ import annotations

from typing import Any

from flux_ensemble.entries import Action, Rule

__all__ = ["Action", "Metrics", "Rule"]


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
        """The same metrics, with values as in ensemble-python: `.get()` returns the number."""
        models: dict[str, Any] = _models(self)
        return models


class _Model:
    """A wrapper whose `get` returns the value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value


def _models(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _models(item) for key, item in value.items()}
    return _Model(value)
