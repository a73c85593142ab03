"""What is known of an ensemble that has ended: from its jobs themselves, and from each command."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .commands import HELPERS, Commands, Done

assert HELPERS
from reports import columns  # noqa: E402

Row = Mapping[str, Any]

#: How a job of Flux is called inside of it, in base 58 (RFC 19).
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def job_id(text: str) -> int:
    """The id of a job as a number."""
    if text[0] not in "ƒf":
        return int(text)
    number = 0
    for digit in text[1:]:
        number = number * 58 + _BASE58.index(digit)
    return number


@dataclass
class Began:
    """A job that has begun, by its own words.

    Args:
        id: of the job, by which it is known with `uri`, its instance.
        uri: of the instance that it ran in, with the socket of its worker if it was a task; empty
            on the local queue.
        group: its group.
        params: its parameters, as texts.
        memos: what it has published, one after the other.
        code: what it ended with; None where it did not come to that.
    """

    id: int
    uri: str
    group: str
    params: Mapping[str, str]
    memos: list[Mapping[str, Any]] = field(default_factory=list)
    code: int | None = None

    @property
    def memo(self) -> dict[str, Any]:
        """What it has published, of each key the last value."""
        return {key: value for memo in self.memos for key, value in memo.items()}

    def __str__(self) -> str:
        return f"job {self.id} of {self.group} with {dict(self.params)}"


def witnessed(path: Path) -> list[Began]:
    """What the jobs of a run have said, in the order in which they have begun.

    Raises:
        RuntimeError: a job has begun, or ended, more than once.
    """
    seen: dict[tuple[str, int], Began] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in map(json.loads, lines):
        key = line["uri"], job_id(line["id"])
        if line["what"] == "begin":
            if key in seen:
                raise RuntimeError(f"{seen[key]} has begun twice")
            seen[key] = Began(key[1], key[0], line["group"], line["params"])
        elif line["what"] == "memo":
            seen[key].memos.append(line["memo"])
        else:
            if seen[key].code is not None:
                raise RuntimeError(f"{seen[key]} has ended twice")
            seen[key].code = line["code"]
    return list(seen.values())


@dataclass(frozen=True)
class Report:
    """What a report has.

    Args:
        rows: of its table of jobs.
        outcomes: how many of these ended how.
        said: "3 succeeded" and the like, by the word.
        headline: its first sentence.
        best: the value and the parameters that it names as best, as texts; None where it names
            none.
        text: all of it, without marks.
    """

    rows: int
    outcomes: Mapping[str, int]
    said: Mapping[str, int]
    headline: str
    best: tuple[str, str] | None
    text: str


def report(path: Path) -> Report:
    """Read a report."""
    page = path.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/octet-stream" id="data">([^<]*)<', page)
    assert data
    tables = columns(data[1])
    outcomes = next((table["outcome"] for name, table in tables.items()
                     if name.endswith("jobs") and "outcome" in table), [])  # fmt: skip
    body = re.sub(r"(?s)<(script|style).*?</\1>", " ", page[page.index("<body") :])
    headline = re.search(r'<p class="headline">(.*?)</p>', body)
    said = {word: int(number.replace(",", "")) for number, word in re.findall(
        r'<span class="swatch [^"]*"></span><b>([\d,]+)</b> ([^<]+)</li>', body)}  # fmt: skip
    point = re.search(r"The best point</h3>(.*?)</section>", body)
    best = None
    if point:
        value = re.search(r'<p class="big"><b>(.*?)</b>', point[1])
        params = re.search(r"<code>(.*?)</code>", point[1])
        best = (value[1] if value else "", params[1] if params else "")
    return Report(
        len(outcomes), Counter(str(one) for one in outcomes), said,
        re.sub(r"<[^>]+>", "", headline[1]) if headline else "", best,
        re.sub(r"<[^>]+>", " ", body),
    )  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """All that is known of one ensemble.

    Args:
        name: its name.
        began: its jobs, by themselves.
        status, metrics, listed, searches, rows, entries: what the commands of these names have in
            JSON; rows are jobs.
        failures: what `failures` prints.
        jsonl, csv, sqlite: the rows that were exported.
        report: the report.
        wait: the command `wait`.
        run: the command that saw it end; None where none did.
        summary: what it wrote to `--summary`; None where it did not.
        replay: the command `replay` on the recording; None where there is no recording.
        directory: where it ran.
    """

    name: str
    began: Sequence[Began]
    status: Row
    metrics: Mapping[str, Any]
    listed: Row
    searches: Sequence[Row]
    rows: Sequence[Row]
    entries: Sequence[Row]
    failures: str
    shown: Sequence[Row]
    jsonl: Sequence[Row]
    csv: Sequence[Mapping[str, str]]
    sqlite: Sequence[Mapping[str, Any]]
    report: Report
    wait: Done
    run: Done | None
    summary: Row | None
    replay: Done | None
    directory: Path


def collect(
    commands: Commands,
    name: str,
    *options: str,
    run: Done | None,
    witness: str = "witness",
    summary: str | None = None,
    recording: str | None = None,
) -> Evidence:
    """Ask for all that there is to know of an ensemble that has ended.

    Args:
        commands: in the directory where it ran.
        name: its name.
        options: of each command, which say where it is.
        run: what saw it end.
        witness, summary, recording: names of files in the directory.

    Raises:
        RuntimeError: a command fails that has to work.
    """
    directory = commands.directory

    def ask(*words: str) -> str:
        done = commands.run(*words)
        if done.code:
            raise RuntimeError(f"{' '.join(words)} exits with {done.code}: {done.err or done.out}")
        return done.out

    def answer(command: str, *more: str) -> Any:
        return json.loads(ask(command, *options, "--json", *more))

    files = {kind: f"{name}.export.{kind}" for kind in ("jsonl", "csv", "sqlite")}
    for file in files.values():
        ask("export", *options, "--force", "--interrupted", name, file)
    ask("report", *options, "--force", "-o", f"{name}.html", name)
    (status,) = answer("status", name)["ensembles"]
    listed = next(one for one in answer("list")["ensembles"] if one["name"] == name)
    searches = answer("search", name)["searches"] if status.get("searches") else []
    with (directory / files["csv"]).open(newline="", encoding="utf-8-sig") as table:
        csv_rows = list(csv.DictReader(table))
    database = sqlite3.connect(directory / files["sqlite"])
    try:
        database.row_factory = sqlite3.Row
        sqlite_rows = [dict(row) for row in database.execute("select * from jobs")]
    finally:
        database.close()
    return Evidence(
        name=name,
        began=witnessed(directory / witness),
        status=status,
        metrics=answer("metrics", name),
        listed=listed,
        searches=searches,
        rows=answer("jobs", "--interrupted", name)["jobs"],
        shown=answer("jobs", name)["jobs"],
        entries=[json.loads(line) for line in ask("log", *options, "--json", name).splitlines()],
        failures=ask("failures", *options, name),
        jsonl=[json.loads(line) for line in (directory / files["jsonl"]).read_text().splitlines()],
        csv=csv_rows,
        sqlite=sqlite_rows,
        report=report(directory / f"{name}.html"),
        wait=commands.run("wait", *options, name),
        run=run,
        summary=None if summary is None else json.loads((directory / summary).read_text()),
        replay=None if recording is None else commands.run("replay", recording),
        directory=directory,
    )
