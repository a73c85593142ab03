"""Two trees on the same documents: whether they say the same, byte for byte.

    t/fuzz/document_differential.py OLD_TREE [--documents N] [--seed S] [--from F] [--most M]

Use it before and after a change of the document's room that is to change nothing. OLD_TREE is what
it was before: a folder with a checkout, or a revision, such as `main`. Compared are the JSON
Schemas, what `explain` prints of each key, and of each document the Spec and the first jobspecs,
with warnings and notes, or else all error sentences with paths and lines. The documents are the
examples, those of the documentation and of the tests, and N that are made of these, and of random
documents of engines: half of them are given keys of the table (`engines/keyed.py`), and most are
changed in their values and their text, as fuzz_documents.py does. Keys that no valid document was
given are named.

The first M differences are shown, each with its document; `--from F --documents 1` takes that one
alone. 20,000 documents take some minutes.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
# Files here may have the names of modules that others import.
sys.path[:] = [str(TREE), *(path for path in sys.path if path != str(HERE))]
sys.path += [str(HERE), str(TREE / "t/python/engine"), str(TREE / "t/python/helpers")]

import yaml  # noqa: E402
from engines import documents, member_documents  # noqa: E402
from engines.document_side import say  # noqa: E402
from engines.keyed import keyed  # noqa: E402
from engines.other import Other, tree  # noqa: E402
from fuzz_documents import Maker, bases  # noqa: E402

from flux_ensemble.document.editor_schema import (  # noqa: E402
    explained,
    explained_algorithms,
)

#: How often a part of a document is as large as it may be; most are to be small, for speed.
LARGE = 0.01

#: How many random documents of engines, with members and without, others are made of.
RANDOM = 20

#: Longest document that is compared, in characters of text or of what is pickled.
LONGEST = 100_000

_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the documents of the examples and of the documentation, with their names."""
    for path in sorted((TREE / "examples").glob("*.yaml")):
        yield path.name, path.read_text()
    for path in sorted([TREE / "README.md", *(TREE / "docs").rglob("*.md")]):
        for number, match in enumerate(_YAML.finditer(path.read_text())):
            yield f"{path.relative_to(TREE)}#{number}", match[1]


def questions(seed: int, numbers: range) -> Iterator[tuple[str, list[Any], list[str]]]:
    """Yield what both trees are asked, with names, and the keys that a document was given."""
    for which in ("document", "editor"):
        yield f"schema {which}", ["schema", which], []
    keys = list(explained())
    paths = [entry.path for entry in (*keys, *explained_algorithms())]
    for words in ([], ["--json"], ["expressions"], ["nothing"], *([path] for path in paths)):
        yield " ".join(["explain", *words]), ["explain", words], []
    known = list(texts())
    for name, text in known:
        yield name, ["document", text], []
    given = [*bases(), *_mappings(text for _, text in known)]
    for make in (documents.document, member_documents.member_document):
        given += [make(Random(f"{seed}/{number}")) for number in range(RANDOM)]
    for number in numbers:
        random, added = Random(f"{seed}:{number}"), list[str]()
        made: Any = None
        if random.random() < 0.5:
            made, added = keyed(random, random.choice(given), keys)
        if made is None or random.random() < 0.3:
            made = Maker(random, given if made is None else [made], LARGE).make()
        name = f"document {number} of seed {seed}"
        if isinstance(made, str):
            question = ["document", made]
        else:
            try:
                question = ["mapping", base64.b64encode(pickle.dumps(made)).decode()]
            except RecursionError:
                # It is nested too deeply to be sent.
                continue
        if len(question[1]) <= LONGEST:
            yield name, question, added


def _mappings(given: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield those documents that are whole: parts of some are shown too."""
    for text in given:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(value, dict) and "jobs" in value:
            yield value


class Differences:
    """Shows the first differences.

    Args:
        most: how many are shown; the last one is the end.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def show(self, name: str, given: Any, difference: Any) -> None:
        """Show one.

        Raises:
            SystemExit: it is the last one.
        """
        (kind, asked), _ = given
        if kind == "mapping":
            print(repr(pickle.loads(base64.b64decode(asked))))
        elif kind == "document":
            print(asked)
        old, new = difference
        print(f"{name} differs")
        print(f"  old  ...{old!r}")
        print(f"  new  ...{new!r}", flush=True)
        self._left -= 1
        if not self._left:
            raise SystemExit(1)


def compare(old: Path, seed: int, numbers: range, most: int) -> tuple[Counter[str], int]:
    """Compare this tree with another; what was compared, and how many differ."""
    compared: Counter[str] = Counter()
    never = {entry.path for entry in explained()}
    other = Other(old, "document_side.py", Differences(most).show)
    try:
        for name, question, added in questions(seed, numbers):
            text = say(question)
            kind = question[0] if question[0] in ("schema", "explain") else "document"
            compared[kind] += 1
            if kind == "document":
                found = json.loads(text) if len(text) < LONGEST else {}
                compared["valid"] += "spec" in found
                never.difference_update(added if "spec" in found else ())
                compared["refused"] += "problems" in found
                compared["warned of"] += bool(found.get("warnings"))
                compared["exceptions"] += "raised" in found
            other.compare(name, [question, text])
        other.finish()
    finally:
        other.close()
    if never and len(numbers) >= 5000:
        print(f"keys that no valid document was given: {', '.join(sorted(never))}")
    return compared, other.differences


def main() -> None:
    """Compare, and say what was compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", metavar="OLD_TREE")
    parser.add_argument("--documents", metavar="N", type=int, default=5000)
    parser.add_argument("--seed", metavar="S", type=int, default=0)
    parser.add_argument("--from", metavar="F", type=int, default=0, dest="first")
    parser.add_argument("--most", metavar="M", type=int, default=1)
    given = parser.parse_args()
    # What `explain` prints is as wide as a terminal.
    os.environ["COLUMNS"] = "80"
    with tree(given.old) as folder:
        numbers = range(given.first, given.first + given.documents)
        compared, differences = compare(folder, given.seed, numbers, given.most)
    said = ", ".join(f"{count:,} {kind}" for kind, count in compared.items())
    if differences:
        print(f"{differences} of these differ: {said}")
        raise SystemExit(1)
    print(f"the same, byte for byte: {said} (seed {given.seed})")


if __name__ == "__main__":
    main()
