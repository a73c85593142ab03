"""A document with what its `use` makes in its place, and how that comes to be there.

Problems of what was made are told at the entry of `use` that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flux_ensemble.document.functions import SourceError, defined_names
from flux_ensemble.document.problems import Path, Problems, dotted
from flux_ensemble.document.rules import rule_id
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.texts import shown

#: The key of a document.
USE = "use"

#: Entries of these lists have names, under these keys.
_NAMED = {"jobs": "name", "rules": "id", "search": "id"}

#: What these entries are.
_KINDS = {"jobs": "group", "rules": "rule", "search": "search", "metrics": "metric"}


class Expanded(Document):
    """A document with what its `use` makes in its place.

    Args:
        original: the document as it was written.
        value: all of it, plain.

    Attributes:
        packaged: the source of functions that algorithms of flux-ensemble made.
        whose: the path of an entry that was made, or of a key that was added -> the position of
            the entry of `use` that made it.

    >>> value = {"rules": [{"id": "asha-start"}]}
    >>> expanded = Expanded(Document({"use": [{"algorithm": "asha"}]}), value)
    >>> expanded.whose["rules", 0] = 0
    >>> expanded.told(("rules", 0, "trigger"), "the key 'trigger' is missing")
    (('use', 0), "what it makes, rule 'asha-start': trigger: the key 'trigger' is missing")
    """

    def __init__(self, original: Document, value: dict[str, Any]) -> None:
        super().__init__(value)
        self._original = original
        self.start, self.size = original.start, original.size
        self.packaged = ""
        self.whose: dict[Path, int] = {}

    def line(self, path: Path) -> int | None:
        """The line of the value, or of the entry of `use` that made it."""
        return self._original.line(self._place_of(path))

    def file(self, path: Path) -> str | None:
        """The file of that line."""
        return self._original.file(self._place_of(path))

    def text(self, path: Path) -> str | None:
        """The original text of the number or boolean at `path`; None if it was made."""
        return None if self._user(path) is not None else self._original.text(path)

    def written(self, path: Path, value: Any) -> Any:
        """A value with its spellings; what was made has none."""
        return value if self._user(path) is not None else self._original.written(path, value)

    def block_line(self, path: Path) -> int | None:
        """The first line of the text of the `|` block at `path`."""
        # What was made of `custom` follows what was written.
        return self._original.block_line(path) if path[0] in self._original.value else None

    def told(self, path: Path, message: str) -> tuple[Path, str]:
        """A problem of what was made, as one of the entry of `use` that made it."""
        user = self._user(path)
        if user is None:
            return path, message
        key, index = path[0], path[1] if len(path) > 1 else None
        what = dotted(path)
        if isinstance(key, str) and isinstance(index, int) and key in _KINDS:
            entry = self.value[key][index]
            name = entry.get(_NAMED.get(key, "")) if isinstance(entry, dict) else None
            if name is not None:
                what = f"{_KINDS[key]} {shown(name)}"
                what += f": {dotted(path[2:])}" if path[2:] else ""
        return (USE, user), f"what it makes, {what}: {message}"

    def _user(self, path: Path) -> int | None:
        for length in range(len(path) + 1):
            if path[:length] in self.whose:
                return self.whose[path[:length]]
        return None

    def _place_of(self, path: Path) -> Path:
        user = self._user(path)
        return path if user is None else (USE, user)


class Merge:
    """Adds what the entries of `use` make to a document, each in its turn.

    Args:
        expanded: the document.
        problems: collects the problems.

    >>> expanded = Expanded(Document({}), {"rules": [{"trigger": "start"}]})
    >>> Merge(expanded, Problems()).take(0, "asha", {"rules": [{"id": "asha-start"}]})
    >>> expanded.value["rules"], expanded.whose
    ([{'trigger': 'start'}, {'id': 'asha-start'}], {('rules', 1): 0})
    """

    def __init__(self, expanded: Expanded, problems: Problems) -> None:
        self._expanded = expanded
        self._value = expanded.value
        self._problems = problems
        self._index = 0
        self._id = ""
        #: Names of groups that the present entry has made.
        self._own: set[str] = set()
        # Kept, because documents are large and entries are many.
        self._names: dict[str, set[str]] = {
            key: {
                rule_id(entry, place) if key == "rules" else entry.get(name, "")
                for place, entry in enumerate(self._value.get(key, ()))
            }
            for key, name in _NAMED.items()
        }
        self._functions: frozenset[str] = frozenset()
        if "custom" in self._value:
            with suppress(SourceError):
                self._functions = defined_names(self._value["custom"])
        for key in (*_NAMED, "metrics"):
            if key in self._value:
                self._value[key] = [*self._value[key]]

    @property
    def groups(self) -> set[str]:
        """The names of all groups so far."""
        return self._names["jobs"]

    def take(self, index: int, id: str, made: Mapping[str, Any]) -> None:
        """Add what one entry makes.

        Args:
            index: the position of the entry.
            id: what its names begin with.
            made: what it makes, of the right shape.
        """
        self._index, self._id = index, id
        self._own.clear()
        for key, changes in made.get("groups", {}).items():
            self._change(key, changes)
        for key in (*_NAMED, "metrics"):
            for entry in made.get(key, ()):
                if key in _NAMED:
                    self._check_name(key, entry.get(_NAMED[key]))
                entries = self._value.setdefault(key, [])
                self._expanded.whose[(key, len(entries))] = index
                entries.append(entry)
        source = made.get("custom", "")
        if source:
            self._source(source)

    def _refuse(self, message: str) -> None:
        self._problems.add((USE, self._index), message)

    def _check_name(self, key: str, name: Any) -> None:
        kind = _KINDS[key]
        if not isinstance(name, str) or not self._begins(name):
            self._refuse(
                f"what it makes, {kind} {shown(name)}: the name does not begin with its id, "
                f"{self._id!r}"
            )
            return
        if name in self._names[key] and not (key == "jobs" and name in self._own):
            self._refuse(
                f"it makes a {kind} {name!r}, and there is one already: give this entry of 'use' "
                "another 'id'"
            )
        self._names[key].add(name)
        if key == "jobs":
            self._own.add(name)

    def _begins(self, name: str) -> bool:
        under = self._id.replace("-", "_").replace(".", "_")
        return name in (self._id, under) or name.startswith((f"{self._id}-", f"{under}_"))

    def _change(self, group: str, changes: Mapping[str, Any]) -> None:
        """Add keys to the entries of a group."""
        if group not in self._names["jobs"]:
            self._refuse(f"it adds to a group {shown(group)}, and there is none")
            return
        entries = self._value["jobs"]
        for place, entry in enumerate(entries):
            if entry.get("name") == group:
                entries[place] = self._changed(dict(entry), place, changes)

    def _changed(
        self, entry: dict[str, Any], place: int, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        for key, value in changes.items():
            there = entry.get(key)
            if isinstance(there, dict) and isinstance(value, dict):
                for inner in there.keys() & value.keys():
                    self._taken(entry["name"], f"{key}.{inner}")
                entry[key] = {**there, **value}
                for inner in value:
                    self._expanded.whose[("jobs", place, key, inner)] = self._index
            elif key in entry:
                self._taken(entry["name"], key)
            else:
                entry[key] = value
                self._expanded.whose[("jobs", place, key)] = self._index
        return entry

    def _taken(self, group: str, key: str) -> None:
        self._refuse(
            f"it gives group {group!r} {key!r}, and that has {key!r} already: take one of them out"
        )

    def _source(self, source: str) -> None:
        """Append functions to the document's own."""
        names: frozenset[str] = frozenset()
        try:
            names = defined_names(source)
        except SourceError as error:
            self._refuse(f"what it makes, custom: {error}")
        for name in sorted(names):
            if not self._begins(name):
                self._refuse(
                    f"what it makes, custom: the function {name!r} does not begin with its id, "
                    f"{self._id!r}"
                )
            elif name in self._functions:
                self._refuse(
                    f"it makes a function {name!r}, and 'custom' has one already: give this "
                    "entry of 'use' another 'id'"
                )
        self._functions |= names
        before = self._value.get("custom", "")
        if "custom" not in self._value:
            self._expanded.whose[("custom",)] = self._index
        if before and not before.endswith("\n"):
            before += "\n"
        self._value["custom"] = f"{before}\n{source}" if before else source
