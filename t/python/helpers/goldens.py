"""Golden outputs: what the engine and the commands say of runs that were recorded.

    python t/python/helpers/goldens.py            write the outputs anew
    python t/python/helpers/goldens.py --record   and first the recordings that do not replay

The recordings are those of t/traces (made on Flux, on the local queue and by the simulator, see
its README), and those of t/traces/golden: simulations of the examples, of the documents of
how-to pages and of t/traces/spaces.yaml, and random histories of t/fuzz, chosen so that every kind
of log entry is in one. Of each there is a text with what can be seen after half of the events and
after the last: `status` and `why` as JSON, and what `list`, `status`, `jobs`, `metrics`, `why`,
`top`, `failures` and `log` print. `explain.txt` has what `explain` prints.

A change that is to change no output leaves all of them as they are; one that is to is committed
with the new ones, whose difference shows what users will see.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from flux_ensemble.cli.display import formats
from flux_ensemble.cli.main import run_command
from flux_ensemble.cli.session import target
from flux_ensemble.cli.top import source as top_source
from flux_ensemble.document import editor_schema
from flux_ensemble.document.editor_schema import explained, explained_algorithms
from flux_ensemble.document.loading import load_mapping, load_text
from flux_ensemble.engine.codec import event_from_json
from flux_ensemble.engine.engine import Engine
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.queues.local.states import States
from flux_ensemble.report.recording_source import RecordingTap
from flux_ensemble.report.source import Source
from flux_ensemble.runtime.recording import Recorder, read_lines, replay

ROOT = Path(__file__).parents[3]
TRACES = ROOT / "t" / "traces"
GOLDEN = TRACES / "golden"

#: What `explain` prints.
EXPLAIN = "explain"

#: How deep JSON is that has a line for each part.
DEPTH = 2

#: Figures of a number: the last ones may differ from one Python to the next.
FIGURES = 9


# -- recordings -----------------------------------------------------------------------------


def recordings() -> dict[str, Path]:
    """The recordings, by the names of their outputs."""
    files = [*TRACES.glob("*.jsonl"), *GOLDEN.glob("*.jsonl.gz")]
    return {path.name.partition(".")[0]: path for path in sorted(files)}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Yield a recording as a file that is not compressed."""
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, path.stem)
        file.write_bytes(gzip.decompress(path.read_bytes()))
        yield file


def moments(path: Path) -> Iterator[tuple[str, Source]]:
    """Yield what is known of a recorded ensemble after half of its events, and at the end."""
    with opened(path) as file:
        _, header = next(lines := read_lines(file))
        events = [event_from_json(line["event"]) for _, line in lines]
    document = header["document"]
    load: Any = load_text if isinstance(document, str) else load_mapping
    engine = Engine(load(document, name=header["name"], directory=header["directory"]))
    keeper = RecordingTap(engine, document)
    for number, event in enumerate(events, start=1):
        keeper(event, engine.handle(event))
        if number == len(events) // 2:
            yield f"after {number} of {len(events)} events", keeper.source(event.t, "")
    yield f"after {len(events)} events", keeper.source(events[-1].t, "")


# -- commands -------------------------------------------------------------------------------


class RecordedStates(States):
    """One ensemble of a recording, in the place of those in a state directory."""

    def __init__(self, source: Source) -> None:
        super().__init__(Path("nowhere"))
        self._status = {**source.status, "why": {"t": source.now, "rules": [*source.why.values()]}}
        self._metrics = source.metrics
        self._jobs = list(source.jobs)
        self._log = list(source.entries)

    def names(self) -> list[str]:
        """Its name."""
        return [self._status["name"]]

    def log(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield its log."""
        return map(dict, self._log)

    def jobs(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield its jobs, also the active ones."""
        return map(dict, self._jobs)

    def read_on(
        self, name: str, file: str, mark: Any, most: int
    ) -> tuple[list[dict[str, Any]], Any, bool]:
        """Return all there is, the first time."""
        found = [] if mark else list(self.log(name) if file == "eventlog" else self.jobs(name))
        return found, (1, 1), False

    def status(self, name: str) -> dict[str, Any]:
        """Return its status."""
        return dict(self._status)

    def metrics(self, name: str) -> dict[str, Any]:
        """Return its metrics."""
        return dict(self._metrics)

    def ended_size(self, name: str) -> int:
        """Have all jobs read."""
        return 0

    def last_jobs(self, name: str, *which: object) -> None:
        """Have all jobs read."""

    def owner(self, name: str) -> int:
        """Return somebody who may read no output of jobs here."""
        return -1


class Recorded(LocalClient):
    """Stands for local runs: what commands ask about ensembles."""

    def __init__(self, source: Source) -> None:
        self.root = Path("nowhere")
        self.states = RecordedStates(source)

    def command(self, *words: str) -> str:
        """As of a run in the usual place."""
        return shlex.join(["flux-ensemble", *words])

    def _active(self, name: str) -> dict[Any, Any]:
        return {}


def printed(source: Source | None, *words: str) -> str:
    """What a command prints of an ensemble."""
    now = 0.0 if source is None else source.now
    reached = None if source is None else Recorded(source)
    out = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out))
        stack.enter_context(mock.patch.object(time, "time", return_value=now))
        for module in (target, top_source):
            stack.enter_context(mock.patch.object(module, "reach", return_value=reached))
        status = run_command(list(words))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    said = "\n".join([f"$ flux-ensemble {' '.join(words)}", *lines])
    return f"{said}\nexit {status}\n" if status else f"{said}\n"


@contextlib.contextmanager
def same_everywhere() -> Iterator[None]:
    """Have what is printed depend on no terminal, no time zone, and no other Flux."""
    before = Path.cwd()
    given = {"TZ": "UTC", "COLUMNS": "100", "LINES": "40", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    # Where the bindings of Flux can be imported it writes tables, and less than 1 ms as 0.
    plain = mock.patch.object(formats, "_has_flux", return_value=False)
    with plain, mock.patch.dict(os.environ, given):
        for name in ("NO_COLOR", "FORCE_COLOR", "FLUX_URI"):
            os.environ.pop(name, None)
        time.tzset()
        # Recordings name files as from the top of the tree.
        os.chdir(ROOT)
        try:
            yield
        finally:
            os.chdir(before)
    time.tzset()


# -- outputs --------------------------------------------------------------------------------


def output(path: Path) -> str:
    """The output of a recording."""
    with same_everywhere():
        return "\n".join(
            part for moment, source in moments(path) for part in _parts(moment, source)
        )


def _parts(moment: str, source: Source) -> Iterator[str]:
    name = source.status["name"]
    # Jobs and entries are read once.
    jobs, entries = list(source.jobs), list(source.entries)
    known = {**vars(source), "jobs": jobs, "entries": entries}
    yield f"# {name}, {moment}\n"
    yield _json("status", source.status)
    yield _json("why", source.why)
    for words in (
        ["list"], ["list", "-o", "{name}|{state}|{reason}"], ["status", name],
        ["jobs", name, "-c", "30"], ["metrics", name], ["why", name], ["top", name, "--once"],
        ["failures", name], ["log", name, "--tail", "100"],
    ):  # fmt: skip
        yield printed(Source(**known), *words)


def _json(title: str, value: Any) -> str:
    return f"{title} {_in_lines(_rounded(value), 0)}\n"


def _in_lines(value: Any, depth: int) -> str:
    """JSON with a line for each part down to a depth, so that a difference is short."""
    if depth == DEPTH or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        ends = "{}"
        parts = [f"{json.dumps(key)}: {_in_lines(one, depth + 1)}" for key, one in value.items()]
    else:
        ends = "[]"
        parts = [_in_lines(one, depth + 1) for one in value]
    lines = ",".join(f"\n{' ' * (depth + 1)}{part}" for part in parts)
    return f"{ends[0]}{lines}\n{' ' * depth}{ends[1]}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{FIGURES}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def explanations() -> str:
    """What `explain` prints: of all keys, of each, and of expressions."""
    keys = [entry.path for entry in (*explained(), *explained_algorithms())]
    # Else all keys would be explained anew for each.
    once = mock.patch.object(editor_schema, "explained", cache(lambda: tuple(explained())))
    with same_everywhere(), once:
        return "\n".join(
            printed(None, "explain", *words)
            for words in ([], ["expressions"], *([key] for key in keys))
        )


def outputs() -> Iterator[tuple[Path, str]]:
    """Yield all outputs, with their files."""
    yield GOLDEN / f"{EXPLAIN}.txt", explanations()
    for name, path in recordings().items():
        yield GOLDEN / f"{name}.txt", output(path)


# -- writing --------------------------------------------------------------------------------

#: Most events of a recording, and random histories of which some are chosen.
MOST_EVENTS, HISTORIES, CHOSEN = 600, 300, 12


def record() -> None:
    """Make those recordings of t/traces/golden anew that do not replay, or are missing."""
    sys.path += [str(ROOT / "t/fuzz"), str(ROOT / "t/python/engine")]
    from document_differential import texts

    with same_everywhere(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recording")
        spaces = TRACES / "spaces.yaml"
        for name, text in (*texts(), (spaces.name, spaces.read_text())):
            called = Path(name.partition("#")[0]).stem
            of_page = name.startswith("docs/howto") and name.endswith("#0")
            if not (of_page or name.endswith(".yaml")) or "rules:" not in text:
                continue
            if not _stands(f"simulated-{called}"):
                _simulate(called, text, file)
                _keep(f"simulated-{called}", file)
        kept = sorted(GOLDEN.glob("history-*.jsonl.gz"))
        stale = [path for path in kept if not _stands(path.name.partition(".")[0])]
        again = [(path.name.partition(".")[0], *_taken(path)) for path in stale]
        made = again if kept else [(f"history-{n}", *one) for n, one in enumerate(_histories())]
        for name, document, events in made:
            spec = load_mapping(document)
            recorder, engine = Recorder(file, spec, document), Engine(spec)
            for event in events:
                recorder(event, engine.handle(event))
            recorder.close()
            _keep(name, file)


def _stands(name: str) -> bool:
    """Whether there is a recording that replays."""
    path = recordings().get(name)
    if path is None:
        return False
    with opened(path) as file:
        return replay(file).difference is None


def _taken(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """The document and the events of a recording."""
    with opened(path) as file:
        _, header = next(lines := read_lines(file))
        return header["document"], [event_from_json(line["event"]) for _, line in lines]


def _simulate(name: str, text: str, file: Path) -> None:
    document = Path("examples", f"golden-{os.getpid()}.yaml")
    document.write_text(text)
    options = ["--name", name, "--cores", "4", "--seed", "1", "--until", "2h"]
    try:
        printed(None, "simulate", str(document), *options, "--record", str(file))
    finally:
        document.unlink()


def _keep(name: str, file: Path) -> None:
    """Keep a recording that is neither empty nor long."""
    if file.exists() and 5 < file.read_bytes().count(b"\n") < MOST_EVENTS:
        (GOLDEN / f"{name}.jsonl.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    file.unlink(missing_ok=True)


def _histories() -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield random histories in which everything occurs that they have."""
    from differential import LENGTH, Occurred, make_up
    from engines.side import allow_chains

    allow_chains()
    found = []
    for number in range(HISTORIES):
        made, history = make_up(0, number)
        history.run(LENGTH)
        occurred = Occurred()
        occurred.take(history)
        names = {(kind, name) for kind, counted in occurred.names.items() for name in +counted}
        if len(history.rules) < 40 and not history.broken:
            found.append(
                (names, made, [step[1] for step, _ in history.steps if step[0] == "event"])
            )
    seen: set[tuple[str, str]] = set()
    for _ in range(CHOSEN):
        best = max(found, key=lambda one: len(one[0] - seen))
        seen |= best[0]
        yield best[1], [event_from_json(event) for event in best[2]]


def main() -> None:
    """Write what has changed."""
    GOLDEN.mkdir(exist_ok=True)
    if "--record" in sys.argv[1:]:
        record()
    left = set(GOLDEN.glob("*.txt"))
    for file, text in outputs():
        left.discard(file)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            print(file.relative_to(ROOT))
    for file in left:
        file.unlink()


if __name__ == "__main__":
    main()
