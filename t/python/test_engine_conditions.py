"""Conditions and metric paths: what parses, what holds, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.engine.conditions import compile_condition
from flux_ensemble.engine.paths import MetricPath, parse_path

GROUPS = ("a", "a-b", "x.y")
STATISTICS = ("mean", "max")
VALUES = {"count.a.success": 3, "mean.a-duration": 50.0, "mean.a-b-duration": None}


def compiled(when, subject="metric"):
    return compile_condition(when, groups=GROUPS, statistics=STATISTICS, subject=subject)


def lookup(path):
    return VALUES[str(path)]


@pytest.mark.parametrize(
    ("when", "value", "holds"),
    [
        (3, 3, True),
        (3, 4, False),
        ("3", 3, True),
        ("> 5.5", 6, True),
        ("> 5.5", 5.5, False),
        (">= 5.5", 5.5, True),
        ("<= -1", -1, True),
        ("< 1e3", 999, True),
        ("== 5", 5, True),
        ("= 5", 5, True),
        ("!= 5", 5, False),
        ("!= 5", None, False),
        ("> 0", None, False),
    ],
)
def test_a_number_or_a_comparison_looks_at_the_rule_s_metric(when, value, holds):
    condition = compiled(when)
    assert condition.compares
    assert condition.holds(value, lookup) is holds


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("count.a.success >= 3 and mean['a-duration'] < 60", True),
        ('count["a"].success == 3', True),
        ('count["a"]["success"] == 3', True),
        ("2 < count.a.success < 4", True),
        ("not count.a.success > 3", True),
        ("count.a.success / 0 > 1 or count.a.success > 1", True),
        ("max(count.a.success, 7) == 7", True),
        ("abs(-count.a.success) == 3", True),
        ("mean['a-b-duration'] < 60", False),
        ("mean['a-b-duration'] != 60", False),
        ("mean['a-b-duration'] + 1 > 0", False),
        ("count.a.success == 'three'", False),
        ("count.a.success < 'three'", False),
    ],
)
def test_an_expression_is_about_metrics_and_empty_ones_make_comparisons_false(when, holds):
    assert compiled(when).holds(None, lookup) is holds


def test_an_expression_tells_which_metrics_it_reads():
    paths = compiled("count.a.success > 1 and mean['a-b-duration'] > 1").paths
    assert paths == {MetricPath("count", "a", "success"), MetricPath("mean", "a-b", "duration")}


def test_a_memo_expression_sees_memo_keys_and_metrics():
    condition = compiled("fom > 3 and memo['a-key'] == 1 and count.a.success == 3", "memo")
    assert condition.holds(None, lookup, {"fom": 4, "a-key": 1})
    assert not condition.holds(None, lookup, {"fom": 4})
    assert not condition.holds(None, lookup, {"fom": "text", "a-key": 1})


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("> ", "expected a number, a comparison such as '> 5'"),
        ("> nan", "expected a number, a comparison such as '> 5'"),
        ("> 1e999", "expected a finite number, not '> 1e999'"),
        ("count.a.success > 1e999", "inf is not allowed in a condition"),
        ("count.a.success; 1", "expected a number, a comparison such as '> 5'"),
        ("1 +", "expected a number, a comparison such as '> 5'"),
        ("(" * 500, "expected a number, a comparison such as '> 5'"),
        ("x > 1", "no metric named 'x' (metrics begin with: count, max, mean, nodes, queue)"),
        ("mean.a-duration > 3", "written in brackets: mean['GROUP-duration']"),
        ("queue.pending-nodes > 3", "written in brackets: queue['pending-nodes']"),
        ("nodes.down > 3", "(metrics: nodes.free, nodes.size, nodes.up)"),
        ("count.c.success > 1", "no job group named 'c' (groups: a, a-b, x.y)"),
        ("count.a.succes > 1", "no counter named 'succes' (counters: submitted,"),
        ("__import__('os')", "'__import__' is not a function of conditions"),
        ("count.a.success.real > 1", "no job group named 'a.success'"),
        ("().__class__", "is not allowed in a condition"),
        ("[1, 2]", "'[1, 2]' is not allowed in a condition"),
        ("lambda: 1", "is not allowed in a condition"),
        ("count.a.success ** 9", "'Pow' is not allowed in a condition"),
        ("min()", "min() takes one or more plain arguments"),
        (True, "expected a number, a comparison or an expression, not True"),
        ("1" * 5000 + "+1", "an expression has at most 4096 characters, not 5002"),
    ],
)
def test_what_does_not_parse_is_refused_with_a_sentence(when, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        compiled(when)


def test_a_comparison_needs_a_rule_that_has_a_metric():
    with pytest.raises(ValueError, match="compares the metric of a metric rule"):
        compiled("> 3", subject=None)


@given(st.text(max_size=40))
def test_no_text_gives_anything_but_a_condition_or_a_value_error(text):
    try:
        condition = compiled(text, "memo")
    except ValueError:
        return
    if not condition.paths and not condition.compares:
        assert condition.holds(None, lookup) in (True, False)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("count.a.success", ("count", "a", "success")),
        ("count.x.y.failed", ("count", "x.y", "failed")),
        ("mean.a-duration", ("mean", "a", "duration")),
        ("mean.a-b-duration", ("mean", "a-b", "duration")),
        ("max.a-figure-of-merit", ("max", "a", "figure-of-merit")),
    ],
)
def test_a_path_names_a_statistic_a_group_and_a_variable(text, path):
    found = parse_path(text, GROUPS, STATISTICS)
    assert found == path
    assert str(found) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("success", "expected a metric such as 'count.GROUP.success'"),
        ("count.a", "expected 'count.GROUP.COUNTER', not 'count.a'"),
        (
            "median.a-duration",
            "no statistic named 'median' (statistics: count, max, mean, nodes, queue)",
        ),
        (
            "nodes.down",
            "no metric named 'nodes.down' (metrics: nodes.free, nodes.size, nodes.up)",
        ),
        ("queue.depth", "no metric named 'queue.depth' (metrics: queue.pending-nodes)"),
        ("nodes", "expected a metric such as 'count.GROUP.success'"),
        ("mean.c-duration", "no job group for 'c-duration': expected GROUP-VARIABLE"),
        ("mean.a", "'a' is a job group; say which of its variables, such as 'a-duration'"),
        ("mean.a-", "no job group for 'a-'"),
    ],
)
def test_a_path_that_nothing_produces_is_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_path(text, GROUPS, STATISTICS)
