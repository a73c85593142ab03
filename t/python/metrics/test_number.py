"""The statistic `n`: how many values there were since the start, or since the last reset."""

from __future__ import annotations

import pytest
from play import Play, TimerFired, document, on_start, submit

from flux_ensemble.document import spec_reader
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.results.statistics import metrics_rows


def test_it_counts_the_values_of_a_metric():
    rule = {"trigger": "metric", "name": "n.a-fom", "when": 3, "action": submit("b")}
    play = Play(document(rules=[on_start(), rule]))
    assert play.engine.metrics(play.t)["n"] == dict.fromkeys(
        ("a-duration", "a-pending", "b-duration", "b-pending"), 0
    )
    play.begin(1)
    play.event(1, "memo", fom=1.5)
    play.event(1, "memo", fom="text")
    play.begin(2)
    play.event(2, "memo", fom=2.5)
    assert play.submitted("b") == 0
    play.event(2, "memo", fom=2.5)
    assert play.submitted("b") == 1
    assert play.engine.metrics(play.t)["n"]["a-fom"] == 3
    play.end(2, 256)
    assert play.engine.metrics(play.t)["n"]["a-duration"] == 0


def test_it_is_0_and_not_empty_before_the_first_value_and_after_a_reset():
    reset = {"trigger": "job-memo", "when": "fom > 9", "action": {"name": "reset", "label": "a"}}
    empty = {
        "trigger": "job-memo",
        "when": 'n["a-fom"] == 0',
        "action": submit("b", repetitions="unlimited"),
    }
    play = Play(document(rules=[on_start(), reset, empty]))
    play.begin(1)
    play.event(1, "memo", other=1)
    assert play.submitted("b") == 1
    play.event(1, "memo", fom=1)
    assert play.submitted("b") == 1
    play.event(1, "memo", fom=10)
    assert play.submitted("b") == 2


def test_at_a_heartbeat_it_counts_the_jobs_that_wait_and_run():
    when = 'n["a-running"] == 1 and n["a-waiting"] == 1 and n["a-pending"] == 2'
    rule = {"trigger": "heartbeat", "when": when, "action": submit("b")}
    play = Play(document(rules=[on_start(), rule], logging={"heartbeat": 10}))
    play.begin(1)
    play.event(2, "submit")
    play.post(TimerFired(play.tick(), "heartbeat"))
    assert play.submitted("b") == 1


def test_a_memo_can_have_a_key_of_this_name():
    rule = {"trigger": "job-memo", "when": "n > 5 and n['a-n'] == 1", "action": submit("b")}
    play = Play(document(rules=[on_start(), rule]))
    play.begin(1)
    play.event(1, "memo", n=7)
    assert play.submitted("b") == 1


def test_a_document_can_have_a_statistic_of_its_own_of_this_name():
    metrics = [{"name": "n", "statistic": "max"}]
    play = Play(document(rules=[on_start()], metrics=metrics))
    play.begin(1)
    play.event(1, "memo", fom=7.5)
    assert play.engine.metrics(play.t)["n"]["a-fom"] == 7.5
    assert play.engine.metrics(play.t)["n"]["b-duration"] is None


def test_it_takes_no_room_of_the_bound_on_statistics(monkeypatch: pytest.MonkeyPatch):
    # So many as each group has besides.
    monkeypatch.setattr(spec_reader, "MAX_KEPT", 6 * 1000)
    jobs = [{"name": f"g{number}", "command": "true"} for number in range(1000)]
    load_mapping(document(jobs=jobs, rules=[on_start("g1")]))


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1234567, "1234567")])
def test_a_table_has_it_as_an_integer(value: int, text: str):
    (row,) = metrics_rows({"count": {"a": {}}, "n": {"a-fom": value}})
    assert row["n"] == text


def test_a_table_of_metrics_has_no_row_for_the_best_job():
    best = {"top": {"value": 1.5, "job": 1, "params": {}}}
    assert metrics_rows({"count": {"a": {}}, "n": {"a-fom": 1}, "best": best}) == [
        {"group": "a", "variable": "fom", "n": "1", "ignored": "0"}
    ]
