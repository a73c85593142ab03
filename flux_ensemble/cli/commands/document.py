"""The commands about documents, without Flux: validate, init, explain, schema."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import (
    FAILED,
    OK,
    USAGE,
    Failure,
    check_document,
    first_problems,
    print_error,
    read_document,
    warn,
)
from flux_ensemble.cli.display.formats import print_json
from flux_ensemble.cli.prose import fitted
from flux_ensemble.cli.session import completion
from flux_ensemble.cli.session.target import here, trials_of
from flux_ensemble.files import writing
from flux_ensemble.own_command import own_command
from flux_ensemble.renamed import deprecated
from flux_ensemble.texts import hanging, listed, one_line, printable

#: The topic that `explain` has besides keys.
_EXPRESSIONS = "expressions"

#: Kinds of names in expressions that somebody can ask about.
_NAMED = ("compute", "the job", "idle jobs", "counts", "statistics", "the queue", "found")

#: Names in the texts of jobs that are filled in, and what they are.
_COUNTERS = {
    "index": "the number of a job within its submission",
    "number": "the number of a job among all jobs of its group",
    "attempt": "how often a job was tried before",
}

#: What a value under `params` can have in it.
_IN_PARAMS = ("range", "linspace", "logspace", "file", "where", "limit")

if TYPE_CHECKING:
    from flux_ensemble.document.editor_schema import Explained


@click.command
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", shell_complete=completion.files
)
@click.option("--strict", is_flag=True, help="Exit 1 if there are warnings.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one line of JSON.")
@click.option(
    "--expanded",
    is_flag=True,
    help="Print the document as it is understood, as YAML: with what its 'use' makes.",
)
def validate(files: tuple[str, ...], strict: bool, as_json: bool, expanded: bool) -> int:
    """Check each FILE ("-": standard input) and print the errors in it, or else warnings.

    Works without Flux. Exits 0 if all documents are valid and 2 if one is not.
    """
    if expanded:
        if as_json or len(files) > 1:
            raise Failure("--expanded prints one document, as YAML", USAGE)
        _print_expanded(files[0])
        return OK
    findings = [_check(file) for file in files]
    if as_json:
        print_json({"documents": findings})
    else:
        for finding in findings:
            _print(finding)
    if not all(finding["valid"] for finding in findings):
        return USAGE
    return FAILED if strict and any(finding["warnings"] for finding in findings) else OK


def _check(file: str) -> dict[str, Any]:
    """Check a document, and return the finding for `--json`."""
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.loading import DocumentError, load_text

    finding: dict[str, Any] = {
        "file": "document" if file == "-" else file,
        "valid": False,
        "name": None,
        "groups": [],
        "rules": [],
        "errors": [],
        "more": False,
        "warnings": [],
        "notes": [],
    }
    found = Warnings()
    try:
        text, label = read_document(file)
        # Standard input has no file name to name the ensemble after, and a document without a name
        # is no error of the document.
        name, directory = None if label else "document", str(Path(label or "-").parent)
        where: Any = {"name": name, "file": label, "directory": directory}
        spec = load_text(text, **where, warnings=found, jobs=trials_of(here))
    except Failure as exc:
        finding["errors"] = [{"line": None, "path": "", "message": str(exc)}]
        finding["text"] = str(exc)
    except DocumentError as exc:
        finding["errors"] = [problem._asdict() for problem in exc.problems]
        finding["more"] = exc.more
        finding["text"] = str(exc)
    else:
        finding.update(
            valid=True,
            name=spec.name,
            groups=list(spec.groups),
            rules=[rule.id for rule in spec.rules],
            warnings=list(found.warnings),
            notes=list(found.notes),
        )
    return finding


def _print(finding: dict[str, Any]) -> None:
    if not finding["valid"]:
        print_error(first_problems(finding["text"], finding["file"]))
        return
    for kind in ("warning", "note"):
        for sentence in finding[f"{kind}s"]:
            click.echo(fitted(f"{kind}: {hanging(sentence)}", err=True), err=True)
    groups, rules = len(finding["groups"]), len(finding["rules"])
    click.echo(
        f"{one_line(finding['file'])}: ok: {groups} job group{'s'[: groups != 1]}, "
        f"{rules} rule{'s'[: rules != 1]}"
    )


def _print_expanded(file: str) -> None:
    """Print a document with the expansion of its `use`.

    Raises:
        Failure: the document has errors.
    """
    from flux_ensemble.api.yaml_writer import to_yaml
    from flux_ensemble.document.use import plain_form
    from flux_ensemble.document.yaml_reader import read_yaml

    text, label = read_document(file)
    spec = check_document(text, label, None if label else "document", jobs=trials_of(here))
    value = spec.expansion or plain_form(read_yaml(text, label)[0])
    click.echo(to_yaml(value), nl=False)


@click.command
def schema() -> None:
    """Print the JSON Schema of documents, for editors and other tools.

    A document whose first line is "# yaml-language-server: $schema=FILE" is checked and completed
    by editors with yaml-language-server; "init" writes that line.
    """
    import json

    from flux_ensemble.document.editor_schema import editor_schema

    click.echo(json.dumps(editor_schema(), indent=2, ensure_ascii=False))


@click.command
@click.argument("template", required=False, shell_complete=completion.templates)
@click.argument("file", required=False, shell_complete=completion.files)
@click.option("--list", "listing", is_flag=True, help="List the templates.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
def init(template: str | None, file: str | None, listing: bool, force: bool) -> None:
    """Write a document to begin with to FILE: TEMPLATE, or else hello-world.

    The templates are the examples of flux-ensemble. FILE is by default called as the template, and
    "-" is standard output. Its first line names the schema of documents, for editors. A sheet that
    it reads is written beside it.
    """
    from flux_ensemble.document.feature import objection
    from flux_ensemble.document.loading import load_text
    from flux_ensemble.document.starters import Starters
    from flux_ensemble.suggestions import hint

    starters = Starters()
    known = starters.names()
    if listing:
        width = max(map(len, known), default=0)
        for name in known:
            click.echo(f"{name:<{width}}  {printable(starters.summary(name))}")
        return
    template = template or "hello-world"
    if template not in known:
        from flux_ensemble.cli.session.overview import TEMPLATE

        names = f"{hint(template, known)}templates: {listed(known)}"
        mine = template if template.endswith((".yaml", ".yml")) else f"{template}.yaml"
        begun = f"'{own_command('init', TEMPLATE, file or mine)}' begins a document of your own"
        raise Failure(f"no template named {template!r}: {begun} ({names})", USAGE)
    text = starters.document(template)
    if file == "-":
        click.echo(text, nl=False)
        return
    path = Path(file or f"{template}.yaml")
    sheets = {path.with_name(name): sheet for name, sheet in starters.sheets(template).items()}
    for place, content in {**sheets, path: text}.items():
        try:
            with writing(place, new=not force) as out:
                out.write(content)
        except FileExistsError:
            raise Failure(f"{place} is there already: --force replaces it", USAGE) from None
        except OSError as exc:
            raise Failure(f"cannot write {place}: {exc.strerror}", USAGE) from None
    click.echo(f"{path}: written; '{own_command('run', str(path))}' runs it")
    reason = objection(load_text(text, name=path.stem, directory=str(path.parent)), str(path))
    if reason is not None:
        warn(reason)


@click.command
@click.argument("key", required=False, shell_complete=completion.keys)
@click.option("--json", "as_json", is_flag=True, help="Print the keys as one line of JSON.")
def explain(key: str | None, as_json: bool) -> None:
    """Say what KEY of a document means, its type, default and an example.

    KEY is a path such as jobs.retries.times, or its last part, of which there may be several; or
    'expressions', what conditions and braces are written in. Without KEY the keys of a document are
    listed.
    """
    if key == _EXPRESSIONS:
        from flux_ensemble.document.expression_help import expression_help

        lines = list(expression_help())
        if as_json:
            print_json({"topic": key, "lines": lines})
        else:
            click.echo("\n".join(lines))
        return
    from flux_ensemble.document.editor_schema import explained, explained_algorithms

    # Arguments of algorithms are found only by their whole path.
    of_algorithms = (key or "").startswith("use.")
    more = explained_algorithms() if of_algorithms else ()
    keys = {entry.path: entry for entry in (*explained(), *more)}
    chosen = _matching(keys, key)
    if as_json:
        print_json({"keys": [_as_json(entry) for entry in chosen]})
    elif key is None:
        for entry in chosen:
            click.echo(f"{entry.path:<12} {entry.key.text.partition('. ')[0].rstrip('.')}.")
    else:
        for number, entry in enumerate(chosen):
            if number:
                click.echo()
            for line in _about(entry):
                click.echo(line)


def _matching(keys: dict[str, Explained], key: str | None) -> list[Explained]:
    """Return the keys that the argument names.

    Raises:
        Failure: there is none.
    """
    from flux_ensemble.suggestions import hint

    if key is None:
        return [entry for path, entry in keys.items() if "." not in path]
    from flux_ensemble.document.keys.document import FORMER

    # Errors name a place with an index: jobs[0].count.
    wanted = "".join(part.partition("]")[2] if i else part for i, part in enumerate(key.split("[")))
    wanted = wanted.replace("rules.actions.", "rules.action.")
    new = FORMER.get(wanted)
    if new is not None:
        warn(deprecated(wanted, new))
        wanted = new
    if wanted in keys:
        return [keys[wanted]]
    found = [entry for path, entry in keys.items() if path.endswith(f".{wanted}")]
    if found:
        return found
    if (topic := _topic(wanted)) is not None:
        raise Failure(
            f"a document has no key {key!r}, which is part of a value: "
            f"'flux-ensemble explain {topic}' has it",
            USAGE,
        )
    if (counts := _COUNTERS.get(wanted)) is not None:
        raise Failure(
            f"a document has no key {key!r}: in texts of a job group, such as its command, "
            f"'{{{wanted}}}' is {counts}",
            USAGE,
        )
    names = {path.rpartition(".")[2] for path in keys} | {_EXPRESSIONS}
    near = hint(wanted.rpartition(".")[2], sorted(names), most=None)
    raise Failure(
        f"a document has no key {key!r} ({near}'flux-ensemble explain' lists the first ones)", USAGE
    )


def _topic(name: str) -> str | None:
    """Return what explains a name that is no key, but part of the value of one.

    >>> _topic("job.reason"), _topic("sqrt"), _topic("where"), _topic("colour")
    ('expressions', 'expressions', 'jobs.params', None)
    """
    if name in _IN_PARAMS:
        return "jobs.params"
    from flux_ensemble.document.expression_help import expression_names

    kinds = dict(expression_names())
    written = [one for kind in _NAMED for one in kinds[kind]]
    # A key of documents is more likely to be misspelt.
    heads = {re.split(r"[.(\[]", one)[0] for one in written} - {"search"}
    return _EXPRESSIONS if re.split(r"[.(\[]", name)[0] in heads else None


def _about(explained: Explained) -> Iterator[str]:
    """Yield the lines about a key."""
    yield explained.path
    yield from _wrapped("", explained.key.text)
    if explained.required:
        yield "  It must be given."
    yield from _wrapped("type:", f"{' or '.join(explained.types)}: {explained.expected}")
    if explained.choices:
        yield from _wrapped("one of:", ", ".join(map(str, explained.choices)))
    if explained.key.default is not None:
        yield from _wrapped("default:", _in_yaml(explained.key.default))
    if explained.below:
        yield from _wrapped("keys:", ", ".join(explained.below))
    name = explained.path.rpartition(".")[2]
    head = "example:"
    for example in explained.key.examples:
        for line in _example(name, example):
            yield f"  {head:<10}{line}"
            head = ""


def _wrapped(head: str, text: str) -> list[str]:
    """Wrap text in lines of at most 78 characters, after a head if there is one."""
    indent = " " * (12 if head else 2)
    return textwrap.wrap(
        text,
        78,
        initial_indent=f"  {head:<10}" if head else indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )


def _example(name: str, value: Any) -> list[str]:
    """Return a key with a value, in YAML."""
    import yaml

    if not isinstance(value, (dict, list)):
        if isinstance(value, str) and "\n" in value:
            return [f"{name}: |", *(f"  {line}" for line in value.splitlines())]
        return [f"{name}: {_in_yaml(value)}"]
    text = yaml.safe_dump({name: value}, default_flow_style=None, sort_keys=False)
    # YAML quotes this key, which means true there; in documents it is a plain key.
    return text.replace("'on':", "on:").splitlines()


def _in_yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True)
    return text.removesuffix("\n...\n").strip()


def _as_json(explained: Explained) -> dict[str, Any]:
    return {
        "path": explained.path,
        "text": explained.key.text,
        "expected": explained.expected,
        "types": list(explained.types),
        "choices": list(explained.choices),
        "required": explained.required,
        "default": explained.key.default,
        "examples": list(explained.key.examples),
        "keys": list(explained.below),
    }


COMMANDS = (validate, init, explain, schema)
