"""Puts what packaged algorithms make in the place of `use:`.

    document with `use` ──expand──► Expanded: a plain document, that knows where it came from

The algorithms and how they are found are in `flux_ensemble.algorithms`. What is made is checked as
if it had been written: problems of it are told at the entry of `use` that made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

from flux_ensemble.algorithms.algorithm import EXPANSION, Algorithm, ArgumentError
from flux_ensemble.algorithms.builtin import SHIPPED, shipped
from flux_ensemble.algorithms.packages import Foreign, PackageError, installed
from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.functions import SourceError, defined_names
from flux_ensemble.document.json_schema import jsonschema
from flux_ensemble.document.plain_data import check_plain
from flux_ensemble.document.problems import Path, Problems, dotted
from flux_ensemble.document.rules import rule_id
from flux_ensemble.document.schema import explain
from flux_ensemble.document.spellings import with_spellings
from flux_ensemble.document.yaml_reader import Document
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: The key of a document.
USE = "use"

#: Entries of these lists have names, under these keys.
_NAMED = {"jobs": "name", "rules": "id", **dict.fromkeys(FAMILIES, "id")}

#: What these entries are.
_KINDS = {
    "jobs": "group",
    "rules": "rule",
    **{key: family.noun for key, family in FAMILIES.items()},
    "metrics": "metric",
}


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

    def is_pair(self, path: Path) -> bool:
        """Return whether the value was written as a pair; what was made has none."""
        return self._user(path) is None and self._original.is_pair(path)

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
            return self._original.told(path, message)
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
                for inner in (key for key in there if key in value):
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


#: The keys of an entry of `use` that are no arguments.
_OWN = ("algorithm", "id")

#: Most entries of `use`.
MAX_USES = 100

#: Where algorithms of other packages are not run.
_ELSEWHERE = (
    "those of packages are not run here; 'flux-ensemble load' and 'run' send what they make, and "
    "'validate --expanded' prints it"
)


def check_uses(
    value: Mapping[str, Any], problems: Problems, *, packages: bool
) -> list[Algorithm | Foreign]:
    """Find the algorithms that a document uses, and check their arguments.

    Args:
        value: the document, whose form is right.
        problems: collects the problems.
        packages: algorithms of other packages may be run here.

    Returns:
        The algorithms, in order, if there are no problems.

    >>> problems = Problems()
    >>> check_uses({"use": [{"algorithm": "retry-wiht-more"}]}, problems, packages=False)
    []
    >>> print(problems.sentences()[:87])
    use[0].algorithm: no algorithm named 'retry-wiht-more' (did you mean 'retry-with-more'?
    """
    if len(value[USE]) > MAX_USES:
        problems.give_up((USE,), f"expected at most {MAX_USES} entries, not {len(value[USE])}")
    known = installed() if any(use["algorithm"] not in SHIPPED for use in value[USE]) else {}
    named: dict[str, Algorithm | Foreign] = {}
    found: list[Algorithm | Foreign] = []
    ids: dict[str, int] = {}
    for index, use in enumerate(value[USE]):
        at: Path = (USE, index)
        own = use_id(use)
        if own in ids:
            problems.add(
                (*at, "id" if "id" in use else "algorithm"),
                f"use[{ids[own]}] has the id {own!r} too: give one of them another 'id'",
            )
        ids.setdefault(own, index)
        try:
            name = use["algorithm"]
            if name not in named:
                named[name] = _found(name, known, packages)
            _check_arguments(named[name], use, at, problems)
        except _UnknownError as error:
            problems.add((*at, "algorithm"), str(error))
        except PackageError as error:
            problems.add(at, str(error))
        else:
            found.append(named[name])
    return [] if problems else found


def use_id(use: Mapping[str, Any]) -> str:
    """Return the prefix of the names that an entry of `use` makes.

    >>> use_id({"algorithm": "asha"}), use_id({"algorithm": "asha", "id": "hpo"})
    ('asha', 'hpo')
    """
    return str(use.get("id", use["algorithm"]))


class _UnknownError(ValueError):
    """An error: no algorithm has the name, or several have."""


def _found(name: str, known: Mapping[str, list[Any]], packages: bool) -> Algorithm | Foreign:
    if name in SHIPPED:
        return shipped(name)
    points = known.get(name, [])
    if len(points) == 1 and packages:
        return Foreign(points[0])
    if points:
        owners = [Foreign(point).package for point in points]
        if len(points) > 1:
            raise _UnknownError(
                f"several packages have an algorithm named {name!r} ({listed(owners)}): "
                "uninstall all but one of them"
            )
        raise _UnknownError(f"the algorithm {name!r} is of the package {owners[0]!r}: {_ELSEWHERE}")
    names = sorted({*SHIPPED, *known})
    others = "those of other packages have to be installed beside flux-ensemble"
    raise _UnknownError(
        f"no algorithm named {name!r} ({hint(name, names)}algorithms: {listed(names)}; "
        f"{others if packages else _ELSEWHERE})"
    )


def _check_arguments(
    algorithm: Algorithm | Foreign,
    use: Mapping[str, Any],
    at: Path,
    problems: Problems,
) -> None:
    schema, validator = algorithm.schema, jsonschema().Draft202012Validator
    if isinstance(algorithm, Foreign):
        try:
            validator.check_schema(schema)
        except jsonschema().SchemaError as error:
            raise algorithm.failure(
                f"has arguments that are no JSON Schema: {error.message}"
            ) from None
    arguments = {key: value for key, value in use.items() if key not in _OWN}
    wrong = explain(validator(schema), arguments, problems, at, sentence=_sentence)
    for path, kind, value in _formats(arguments, schema, ()):
        if kind == "duration" and not any(path[: len(one)] == one for one in wrong):
            try:
                parse_duration(value)
            except ValueError as error:
                problems.add((*at, *path), str(error))


def _check_groups(
    arguments: Mapping[str, Any], schema: Any, known: Collection[str], problems: Problems, at: Path
) -> bool:
    """Check that the groups that arguments name exist; return True if all do."""
    missing = [
        (path, value)
        for path, kind, value in _formats(arguments, schema, ())
        if kind == "group" and value not in known
    ]
    for path, value in missing:
        names = sorted(known)
        groups = f"{hint(value, names)}groups: {listed(names)}"
        problems.add((*at, *path), f"no job group named {shown(value)} ({groups})")
    return not missing


def _sentence(error: Any) -> str:
    value, schema = error.instance, error.schema
    title = schema.get("title")
    if title is None:
        return f"expected another value than {shown(value)}: {error.message}"
    sentence = f"expected {title}, not {shown(value)}"
    if error.validator == "enum" and isinstance(value, str):
        names = [str(name) for name in error.validator_value]
        sentence += f" ({hint(value, names)}one of: {listed(names)})"
    return sentence


def _formats(value: Any, schema: Any, path: Path) -> Iterator[tuple[Path, str, Any]]:
    """The values with a format of ours: their path, the format, the value."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("format")
    if (kind == "duration" and isinstance(value, (int, float, str))) or (
        kind == "group" and isinstance(value, str)
    ):
        yield path, kind, value
    elif isinstance(value, dict):
        parts = schema.get("properties", {})
        for key, item in value.items():
            yield from _formats(item, parts.get(key), (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _formats(item, schema.get("items"), (*path, index))


def expand(
    document: Document, algorithms: list[Algorithm | Foreign], problems: Problems
) -> Expanded:
    """Put what algorithms make in the place of `use`.

    Args:
        document: whose form, and whose arguments of algorithms, are right.
        algorithms: those that it uses, in order.
        problems: collects the problems.

    >>> value = {"jobs": [{"name": "md", "command": "x", "duration": 60}],
    ...          "use": [{"algorithm": "retry-with-more", "group": "md", "duration": 2}]}
    >>> made = expand(Document(value), [shipped("retry-with-more")], Problems())
    >>> made.value["jobs"][0]["retries"]["with"]
    {'duration': '{job.duration * 2}'}
    """
    value = {key: item for key, item in document.value.items() if key != USE}
    expanded = Expanded(document, value)
    merge = Merge(expanded, problems)
    jobs = _Seconds(value)
    for index, (use, algorithm) in enumerate(zip(document.value[USE], algorithms, strict=True)):
        at: Path = (USE, index)
        arguments = _seconds({k: v for k, v in use.items() if k != "algorithm"}, algorithm.schema)
        arguments["id"] = use_id(use)
        if not _check_groups(arguments, algorithm.schema, merge.groups, problems, at):
            continue
        try:
            made = algorithm.expand(arguments, jobs.document())
        except ArgumentError as error:
            problems.add((*at, error.argument), str(error))
            continue
        except PackageError as error:
            problems.add(at, str(error))
            continue
        wrong = _wrong(made)
        if wrong is not None:
            assert isinstance(algorithm, Foreign), wrong
            problems.add(at, str(algorithm.failure(wrong)))
            continue
        merge.take(index, use_id(use), made)
        if isinstance(algorithm, Algorithm):
            expanded.packaged += made.get("custom", "")
    return expanded


class _Seconds:
    """Gives the document so far with the time limits of groups in seconds.

    Args:
        value: the document, whose entries are replaced and not changed.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value
        #: By position of the entries: the entry, and what it was converted to.
        self._entries: list[tuple[Any, Any]] = []

    def document(self) -> dict[str, Any]:
        """The document as it is now."""
        if "jobs" not in self._value:
            return dict(self._value)
        for place, entry in enumerate(self._value["jobs"]):
            if place == len(self._entries):
                self._entries.append((entry, _in_seconds(entry)))
            elif self._entries[place][0] is not entry:
                self._entries[place] = (entry, _in_seconds(entry))
        return {**self._value, "jobs": [converted for _, converted in self._entries]}


def _in_seconds(entry: dict[str, Any]) -> dict[str, Any]:
    with suppress(ValueError):
        if "duration" in entry:
            return {**entry, "duration": parse_duration(entry["duration"])}
    return entry


def _seconds(arguments: dict[str, Any], schema: Any) -> dict[str, Any]:
    """The arguments, with durations in seconds."""
    copy = deepcopy(arguments)
    for path, kind, value in _formats(arguments, schema, ()):
        if kind == "duration":
            inner: Any = copy
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = parse_duration(value)
    return copy


def _wrong(made: Any) -> str | None:
    """Return the fault in the shape of a package's expansion; None if there is none."""
    if not isinstance(made, dict):
        return f"made {shown(made)} instead of a mapping"
    for key, part in made.items():
        if key not in EXPANSION:
            return f"made {shown(key)} (only: {listed(EXPANSION)})"
        if key == "custom":
            if not isinstance(part, str):
                return f"made 'custom' of {shown(part)} instead of text"
        elif key == "groups":
            if not isinstance(part, dict) or not all(
                isinstance(one, dict) for one in part.values()
            ):
                return f"made 'groups' of {shown(part)} instead of a mapping of mappings"
        elif not isinstance(part, list) or not all(isinstance(one, dict) for one in part):
            return f"made {key!r} of {shown(part)} instead of a list of mappings"
    problems = Problems()
    check_plain(made, problems)
    return f"made what no document can hold: {problems.sentences()}" if problems else None


def plain_form(document: Document) -> dict[str, Any]:
    """A document as plain data that reads the same without the text of its numbers.

    >>> from flux_ensemble.document.yaml_reader import read_yaml
    >>> document, _ = read_yaml("jobs: [{name: a, command: [run, 010, 1.50, yes]}]")
    >>> plain_form(document)["jobs"][0]["command"]
    ['run', '010', '1.50', 'yes']
    >>> document, _ = read_yaml("jobs: [{name: a, command: 'run {v}', params: {v: 1.10}}]")
    >>> plain_form(document)["jobs"][0]["params"]
    {'v': {'written': '1.10'}}
    """
    value: dict[str, Any] = deepcopy(with_spellings(document))
    for index, entry in enumerate(value.get("jobs") or ()):
        for key in ("command", "environment") if isinstance(entry, dict) else ():
            part = entry.get(key)
            if isinstance(part, (dict, list)):
                steps = part.keys() if isinstance(part, dict) else range(len(part))
                for step in list(steps):
                    text = document.text(("jobs", index, key, step))
                    part[step] = part[step] if text is None else text
    return value
