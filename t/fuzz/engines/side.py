"""One tree's engine, taken through a history step by step; `differential.py` compares two.

A step is one of

    ["event", {...}]    the engine handles an event
    ["look"]            all that can be seen of the engine between two events
    ["restore"]         the engine is dumped, and the one that is restored goes on

and comes to a text that says everything about it: commands, state, or an exception.

Run as a script it is the other side of a comparison (`other.py`). An input is a history, `[source,
[[step, text], ...]]`. Where it comes to other texts, the answer is `[position, own, other]` with
excerpts of the first texts that differ.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flux_ensemble

sys.path.append(str(Path(__file__).resolve().parent.parent))

from engines.other import excerpts


def _first(*names: str) -> Any:
    """The first of some modules that the tree has: other trees have it under another name."""
    for name in names:
        try:
            return importlib.import_module(f"flux_ensemble.{name}")
        except ModuleNotFoundError as error:
            if not f"flux_ensemble.{name}".startswith(error.name or ""):
                raise
    raise ModuleNotFoundError(f"the tree has no module {' or '.join(names)}")


_eventlog = _first("eventlog")
_loading = _first("document.loading", "spec.loading")
_codec = _first("engine.codec", "engine.record")
_engine = _first("engine.engine")
_describe = _first("engine.describe", "engine.job_view")
_snapshot = _first("engine.snapshot")
_why = _first("engine.rule_reasons", "engine.why").why
_status = getattr(_engine.Engine, "status", None) or _first("engine.status").status


def allow_chains() -> None:
    """Have a chain of rules be as long as the engine lets it be, however it goes along it."""
    sys.setrecursionlimit(100_000)


class Side:
    """An engine and what it came to.

    Args:
        source: where the ensemble comes from: `document`, as text or as a mapping, and what else
            the functions of `loading` take.

    Attributes:
        commands: those of the latest event.
        broken: a step raised an exception, so nothing that comes after it has a meaning.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.spec = _spec(json.dumps(source))
        self.engine = _engine.Engine(self.spec)
        self._keep()
        self.commands: Sequence[Any] = ()
        self.broken = False
        self._values: list[Any] = []

    def take(self, step: Sequence[Any]) -> str:
        """Take a step; the text that it comes to."""
        try:
            if step[0] == "event":
                self.commands = self.engine.handle(_codec.event_from_json(step[1]))
                # In the order of the fields, which `encode` of the codec sorts.
                return "\n".join(map(_told, map(_codec.to_json, self.commands)))
            text = self._look()
            if step[0] == "restore":
                self._restore(text)
            return text
        except Exception as error:
            self.broken = True
            return f"{type(error).__name__}: {error}"

    def _look(self) -> str:
        engine = self.engine
        engine.check()
        self._values.append(engine.stats.take_values())
        seen = {
            "snapshot": _snapshot.dump(engine),
            "status": _status(engine),
            "why": _why(engine, engine.t),
            "jobs": list(self._jobs()),
            "metrics": engine.metrics(engine.t),
            "pending": [_codec.to_json(command) for command in engine.pending],
            "values": self._values[-1],
            "wants": [sorted(engine.wants_events), sorted(engine.wants_nodes)],
            "foreign": [engine.wants_foreign, engine.wants_job("x"), repr(engine.t_foreign)],
            "state": [engine.state, engine.reason, engine.ended, engine.acting, engine.idle],
        }
        return json.dumps(seen, allow_nan=False)

    def _jobs(self) -> Iterator[Any]:
        """Yield what is told of the jobs that are gone, and of the active ones."""
        engine = self.engine
        named = str if engine.members is None else engine.members.name_of
        describer = _describe.Describer(self.spec, self.spec.directory, str, named)
        for job in (*engine.records.waiting, *engine.workload.jobs.values()):
            if job.firing is not None:
                yield describer.describe(job, engine.t)

    def _restore(self, text: str) -> None:
        snapshot = json.loads(text)["snapshot"]
        self.engine = _snapshot.restore(self.spec, snapshot, json.loads(json.dumps(self._values)))
        self._keep()

    def _keep(self) -> None:
        """Have the engine keep what stands beside snapshots."""
        self.engine.stats.keep_values()
        self.engine.records.keep()


def _told(command: Mapping[str, Any]) -> str:
    """A command as JSON; with a log entry its sentence."""
    text = json.dumps(command)
    if command["type"] != "Record":
        return text
    stored = {**command, "timestamp": command["t"]}
    return f"{text} {_eventlog.read(stored).sentence(command['t'], str)}"


_specs: dict[str, Any] = {}


def _spec(source: str) -> Any:
    """The checked document; histories of one document come one after the other."""
    if source not in _specs:
        _specs.clear()
        given = json.loads(source)
        document = given.pop("document")
        load = _loading.load_text if isinstance(document, str) else _loading.load_mapping
        _specs[source] = load(document, **given)
    return _specs[source]


def main() -> None:
    """Compare what comes on standard input."""
    allow_chains()
    print(Path(flux_ensemble.__file__).parent.parent, flush=True)
    for line in sys.stdin:
        source, history = json.loads(line)
        side, difference = Side(source), None
        for position, (step, text) in enumerate(history):
            own = side.take(step)
            if own != text:
                difference = [position, *excerpts(own, text)]
                break
        print(json.dumps(difference), flush=True)


if __name__ == "__main__":
    main()
