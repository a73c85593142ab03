"""What one tree says of documents; `document_differential.py` compares two.

A question is one of

    ["document", text]      what is made of a document, or what is said of it
    ["mapping", pickled]    the same of one that is plain data, pickled and in base 64
    ["schema", which]       a JSON Schema: `document`, `editor`
    ["explain", words]      what `flux-ensemble explain WORDS...` prints

and is answered by a text that says everything about it. Run as a script it is the other side of a
comparison (`other.py`). An input is `[question, text]`; where it comes to another text, the answer
is `[own, other]`, with excerpts.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import io
import itertools
import json
import os
import pickle
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import flux_ensemble

sys.path.append(str(Path(__file__).resolve().parent.parent))

from engines.other import excerpts
from flux_ensemble.cli.main import run_command
from flux_ensemble.document import editor_schema, jobspec, lint, loading, schema

#: Jobspecs that are made of a group, and groups of which some are made.
_JOBS, _GROUPS = 3, 20

#: Characters that are compared of what is long.
_MOST = 200_000


def say(question: Sequence[Any]) -> str:
    """Answer a question."""
    kind, given = question
    match kind:
        case "document":
            return _document(loading.load_text, given)
        case "mapping":
            return _document(loading.load_mapping, pickle.loads(base64.b64decode(given)))
        case "schema":
            return json.dumps(schema.DOCUMENT if given == "document" else _editor())
        case "explain":
            return _explain(given)
    raise ValueError(kind)


def _editor() -> Any:
    return editor_schema.editor_schema()


# Else all keys would be explained anew for each.
_explained = tuple(editor_schema.explained())
editor_schema.explained = lambda: iter(_explained)


def _explain(words: Sequence[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = run_command(["explain", *words])
    return f"{said.getvalue()}exit {status}"


def _document(load: Callable[..., Any], given: Any) -> str:
    warnings = lint.Warnings()
    try:
        spec = load(given, name="any", file="any.yaml", warnings=warnings)
    except loading.DocumentError as error:
        problems = [list(problem[:3]) for problem in error.problems]
        said: dict[str, Any] = {"problems": problems, "more": error.more, "text": str(error)}
    except Exception as error:
        said = {"raised": f"{type(error).__name__}: {error}"}
    else:
        said = {
            "warnings": warnings.warnings,
            "notes": warnings.notes,
            "spec": _lists(plain(spec)),
            "expansion": plain(spec.expansion),
            "jobspecs": list(_jobspecs(spec)),
        }
    return json.dumps(said)[:_MOST]


def _lists(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Spec with the parts of features where trees have them in which they are of none."""
    found: dict[str, Any] = {}
    for name, value in spec.items():
        if name == "features":
            lists = dict(value)
            found["searches"] = lists.pop("search", [])
            of_feature = dict(spec.get("settings", ())).get("scaling")
            found["scaling"] = spec.get("scaling", of_feature)
            found.update(lists)
        elif name not in ("scaling", "settings"):
            found[name] = value
    return found


def _jobspecs(spec: Any) -> Any:
    """Yield the jobspecs of the first jobs of each group, and how many jobs there are."""
    for group in itertools.islice(spec.groups.values(), _GROUPS):
        try:
            submission = group.submission()
            yield len(submission)
            for index in range(min(_JOBS, len(submission))):
                one, params = submission[index]
                tag = {"name": spec.name}
                made = jobspec.build(one, params, environment={"A": "b"}, cwd="/", tag=tag)
                yield jobspec.anchored(made)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"


def plain(value: Any) -> Any:
    """Make plain data of what a Spec has in it, without the names of classes."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return [[plain(key), plain(item)] for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(plain(item)) for item in value)
    if isinstance(value, (Sequence, Collection)):
        return [plain(item) for item in itertools.islice(value, 1000)]
    # What conditions and samplers are made into says nothing that is not in their text.
    return "made"


def main() -> None:
    """Compare what comes on standard input."""
    # As the other tree's own tests have it.
    os.environ["COLUMNS"] = "80"
    print(Path(flux_ensemble.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        question, text = json.loads(line)
        own = say(question)
        print(json.dumps(None if own == text else excerpts(own, text)), flush=True)


if __name__ == "__main__":
    main()
