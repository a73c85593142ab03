"""Documents of every kind and size: each is a Spec whose jobs can be made, or is refused, soon.

    python t/fuzz/fuzz_documents.py --seconds 60 [--seed N]

The examples, and the document of t/python/document/test_document_fuzz.py, are changed: parts
of them are replaced, removed and put elsewhere, and one part is made as large as a document may
be, and larger. Half of them are text, with changes to the text too.

A finding is any exception but DocumentError, a document that takes too much time or memory, what
is said of it if it is long, and a Spec whose jobspecs or engine cannot be made. It prints the
seed and a file with the document.
"""

# ruff: noqa: E402
from __future__ import annotations

import copy
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "t" / "python" / "document"))

import yaml
from test_document_fuzz import KEYS, VALID
from trials import Patience, main

from flux_ensemble.document.jobspec import anchored, build
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.engine import Engine

#: Seconds of processor time that a document may take: a small one, and any.
SMALL = 64 * 1024
SMALL_SECONDS, SECONDS = 1.0, 5.0

#: Bytes that may be said of it.
SAID = 64 * 1024

#: Groups whose jobspecs are made.
GROUPS = 200

TEXTS = [
    "", " ", "\n", "inf", "1e999", "010", "yes", "~", "<<", "\0", "\ud800", "\u2028", "é", "{x}",
    "{{id}}", "{{tmpdir}}", "${HOME}", "'", '"', "\\", "%s", "../", "-", "a-", "1", "1x", "x", "(",
    "not ", "=> ", "> 5", "count.sleep.success >= 1", "mean.sleep-duration", "nodes.free", "sleep",
    "mean['sleep-duration'] > 3", "v1", "v1.yaml", "nextgen.yaml", "broken.yaml", "large.yaml",
    "missing.yaml", ".", "rule-0", "request", "unlimited", "quantile", "rolling_max", "skew",
    "#!/bin/sh\n", "def f(): ...\n", "x = 1\n", "job-success", "metric",
    "{job.params.x}", "{job.id", "{{", "}}", "{1}", "{1 / 0}", "{count.sleep.success}", "trigger",
    "job.returncode == 1", "job.memo['a'] in ('b', 'c')", "job-gave-up", "failed", "timeout",
]  # fmt: skip
NUMBERS: list[Any] = [
    0, 1, -1, 2, 3.5, 1e308, -0.0, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63) - 1, 10**30, 10**400,
    float("inf"), float("nan"), True, False, None,
]  # fmt: skip
TOKENS = [
    ":", ": ", "- ", "\n", "\n  ", "\t", "{", "}", "[", "]", ",", "&x ", "*x", "<<: *x", "!!str ",
    "!a ", "|\n", ">\n", "'", '"', "#", "---\n", "...\n", "? ", "%TAG !a! b\n", "\\", "\0",
    "\ufeff", "\ud800", "~", ".inf", "1_0",
]  # fmt: skip

V1 = VALID["jobs"][1]["jobspec"]
NEXTGEN = VALID["jobs"][2]["jobspec"]
FILES = {
    "v1.yaml": json.dumps(V1),
    "nextgen.yaml": yaml.safe_dump(NEXTGEN),
    "broken.yaml": "version: 1\nversion: [1\n",
    "large.yaml": json.dumps({**NEXTGEN, "tasks": NEXTGEN["tasks"] * 5000}),
}


def bases() -> list[dict[str, Any]]:
    """The documents that are changed."""
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    found = [yaml.safe_load(path.read_text()) for path in examples]
    simulated = {"duration": {"normal": {"mean": 60, "sigma": 5}}, "memo": {"a": {"param": "x"}}}
    files = [{"name": name[:-5], "jobspec": name} for name in ("v1.yaml", "nextgen.yaml")]
    return [*found, VALID, {**VALID, "simulate": {"sleep": simulated}},
            {**VALID, "jobs": [*VALID["jobs"][:1], *files]}]  # fmt: skip


# -- making a document ------------------------------------------------------------------


class Maker:
    """Makes documents by drawing.

    Args:
        random: decides everything.
        given: the documents that are changed.
        large: how often some part is as large as it may be.
    """

    def __init__(self, random: Random, given: list[dict[str, Any]], large: float = 0.3) -> None:
        self._random = random
        self._given = given
        self._large = large

    def make(self) -> Any:
        """A document: text, or a mapping."""
        draw = self._random
        value: Any = copy.deepcopy(draw.choice(self._given))
        for _ in range(draw.choice([0, 1, 1, 2, 3, 6])):
            value = self._changed(value)
        if draw.random() < self._large:
            value = self._scaled(value)
            if draw.random() < 0.3:
                value = self._changed(value)
        if draw.random() < 0.5:
            return value
        text = self._text(value)
        for _ in range(draw.choice([0, 0, 1, 2, 5])):
            text = self._spliced(text)
        return text

    def _place(self, value: Any) -> tuple[Any, Any] | None:
        """A container somewhere in a value and a key of it; outer ones are as likely."""
        draw, found = self._random, None
        while isinstance(value, (dict, list)) and value:
            key = (
                draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
            )
            found = value, key
            if draw.random() < 0.25:
                break
            value = value[key]
        return found

    def _changed(self, value: Any) -> Any:
        draw, place = self._random, self._place(value)
        if place is None:
            return self._odd(2)
        holder, key = place
        match draw.randrange(6):
            case 0:
                del holder[key]
            case 1:
                other = self._place(draw.choice([value, *self._given]))
                if other is not None:
                    # Now and then the same object, which is an alias in text.
                    part = other[0][other[1]]
                    holder[key] = part if _small(part) else copy.deepcopy(part)
            case 2 if isinstance(holder, dict):
                holder[draw.choice([*KEYS, self._odd(0)])] = holder.pop(key)
            case 2:
                holder.insert(key, self._odd(2))
            case 3 if isinstance(holder, dict):
                holder[draw.choice(KEYS)] = self._odd(3)
            case _:
                holder[key] = self._odd(3)
        return value

    def _odd(self, depth: int) -> Any:
        draw = self._random
        match draw.randrange(8):
            case 0 if depth:
                return [self._odd(depth - 1) for _ in range(draw.randrange(4))]
            case 1 if depth:
                return {
                    draw.choice([*KEYS, *TEXTS]): self._odd(depth - 1)
                    for _ in range(draw.randrange(4))
                }
            case 2 | 3:
                return draw.choice(NUMBERS)
            case 4:
                return self._long(int(10 ** draw.uniform(0, 4)))
        return draw.choice(TEXTS)

    def _long(self, size: int) -> str:
        draw = self._random
        part = "".join(draw.choices(TEXTS, k=draw.choice([1, 1, 2, 4]))) or "x"
        return part * (size // len(part)) + draw.choice(["", "", "x", "'", "}"])

    def _scaled(self, value: Any) -> Any:
        """A document with one part as large as it may be, or somewhat larger."""
        draw, place = self._random, self._place(value)
        if place is None:
            return value
        holder, key = place
        part = holder[key]
        size = int(10 ** draw.uniform(1, 5.5))
        times = max(1, size // (1 + _size(part)))
        match draw.randrange(6):
            case 0 if isinstance(part, str):
                holder[key] = part * min(times * 100, 5_000_000 // (len(part) or 1))
            case 0:
                holder[key] = self._long(size * 10)
            case 1 if isinstance(holder, dict):
                holder.update({f"{key}{number}": part for number in range(times)})
            case 1:
                holder *= times
            case 2 if isinstance(part, list):
                part *= times
            case 2 if isinstance(part, dict):
                part.update({f"k{number}": self._odd(0) for number in range(min(size, 20_000))})
            case 3 if isinstance(holder, list):
                holder += [self._named(part, number) for number in range(times)]
            case 4:
                for _ in range(draw.choice([10, 63, 64, 65, 200, 2000])):
                    part = [part] if draw.random() < 0.5 else {"with": part}
                holder[key] = part
            case _:
                holder[key] = [part] * times
        return value

    def _named(self, part: Any, number: int) -> Any:
        if not isinstance(part, dict):
            return part
        name = "id" if "trigger" in part else "name"
        return {**part, name: f"{part.get(name, 'n')}{number}"}

    def _text(self, value: Any) -> str:
        dump: Callable[[], str]
        if self._random.random() < 0.5:
            dump = lambda: json.dumps(value)  # noqa: E731
        else:
            dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
            dump = lambda: yaml.dump(value, Dumper=dumper, allow_unicode=True)  # noqa: E731
        try:
            return dump()
        except (yaml.YAMLError, ValueError, TypeError, RecursionError, UnicodeError):
            return repr(value) if _size(value) < 1000 else "x"

    def _spliced(self, text: str) -> str:
        draw = self._random
        at = draw.randint(0, len(text))
        until = min(len(text), at + int(10 ** draw.uniform(0, 3)))
        match draw.randrange(5):
            case 0:
                return text[:at] + text[until:]
            case 1:
                most = max(1, 4_000_000 // (until - at + 1))
                return text[:at] + text[at:until] * int(most ** draw.random()) + text[until:]
            case 2:
                return text[:at] + draw.choice(TEXTS) + text[until:]
            case 3:
                token = draw.choice(TOKENS)
                return text[:at] + token * int(10 ** draw.uniform(0, 5)) + text[at:]
        return text[:at] + "".join(draw.choices(TOKENS, k=draw.randint(1, 6))) + text[at:]


def _size(value: Any) -> int:
    """How many values and 100s of characters there are, about; what is deep counts as large."""
    left = [value]
    size = 0
    while left and size < 300_000:
        one = left.pop()
        size += 1 + (len(one) // 100 if isinstance(one, str) else 0)
        if isinstance(one, (dict, list)):
            left += one.values() if isinstance(one, dict) else one
    return size


def _small(value: Any) -> bool:
    # What is put into itself has no end.
    return not isinstance(value, (dict, list))


# -- trying it --------------------------------------------------------------------------


class Fault(Exception):
    """What is wrong with how a document is treated."""


def attempt(document: Any, directory: str) -> None:
    """Load a document, and make what the service makes of it.

    Raises:
        Fault: see the description of this file; or whatever it is that is wrong.
    """
    read: Any = load_text if isinstance(document, str) else load_mapping
    try:
        spec: Spec = read(document, name="fuzz", file="fuzz.yaml", directory=directory)
    except DocumentError as error:
        said = str(error)
        if not said.strip() or not all(problem.message for problem in error.problems):
            raise Fault("nothing is said of a document that is refused") from None
        if len(said.encode()) > SAID:
            raise Fault(f"{len(said.encode())} bytes are said of it") from None
        return
    for group in itertools.islice(spec.groups.values(), GROUPS):
        submission = group.submission()
        for index in {0, len(submission) - 1}:
            one, params = submission[index]
            made = build(one, params, environment={"HOME": "/"}, cwd="/", tag={"name": "fuzz"})
            json.dumps(anchored(made), allow_nan=False).encode()
    Engine(spec)


def limit(document: Any) -> float:
    """The seconds of processor time that a document may take."""
    text = isinstance(document, str)
    small = len(document) <= SMALL if text else _size(document) <= SMALL // 100
    return SMALL_SECONDS if small else SECONDS


def kept(document: Any, called: str) -> str:
    """Write a document that is a finding to a file; says which."""
    kind, text = ("yaml", document) if isinstance(document, str) else ("py", repr(document))
    path = Path(tempfile.gettempdir(), f"{called}.{kind}")
    path.write_bytes(text.encode(errors="surrogatepass"))
    return str(path)


def run() -> None:
    """Run the command."""
    # A long integer is to be printed in a finding.
    sys.set_int_max_str_digits(0)
    given = bases()
    with tempfile.TemporaryDirectory(prefix="documents-") as directory:
        for name, text in FILES.items():
            Path(directory, name).write_text(text)
        # What is imported late is no document's fault.
        for document in given:
            attempt(copy.deepcopy(document), directory)
        main(
            "documents",
            lambda random: Maker(random, given).make(),
            lambda document: attempt(document, directory),
            patience=Patience(limit, tries=3, end=4.0),
            show=kept,
        )


if __name__ == "__main__":
    run()
