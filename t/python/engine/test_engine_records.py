"""The record of jobs: what it has, what of it is stored, and how it is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from play import Play, Started, document, on_start, submit

from flux_ensemble.engine.events import CPU, RSS
from flux_ensemble.engine.job_keys import make
from flux_ensemble.engine.job_view import Describer
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.records import decode, encode
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.job_filter import compile_filter
from flux_ensemble.metrics.job_row import JobRow
from flux_ensemble.results.export import write

SWEPT = [
    {
        "name": "a",
        "command": "run {t}",
        "params": {"t": [300, 310]},
        "count": 2,
        "output": "{t}/{{id}}.out",
        "retries": 1,
    },
    {"name": "b", "command": "true"},
]


def played(**given: Any) -> Play:
    play = Play(document(**{"rules": [on_start()], "finish": "never", **given}), start=False)
    play.engine.records.keep()
    play.post(Started(play.t))
    return play


def described(play: Play, jobs: list[ActiveJob], cwd: str = "/work") -> list[JobRow]:
    describer = Describer(play.engine.spec, cwd, "f{}".format)
    return [describer.describe(job, play.t) for job in jobs]


def through_json(jobs: list[ActiveJob]) -> list[ActiveJob]:
    return decode(json.loads(json.dumps(encode(jobs))))


def test_each_job_that_is_gone_is_there_once_in_the_order_of_their_ends() -> None:
    play = played()
    for job in (1, 2):
        play.begin(job)
    play.end(2)
    play.end(1, status=256)
    rows = described(play, play.engine.records.take())
    assert [(row["id"], row["outcome"], row["returncode"]) for row in rows] == [
        (2, "success", 0),
        (1, "failed", 1),
    ]
    assert not play.engine.records.take()


def test_what_is_between_two_times_is_the_same_of_a_job_that_is_stored() -> None:
    play = played()
    # Each is rounded to the microsecond, and so is what is between them.
    play.t = 1000.0000004 - 0.001
    play.event(1, "submit")
    play.event(1, "validate")
    play.t = 1000.1000006 - 0.001
    play.event(1, "start")
    play.t = 1000.3000004 - 0.001
    play.end(1)
    jobs = play.engine.records.take()
    (row,) = described(play, jobs)
    assert (row["pending"], row["runtime"]) == (0.100001, 0.199999)
    assert described(play, through_json(jobs)) == [row]


def test_what_is_stored_of_a_job_says_all_there_is_to_say_of_it() -> None:
    play = played(jobs=SWEPT)
    play.event(3, "submit")
    play.event(3, "validate")
    play.event(3, "start", t_alloc=play.t, ranks="0-2,7")
    play.event(3, "memo", fom=1.5, about={"x": [1]})
    play.event(3, "exception", type="timeout", severity=0, note="too long")
    play.end(3, status=14)
    play.begin(1)
    play.end(1, status=9)
    jobs = play.engine.records.take()
    rows = described(play, jobs)
    assert described(play, through_json(jobs)) == rows
    first, second = rows
    assert first["params"] == {"t": 310}
    assert (first["nnodes"], first["ranks"]) == (4, "0-2,7")
    assert first["exception"] == {"type": "timeout", "note": "too long"}
    assert (first["outcome"], first["returncode"]) == ("timeout", -14)
    assert first["memo"] == {"fom": 1.5, "about": {"x": [1]}}
    assert first["output"] == first["error"] == "/work/310/f3.out"
    assert (second["params"], second["returncode"]) == ({"t": 300}, -9)
    submitted, began, ended = second["t_submit"], second["t_run"], second["t_end"]
    assert began is not None
    assert ended is not None
    assert submitted < began < ended


def test_what_a_job_used_is_known_to_rules_and_stored_where_its_queue_tells_it() -> None:
    when = "job.cpu_seconds > 1 and job.max_rss == 1.024 and job.efficiency > 0.7"
    rule = {"trigger": "job-success", "group": "a", "when": when, "action": submit("b")}
    a = {"name": "a", "command": "true", "count": 4, "cores": 2}
    jobs = [a, {"name": "b", "command": "true"}]
    play = played(jobs=jobs, rules=[on_start(), rule])
    uses: list[tuple[int, dict[str, Any]]] = [
        (1, {}),
        (2, {CPU: 1_500_000, RSS: 1000}),
        (3, {CPU: 1, RSS: "x"}),
        (4, {CPU: "x", RSS: 1}),
    ]
    for job, used in uses:
        play.begin(job)
        play.t += 1.0 - 0.001
        play.event(job, "finish", status=0, **used)
        play.event(job, "clean")
    assert play.engine.stats.counts["b"]["submitted"] == 0
    assert len(play.queued) == 5
    jobs_gone = play.engine.records.take()
    rows = described(play, jobs_gone)
    assert [(row["cpu_seconds"], row["max_rss"], row["efficiency"]) for row in rows] == [
        (None, None, None),
        (1.5, 1.024, 0.75),
        (None, None, None),
        (None, None, None),
    ]
    assert described(play, through_json(jobs_gone)) == rows
    assert compile_filter("job.cpu_seconds / job.runtime > 1.4")(rows[1])
    # What is not known is neither less nor more.
    assert not compile_filter("job.cpu_seconds / job.runtime < 1.4")(rows[0])
    assert compile_filter("not job.max_rss < 1")(rows[0])
    assert "used" not in encode(jobs_gone[:1])


def test_what_a_job_used_outlives_a_snapshot_between_its_last_events() -> None:
    play = played(jobs=[{"name": "a", "command": "true"}])
    stats = play.engine.stats
    stats.keep_values()
    play.begin(1)
    play.event(1, "finish", status=0, **{CPU: 2_000_000, RSS: 500})
    snapshot = json.loads(json.dumps(dump(play.engine)))
    again = restore(play.engine.spec, snapshot, [stats.take_values()])
    assert again.workload.jobs[1].used == (2_000_000, 500)


def test_a_job_that_was_canceled_is_stored_as_that_though_its_program_ended_well() -> None:
    play = played(rules=[on_start(), {"trigger": "job-start", "action": {"name": "copy"}}])
    play.begin(1)
    copy = max(play.queued)
    play.begin(copy)
    play.end(1)
    play.end(copy)
    jobs = play.engine.records.take()
    assert [(job.outcome, job.status) for job in jobs] == [("success", 0), ("canceled", 0)]
    assert [(job.outcome, job.status) for job in through_json(jobs)] == [
        ("success", 0),
        ("canceled", 0),
    ]


@pytest.mark.parametrize("column", ["id", "indices", "firing", "ranks", "used"])
def test_a_record_of_jobs_that_lacks_a_value_is_refused(column: str) -> None:
    play = played()
    play.run(1)
    play.begin(2)
    play.event(2, "finish", status=0, **{CPU: 5, RSS: 6})
    play.event(2, "clean")
    value = json.loads(json.dumps(encode(play.engine.records.take())))
    short = {"firing": [0], "ranks": ["0"], "used": [[5], [6]]}
    value[column] = short.get(column) or value[column][:-1]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        decode(value)


def test_what_several_rules_asked_for_and_jobs_without_places_are_told_apart() -> None:
    rules = [on_start(), {"trigger": "job-success", "group": "a", "action": submit("b")}]
    play = played(jobs=SWEPT, rules=rules)
    play.run(1)
    play.begin(2)
    # Another one, of the rule on the first.
    play.run(5)
    play.end(2)
    jobs = play.engine.records.take()
    rows = described(play, jobs)
    assert len({row["rule"] for row in rows}) == 2
    assert described(play, through_json(jobs)) == rows


def test_what_the_version_before_has_stored_is_read() -> None:
    stored = {
        "firings": {"rule": ["go"], "number": [0], "group": ["a"], "more": []},
        "firing": [0, 0],
        "id": [7, 2],
        "times": [[1_000_000, 10, 20, 30], [5, None, None, 40]],
        "index": [0, 3],
        "ranks": ["0", None],
        "more": [[1, {"outcome": "canceled", "status": None}]],
    }
    first, second = decode(stored)
    assert (first.id, first.index, first.ranks, first.outcome) == (7, 0, "0", "success")
    assert (first.t_submit, first.t_alloc, first.t_start, first.t_end) == (
        1.0,
        1.00001,
        1.00002,
        1.00003,
    )
    assert (second.id, second.index, second.ranks, second.outcome) == (9, 3, None, "canceled")
    assert (second.t_submit, second.t_start, second.t_end) == (1.000005, None, 1.000045)
    assert decode(encode([first, second]))[1].t_end == second.t_end


#: Values of memos: what is kept of them.
MEMOS: dict[str, tuple[Any, bool]] = {
    "text": ("it's 5\n", True),
    "list": ([1, [2, {"x": None}]], True),
    "large": ("x" * 1_000_000, False),
    "nan": (float("nan"), False),
    "infinite": (float("-inf"), False),
    "nested": ([float("inf")], False),
    "huge": (10**400, True),
    "number": (5, True),
}


def test_odd_values_of_memos_are_recorded_filtered_and_exported(tmp_path: Path) -> None:
    play = played()
    play.begin(1)
    play.event(1, "memo", **{name: value for name, (value, _) in MEMOS.items()})
    play.end(1)
    (row,) = described(play, through_json(play.engine.records.take()))
    assert row["memo"] == {name: value for name, (value, kept) in MEMOS.items() if kept}
    assert row["memo_left_out"] == sum(not kept for _, kept in MEMOS.values())
    json.dumps(row, allow_nan=False)
    for name in MEMOS:
        # None of them is an error, and only what is a number of 64 bits can be greater.
        assert compile_filter(f"memo.{name} > 4")(row) == (name == "number"), name
    for suffix in (".csv", ".jsonl", ".sqlite"):
        assert write(tmp_path / f"jobs{suffix}", [row]) == 1


def test_of_an_odd_job_only_what_is_odd_is_stored() -> None:
    play = played(rules=[on_start(count=3)])
    play.begin(1)
    play.event(1, "memo", fom=1.5)
    play.end(1)
    play.run(2)
    play.run(3, status=256)
    assert encode(play.engine.records.take())["more"] == [
        [0, {"memo": {"fom": 1.5}}],
        [2, {"outcome": "failed", "status": 256}],
    ]


def test_parameters_and_attempts_are_those_of_the_firing() -> None:
    rules = [on_start("a", params={"t": [5]}, count=1)]
    play = played(jobs=SWEPT, rules=rules)
    play.run(1, status=256)
    play.run(2)
    rows = described(play, through_json(play.engine.records.take()))
    assert [(row["params"], row["attempt"], row["rule"]) for row in rows] == [
        ({"t": 5}, 0, "rule-0"),
        ({"t": 5}, 1, "retry"),
    ]


def test_a_job_that_never_ran_has_neither_a_return_code_nor_a_signal() -> None:
    play = played()
    for job, kind in ((1, "cancel"), (2, "alloc")):
        play.event(job, "submit")
        play.event(job, "validate")
        play.event(job, "exception", type=kind, severity=0)
        play.event(job, "clean")
    rows = described(play, through_json(play.engine.records.take()))
    assert [(row["outcome"], row["returncode"], row["signal"]) for row in rows] == [
        ("canceled", None, None),
        ("failed", None, None),
    ]


def test_a_job_that_was_refused_leaves_no_row() -> None:
    play = played()
    play.event(1, "submit")
    play.event(1, "invalidate")
    assert not play.engine.records.take()


def test_what_is_beyond_the_limit_is_dropped_and_that_is_said_once() -> None:
    play = played(jobs=[{"name": "a", "command": "true", "count": 3}], limits={"records": 1})
    for job in (1, 2, 3):
        play.run(job)
    assert [job.id for job in play.engine.records.take()] == [1]
    assert (play.engine.records.total, play.engine.records.dropped) == (1, 2)
    assert play.recorded("records-full") == [{"limit": 1}]


def test_a_document_can_turn_it_off() -> None:
    play = played(records=False)
    play.run(1)
    assert not play.engine.records.take()
    assert (play.engine.records.total, play.engine.records.dropped) == (0, 0)
    assert not play.recorded("records-full")


def test_nothing_is_kept_where_nobody_takes_it() -> None:
    play = Play(document(rules=[on_start()], finish="never"))
    play.run(1)
    assert not play.engine.records.take()
    assert play.engine.records.total == 1


def test_a_time_between_two_microseconds_is_stored_as_it_is_shown() -> None:
    play = played()
    play.run(1)
    (job,) = play.engine.records.take()
    # In microseconds these end in .5; the even one of both neighbours is shown.
    job.t_submit, job.t_start, job.t_end = (1_795_566_829 + n * 2**-22 for n in (2, 10, 27))
    assert described(play, through_json([job])) == described(play, [job])


def test_a_row_without_a_memo_is_small() -> None:
    play = played(jobs=[{"name": "a", "command": "true", "count": 1000}])
    for job in range(1, 1001):
        play.event(job, "submit")
        play.event(job, "validate")
        play.event(job, "start", t_alloc=play.t, ranks=str(job % 100))
        play.end(job)
    assert len(json.dumps(encode(play.engine.records.take()), separators=(",", ":"))) < 100 * 1000


def test_a_row_names_the_member_and_the_file_as_the_describer_is_told() -> None:
    given = [{"name": "a", "command": "run", "output": "{{jobid}}-{{id}}.out"}]
    play = played(jobs=given)
    play.run(1)
    (job,) = play.engine.records.take()
    describer = Describer(play.engine.spec, "/work", "f{}".format, "member {}".format)
    assert describer.describe(job, play.t)["output"] == "/work/f1-f1.out"
    job.id = make(2, 1)
    assert describer.describe(job, play.t)["member"] == "member 2"
