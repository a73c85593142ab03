"""The eventlog: who reads it, who follows it, and when it ends."""

from __future__ import annotations

from typing import Any

from fakes import Reader

from flux_ensemble.eventlog import Stored
from flux_ensemble.runtime.eventlog import KEPT, Log


def entry(t: float, name: str, context: dict[str, Any]) -> Stored:
    return {"timestamp": t, "name": name, "context": context}


def filled(*names: str) -> Log:
    log = Log()
    for t, name in enumerate(names):
        log.append(entry(float(t), name, {"t": t}))
    return log


def test_a_reader_gets_what_there_is_and_the_end() -> None:
    log, reader = filled("load", "start"), Reader()
    log.read(reader, follow=False)
    log.append(entry(2.0, "fire", {}))
    assert reader.names == ["load", "start", "END"]
    assert reader.entries[1] == {"timestamp": 1.0, "name": "start", "context": {"t": 1}}


def test_a_follower_gets_what_comes_until_the_log_closes() -> None:
    log, reader = filled("load"), Reader()
    log.read(reader, follow=True)
    log.append(entry(1.0, "start", {}))
    assert reader.names == ["load", "start"]
    log.close()
    assert reader.names == ["load", "start", "END"]


def test_a_follower_of_a_closed_log_gets_the_end_at_once() -> None:
    log, reader = filled("load", "finish"), Reader()
    log.close()
    log.read(reader, follow=True)
    assert reader.names == ["load", "finish", "END"]


def test_a_closed_log_has_the_entries_that_it_had() -> None:
    log, before, after, rest = Log(), Reader(), Reader(), Reader()
    for t in range(KEPT + 2):
        log.append(entry(t / 7, "fire", {"reason": f"\u00e4 {t}", "jobs": [2**60 + t, None]}))
    log.read(before, follow=False)
    for _ in range(2):
        log.close()
        log.append(entry(0.1, "late", {}))
    log.read(after, follow=False)
    assert len(before.entries) == KEPT
    assert after.entries[:KEPT] == before.entries
    assert after.names[-3:] == ["late", "late", "END"]
    log.read(rest, follow=True, skip=KEPT + 1)
    assert rest.entries == after.entries[KEPT - 1 :]


def test_a_follower_that_has_left_gets_nothing_more() -> None:
    log, reader = filled(), Reader(events=True)
    log.read(reader, follow=True)
    assert log.wants_events
    log.leave(reader)
    log.leave(reader)
    log.append(entry(1.0, "start", {}))
    log.close()
    assert not reader.names
    assert not log.wants_events


def test_job_events_are_shown_to_those_who_want_them_and_not_kept() -> None:
    log, plain, debug = filled(), Reader(), Reader(events=True)
    log.read(plain, follow=True)
    before = log.wants_events
    log.read(debug, follow=True)
    assert (before, log.wants_events) == (False, True)
    log.job_event(1.0, {"id": 7}, "start", {"a": 1})
    late = Reader(events=True)
    log.read(late, follow=False)
    assert (plain.names, late.names) == ([], ["END"])
    assert debug.entries[0]["name"] == "job-event"
    assert debug.entries[0]["context"] == {"id": 7, "name": "start", "context": {"a": 1}}


def test_the_newest_entries_are_kept() -> None:
    log, reader = filled(*(str(n) for n in range(KEPT + 3))), Reader()
    log.read(reader, follow=False)
    assert (len(reader.entries), reader.names[0]) == (KEPT, "3")


def test_a_follower_that_leaves_while_it_is_sent_an_entry_harms_no_other() -> None:
    log, other = filled(), Reader()

    class Leaver(Reader):
        def send(self, entry: Any) -> None:
            log.leave(self)

    log.read(Leaver(), follow=True)
    log.read(other, follow=True)
    log.append(entry(1.0, "start", {}))
    assert other.names == ["start"]


def test_a_reader_that_comes_back_skips_what_it_has() -> None:
    log, reader = filled("load", "start", "fire"), Reader()
    log.read(reader, follow=False, skip=2)
    assert reader.names == ["fire", "END"]


def test_what_was_dropped_counts_as_skipped() -> None:
    log, reader = Log([entry(8.0, "fire", {}), entry(9.0, "outcome", {})], total=10), Reader()
    log.read(reader, follow=False, skip=9)
    assert reader.names == ["outcome", "END"]
