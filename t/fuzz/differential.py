"""Two engines on the same histories: whether they say the same, byte for byte.

    t/fuzz/differential.py OLD_TREE [--histories N] [--seed S] [--from F]

Use it before and after a change of the engine that is to change nothing. OLD_TREE is what it was
before: a folder with a checkout, or a revision, such as `main`. All recordings in t/traces and N
random histories (`engines/`) are taken by this tree's engine and, in a process of its own, by the
other tree's. Compared are the commands of each event; and now and then the snapshot, `status`,
`why`, the jobs, metrics, what is pending and what is wanted, after which an engine that is restored
from that snapshot may go on. Exceptions are compared too, though there should be none.

The first difference is shown, and is the end; `--from F --histories 1` takes that history alone. A
run in which some trigger, action, event, log entry or answer never occurred says nothing about it,
and fails too: 5,000 histories are enough for all of them. 100,000 take about an hour and a half.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
# Files here may have the names of modules that others import.
sys.path[:] = [str(TREE), *(path for path in sys.path if path != str(HERE))]
sys.path += [str(TREE / "t/python/engine"), str(TREE / "t/python/helpers"), str(HERE)]

from engines.documents import document  # noqa: E402
from engines.histories import History  # noqa: E402
from engines.member_documents import member_document  # noqa: E402
from engines.member_histories import MemberHistory  # noqa: E402
from engines.other import Other, tree  # noqa: E402
from engines.side import Side, allow_chains  # noqa: E402

from flux_ensemble.document.keys.rules import ACTIONS, TRIGGER_ALIASES, TRIGGERS  # noqa: E402
from flux_ensemble.engine.commands import Command, Record, Reply  # noqa: E402
from flux_ensemble.engine.events import Event  # noqa: E402
from flux_ensemble.runtime.recording import read_lines  # noqa: E402

#: Histories of one document, and events of one history.
OF_A_DOCUMENT, LENGTH = 10, 40

#: What has to occur, or nothing is known about it.
EXPECTED: Mapping[str, frozenset[str]] = {
    "triggers": frozenset(TRIGGERS).difference(TRIGGER_ALIASES),
    "actions": frozenset(ACTIONS),
    "events": frozenset(cls.__name__ for cls in Event.__args__),
    "commands": frozenset(cls.__name__ for cls in Command.__args__),
    "entries": frozenset(
        (
            *("start", "fire", "outcome", "custom-error", "retry", "interrupted", "scale"),
            "memo-left-out",
            *("ask", "ask-failed", "pruned", "trial-failed", "best", "front", "search-done"),
            *("member-start", "member-up", "member-expires", "member-draining", "member-lost"),
            *("member-ended", "member-doubted", "not-placed", "jobs-dropped"),
            *("given", "told", "more", "gave-up", "rerun", "reopen", "allocation", "walltime"),
            *("rule-added", "rule-enabled", "rule-disabled"),
            *("request", "pause", "resume", "finish"),
        )
    ),
    "answers": frozenset(("ok", "EINVAL", "ENOENT", "EAGAIN", "EIO")),
    "ends": frozenset(
        (
            "nothing is active",
            "a terminate action ran",
            "terminated by the user",
            "canceled by the user",
            "the queue refused",
            "rules fire each other",
            "would submit",
            "the instance did not change",
        )
    ),
}


@dataclass
class Occurred:
    """What the histories came to."""

    events: int = 0
    restored: int = 0
    exceptions: int = 0
    names: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in EXPECTED}
    )

    def take(self, history: History) -> None:
        """Count one more."""
        kinds = Counter(step[0] for step, _ in history.steps)
        self.events += kinds["event"]
        self.restored += kinds["restore"]
        self.exceptions += history.broken
        for step, _ in history.steps:
            if step[0] == "event":
                self.names["events"][step[1]["type"]] += 1
        for command in history.sent:
            self.names["commands"][type(command).__name__] += 1
            if isinstance(command, Reply):
                self.names["answers"][command.errno or "ok"] += 1
            elif isinstance(command, Record):
                self._take_entry(command, history)

    def _take_entry(self, entry: Record, history: History) -> None:
        self.names["entries"][entry.name] += 1
        if entry.name == "fire":
            self.names["actions"][entry.context["action"]["name"]] += 1
            rule = history.rules.get(entry.context["rule"])
            if rule is not None:
                self.names["triggers"][rule.rule.trigger] += 1
        elif entry.name == "finish":
            for end in EXPECTED["ends"]:
                self.names["ends"][end] += end in entry.context["reason"]

    def missing(self) -> Iterator[str]:
        """What has to occur and did not."""
        for kind, names in EXPECTED.items():
            for name in sorted(names):
                if not self.names[kind][name]:
                    yield f"{kind}: {name}"


def show(name: str, given: Any, difference: Any) -> None:
    """Print a history that differs, which is the end.

    Raises:
        SystemExit: always.
    """
    source, steps = given
    position, old, new = difference
    print(json.dumps(source))
    for step, _ in steps[: position + 1]:
        print(json.dumps(step))
    print(f"{name} differs at step {position}, the last one above")
    print(f"  old  ...{old!r}")
    print(f"  new  ...{new!r}")
    raise SystemExit(1)


def compare_recordings(other: Other) -> int:
    """Take the recordings; how many they are."""
    paths = sorted((TREE / "t" / "traces").glob("*.jsonl"))
    for path in paths:
        lines = read_lines(path)
        header = next(lines)[1]
        source = {key: header[key] for key in ("document", "name", "directory")}
        side = Side(source)
        steps: list[tuple[Any, str]] = []
        for number, line in lines:
            for step in (["event", line["event"]], ["restore"])[: 2 if number % 10 == 0 else 1]:
                steps.append((step, side.take(step)))
        other.compare(path.name, [source, [*steps, (["look"], side.take(["look"]))]])
    return len(paths)


def make_up(seed: int, number: int) -> tuple[dict[str, Any], History]:
    """Make up a history that is still to be run; its document, and it."""
    which = number // OF_A_DOCUMENT
    # Every third document has members.
    members = which % 3 == 1
    made = (member_document if members else document)(Random(f"{seed}/{which}"))
    return made, (MemberHistory if members else History)(Random(f"{seed}:{number}"), made)


def compare_histories(other: Other, seed: int, numbers: range) -> Occurred:
    """Make up histories and take them; what they came to."""
    occurred = Occurred()
    for number in numbers:
        made, history = make_up(seed, number)
        history.run(LENGTH)
        occurred.take(history)
        other.compare(f"history {number} of seed {seed}", [{"document": made}, history.steps])
        done = number + 1 - numbers.start
        if done % 5000 == 0:
            print(f"{done:,} histories, {occurred.events:,} events", flush=True)
    return occurred


def main() -> None:
    """Compare, and say what was compared."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", metavar="OLD_TREE")
    parser.add_argument("--histories", metavar="N", type=int, default=5000)
    parser.add_argument("--seed", metavar="S", type=int, default=0)
    parser.add_argument("--from", metavar="F", type=int, default=0, dest="first")
    given = parser.parse_args()
    allow_chains()
    numbers = range(given.first, given.first + given.histories)
    with tree(given.old) as folder:
        other = Other(folder, "side.py", show)
        try:
            recordings = compare_recordings(other)
            occurred = compare_histories(other, given.seed, numbers)
            other.finish()
        finally:
            other.close()
    for kind, names in occurred.names.items():
        print(f"{kind}: {', '.join(f'{name} {count:,}' for name, count in names.most_common())}")
    missing = list(occurred.missing())
    for name in missing:
        print(f"never occurred: {name}")
    print(
        f"the same, byte for byte: {recordings} recordings and {len(numbers):,} histories of seed "
        f"{given.seed} ({occurred.events:,} events, {occurred.restored:,} engines restored, "
        f"{occurred.exceptions:,} exceptions)"
    )
    raise SystemExit(1 if missing else 0)


if __name__ == "__main__":
    main()
