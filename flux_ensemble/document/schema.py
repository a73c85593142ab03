"""The JSON Schemas of documents and of their parts, and the check of a form, which gives sentences.

They use neither `anyOf` nor `$ref`, so every error becomes one sentence, made from the
`description` of the failing part. What cannot be expressed without them is checked by the readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from flux_ensemble.document.json_schema import jsonschema
from flux_ensemble.document.keys.document import DOCUMENT
from flux_ensemble.document.keys.forms import OBJECT, SCALAR, Schema, no_scalar, table
from flux_ensemble.document.keys.jobs import JOB, JOBSPEC_V1, RESOURCE_V1
from flux_ensemble.document.keys.rules import ACTION, ACTIONS, RULE
from flux_ensemble.document.keys.simulation import SIMULATED
from flux_ensemble.document.problems import MAX_PROBLEMS, Path, Problems
from flux_ensemble.scalars import as_text, plain_scalar
from flux_ensemble.suggestions import elsewhere, hint, nearest
from flux_ensemble.texts import listed, shown

#: What other tools have as a key of a job, and documents have in another way.
_OTHERWISE: Mapping[str, str] = {
    "depends-on needs after afterok dependencies dependency requires depends wait-for upstream "
    "parents parent": "a group that waits for another is submitted by a rule: {trigger: "
    "job-success, group: OTHER, action: {name: submit, label: THIS}}",
    "memory mem mem-mb mem-gb mem-per-cpu mem-per-core ram rss": "Flux gives out no memory: ask "
    "for 'cores', or with 'exclusive: true' for whole nodes",
    "image container docker singularity apptainer modules module conda venv pre post setup "
    "before-script before prologue epilogue": "it belongs into the command, such as "
    "[sh, -c, 'module load x; exec program {x}']",
    "resources": "'nodes', 'tasks', 'cores' and 'gpus' are keys of the group itself",
    "options flags submit-options sbatch cluster-options extra-args flux":
    "'nodes', 'tasks', 'cores', 'gpus', 'duration', 'queue' and 'bank' are keys of the group",
    "if only-if unless condition": "conditions are of rules: 'when' in an entry of 'rules'",
    "tasks-per-node ntasks-per-node ppn": "'tasks' counts those of all nodes: 2 nodes with 4 each "
    "are 'nodes: 2, tasks: 8'",
}  # fmt: skip

_ADVICE = {name: advice for names, advice in _OTHERWISE.items() for name in names.split()}

#: The mappings whose keys are written a level too high or too low, and what a key of each is.
_PLACES = (
    (DOCUMENT, "of the document, at the left margin"),
    (JOB, "of a job group: indent it as far as its 'name'"),
    (RULE, "of a rule: indent it as far as its 'trigger'"),
    (ACTION, "of an action: indent it as far as its 'name'"),
)

#: Schemas by what is checked with them.
SCHEMAS: Mapping[str, Schema] = {
    "document": DOCUMENT,
    "rule": RULE,
    "action": ACTION,
    "jobspec": JOBSPEC_V1,
    "resource": RESOURCE_V1,
    "simulated": SIMULATED,
}


@cache
def _validator(name: str) -> Any:
    base = jsonschema().Draft202012Validator
    types = base.TYPE_CHECKER.redefine("integer", _is_integer)
    keywords = {"items": _items, "additionalProperties": _further}
    made = jsonschema().validators.extend(base, keywords, type_checker=types)
    return made(SCHEMAS[name])


def _items(validator: Any, schema: Any, value: Any, _: Any) -> Iterator[Any]:
    """Check `items`: what aliases repeat is one object, and is checked once if valid."""
    if not validator.is_type(value, "array"):
        return
    valid: set[int] = set()
    for index, item in enumerate(value):
        if id(item) not in valid:
            # One by one: a document can have an error in each of very many items.
            is_valid = True
            for error in validator.descend(item, schema, path=index):
                is_valid = False
                yield error
            if is_valid:
                valid.add(id(item))


def _further(validator: Any, schema: Any, value: Any, whole: Any) -> Iterator[Any]:
    """Check `additionalProperties`; errors come in the order of the value, not of a set."""
    check = jsonschema().Draft202012Validator.VALIDATORS["additionalProperties"]
    places = {key: place for place, key in enumerate(value)} if isinstance(value, dict) else {}
    errors = check(validator, schema, value, whole)
    yield from sorted(errors, key=lambda error: places[error.path[0]] if error.path else -1)


def _is_integer(checker: Any, value: Any) -> bool:
    # Not 2.0: what Flux gets must be written as an integer.
    return isinstance(value, int) and not isinstance(value, bool)


def check_form(
    name: str, value: Any, problems: Problems, at: Path = (), wrong: set[Path] | None = None
) -> Any:
    """Check plain data against a schema.

    Args:
        name: "document", "rule", "action", "jobspec" or "resource".
        value: the value.
        problems: collects the problems.
        at: the path of the value.
        wrong: paths within `value` that are known to be wrong.

    Returns:
        The valid part of the value: invalid keys are removed, invalid list items are None.

    >>> problems = Problems()
    >>> check_form("action", {"name": "submit", "backoff": "two"}, problems)
    {'name': 'submit'}
    >>> problems.sentences()
    "backoff: expected an integer >= 0, not 'two'"
    """
    known = wrong or set()
    # Null in its place: what is known to be wrong is not checked again.
    blank = _without(value, known, keep=True)
    return _without(value, known | explain(_validator(name), blank, problems, at, known))


def explain(
    validator: Any,
    value: Any,
    problems: Problems,
    at: Path,
    known: Container[Path] = (),
    sentence: Callable[[Any], str] | None = None,
) -> set[Path]:
    """Add the errors of a jsonschema validator to `problems`, as sentences.

    Args:
        validator: the validator.
        value: the value.
        problems: collects the sentences.
        at: the path of the value.
        known: paths within `value` to ignore.
        sentence: turns an error into a sentence; default: from the schema's `description`.

    Returns:
        The paths within `value` that are wrong.

    >>> from jsonschema import Draft202012Validator
    >>> validator = Draft202012Validator({"type": "integer", "description": "an integer"})
    >>> problems = Problems()
    >>> explain(validator, "two", problems, ("count",))
    {()}
    >>> problems.sentences()
    "count: expected an integer, not 'two'"
    """
    wrong: set[Path] = set()
    for error in validator.iter_errors(value):
        path: Path = tuple(error.absolute_path)
        if path in known:
            continue
        if error.validator == "required":
            for key in error.validator_value:
                if key not in error.instance and not _misspelt(key, error):
                    problems.add(at + path, f"the key {key!r} is missing")
        elif error.validator == "additionalProperties":
            names = error.schema["properties"]
            empty = None
            for key, item in error.instance.items():
                if key in names:
                    empty = key if item is None and _is_open(names[key]) else None
                else:
                    wrong.add((*path, key))
                    problems.add((*at, *path, key), unknown_key(key, names, empty))
        else:
            wrong.add(path)
            problems.add(at + path, (sentence or _sentence)(error))
    return wrong


def _misspelt(key: str, error: Any) -> bool:
    """Return True if a mapping has the missing key under another name, which has its problem.

    With more unknown names than there can be problems it does not matter: the search for similar
    names takes long.
    """
    names = error.schema.get("properties", ())
    if error.schema.get("additionalProperties") is not False:
        return False
    unknown = islice((one for one in error.instance if one not in names), MAX_PROBLEMS)
    return any(nearest(one, names) == key for one in unknown)


def _sentence(error: Any) -> str:
    value, schema = error.instance, error.schema
    if value is None and schema.get("description") == SCALAR["description"]:
        return no_scalar(value)
    sentence = f"expected {schema.get('description', 'something else')}, not {shown(value)}"
    sentence += _other_form(value, schema)
    if error.validator == "enum" and isinstance(value, str):
        names = [str(name) for name in error.validator_value]
        sentence += f" ({hint(value, names)}one of: {listed(names)})"
    return sentence


def _other_form(value: Any, schema: Schema) -> str:
    """Return, in brackets, how a value of another form is written here; "" if that is unknown."""
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if isinstance(value, dict) and len(value) == 1 and None in value.values():
        # {n} is a mapping for YAML.
        return f' (put braces in quotes: "{{{next(iter(value))}}}")'
    if isinstance(value, dict) and "array" in kinds:
        return " (each begins with a dash: '- name: ...')" if "name" in value else _DASHES
    if isinstance(value, list) and "object" in kinds:
        if schema.get("description") == OBJECT["description"] and _is_table(value):
            values = ", ".join(f"{name}: [{as_text(value[0][name])}, ...]" for name in value[0])
            return f" (write a list for each name, side by side: {{{values}}} with 'sweep: zip')"
        if value and all(isinstance(item, dict) for item in value):
            return f" (leave out the dash before {shown(next(iter(value[0]), ''))})"
        value = value[0] if value else ""
    if "object" in kinds and isinstance(value, str) and (pair := _PAIR.fullmatch(value)):
        return f" (write {{{pair[1]}: {pair[2]}}})"
    if "object" in kinds and isinstance(value, str) and value.endswith((".csv", ".tsv")):
        return f" (write {{COLUMN: {{file: {shown(value)}}}}})"
    meant = plain_scalar(value.replace(",", "")) if isinstance(value, str) else value
    if type(meant) is float and meant.is_integer() and "integer" in kinds:
        meant = int(meant)
    fits = (type(meant) is bool and "boolean" in kinds) or (
        type(meant) is int and "integer" in kinds and meant >= schema.get("minimum", 0)
    )
    return f" (write {as_text(meant)})" if fits and type(meant) is not type(value) else ""


def _is_table(value: list[Any]) -> bool:
    """Return whether a list has several mappings of the same names, such as points."""
    rows = [item for item in value if isinstance(item, dict)]
    names = rows[0].keys() if rows else ()
    return 1 < len(rows) == len(value) and all(
        row.keys() == names and all(isinstance(one, str | int | float) for one in row.values())
        for row in rows
    )


_DASHES = " (a list, of which each item begins with a dash)"

#: A variable as shells and other tools assign it.
_PAIR = re.compile(r"([A-Za-z_][\w-]*)=(\S+)")


def _without(value: Any, wrong: set[Path], keep: bool = False) -> Any:
    """Return a value without the parts at the paths in `wrong`.

    Args:
        value: the value.
        wrong: paths within it.
        keep: keep the keys of mappings, with null; otherwise leave them out.
    """
    if () in wrong:
        return None
    if not wrong:
        return value
    below: dict[str | int, set[Path]] = {}
    for path in wrong:
        below.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        return {
            key: _without(item, below.get(key, set()), keep)
            for key, item in value.items()
            if keep or () not in below.get(key, ())
        }
    return [_without(item, below.get(index, set()), keep) for index, item in enumerate(value)]


def _is_open(schema: Schema) -> bool:
    """Return True if a mapping with keys of the user's choice is expected, such as `params`."""
    kinds = schema.get("type", ())
    return (
        "object" in ((kinds,) if isinstance(kinds, str) else kinds) and "properties" not in schema
    )


def unknown_key(key: str, known: Iterable[str], empty: str | None = None) -> str:
    """Return the message about an unknown key.

    Args:
        key: the key.
        known: those that there are.
        empty: the mapping without a value after which it is written, as if it were not of it.

    >>> unknown_key("comand", ["name", "command"])
    "unknown key 'comand' (did you mean 'command'? keys: name, command)"
    >>> unknown_key("walltime", ["name", "duration"])
    "unknown key 'walltime' (did you mean 'duration'? keys: name, duration)"
    >>> unknown_key("t", ["name", "params"], "params")
    "unknown key 't' (indent 't' below 'params')"
    """
    names = list(known)
    advice = _advice(key, names)
    if advice is None and empty is not None and not hint(key, names):
        advice = f"indent {shown(key)} below {empty!r}"
    if advice is not None:
        return f"unknown key {shown(key)} ({advice})"
    return f"unknown key {shown(key)} ({hint(key, names)}keys: {listed(names)})"


def _advice(key: str, known: Collection[str]) -> str | None:
    """Return the advice about a key; None if a name that is known may be meant."""
    name = elsewhere(key, _ADVICE)
    if name is not None and set(table(JOB)) == set(known):
        return _ADVICE[name]
    if elsewhere(key, known) is not None:
        return None
    if key in ACTIONS and set(table(ACTION)) == set(known):
        return f"an action has its name as a value: {{name: {key}, label: ...}}"
    families = [(table(form), place) for form, place in _PLACES]
    if not any(set(keys) == set(known) for keys, _ in families):
        return None
    return next((f"it is a key {place}" for keys, place in families if key in keys), None)
