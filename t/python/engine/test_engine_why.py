"""Why rules fire or do not."""

from __future__ import annotations

from typing import Any, cast

import pytest
from play import Play, document, on_start, submit

from flux_ensemble.cli.display.reasons import ending, reasons
from flux_ensemble.cli.display.tables import rule_row
from flux_ensemble.client.responses import Why
from flux_ensemble.engine.rule_reasons import why

STOP = {"name": "terminate"}


def rules_of(play: Play, id: str, **more: Any) -> dict[str, Any]:
    """What is said of a rule now."""
    (found,) = why(play.engine, play.t, id)
    return found


def test_the_terms_of_a_condition_have_their_values_and_what_is_missing() -> None:
    condition = 'count.a.success >= 1 and mean["a-duration"] > 5 and not count.b.failed'
    rule = {"id": "r", "trigger": "metric", "when": condition, "action": STOP}
    play = Play(document(rules=[on_start(), rule]))
    play.run(1)
    found = rules_of(play, "r")
    first, second, third = found["terms"]
    assert first == {
        "text": "count.a.success >= 1",
        "holds": True,
        "values": {"count.a.success": 1},
        "missing": None,
    }
    assert second["holds"] is False
    assert second["missing"] == "mean.a-duration is 0.001, and must be > 5"
    assert (third["text"], third["holds"]) == ("not count.b.failed", True)
    assert found["never"] is None
    assert found["waits"] == "waits for a change of a metric"


def test_a_comparison_names_its_metric() -> None:
    rule = {"id": "r", "trigger": "metric", "name": "mean.a-fom", "when": "<= 5", "action": STOP}
    play = Play(document(rules=[on_start(), rule]))
    (term,) = rules_of(play, "r")["terms"]
    assert term["text"] == "mean.a-fom <= 5"
    assert term["missing"] == "mean.a-fom has no value yet, and must be <= 5"


def test_what_depends_on_the_event_is_not_said_to_hold_or_not() -> None:
    rule = {"id": "r", "trigger": "job-memo", "when": "fom > 5", "action": STOP}
    (term,) = rules_of(Play(document(rules=[on_start(), rule])), "r")["terms"]
    assert (term["holds"], term["values"], term["missing"]) == (None, {}, None)


def test_repetitions_backoff_and_cooldown_are_told() -> None:
    more = submit("b", repetitions=3, backoff=2, cooldown=60)
    rule = {"id": "r", "trigger": "job-success", "group": "a", "action": more}
    play = Play(document(rules=[on_start(), rule]))
    play.run(1)
    found = rules_of(play, "r")
    assert (found["fired"], found["left"], found["skips"]) == (1, 2, 2)
    assert found["t_cooldown"] > play.t + 59
    (over,) = why(play.engine, found["t_cooldown"], "r")
    assert over["t_cooldown"] is None
    assert found["waits"] == "waits for job-success of a job of group 'a'"


def test_a_timer_says_when_it_is_due() -> None:
    rules = [
        {"id": "once", "trigger": "timer", "after": 30, "action": STOP},
        {"id": "often", "trigger": "timer", "every": 10, "action": submit("b")},
    ]
    play = Play(document(rules=rules, finish="never"))
    play.t = 1025.0
    assert rules_of(play, "once")["t_next"] == 1030.0
    assert rules_of(play, "often")["t_next"] == 1030.0


def test_a_rule_without_repetitions_left_cannot_fire_any_more() -> None:
    play = Play(document(rules=[{"id": "r", **on_start()}]))
    found = rules_of(play, "r")
    assert found["never"] == "it has fired once, and its repetitions allow no more"
    assert found["waits"] is None


def test_a_rule_that_has_no_jobs_to_wait_for_cannot_fire_any_more() -> None:
    rules = [
        on_start(),
        {"id": "more", "trigger": "job-fail", "group": "a", "action": submit("b")},
        {"id": "r", "trigger": "job-fail", "group": "b", "action": STOP},
        {"trigger": "timer", "after": 100, "action": STOP},
    ]
    play = Play(document(rules=rules))
    assert rules_of(play, "r")["never"] is None
    play.run(1)
    assert rules_of(play, "r")["never"] is None
    play.run(2)
    # No job of a can fail any more, so nothing submits b.
    gone = "no job of group 'a' is active, and no rule that can still fire submits one"
    assert rules_of(play, "more")["never"] == gone
    assert rules_of(play, "r")["never"] == gone.replace("'a'", "'b'")


def test_of_very_many_rules_nothing_is_looked_for_that_they_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = [
        {"id": "r", "trigger": "job-fail", "group": "a", "action": STOP},
        {"trigger": "timer", "after": 9, "action": STOP},
    ]
    play = Play(document(rules=rules))
    assert rules_of(play, "r")["never"] is not None
    monkeypatch.setattr("flux_ensemble.engine.rule_reasons.MAX_RULES", 0)
    assert rules_of(play, "r")["never"] is None


def test_a_count_that_is_out_of_reach_is_told_with_how_far_it_can_get() -> None:
    rules = [
        on_start(),
        {"id": "r", "trigger": "metric", "name": "count.a.success", "when": 2, "action": STOP},
        {"id": "s", "trigger": "metric", "when": "count.a.failed < 1", "action": STOP},
    ]
    play = Play(document(rules=[*rules, {"trigger": "timer", "after": 9, "action": STOP}]))
    assert rules_of(play, "r")["never"] is None
    play.run(1, status=256)
    assert rules_of(play, "r")["never"] == (
        "count.a.success is 0 and can become 1 at most: it cannot be == 2"
    )
    assert rules_of(play, "s")["never"] == ("count.a.failed is 1 and never falls: it cannot be < 1")


def test_no_count_is_out_of_reach_of_jobs_that_may_be_copied() -> None:
    copy = {"id": "copy", "trigger": "job-running", "group": "a", "when": "job.runtime >= 60",
            "action": {"name": "copy"}}  # fmt: skip
    rules = [
        {"id": "later", "trigger": "timer", "after": 9, "action": submit("a")},
        {"id": "r", "trigger": "metric", "name": "count.a.success", "when": 5, "action": STOP},
    ]
    never = "count.a.success is 0 and can become 2 at most: it cannot be == 5"
    assert rules_of(Play(document(rules=rules)), "r")["never"] == never
    play = Play(document(rules=[*rules, copy]))
    # The jobs may be there, or may still come.
    assert rules_of(play, "r")["never"] is None
    play.timer("rule:later")
    assert rules_of(play, "later")["never"] is not None
    assert rules_of(play, "r")["never"] is None


def test_while_a_custom_call_is_open_nothing_is_out_of_reach() -> None:
    rules = [
        {"trigger": "start", "action": {"name": "custom", "label": "f"}},
        {"id": "r", "trigger": "job-fail", "group": "b", "action": STOP},
    ]
    play = Play(document(rules=rules, custom="def f(**event): pass"))
    assert rules_of(play, "r")["never"] is None


def test_a_rule_with_several_triggers_waits_for_each_of_them() -> None:
    rule = {"id": "r", "trigger": ["job-fail", "job-cancel"], "group": "a", "action": STOP}
    play = Play(document(rules=[on_start(), rule]))
    assert rules_of(play, "r")["waits"] == "waits for job-fail or job-cancel of a job of group 'a'"


def test_a_disabled_rule_says_who_enables_it() -> None:
    rules = [
        on_start(),
        {"id": "r", "trigger": "job-fail", "enabled": False, "action": STOP},
        {"id": "on", "trigger": "job-success", "action": {"name": "enable", "label": "r"}},
    ]
    play = Play(document(rules=rules))
    assert rules_of(play, "r")["waits"] == "it is disabled, until rule 'on' enables it"
    play.request("rules", id="on", enabled=False)
    assert rules_of(play, "on")["waits"] == "it is disabled"


def test_after_the_end_no_rule_can_fire() -> None:
    play = Play(document(rules=[on_start(), {"id": "r", "trigger": "job-fail", "action": STOP}]))
    play.run(1)
    play.run(2)
    assert rules_of(play, "r")["never"] == "the ensemble has ended (completed)"


def test_an_idle_rule_says_what_is_not_over() -> None:
    rule = {"id": "r", "trigger": "idle", "group": "a", "action": STOP}
    play = Play(document(rules=[on_start(), rule]))
    assert rules_of(play, "r")["waits"] == "waits for group 'a' to be idle: 2 jobs not over"


def test_terms_on_best_jobs_and_on_searches_have_their_values() -> None:
    search = {
        "id": "hpo",
        "group": "b",
        "variables": {"x": {"low": 0, "high": 1}},
        "minimize": "loss",
        "trials": 2,
    }
    p = Play(
        document(
            jobs=[
                {"name": "a", "command": "a {mode}", "params": {"mode": "fast"}},
                {"name": "b", "command": "b {x}"},
            ],
            search=[search],
            metrics=[{"best": {"name": "top", "of": "a-fom"}}],
            rules=[
                on_start(),
                {
                    "trigger": "job-success",
                    "when": "best.top.value > 5 and best.top.params.mode == 'fast' "
                    "and search.hpo.complete >= 1",
                    "action": {"name": "search", "label": "hpo"},
                },
            ],
        )
    )
    p.begin(1)
    p.event(1, "memo", fom=2.5)
    p.end(1)
    value, mode, complete = why(p.engine, p.t, "rule-1")[0]["terms"]
    assert (value["holds"], value["values"]) == (False, {"best.top.value": 2.5})
    assert value["missing"] == "best.top.value is 2.5, and must be > 5"
    assert (mode["holds"], mode["values"]) == (True, {"best.top.params.mode": "fast"})
    assert complete["values"] == {"search.hpo.complete": None}
    assert complete["missing"] == "search.hpo.complete has no value yet, and must be >= 1"


def test_a_rule_with_three_actions_is_shown_with_three() -> None:
    actions = [submit("a"), {"name": "disable", "label": "other"}, {"name": "terminate"}]
    other = {"id": "other", "trigger": "idle", "action": submit("b")}
    p = Play(document(rules=[{"id": "many", "trigger": "idle", "actions": actions}, other]))
    words = ["submit a", "disable other", "terminate"]
    assert why(p.engine, p.t, "many")[0]["actions"] == words
    assert p.status()["rules"][0]["actions"] == words
    assert rule_row(p.status()["rules"][0])["action"] == ", ".join(words)
    (line, *_) = reasons(cast(Why, {"t": p.t, "rules": why(p.engine, p.t, "many")}))
    assert line == "many: submit a, disable other, terminate on idle"


@pytest.mark.parametrize(("rules", "said"), [(2, "both rules have fired"), (3, "all 3 rules have")])
def test_after_the_end_two_rules_that_fired_are_both(rules: int, said: str) -> None:
    fired = [{"id": f"r{number}", "fired": 1} for number in range(rules)]
    answer: Any = {"state": "completed", "reason": "", "rules": fired}
    assert list(ending("e", answer))[-1].startswith(said)
