"""The families of metrics that features add: `FAMILY.NAME.FIELD`, such as `search.hpo.best.lr`.

The names are those of the entries of a list in the document, whose key is that of the family.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from flux_ensemble.feature_list import parts
from flux_ensemble.metrics.paths import MetricPath


class Family(NamedTuple):
    """A family of metrics.

    Args:
        noun, plural: what an entry of the document's list is called, for sentences.
        fields: its fields, with their meaning.

    >>> Family("search", "searches", {"trials": "trials that have ended"}).plural
    'searches'
    """

    noun: str
    plural: str
    fields: Mapping[str, str]


class Named(Protocol):
    """An entry of the document's list, as far as expressions can name it.

    >>> from flux_ensemble.document.loading import load_text
    >>> load_text("jobs: [{name: a, command: x}]", name="demo").named
    {}
    """

    @property
    def group(self) -> str:
        """The group of its jobs."""
        ...

    def path(self, keys: list[str]) -> MetricPath:
        """Return the metric with these keys, the first two of which are the family and its name.

        Raises:
            ValueError: there is no such field.
        """
        ...


#: Family -> the entries of the document, by name.
Families = Mapping[str, Mapping[str, Named]]
NO_FAMILIES: Families = {}

#: Key -> family.
FAMILIES: Mapping[str, Family] = {
    key: Family(*plain)
    for part in parts("metrics")
    for key, plain in getattr(part, "FAMILIES", {}).items()
}


def field_of(named: Mapping[str, Mapping[str, Any]], variable: str) -> Any:
    """Return the value of a field such as `hpo.best.lr`; None if there is none yet.

    >>> field_of({"hpo": {"complete": 3, "best": {"lr": 0.1}}}, "hpo.best.lr")
    0.1
    >>> field_of({}, "hpo.best.lr") is None
    True
    """
    value: Any = named
    for key in variable.split("."):
        value = value.get(key) if value else None
    return value
