"""The wal: nothing is done before it is durable; and the replay of what it wrote."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeGate, FakeLoop, MemoryStore
from play import document, on_start

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.document.model import Spec
from flux_ensemble.encoding import dumps
from flux_ensemble.engine import records
from flux_ensemble.engine.codec import encode
from flux_ensemble.engine.commands import Record, StartTimer
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.events import JobEvent, Request, Started, Tag, TimerFired
from flux_ensemble.engine.snapshot import dump
from flux_ensemble.runtime.durability import wal as module
from flux_ensemble.runtime.durability.batches import Batches, compact, expand, line
from flux_ensemble.runtime.durability.chunks import beside
from flux_ensemble.runtime.durability.format import FORMAT, KEY, LaterFormatError
from flux_ensemble.runtime.durability.replay import Facts, Replayed, replay
from flux_ensemble.runtime.durability.timers import Timers
from flux_ensemble.runtime.durability.wal import WriteAheadLog
from flux_ensemble.runtime.ports import Unwritten
from flux_ensemble.service.store.errors import LateError

IDENTITY = "'test', run 1"

#: What a snapshot of a version without digests has.
OLD_SNAPSHOT = ("number", "entries", "agenda", "engine", "facts")

MORE = {"name": "submit", "label": "b", "repetitions": "unlimited"}
RULES = [on_start("a"), {"trigger": "timer", "every": 5, "action": MORE}]


class Bench:
    """An engine, and a wal that puts down its events in memory."""

    def __init__(self, at_once: bool = True, **given: Any) -> None:
        self.spec: Spec = load_mapping(document(**{"rules": RULES, **given}))
        self.engine = Engine(self.spec)
        self.engine.stats.keep_values()
        self.store = MemoryStore(at_once)
        self.loop = FakeLoop()
        self.complaints: list[str] = []
        self.gate = FakeGate()
        self.wal = WriteAheadLog(
            self.store,
            self.loop,
            self,
            self.complaints.append,
            self.gate,
            identity=IDENTITY,
            late=lambda: self.complaints.append("late"),
        )
        self.performed: list[str] = []
        self.job = 0

    def snapshot(self) -> dict[str, Any]:
        return {"engine": dump(self.engine), "facts": Facts().to_json()}

    def take_beside(self) -> str:
        return beside(self.engine.stats.take_values(), None)

    def post(self, event: Any) -> None:
        commands = self.engine.handle(event)
        mark = type(event).__name__
        assert not self.wal.write(event, commands, lambda: self.performed.append(mark))

    def steady(self) -> None:
        """Begin, with the first commit answered."""
        self.post(Started(1000.0))
        self.store.answer()
        self.performed.clear()

    def run(self, tag: Tag, t: float = 1001.0) -> None:
        """A job from its submission to its end."""
        self.job += 1
        for name in ("submit", "validate", "start", "finish", "clean"):
            context = {"status": 0} if name == "finish" else {}
            t += 0.25
            self.post(JobEvent(t, self.job, name, context, tag if name == "submit" else None))

    def replay(self, **given: Any) -> Replayed:
        found = {
            "snapshot": self.store.snapshot,
            "values": self.store.values,
            "lines": self.store.lines,
            **given,
        }
        return replay(self.spec, IDENTITY, **found)


def test_the_first_commands_are_performed_when_their_event_is_durable() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    assert not bench.performed
    assert len(bench.store.batches) == 1
    bench.store.answer()
    assert bench.performed == ["Started", "TimerFired"]
    assert len(bench.store.batches) == 2


def test_then_it_is_enough_that_their_batch_has_been_sent() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    for number in range(3):
        bench.post(TimerFired(1005.0 + number, "rule:rule-1"))
        assert len(bench.performed) == number + 1
    # Each has those before it, of which it is not known whether they are durable.
    assert bench.store.commits == [[1], [2], [2, 3], [2, 3, 4]]
    bench.store.answer()
    bench.post(TimerFired(1009.0, "rule:rule-1"))
    assert bench.store.commits[-1] == [3, 4, 5]


def test_while_many_commits_are_under_way_the_next_batch_fills() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    for t in range(module.DEPTH + 5):
        bench.post(TimerFired(1005.0 + t, "rule:rule-1"))
    assert len(bench.performed) == module.DEPTH
    assert len(bench.store.dones) == module.DEPTH
    bench.store.answer()
    assert len(bench.performed) == module.DEPTH + 5
    assert len(bench.store.dones) == module.DEPTH
    assert bench.store.commits[-1] == [*range(3, module.DEPTH + 3)]


def test_a_snapshot_is_waited_for_and_is_in_one_commit_only() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    bench.wal._snapshot_due = 0
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    bench.post(TimerFired(1006.0, "rule:rule-1"))
    assert not bench.performed
    bench.store.answer()
    assert bench.performed == 2 * ["TimerFired"]
    assert bench.store.commits == [[1], [2], [3]]


def test_what_only_people_read_waits_for_company_for_a_moment() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    bench.wal.write(Started(1001.0), [Record(1001.0, "x")], lambda: bench.performed.append("x"))
    bench.wal.write(Started(1001.0), [], lambda: bench.performed.append("nothing"))
    assert not bench.performed
    assert len(bench.store.batches) == 1
    (timer,) = (one for one in bench.loop.timers if not one.cancelled)
    assert timer.after == module.SOON_SECONDS
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    assert bench.performed == ["x", "TimerFired"]
    assert len(bench.store.batches) == 2
    timer.callback()
    assert len(bench.store.batches) == 2


def sent_before_its_time() -> Bench:
    """What a timer of 1 s was for has been sent, and another event waits since 0.4 s later."""
    bench = Bench(at_once=False)
    bench.steady()
    bench.wal.write(Started(1001.0), [], lambda: None)
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    bench.loop.now = lambda: 1000.4  # type: ignore[method-assign]
    bench.wal.write(Started(1002.0), [], lambda: None)
    assert [timer.after for timer in bench.loop.timers] == [1.0]
    assert len(bench.store.batches) == 2
    return bench


def test_a_timer_whose_events_have_been_sent_is_for_those_that_wait_since() -> None:
    bench = sent_before_its_time()
    bench.loop.now = lambda: 1001.0  # type: ignore[method-assign]
    bench.loop.timers[0].callback()
    assert len(bench.store.batches) == 2
    assert bench.loop.timers[1].after == pytest.approx(0.4)
    bench.loop.timers[1].callback()
    assert len(bench.store.batches) == 3


def test_a_clock_that_is_set_back_makes_nothing_wait_longer() -> None:
    bench = sent_before_its_time()
    bench.loop.now = lambda: 0.0  # type: ignore[method-assign]
    bench.loop.timers[0].callback()
    assert bench.loop.timers[1].after == module.LAZY_SECONDS


def test_what_is_due_sooner_than_the_timer_has_one_of_its_own() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    bench.wal.write(Started(1001.0), [Record(1001.0, "x")], lambda: None)
    lazy, soon = bench.loop.timers
    assert (lazy.cancelled, soon.after) == (True, module.SOON_SECONDS)


def test_what_comes_up_while_calling_back_is_called_back_in_its_turn() -> None:
    bench = Bench(at_once=False)
    bench.steady()

    def first() -> None:
        bench.performed.append("first")
        bench.post(TimerFired(1005.0, "rule:rule-1"))

    bench.wal.write(Started(1001.0), [Record(1001.0, "x")], first)
    bench.wal.write(Started(1001.0), [Record(1001.0, "x")], lambda: bench.performed.append("2"))
    bench.loop.timers[-1].callback()
    assert bench.performed == ["first", "2", "TimerFired"]


def test_events_that_bring_about_nothing_wait_for_company_but_not_for_long() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    assert len(bench.store.batches) == 1
    (timer,) = bench.loop.timers
    assert timer.after == module.LAZY_SECONDS
    timer.callback()
    assert len(bench.store.batches) == 2
    assert len(json.loads(bench.store.lines[-1])["context"]["events"]) == 5


def test_they_wait_longer_where_there_are_many_ledgers() -> None:
    bench = Bench()
    for logs, seconds in ((10, 1.0), (50, 5.0), (1000, 10.0), (1, 1.0)):
        module.pace([bench.wal] * logs)
        assert bench.wal.lazy_seconds == seconds
    module.pace([bench.wal] * 20)
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    assert [timer.after for timer in bench.loop.timers] == [2.0]


def test_many_of_them_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAZY_EVENTS", 3)
    bench = Bench()
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    assert len(bench.store.batches) == 2


def test_a_commit_that_fails_is_repeated_and_said_once() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))

    def unwritten() -> Unwritten | None:
        return bench.wal.unwritten

    assert unwritten() is None
    for number in range(3):
        bench.store.answer(OSError("no" if number == 0 else "still no"))
        assert bench.gate.holds == 1
        # Since the first one.
        assert unwritten() == Unwritten(bench.loop.now(), "no")
        bench.loop.timers[-1].callback()
    bench.store.answer()
    assert bench.gate.holds == 0
    assert unwritten() is None
    assert bench.performed == ["Started"]
    assert bench.store.commits == 4 * [[1]]
    assert bench.complaints == [
        "cannot write its log: no; it waits, and tries again",
        "its log can be written again",
    ]
    assert [timer.after for timer in bench.loop.timers] == [0.1, 0.2, 0.4]


def test_a_commit_that_is_late_is_no_error_and_said_apart() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))
    bench.store.answer(LateError("no response"))
    assert bench.gate.holds == 1
    bench.loop.timers[-1].callback()
    bench.store.answer()
    assert bench.gate.holds == 0
    assert bench.complaints == ["late"]


def test_a_commit_that_is_late_and_then_fails_is_an_error() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))
    for error in (LateError("no response"), OSError("no")):
        bench.store.answer(error)
        bench.loop.timers[-1].callback()
    bench.store.answer()
    assert bench.complaints == [
        "late",
        "cannot write its log: no; it waits, and tries again",
        "its log can be written again",
    ]
    assert bench.gate.holds == 0


def test_when_one_has_failed_nothing_is_performed_until_all_is_durable() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    bench.post(TimerFired(1006.0, "rule:rule-1"))
    bench.performed.clear()
    bench.store.answer(OSError("no"))
    bench.store.answer(OSError("no"))
    bench.post(TimerFired(1007.0, "rule:rule-1"))
    bench.loop.timers[-1].callback()
    assert bench.store.commits[-1] == [2, 3]
    assert not bench.performed
    assert bench.gate.holds == 1
    bench.store.answer()
    assert bench.performed == ["TimerFired"]
    assert bench.store.commits[-1] == [4]
    assert bench.gate.holds == 0


def test_a_commit_that_succeeds_makes_up_for_one_that_failed_before_it() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    bench.post(TimerFired(1006.0, "rule:rule-1"))
    bench.store.answer(OSError("no"))
    assert bench.gate.holds == 1
    bench.store.answer()
    assert bench.gate.holds == 0
    bench.post(TimerFired(1007.0, "rule:rule-1"))
    assert bench.store.commits == [[1], [2], [2, 3], [4]]


def test_a_closed_ledger_calls_nobody_back_and_holds_nothing() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))
    bench.store.answer(OSError("no"))
    bench.wal.close()
    bench.loop.timers[-1].callback()
    assert bench.store.commits == [[1]]
    assert not bench.performed
    assert bench.gate.holds == 0


def test_barriers_and_synced_notes_are_called_back_when_what_was_before_is_durable() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    performed = bench.performed.append
    bench.wal.note(1000.0, "violation", {}, lambda: performed("note"))
    bench.wal.note(1000.0, "epoch", {"epoch": 2}, lambda: performed("synced"), sync=True)
    bench.wal.barrier(lambda: performed("barrier"))
    assert bench.performed == ["note"]
    bench.store.answer()
    assert bench.performed == ["note"]
    bench.store.answer()
    assert bench.performed == ["note", "synced", "barrier"]
    # The barrier has nothing new to wait for.
    assert [batch.sync for batch in bench.store.batches] == [False, False, True]


def test_events_that_come_at_once_are_one_batch_and_their_commands_wait_for_it() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    before = len(bench.store.batches)
    bench.wal.hold()
    for index in range(4):
        bench.post(TimerFired(1005.0 + 5 * index, "rule:rule-1"))
        bench.post(JobEvent(1005.0 + 5 * index, 99, "start", {"number": index}))
    bench.wal.note(1010.0, "note", {})
    assert not bench.performed
    assert len(bench.store.batches) == before
    bench.wal.release()
    assert bench.performed == ["TimerFired"] * 4
    (batch,) = bench.store.batches[before:]
    (written,) = Batches(io.StringIO(batch.text), begin="", after=before)
    assert [event.t for event in written.events] == sorted([1005.0, 1010.0, 1015.0, 1020.0] * 2)
    assert [type(event).__name__ for event in written.events] == ["TimerFired", "JobEvent"] * 4
    bench.store.answer()
    assert dump(bench.replay().engine) == dump(bench.engine)


def test_events_that_come_at_once_and_bring_about_nothing_wait_for_company() -> None:
    bench = Bench(at_once=False)
    bench.steady()
    bench.wal.hold()
    bench.post(JobEvent(1005.0, 99, "start"))
    bench.wal.release()
    assert len(bench.store.batches) == 1
    bench.loop.timers[-1].callback()
    assert len(bench.store.batches) == 2


def test_a_log_folds_to_the_engine_that_wrote_it() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    bench.post(Request(1003.0, 7, "pause", {}))
    replayed = bench.replay()
    assert dump(replayed.engine) == dump(bench.engine)
    assert replayed.engine.metrics(1003.0) == bench.engine.metrics(1003.0)
    assert replayed.timers.to_json() == bench.wal.timers.to_json()
    assert replayed.timers.last_request == 7
    assert [entry["name"] for entry in replayed.entries] == ["start", "fire", "pause"]
    assert replayed.total == 3


def test_a_snapshot_and_the_log_after_it_fold_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_EVENTS", 4)
    monkeypatch.setattr(module, "SNAPSHOT_RATIO", 10**9)
    bench = Bench()
    bench.wal._snapshot_due = 4
    bench.post(Started(1000.0))
    for index in range(2):
        bench.run(Tag("a", "rule-0", 0, index))
        bench.post(TimerFired(1005.0 + 5 * index, "rule:rule-1"))
    bench.post(TimerFired(1015.0, "rule:rule-1"))
    assert len(bench.store.values) == 2
    whole = bench.replay(snapshot=None, values=[])
    short = bench.replay()
    assert short.number == whole.number
    assert short.total == whole.total
    assert dump(short.engine) == dump(whole.engine) == dump(bench.engine)
    assert short.engine.metrics(1015.0) == whole.engine.metrics(1015.0)
    assert short.timers.to_json() == whole.timers.to_json()


def test_a_checkpoint_is_a_snapshot_whatever_is_under_way() -> None:
    bench = Bench(at_once=False)
    bench.post(Started(1000.0))
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    bench.wal.checkpoint()
    bench.wal.close()
    assert bench.store.snapshot["number"] == 2
    # The commit that was under way is not needed.
    assert dump(bench.replay(lines=bench.store.lines[3:]).engine) == dump(bench.engine)


def test_a_batch_that_was_committed_twice_counts_once() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    twice = bench.store.lines * 2
    bench.post(TimerFired(1005.0, "rule:rule-1"))
    lines = twice + bench.store.lines[len(twice) // 2 :]
    replayed = bench.replay(lines=lines)
    assert dump(replayed.engine) == dump(bench.engine)
    assert [entry["name"] for entry in replayed.entries] == ["start", "fire", "fire"]


def test_a_missing_batch_is_an_error() -> None:
    lines = [line(1.0, "batch", {"number": number, "events": []}) for number in (1, 2, 4)]
    with pytest.raises(ValueError, match="batches 3 to 3 are missing"):
        list(Batches(lines, begin=""))


def test_batches_before_the_snapshot_may_be_missing() -> None:
    lines = [line(1.0, "outcome", {})] + [
        line(1.0, "batch", {"number": number, "events": []}) for number in (4, 5, 6)
    ]
    assert [batch.number for batch in Batches(lines, begin="", after=5)] == [4, 5, 6]


def test_a_log_that_says_something_else_than_the_engine_is_refused() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    lines = [text.replace('"firing":0', '"firing":1') for text in undigested(bench.store.lines)]
    with pytest.raises(ValueError, match="batch 1 has no entry 'fire'"):
        bench.replay(lines=lines)


def undigested(lines: list[str]) -> list[str]:
    """A log as versions wrote it that had no digests."""
    return [re.sub('"digest":"[0-9a-f]+",', "", text) for text in lines]


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A log of some batches, with two snapshots and what came after them."""
    monkeypatch.setattr(module, "SNAPSHOT_EVENTS", 8)
    monkeypatch.setattr(module, "SNAPSHOT_RATIO", 10**9)
    bench = Bench()
    bench.wal._snapshot_due = 8
    bench.post(Started(1000.0))
    for index in range(4):
        bench.run(Tag("a", "rule-0", 0, index))
        bench.post(TimerFired(1005.0 + 5 * index, "rule:rule-1"))
    bench.wal.note(1030.0, "epoch", {"epoch": 2})
    assert len(bench.store.values) == 2
    return bench


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in JSON there is a number, a text or the like."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))
    else:
        yield path


def later(text: str) -> str:
    """As a later version may write it: of another format, and with other digests."""
    return text.replace(f'"{KEY}":{FORMAT}', f'"{KEY}":{FORMAT + 1}').replace(
        '"digest":"', '"digest":"0'
    )


@pytest.mark.parametrize("what", ["snapshot", "values", "lines"])
def test_what_a_later_version_has_written_is_said_to_be_and_is_not_taken_for_damaged(
    long: Bench, what: str
) -> None:
    written = long.replay
    found: Any = long.store.snapshot if what == "snapshot" else list(getattr(long.store, what))
    texts = found if what == "lines" else [dumps(found)]
    changed = [later(text) for text in texts]
    found = changed if what == "lines" else json.loads(changed[0])
    with pytest.raises(
        LaterFormatError, match=rf"written by flux-ensemble .*, in format {FORMAT + 1}.* nothing is"
    ):
        written(**{what: found})


def test_what_an_earlier_version_has_written_without_a_number_is_read(long: Bench) -> None:
    snapshot = {key: one for key, one in long.store.snapshot.items() if key not in (KEY, "digest")}
    values = [chunk["values"] for chunk in long.store.values]
    replayed = long.replay(snapshot=snapshot, values=values)
    assert replayed.number == len(long.store.batches)


def test_the_number_of_the_format_changes_with_the_format(long: Bench) -> None:
    """Whoever changes the form raises FORMAT, once for a release, and writes the form down here."""
    bench = Bench()
    bench.engine.records.keep()
    bench.post(Started(1000.0))
    bench.run(Tag("a", "rule-0", 0, 0))
    jobs = bench.engine.records.take()
    chunk = beside([["a", "x", [0.1]]], dumps(records.encode(jobs)))
    header = json.loads(next(iter(long.store.lines)))
    form = {
        "snapshot": sorted(long.store.snapshot),
        "engine": sorted(long.store.snapshot["engine"]["state"]),
        "batch": sorted(header["context"]),
        "beside": sorted(json.loads(chunk)),
        "jobs": sorted(json.loads(chunk)["jobs"]),
    }
    stored = Path(__file__).parents[2] / "traces" / "format.json"
    known = json.loads(stored.read_text())
    assert known.pop("local")  # of local runs: see `test_local_names`
    assert known == {KEY: FORMAT, **form}, f"now: {dumps(form)}"


def test_a_snapshot_that_was_changed_anywhere_is_refused(long: Bench) -> None:
    snapshot = long.store.snapshot
    assert long.replay().number == len(long.store.batches)
    for *path, last in places(snapshot):
        if last == KEY:
            continue
        changed = json.loads(json.dumps(snapshot))
        at = changed
        for key in path:
            at = at[key]
        at[last] = at[last] + 1 if type(at[last]) in (int, float) else f"{at[last]}x"
        with pytest.raises(ValueError, match="snapshot is damaged"):
            long.replay(snapshot=changed)


def test_a_snapshot_of_another_run_of_the_name_is_refused(long: Bench) -> None:
    with pytest.raises(
        ValueError, match="the snapshot is of ensemble 'test', run 1, not of 'test'"
    ):
        replay(long.spec, "'test', run 2", long.store.snapshot, long.store.values, long.store.lines)


def test_the_log_of_another_run_of_the_name_is_refused() -> None:
    bench = Bench()
    bench.post(Started(1000.0))
    with pytest.raises(ValueError, match="batch 1 of the log is damaged"):
        replay(bench.spec, "'test', run 2", None, (), bench.store.lines)


def test_values_that_were_changed_or_swapped_are_refused(long: Bench) -> None:
    first, second = long.store.values
    assert first != second
    changed = json.loads(json.dumps(first))
    changed["values"][0][2][0] += 1
    for values in ([second, first], [changed, second], [first], [second]):
        with pytest.raises(ValueError, match=r"the values beside|its stream|had \d+ values"):
            long.replay(values=values)


def by_batch(lines: list[str]) -> list[list[str]]:
    """The lines of a log, batch by batch."""
    batches: list[list[str]] = []
    for text in lines:
        if '"name":"batch"' in text:
            batches.append([])
        batches[-1].append(text)
    return batches


def flat(batches: list[list[str]]) -> list[str]:
    return [text for batch in batches for text in batch]


def test_a_line_of_the_log_that_was_changed_or_dropped_is_noticed(long: Bench) -> None:
    lines = long.store.lines
    for at, text in enumerate(lines):
        flipped = text.replace('"timestamp":1', '"timestamp":2', 1)
        assert flipped != text
        with pytest.raises(ValueError, match=r"of the log is damaged|are missing"):
            long.replay(lines=[*lines[:at], flipped, *lines[at + 1 :]])
        dropped = [*lines[:at], *lines[at + 1 :]]
        # A log may begin with any batch up to the snapshot, or within one.
        if at > 0:
            with pytest.raises(ValueError, match=r"of the log is damaged|are missing"):
                long.replay(lines=dropped)


def test_batches_that_were_swapped_are_noticed(long: Bench) -> None:
    batches = by_batch(long.store.lines)
    for at in range(len(batches) - 1):
        swapped = [*batches]
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
        with pytest.raises(ValueError, match=r"of the log is damaged|are missing"):
            long.replay(lines=flat(swapped), snapshot=None, values=[])


def test_a_log_may_begin_with_any_batch_up_to_the_snapshot(long: Bench) -> None:
    batches = by_batch(long.store.lines)
    whole = long.replay()
    for begin in range(long.store.snapshot["number"] + 1):
        replayed = long.replay(lines=flat(batches[begin:]))
        assert replayed.digests == whole.digests
        assert dump(replayed.engine) == dump(long.engine)


def test_a_log_goes_on_from_what_a_version_without_digests_wrote(long: Bench) -> None:
    """Whether it has a snapshot or not, and whether its first batches are there or not."""
    old = {key: value for key, value in long.store.snapshot.items() if key in OLD_SNAPSHOT}
    lines = undigested(long.store.lines)
    for snapshot, values, begin in (
        (None, [], 0),
        (old, long.store.values, 0),
        (old, long.store.values, old["number"]),
    ):
        kept = flat(by_batch(lines)[begin:])
        replayed = long.replay(snapshot=snapshot, values=values, lines=kept)
        store = MemoryStore()
        wal = WriteAheadLog(
            store, long.loop, long, print, long.gate, identity=IDENTITY, replayed=replayed
        )
        for number in range(2):
            wal.note(1040.0 + number, "error", {"text": "more"})
        again = long.replay(snapshot=snapshot, values=values, lines=kept + store.lines)
        assert again.number == replayed.number + 2
        assert again.facts.errors == ["more", "more"]
        flipped = [text.replace("more", "less") for text in store.lines[2:]]
        lines_now = kept + store.lines[:2] + flipped
        with pytest.raises(ValueError, match="of the log is damaged"):
            long.replay(snapshot=snapshot, values=values, lines=lines_now)


def test_what_the_service_noted_is_known_again() -> None:
    bench = Bench()
    for name, context in (
        ("error", {"text": "Traceback"}),
        ("violation", {"id": 3}),
        ("shutdown", {}),
        ("finish", {"state": "failed", "reason": "no", "stopped": True}),
    ):
        bench.wal.note(1000.0, name, context)
    facts = bench.replay().facts
    assert facts == Facts(0, 1000.0, "no", 1000.0, ["Traceback"], 1)
    assert Facts(**facts.to_json()) == facts
    bench.wal.note(1001.0, "epoch", {"epoch": 3})
    assert bench.replay().facts.t_shutdown is None


def test_timers_go_on_where_they_were() -> None:
    timers = Timers()
    bench = Bench()
    event = Started(1000.0)
    timers.take(event, bench.engine.handle(event))
    assert [(one.key, one.after, one.every) for one in timers.due(1002.0)] == [
        ("rule:rule-1", 3.0, 5.0)
    ]
    timers.take(TimerFired(1005.5, "rule:rule-1"), [])
    assert [one.after for one in timers.due(1006.0)] == [4.5]
    assert [one.after for one in timers.due(2000.0)] == [0.0]
    assert Timers.from_json(json.loads(json.dumps(timers.to_json()))).timers == timers.timers


@pytest.mark.parametrize(
    "event",
    [
        JobEvent(1.5, 7, "submit", {"userid": 1}, Tag("a", "r", 2, 3)),
        JobEvent(1.5, 7, "finish", {"status": 0}),
        JobEvent(1.5, 7, "clean"),
        JobEvent(1.5, 7, "clean", foreign=True, job_name="x"),
        TimerFired(2.5, "heartbeat"),
    ],
)
def test_events_are_the_same_after_the_log(event: Any) -> None:
    assert encode(expand(json.loads(json.dumps(compact(event))))) == encode(event)


@pytest.mark.parametrize(
    "value",
    [
        *([], [1.0], [1.0, 2, "submit", {}, ["a"]], [1.0, 2, 3], 3, {"type": "x"}),
        *([1.0, 2, [[1.0, 3]]], [1.0, 2, [[1.0]]], [1.0, 2, [[1.0, "submit"]], [1]]),
    ],
)
def test_what_is_no_event_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not a job event|no event or command"):
        expand(value)


def test_records_are_for_people() -> None:
    bench = Bench()
    bench.wal.write(Started(1.0), [Record(1.0, "start")], lambda: None)
    bench.loop.timers[-1].callback()
    assert bench.store.batches[0].entries == 1


def test_a_timer_waits_no_longer_than_it_was_set_for_though_the_clock_was_set_back() -> None:
    timers = Timers()
    due = [StartTimer("once", 60.0, 0.0), StartTimer("often", 5.0, 20.0)]
    timers.take(Started(10_000.0), due)
    assert [one.after for one in timers.due(10_001.0)] == [59.0, 4.0]
    assert [one.after for one in timers.due(6_400.0)] == [60.0, 20.0]
    assert [one.after for one in timers.due(20_000.0)] == [0.0, 0.0]
