"""Write what follows from the keys of a document: run it after a change of `document/keys`.

    python docs/keys.py

It writes the JSON Schema for editors, the types of the keywords of `Job`, `Rule`, `Action` and
`Ensemble`, and the tables of the guide: of keys, between `<!-- keys: PATH -->` and `<!-- end -->`,
and those of `TABLES`, between `<!-- table: NAME -->` and `<!-- end -->`. Tests compare these with
what they are made from. Links in the tables of the package lead from this folder.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

import flux_ensemble
from flux_ensemble.cli.main import ensemble
from flux_ensemble.client.tables import JobTable
from flux_ensemble.client.topics import TOPICS
from flux_ensemble.document.editor_schema import Explained, editor_schema, explained
from flux_ensemble.document.expression_help import expression_names
from flux_ensemble.document.keys.document import DOCUMENT_KEYS, KEYS, parts
from flux_ensemble.document.keys.forms import DURATION, Key, Properties, Schema
from flux_ensemble.document.keys.jobs import JOB_KEYS
from flux_ensemble.document.keys.overrides import OVERRIDE_KEYS
from flux_ensemble.document.keys.rules import ACTION_KEYS, ACTIONS, RULE_KEYS, TRIGGERS
from flux_ensemble.document.rules import NOT_OF_MEMBER
from flux_ensemble.document.starters import schema_file
from flux_ensemble.metrics import meanings
from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.families import FAMILIES
from flux_ensemble.metrics.job_fields import IDLE, IDLE_FIELDS
from flux_ensemble.metrics.job_row import COLUMNS, IN_RULES, MEMO, PARAMS
from flux_ensemble.metrics.names import REASONS
from flux_ensemble.metrics.statistics import STATISTICS
from flux_ensemble.results.failures import FailureSummary

DOCS = Path(__file__).resolve().parent
TYPES = DOCS.parent / "flux_ensemble" / "entry_keys.py"

_TABLE = re.compile(r"<!-- (keys|table): (\S+?)(?: (\S+))? -->\n.*?<!-- end -->\n", re.DOTALL)

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
            yield path, _TABLE.sub(partial(_table, path.name), text)


# -- the tables of the guide -------------------------------------------------------------------


def _table(page: str, match: re.Match[str]) -> str:
    kind, name, below = match[1], match[2], match[3] or ""
    lines = _of_keys(name, below) if kind == "keys" else TABLES[name]()
    text = "\n".join([match[0].partition("\n")[0], "", *lines, "", "<!-- end -->", ""])
    return text.replace(f"]({page}#", "](#")


def _of_keys(path: str, below: str) -> Iterator[str]:
    """Yield the table of the keys of a mapping, or of some of them."""
    found = DOCUMENT_KEYS if path == "document" else tuple(_below(KEYS[path].form))
    names = below.split(",") if below else [key.name for key in found]
    known = {key.name: key for key in found}
    keys = [known[name] for name in names]
    yield from _rows(
        ("key", "default", "what it is"),
        ((f"`{key.name}`", _default(key), markdown(key)) for key in keys),
    )


def _rows(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    return re.sub(r" {2,}", " ", f"| {' | '.join(cells)} |")


def _names(table: Mapping[str, str], name: str = "`{}`") -> Iterator[str]:
    """Yield a table of names and what they mean; `name` has a name in it as it is written."""
    yield from _rows(("name", "is"), ((name.format(key), is_) for key, is_ in table.items()))


def _all_keys() -> Iterator[str]:
    """Yield the sections of all keys; distributions of values are shown once."""
    sections: dict[str, list[Explained]] = {}
    for one in explained():
        sections.setdefault(one.path.rpartition(".")[0], []).append(one)
    for path, keys in sections.items():
        if path.startswith(_DISTRIBUTIONS):
            continue
        yield from ("", f"## {path or 'The top of a document'}", "")
        yield from _rows(
            ("key", "value", "default", "what it is"),
            ((f"`{one.key.name}`", _value(one), _or_required(one), _all_of(one)) for one in keys),
        )


#: Sections with distributions that are those of `simulate.duration`.
_DISTRIBUTIONS = (
    "members.simulate.startup",
    "members.simulate.loss",
    "simulate.startup",
    "simulate.memo.",
)


def _value(one: Explained) -> str:
    if one.choices and len(one.choices) < _MANY and not one.below:
        return ", ".join(f"`{value}`" for value in one.choices)
    return re.sub(r"(?<![\w])('[^']+'|\{.*\}|\[.*\])(?![\w])", _code, one.expected)


def _code(match: re.Match[str]) -> str:
    """Return a quoted word, or a value in braces, as code; within a link Markdown has none."""
    return "`" + match[1].removeprefix("'").removesuffix("'").replace("|", "\\|") + "`"


def _or_required(one: Explained) -> str:
    return "required" if one.required else _default(one.key)


def _all_of(one: Explained) -> str:
    names = () if one.path == "rules.scope" else one.key.only
    only = ", ".join(f"`{name}*`" if name.endswith("-") else f"`{name}`" for name in names)
    return f"{markdown(one.key)} *Only of {only}.*" if only else markdown(one.key)


#: A key with more choices than these has a page of its own for them.
_MANY = 9


def _triggers() -> Iterator[str]:
    rows = ((f"`{name}`", text, _own(_of_trigger(name))) for name, text in TRIGGERS.items())
    yield from _rows(("trigger", "fires when", "keys"), rows)


def _of_trigger(name: str) -> Iterator[Key]:
    """Yield the keys that only some triggers take, for one of them."""
    for key in RULE_KEYS:
        of_member = key.name == "scope" and name not in NOT_OF_MEMBER
        if key.only and (of_member or key.takes(name)):
            yield key


def _actions() -> Iterator[str]:
    rows = (
        (f"`{name}`", text, _own(key for key in ACTION_KEYS if key.only and key.takes(name)))
        for name, text in ACTIONS.items()
    )
    yield from _rows(("action", "what it does", "keys"), rows)


def _own(keys: Iterable[Key]) -> str:
    return ", ".join(f"`{key.name}`" for key in keys)


def _instance() -> Iterator[str]:
    names = {
        f'{head}["{name}"]' if "-" in name else f"{head}.{name}": text
        for head, table in meanings.INSTANCE.items()
        for name, text in table.items()
    }
    yield from _names(names)


#: From when on rules know a field of a job.
_KNOWN = {
    Known.SUBMISSION: "for every `job-*` trigger, `drift` and `anomaly`",
    Known.START: "from `job-start` on",
    Known.END: "when the job has ended",
}


def _job_in_rules() -> Iterator[str]:
    """Yield the table of what expressions of rules know of a job."""
    rows, before = [], None
    for name, column in sorted(IN_RULES.items(), key=lambda item: item[1].known):
        key = f"{name}.NAME" if name in (PARAMS, MEMO) else name
        known = "" if column.known is before else _KNOWN[column.known]
        before = column.known
        rows.append((f"`job.{key}`", column.in_rules or column.about, known))
    yield from _rows(("name", "is", "known"), rows)


def _job_rows() -> Iterator[str]:
    """Yield the table of all fields of a job."""
    fields = COLUMNS.values()
    yield from _rows(("field", "is"), ((f"`{field.name}`", field.column.about) for field in fields))


def _all_names() -> Iterator[str]:
    """Yield the keys of each part of a document, by name alone."""
    sections: dict[str, list[str]] = {}
    for one in explained():
        path, _, name = one.path.rpartition(".")
        sections.setdefault(path, []).append(f"**`{name}`**" if one.required else f"`{name}`")
    shown = {
        f"`{path}`" if path else "the top": " ".join(names)
        for path, names in sections.items()
        if not path.startswith(("simulate.", "members.simulate.")) and path not in _ACTIONS
    }
    yield from _rows(("in", "keys (those in bold are required)"), shown.items())


#: Parts with keys of actions, which are listed for each action.
_ACTIONS = ("rules.action", "jobs.retries.with")


def _trigger_names() -> Iterator[str]:
    """Yield the triggers by the keys that they take."""
    sets: dict[str, list[str]] = {}
    for name, text in TRIGGERS.items():
        if not text.startswith("An older name"):
            keys = _own(_of_trigger(name))
            sets.setdefault(keys, []).append(f"`{name}`")
    yield from _rows(
        ("triggers", "their keys"), ((" ".join(names), keys) for keys, names in sets.items())
    )


def _action_names() -> Iterator[str]:
    """Yield the actions with their keys."""
    rows = (
        (f"`{name}`", _own(key for key in ACTION_KEYS if key.only and key.takes(name)))
        for name in ACTIONS
    )
    yield from _rows(("action", "its keys"), rows)


def _expression_names() -> Iterator[str]:
    """Yield all that `explain expressions` lists, as a table."""
    rows = ((what, f"`{', '.join(names)}`") for what, names in expression_names())
    yield from _rows(("what", "names"), rows)


def _commands() -> Iterator[str]:
    """Yield the commands with their summaries."""
    items = ensemble.shell_complete(click.Context(ensemble), "")
    yield from _rows(
        ("command", "what it does"), ((f"`{one.value}`", one.help or "") for one in items)
    )


#: A section of a docstring, and an entry of one.
_SECTION = re.compile(r"(Args|Returns|Raises|Attributes|Yields):")
_ENTRY = re.compile(r"    (\S[^:]*): (.*)")


def _described(docstring: str) -> Iterator[str]:
    """Yield a docstring as Markdown: its text, its arguments and the like, and its examples."""
    section, code = "", False
    for line in inspect.cleandoc(docstring).splitlines():
        heading = _SECTION.fullmatch(line)
        if code and not line.strip():
            yield "```"
            code = False
        if heading is not None:
            section = heading[1]
            yield f"*{section}*\n"
        elif line.startswith(">>>") and not code:
            code = True
            yield f"```python\n{line}"
        elif code:
            yield line
        elif section and (entry := _ENTRY.fullmatch(line)) is not None:
            yield f"- `{entry[1]}`: {entry[2]}"
        elif section and line.strip():
            yield f"  {line.strip()}"
        else:
            section = ""
            yield line
    if code:
        yield "```"


def _signature(function: Any) -> str:
    """Return the arguments of a function, without `self` and types."""
    signature = inspect.signature(function)
    plain = [
        one.replace(annotation=inspect.Parameter.empty)
        for name, one in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(inspect.Signature(plain))


#: Classes of what methods return, which programs do not import.
RETURNED: Mapping[str, Any] = {"FailureSummary": FailureSummary, "JobTable": JobTable}


def _python(name: str) -> Iterator[str]:
    """Yield what users call of the package: a function, or a class with its methods."""
    what = RETURNED.get(name) or getattr(flux_ensemble, name)
    arguments = "" if issubclass(type(what), type) and issubclass(what, dict) else _signature(what)
    yield f"### {name}{arguments}\n"
    yield from _described(what.__doc__ or "")
    if not isinstance(what, type) or issubclass(what, dict):
        return
    for key, member in vars(what).items():
        function = getattr(member, "__func__", member)
        if key[0] == "_" or not (callable(function) or isinstance(function, property)):
            continue
        if isinstance(function, property):
            arguments, docstring = "", function.__doc__
        else:
            arguments, docstring = _signature(function), function.__doc__
        later = "await " if inspect.iscoroutinefunction(function) else ""
        later = "async for ... in " if inspect.isasyncgenfunction(function) else later
        yield f"\n#### {later}{key}{arguments}\n"
        yield from _described(docstring or "")


#: Name of a table -> the function that yields its lines.
def _requests() -> Iterator[str]:
    """Yield the table of the requests of users, each with the keys that it has."""
    headings = re.findall(r"(?m)^## (.*)$", (DOCS / "rpc.md").read_text())
    rows = []
    for name, topic in TOPICS.items():
        if topic.response:
            (heading,) = (one for one in headings if name in one.split(" and "))
            keys = ", ".join(
                key if field.required else f"{key}?" for key, field in topic.fields.items()
            )
            request = f"`{{{keys}}}`" + (", streaming" if topic.streaming else "")
            link = f"[`ensemble.{name}`](#{heading.replace(' ', '-')})"
            rows.append((link, request, topic.response))
    yield from _rows(("topic", "request", "response"), rows)


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "all-keys": _all_keys,
    "all-names": _all_names,
    "trigger-names": _trigger_names,
    "action-names": _action_names,
    "expression-names": _expression_names,
    "commands": _commands,
    "triggers": _triggers,
    "actions": _actions,
    "job-in-rules": _job_in_rules,
    "job-rows": _job_rows,
    "requests": _requests,
    **{f"python-{name}": partial(_python, name) for name in (*flux_ensemble.__all__, *RETURNED)},
    "idle": partial(_names, IDLE_FIELDS, f"`{IDLE}.{{}}`"),
    "reasons": partial(_names, REASONS),
    "counters": partial(_names, meanings.COUNTERS),
    "statistics": partial(
        _names,
        {
            name: kind.text + ("" if kind.always else "; only if `metrics` asks for it")
            for name, kind in STATISTICS.items()
        },
    ),
    "variables": partial(_names, meanings.VARIABLES),
    "instance": _instance,
    "functions": partial(_names, meanings.FUNCTIONS, "`{}()`"),
    "search": partial(_names, FAMILIES["search"].fields, "`search.ID.{}`"),
    "best": partial(_names, meanings.BEST, "`best.NAME.{}`"),
}


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
