"""Logs and recordings that were changed: they are read, or refused with a sentence, and at once.

    python t/fuzz/fuzz_logs.py --seconds 60

Lines of t/traces are dropped, repeated, swapped and cut off, and values in them become others.
A log has no digests then, as the logs of older versions have none, so that what was changed gets
as far as the engine. A log is read as a service reads it when it begins, and a recording by all
that read recordings.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any

from trials import Patience, main

from flux_ensemble.document.loading import DocumentError
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.engine.status import status
from flux_ensemble.queues.simulation.durations import durations
from flux_ensemble.report.recording_source import recorded
from flux_ensemble.runtime.durability.batches import identity
from flux_ensemble.runtime.durability.replay import replay as replay_log
from flux_ensemble.runtime.recording import RecordingError, replay
from flux_ensemble.service.requests.documents import check_load, read_document
from flux_ensemble.service.store.errors import LONGEST_REASON, why_unreadable

_TRACES = Path(__file__).resolve().parents[1] / "traces"

_LOGS = sorted(path.name for path in _TRACES.glob("logs/*.json.gz"))
_RECORDINGS = sorted(path.name for path in _TRACES.glob("*.jsonl"))

#: Most lines of a log that are read; one of all of them takes too long for many.
_MOST_LINES = 200

#: What a value becomes.
_ODD: tuple[Any, ...] = (
    None, True, "", "x", "a" * 5000, "\ud800", [], {}, [[]], {"": None}, 0, 1, -1, 10**9, 10**18,
    2**63, 10**400, 0.5, -1e308, 1e308, 5e-324, "start", "submit", "finish", "job-finish", "memo",
)  # fmt: skip

#: What becomes of a whole line.
_TO_LINES: Mapping[str, Callable[[list[str], int], None]] = {
    "drop": lambda lines, at: lines.__delitem__(at),
    "repeat": lambda lines, at: lines.insert(at, lines[at]),
    "swap": lambda lines, at: lines.__setitem__(slice(at, at + 2), lines[at : at + 2][::-1]),
    "end": lambda lines, at: lines.__delitem__(slice(at + 1, None)),
    "cut": lambda lines, at: lines.__setitem__(at, lines[at][: len(lines[at]) // 2]),
    "nest": lambda lines, at: lines.__setitem__(at, "[" * 100_000),
}


def make(random: Random) -> dict[str, Any]:
    """A log or a recording, and what is changed in it; places are numbers that fit any text."""
    return {
        "trace": random.choice(_LOGS if random.random() < 0.5 else _RECORDINGS),
        "lines": random.randint(2, _MOST_LINES),
        "beside": random.random() < 0.3,
        "changes": [
            [random.randrange(1 << 30), random.randrange(1 << 30), _change(random)]
            for _ in range(random.choice([1, 1, 1, 2, 3, 10]))
        ],
    }


def _change(random: Random) -> Any:
    if random.random() < 0.2:
        return random.choice(list(_TO_LINES))
    return [random.choice(["set", "set", "set", "drop", "more"]), random.randrange(len(_ODD))]


def attempt(given: dict[str, Any]) -> None:
    """Change it, and read it."""
    trace = given.get("trace", "")
    changes = given.get("changes", [])
    if trace in _LOGS:
        kept = json.loads(_text(f"logs/{trace}"))
        if given.get("beside") and kept["snapshot"] is not None:
            _change_lines(beside := [json.dumps(_plain(kept["snapshot"]))], changes)
            kept["snapshot"] = _read(beside[0] if beside else "{}")
        else:
            kept["lines"] = [json.dumps(_plain(json.loads(line))) for line in kept["lines"]]
            kept["lines"] = kept["lines"][: given.get("lines", 0)]
            _change_lines(kept["lines"], changes)
            kept["snapshot"] = kept["snapshot"] and _plain(kept["snapshot"])
        _read_log(kept)
    elif trace in _RECORDINGS:
        lines = _text(trace).splitlines()
        _change_lines(lines, changes)
        with NamedTemporaryFile("w", encoding="utf-8", errors="surrogatepass") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            _read_recording(file.name)


@cache
def _text(name: str) -> str:
    data = (_TRACES / name).read_bytes()
    return (gzip.decompress(data) if name.endswith(".gz") else data).decode()


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    """A batch or a snapshot without its digest."""
    entry.pop("digest", None)
    if entry.get("name") == "batch":
        entry["context"].pop("digest", None)
    return entry


def _read(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _change_lines(lines: list[str], changes: list[Any]) -> None:
    for change in changes:
        match change:
            case [int(line), int(), str(what)] if lines and what in _TO_LINES:
                _TO_LINES[what](lines, line % len(lines))
            case [int(line), int(place), [str(how), int(odd)]] if lines:
                value = _read(lines[line % len(lines)])
                if places := list(_places(value)):
                    _change_item(*places[place % len(places)], how, _ODD[odd % len(_ODD)])
                    lines[line % len(lines)] = json.dumps(value)


def _change_item(holder: Any, key: Any, how: str, odd: Any) -> None:
    if how == "set":
        holder[key] = odd
    elif how == "drop":
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, odd)
    else:
        holder[f"{key}-more"] = odd


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each item of a value, at any depth: what holds it, and its key there."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _read_log(kept: dict[str, Any]) -> None:
    load = kept["load"]
    name = load["spec"]["name"]
    check_load(name, load)
    spec = read_document(load, load["files"], elastic=True)
    whose = identity(name, load["run"])
    if not all(map(_read, kept["lines"])):
        return  # the store refuses such lines
    try:
        engine = replay_log(spec, whose, kept["snapshot"], kept["values"], kept["lines"]).engine
    except Exception as error:
        # It is this that recovery says of it.
        _check_sentence(why_unreadable(error), LONGEST_REASON)
        return
    json.dumps([status(engine), dump(engine), engine.metrics(engine.t)], allow_nan=False)


def _read_recording(file: str) -> None:
    for read in (replay, lambda file: recorded(Path(file)), durations):
        try:
            read(file)
        except (RecordingError, DocumentError) as error:
            _check_sentence(str(error), 64 << 10)


def _check_sentence(text: str, most: int) -> None:
    if not 0 < len(text) <= most:
        raise AssertionError(f"expected a sentence of at most {most} characters: {text[:200]!r}")


if __name__ == "__main__":
    main("logs", make, attempt, patience=Patience(tries=3))
