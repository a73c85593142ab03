"""Write what follows from the keys of a document: run it after a change of `document/keys`.

    python docs/keys.py

It writes the JSON Schema for editors, the types of the keywords of `Job`, `Rule`, `Action` and
`Ensemble`, and the tables of keys in the guide, each between `<!-- keys: PATH -->` and
`<!-- end -->`. Tests compare these with what they are made from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flux_ensemble.document.editor_schema import editor_schema
from flux_ensemble.document.keys.document import DOCUMENT_KEYS, KEYS, parts
from flux_ensemble.document.keys.forms import DURATION, Key, Properties, Schema
from flux_ensemble.document.keys.jobs import JOB_KEYS
from flux_ensemble.document.keys.overrides import OVERRIDE_KEYS
from flux_ensemble.document.keys.rules import ACTION_KEYS, RULE_KEYS
from flux_ensemble.document.starters import schema_file

DOCS = Path(__file__).resolve().parent
TYPES = DOCS.parent / "flux_ensemble" / "entry_keys.py"

_TABLE = re.compile(r"<!-- keys: (\S+?)(?: (\S+))? -->\n.*?<!-- end -->\n", re.DOTALL)

_HEAD = '''\
"""The keywords of `Job`, `Rule`, `Action` and `Ensemble`, for type checkers; nothing runs here.

Hyphens in a key of a document become underscores here, and a key that is a word of Python's gets an
underscore at its end. Written by docs/keys.py from `document.keys`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, TypedDict

#: Seconds, or text such as "30s"; and values that an expression can also compute.
Duration = float | str | timedelta
Number = int | str
'''

_PYTHON = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "object": "Mapping[str, Any]",
}


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file that follows from the keys, with what it has to be."""
    yield schema_file(), json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n"
    yield TYPES, types()
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text()
        if _TABLE.search(text):
            yield path, _TABLE.sub(_table, text)


# -- the tables of the guide -------------------------------------------------------------------


def _table(match: re.Match[str]) -> str:
    path, below = match[1], match[2] or ""
    found = DOCUMENT_KEYS if path == "document" else tuple(_below(KEYS[path].form))
    names = below.split(",") if below else [key.name for key in found]
    rows = [
        f"| `{key.name}` | {_default(key)} | {markdown(key)} |"
        for key in found
        if key.name in names
    ]
    lines = [match[0].partition("\n")[0], "", "| key | default | what it is |", "|---|---|---|"]
    return "\n".join([*lines, *rows, "", "<!-- end -->", ""])


def _below(form: Schema) -> Iterator[Key]:
    for part in parts(form):
        properties = part.get("properties")
        if isinstance(properties, Properties):
            yield from properties.table.values()


def _default(key: Key) -> str:
    if key.unset or key.default is None:
        return key.unset
    if isinstance(key.default, str):
        return f"`{key.default}`"
    return json.dumps(key.default) if key.default != {} else "`{}`"


def markdown(key: Key) -> str:
    """Return what the guide says of a key.

    >>> markdown(Key("a", {}, "What 'b' is to job-* triggers.", more="See [b](#b)."))
    'What `b` is to `job-*` triggers. See [b](#b).'
    """
    text = re.sub(r"(?<!\w)'([^']+)'(?!\w)", r"`\1`", key.text)
    text = re.sub(r"(?<![`\w])(\w+-\*)", r"`\1`", text)
    former = f"Formerly `{key.formerly}`." if key.formerly else ""
    return " ".join(part for part in (text, key.more, former) if part)


# -- the types of keywords ---------------------------------------------------------------------


def types() -> str:
    """Return the module with the types of the keywords."""
    outside = {key.name for key in OVERRIDE_KEYS}
    own = [key for key in ACTION_KEYS if key.name not in outside]
    rest = [key for key in DOCUMENT_KEYS if key.name not in ("name", "jobs", "rules")]
    what = "The keys of a submission that override those of its group."
    parts = [
        _typed("Overrides(TypedDict, total=False)", what, OVERRIDE_KEYS),
        _typed("ActionKeys(Overrides, total=False)", "The keys of an action.", own),
        _typed("RuleKeys(TypedDict, total=False)", "The keys of a rule.", RULE_KEYS),
        _typed("JobKeys(TypedDict, total=False)", "The keys of a job group.", JOB_KEYS),
        "Limits = TypedDict(\n"
        '    "Limits",\n'
        f"    {_literal(_below(KEYS['limits'].form))},\n"
        "    total=False,\n"
        ")\n",
        _typed(
            "EnsembleKeys(TypedDict, total=False)",
            "The keys of a document, except for its name, its jobs and its rules.",
            rest,
        ),
    ]
    return "\n\n".join([_HEAD, *parts])


def _literal(keys: Iterable[Key]) -> str:
    return "{" + ", ".join(f'"{key.name}": {python(key.form)}' for key in keys) + "}"


def _typed(head: str, what: str, keys: Iterable[Key]) -> str:
    lines = [f"class {head}:", f'    """{what}"""', ""]
    for key in keys:
        lines.append(f"    {key.name.replace('-', '_')}: {key.python or python(key.form)}")
    return "\n".join([*lines, ""])


def python(form: Schema) -> str:
    """Return the type of the values of a form in Python.

    >>> python({"type": ["integer", "string"]}), python(DURATION)
    ('Number', 'Duration')
    """
    return " | ".join(dict.fromkeys(_types(form)))


def _types(form: Schema) -> Iterator[str]:
    if "if" in form:
        yield from _types(form["then"])
        yield from _types(form["else"])
        return
    if "enum" in form:
        yield f"Literal[{', '.join(json.dumps(name) for name in form['enum'])}]"
        return
    kinds: Any = form["type"]
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if form is DURATION:
        yield "Duration"
    elif kinds == ["integer", "string"]:
        yield "Number"
    else:
        for kind in kinds:
            of = form.get("items", {})
            many = of.get("type")
            several = isinstance(many, list) and "enum" not in of
            yield (
                f"Sequence[{'Any' if several else python(of)}]"
                if kind == "array"
                else _PYTHON[kind]
            )


def main() -> None:
    """Write the files that are not as they have to be."""
    for path, text in files():
        if path.read_text() != text:
            path.write_text(text)
            print(path)


if __name__ == "__main__":
    main()
