"""Conditions and metric paths: what parses, what holds, and what is refused."""

from __future__ import annotations

import ast
import re
import warnings
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.conditions import Names, compile_condition
from flux_ensemble.metrics.expressions import (
    MAX_DEPTH,
    MAX_LENGTH,
    Expression,
    compile_expression,
    keys_of,
    parse_expression,
)
from flux_ensemble.metrics.job_fields import scope_of
from flux_ensemble.metrics.job_filter import compile_filter
from flux_ensemble.metrics.paths import MetricPath, parse_path

GROUPS = ("a", "a-b", "x.y")
STATISTICS = ("mean", "max")
VALUES = {"count.a.success": 3, "mean.a-duration": 50.0, "mean.a-b-duration": None}


def compiled(when, subject="metric", job=None):
    return compile_condition(when, Names(GROUPS, STATISTICS, subject, job))


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
    ],
)
def test_an_expression_is_about_metrics_and_empty_ones_make_comparisons_false(when, holds):
    assert compiled(when).holds(None, lookup) is holds


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("memo.yield", ["memo", "yield"]),
        ("job.params. lambda", ["job", "params", "lambda"]),
        ("count.class.is", ["count", "class", "is"]),
        ("a.None", ["a", "None"]),
    ],
)
def test_a_word_of_python_can_follow_a_dot(text, keys):
    assert keys_of(parse_expression(text)) == keys


def test_a_word_of_python_is_told_from_others_like_it_and_from_text():
    text = "'x.is' == b.is and IS.Is < iS.is"
    seen = [".".join(keys) for node in ast.walk(parse_expression(text)) if (keys := keys_of(node))]
    assert {"b.is", "IS.Is", "iS.is"} <= set(seen)
    assert "x.is" in [n.value for n in ast.walk(parse_expression(text)) if hasattr(n, "value")]


@pytest.mark.parametrize(
    "text", ["lambda > 1", "memo.yield >", "a.if b", "x is y.is.", "a.not not b"]
)
def test_elsewhere_words_of_python_are_what_they_are(text):
    with pytest.raises(SyntaxError):
        parse_expression(text)


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
        ("count.a.success > 1e999", "inf is not allowed in an expression"),
        ("count.a.success; 1", "expected a number, a comparison such as '> 5'"),
        ("1 +", "expected a number, a comparison such as '> 5'"),
        ("(" * 500, "expected a number, a comparison such as '> 5'"),
        (
            "x > 1",
            "no metric named 'x' (metrics begin with: count, max, mean, nodes, queue, rate, share, "
            "time)",
        ),
        ("mean.a-duration > 3", "written in brackets: mean['a-duration']"),
        ("mean.a-loss - 2 > 3", "written in brackets: mean['a-loss']"),
        ("mean.a-my-loss - 2 > 3", "written in brackets: mean['a-my-loss']"),
        ("mean.a-loss-mean.b > 3", "written in brackets: mean['a-loss']"),
        ("mean.a - loss > 3", "written in brackets: mean['a-duration']"),
        ("mean.d-duration > 3", "written in brackets: mean['GROUP-duration']"),
        ("queue.pending-nodes > 3", "written in brackets: queue['pending-nodes']"),
        ("nodes.down > 3", "(metrics: nodes.free, nodes.size, nodes.up)"),
        ("count.c.success > 1", "no job group named 'c' (groups: a, a-b, x.y)"),
        (
            "count.a.succes > 1",
            "no counter named 'succes' (did you mean 'success'? counters: submitted,",
        ),
        ("__import__('os')", "'__import__' is not a function of conditions"),
        ("count.a.success.real > 1", "no job group named 'a.success'"),
        ("().__class__", "is not allowed in an expression"),
        ("[1, 2]", "'[1, 2]' is not allowed in an expression"),
        ("lambda: 1", "is not allowed in an expression"),
        ("count.a.success ^ 9", "'^' is not allowed in an expression (a power is written as x"),
        ("min()", "min() takes one or more plain arguments"),
        (True, "expected a number, a comparison or an expression, not True"),
        ("1" * 5000 + "+1", "an expression has at most 4096 characters, not 5002"),
        ("1" * 5000, "an expression has at most 4096 characters, not 5000"),
        ("9" * 400, "expected a finite number, not '9999"),
        ("fom > " + "9" * 4000, "999... is not allowed in an expression"),
        ("0" + " + 1" * 200, "an expression nests at most 200 levels deep"),
        ("not " * 1000 + "1", "an expression nests at most 200 levels deep"),
        ("max(" * 150 + "-1" + ")" * 150 + " + 1" * 60, "an expression nests at most 200 levels"),
        ("a" * 4000 + " b", "'count.GROUP.success >= 3', not 'aaaaaaa"),
    ],
)
def test_what_does_not_parse_is_refused_with_a_short_sentence(when, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        compiled(when, "memo" if "fom" in str(when) else "metric")
    assert len(str(caught.value)) < 300


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


# -- what an expression cannot do --------------------------------------------------------

#: As long an integer as JSON can have in Python.
HUGE = 10**4000


@pytest.mark.parametrize(
    "when",
    [
        "round(fom, 2) == 3.14",
        "round(fom, -1) == 0",
        "round(fom, 308) == fom",
        "round(fom, -308) == 0",
        "round(fom) == 3",
    ],
)
def test_a_number_is_rounded_to_at_most_as_many_digits_as_a_number_has(when):
    assert compiled(when, "memo").holds(None, lookup, {"fom": 3.14159})


@pytest.mark.parametrize("digits", [309, -309, -999999999, HUGE, -HUGE, 2.0, "2", None, [2]])
def test_rounding_to_other_digits_has_no_value(digits):
    memo = {"fom": 5, "digits": digits}
    for when in ("round(fom, digits) == 5", "round(fom, digits) != 5", "round(fom, digits) > -1"):
        assert not compiled(when, "memo").holds(None, lookup, memo)


def test_the_digits_in_a_document_are_bounded_too():
    assert not compiled("round(count.a.success, -999999999) >= 0").holds(None, lookup)


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "//", "%"])
@pytest.mark.parametrize("value", [HUGE, -HUGE, float("nan"), float("inf")])
def test_a_number_that_is_too_large_has_no_value(operation, value):
    memo = {"fom": value}
    for compare in ("==", "!=", "<", "<=", ">", ">="):
        for when in (f"fom {operation} 2 {compare} 1", f"2 {operation} fom {compare} 1"):
            assert not compiled(when, "memo").holds(None, lookup, memo)
    assert compiled("fom > 1 or 2 > 1", "memo").holds(None, lookup, memo)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("fom + 1 == 9223372036854775808", True),
        ("fom // 2 * 2 == fom - 1", True),
        ("fom * fom > 8e37", True),
        (" * ".join(["fom"] * 17) + " > 0", False),
        ("fom == 9223372036854775807", True),
        ("-fom - 2 < -fom", True),
    ],
)
def test_an_integer_of_more_than_64_bits_becomes_a_fraction(when, holds):
    assert compiled(when, "memo").holds(None, lookup, {"fom": 2**63 - 1}) is holds


@pytest.mark.parametrize(
    "when",
    [
        "fom % 100 == 0",
        "fom % count.a.success != 0",
        "fom * 1000000 != 0",
        "fom + fom == 'abcabc'",
        "fom + 'x' != ''",
        "-fom != 0",
        "+fom != 0",
        "fom < count.a.success",
        "fom <= fom",
        "fom > 1",
        "1 < fom < 3",
        "round(fom) != 0",
        "abs(fom) != 0",
        "min(fom, 'x') == 'abc'",
        "max(fom) == 'c'",
        "fom",
        "not fom",
        "not (fom > 1)",
        "fom and count.a.success == 3",
        "fom or count.a.success == 3",
        "'x'",
        "(fom and 1) != 0",
    ],
)
def test_text_makes_a_condition_false_but_where_it_is_equal_to_something_or_not(when):
    condition = compiled(when, "memo")
    for text in ("abc", "", "%1999999999d", "x" * 10**6):
        assert not condition.holds(None, lookup, {"fom": text})


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("fom == 'abc'", True),
        ("fom != 'abc'", False),
        ("fom == 'x'", False),
        ("fom != 'x'", True),
        ("'abc' == fom and count.a.success == 3", True),
        ("fom == 3", False),
        ("fom != 3", True),
        ("count.a.success > 1 or fom > 1", True),
        ("count.a.success > 9 and fom > 1", False),
    ],
)
def test_text_is_equal_to_the_same_text_and_to_nothing_else(when, holds):
    assert compiled(when, "memo").holds(None, lookup, {"fom": "abc"}) is holds


@pytest.mark.parametrize("value", [[], [1], {}, {"a": 1}, [[]]])
@pytest.mark.parametrize(
    "when", ["fom", "not fom", "fom == 1", "fom != 1", "fom + 1 != 0", "max(fom) == 1", "fom or 1"]
)
def test_a_list_or_a_mapping_makes_a_condition_false(when, value):
    assert not compiled(when, "memo").holds(None, lookup, {"fom": value})


@pytest.mark.parametrize(
    ("when", "value", "holds"),
    [
        ("fom", True, True),
        ("not fom", False, True),
        ("fom == 1", True, True),
        ("fom == True", True, True),
        ("fom + 1 == 2", True, True),
        ("fom", None, False),
        ("not fom", None, True),
        ("fom == None", None, None),
        ("1 < fom < 3", 2, True),
        ("1 < fom < 3 < 2", 2, False),
        ("3 > fom >= 2 != 7", 2, True),
        ("fom and 5", 2, True),
        ("(fom and 5) == 5", 2, True),
        ("(fom or 5) == 5", 0, True),
        ("(0 or fom and 0 or 7) == 7", 2, True),
        ("fom // 0 == 1 or fom == 2", 2, True),
        ("max(fom, 1, 3) == 3 and min(fom, 1) == 1", 2, True),
        ("not fom > 1", 2, False),
        ("fom ** 2 == 9 and 2 ** -1 == 0.5 and 2 ** 3 ** 2 == 512", 3, True),
        ("sqrt(fom) == 3 and log10(100) == 2 and log(fom, 3) == 2", 9, True),
        ("floor(fom) == -3 and ceil(fom) == -2 and floor(7) == 7", -2.5, True),
        # What has no value compares with nothing: roots and logarithms, powers that are too large.
        ("sqrt(fom) < 9 or sqrt(fom) >= 9 or sqrt(fom) != 1", -1, False),
        ("log(fom) < 9 or log(fom) >= 9 or log10(fom) != 1", 0, False),
        ("fom ** 1e9 > 0 or fom ** fom ** fom > 0 or exp(fom ** 2) > 0", 1000, False),
        ("fom ** 0.5 != 0", -8, False),
    ],
)
def test_an_expression_means_what_it_means_in_python(when, value, holds):
    if holds is None:
        with pytest.raises(ValueError, match="None is not allowed in an expression"):
            compiled(when, "memo")
        return
    assert compiled(when, "memo").holds(None, lookup, {"fom": value}) is holds


def test_an_expression_as_deep_as_may_be_is_evaluated_at_any_depth_of_the_stack():
    deep = [
        "0" + " + 1" * (MAX_DEPTH - 2) + f" == {MAX_DEPTH - 2}",
        "not " * ((MAX_DEPTH - 2) // 2 * 2) + "1",
        "-" * (MAX_DEPTH // 2) + "1 == 1 and " + "abs(" * 190 + "1" + ")" * 190 + " == 1",
    ]
    conditions = [compiled(when) for when in deep]

    def at(left):
        return at(left - 1) if left else [one.holds(None, lookup) for one in conditions]

    frames = 0
    while True:
        try:
            assert at(frames) == [True, True, True]
        except RecursionError:
            break
        frames += 10
    # Whatever the interpreter leaves is enough; this test itself has some of it.
    assert frames > 700


#: Any number, text and container that a memo can have, and some that it cannot.
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**2000), 2**2000),
    st.sampled_from([HUGE, -HUGE, 2**63, -(2**63), 2**63 - 1, 2**1024]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["%1999999999d", "x" * 10**5]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
LITERAL = st.one_of(
    st.integers(0, 10**30).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: repr(abs(x))),
    st.integers(1, 300).map(lambda digits: "9" * digits),
    st.integers(-999999999, 999999999).map(str),
    st.text("ab%1d", max_size=8).map(repr),
    st.sampled_from(["True", "False", "308", "-308", "0"]),
)
NAME = st.sampled_from(
    ["x", "y", "z", "count.a.success", "mean['a-duration']", "mean['a-b-duration']"]
)
BINARY = st.sampled_from(
    ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
)


def larger(parts):
    return st.one_of(
        st.tuples(parts, BINARY, parts).map(lambda one: f"({' '.join(one)})"),
        st.tuples(parts, BINARY, parts, BINARY, parts).map(" ".join),
        st.tuples(st.sampled_from(["-", "+", "not "]), parts).map("({0[0]}{0[1]})".format),
        st.tuples(
            st.sampled_from(["round", "min", "max", "abs"]),
            st.lists(parts, min_size=1, max_size=3).map(", ".join),
        ).map("{0[0]}({0[1]})".format),
        # As long, and as deep, as an expression may be.
        st.tuples(parts, st.sampled_from([" * ", " + ", " % ", " // "]), st.integers(1, 500)).map(
            lambda one: one[1].join([one[0]] * min(one[2], MAX_LENGTH // (len(one[0]) + 4) + 1))
        ),
    )


EXPRESSION = st.recursive(NAME | LITERAL, larger, max_leaves=20)


def bounded(value):
    """A value is a number of bounded size, or no number."""
    if type(value) is int:
        return value.bit_length() <= 64
    if type(value) is float:
        return value - value == 0
    return value is None or type(value) in (bool, str)


def watched(expression, texts):
    """An expression that has each value looked at which its steps make."""

    def watch(function):
        def call(*operands):
            result = function(*operands)
            for value in (*operands, result):
                assert bounded(value)
                assert type(value) is not str or value in texts
            assert type(result) is not str, "no operation makes text"
            return result

        return call

    steps = [
        one._replace(what=watch(one.what)) if one.kind in ("call", "chain") else one
        for one in expression.steps
    ]
    return Expression(tuple(steps), expression.variables)


#: The values of metrics, by the keys of their names in an expression.
KNOWN = {
    ("count", "a", "success"): VALUES["count.a.success"],
    ("mean", "a-duration"): VALUES["mean.a-duration"],
    ("mean", "a-b-duration"): VALUES["mean.a-b-duration"],
}


@given(EXPRESSION, st.tuples(VALUE, VALUE, VALUE))
def test_whatever_the_expression_and_the_values_it_holds_or_not_and_stays_small(text, values):
    memo = dict(zip("xyz", values, strict=True))
    try:
        condition = compiled(text, "memo")
    except ValueError:
        return
    holds = condition.holds(None, lookup, memo)
    assert type(holds) is bool
    if condition.compares:
        return
    expression = compile_expression(text.strip(), tuple)
    assert len(expression.steps) <= MAX_LENGTH
    literals = [one.what for one in expression.steps if one.kind == "value"]
    assert all(map(bounded, literals))
    texts = [one for one in (*literals, *values) if type(one) is str]
    known = {(name,): value for name, value in memo.items()} | KNOWN
    assert watched(expression, texts).holds(lambda keys: known[keys]) is holds


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
            "no statistic named 'median' (statistics: count, max, mean, nodes, queue, rate, share, "
            "time)",
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


@pytest.mark.parametrize("text", ["0x1for x", "1if x else 2"])
def test_what_the_parser_of_python_warns_of_does_not_reach_users(text: str) -> None:
    with warnings.catch_warnings(record=True) as seen, suppress(SyntaxError, ValueError):
        warnings.simplefilter("always")
        compile_expression(text, ".".join)
    assert not seen


# -- what can never hold ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("job.outcome == 'fail'", "'job.outcome' is never 'fail' (did you mean 'failed'? one of: "),
        ("'cancelled' == job.outcome", "did you mean 'canceled'?"),
        ("job.outcome in ['failed', 'timed-out']", "'job.outcome' is never 'timed-out'"),
        ("job.outcome != 1", "'job.outcome' is never 1 (one of: success, failed, "),
        ("job.outcome == 'interrupted'", "'job.outcome' is never 'interrupted' (one of: success, "),
        ("job.interrupted == 'yes'", "'job.interrupted' is true or false, and never 'yes'"),
        ("job.returncode == 'SIGSEGV'", "of a signal write 'job.signal == \"SIGSEGV\"'"),
        ("job.returncode == 256", "an exit code from 0 to 255"),
        ("job.returncode == -128", "'job.returncode' is never -128"),
        ("job.signal == 'SIGSEG'", "'job.signal' is never 'SIGSEG' (did you mean 'SIGSEGV'?"),
        ("job.signal == 0", "empty for a job that no signal ended"),
        ("job.copied == 'yes'", "'job.copied' is true or false"),
        ("job.attempt == 0.5", "'job.attempt' is an integer >= 0, and never 0.5"),
        ("job.runtime == '30m'", "'job.runtime' is a number, and never the text '30m'"),
        ("job.runtime > '30m'", "'30m' is text, which is neither smaller nor larger"),
        ("job.exception.type == 1", "'job.exception.type' is text, and never 1"),
        ("count.a.success == 'three'", "'count.a.success' is a number, and never the text 'three'"),
        ("mean['a-duration'] in ('fast', 3)", "is a number, and never the text 'fast'"),
    ],
)
def test_a_comparison_that_can_never_hold_is_refused(when: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        compiled(when, job=scope_of("job-fail", Known.END, ["t"]))


@pytest.mark.parametrize(
    "when",
    [
        "job.outcome == 'failed' or job.outcome not in ('success', 'canceled')",
        "'time' in job.outcome",
        "job.returncode == -9 or job.returncode in (137, 255, 150)",
        "job.copied == 1",
        "job.params.t == 'any' or job.memo.state == 'fail'",
        "job.exception.type == 'any'",
        "job.attempt == 2.0",
    ],
)
def test_what_can_hold_is_accepted(when: str) -> None:
    compiled(when, job=scope_of("job-fail", Known.END, ["t"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state == 'done'", "'state' is never 'done'"),
        ("outcome == 'fail'", "did you mean 'failed'?"),
        ("job.trial_state == 'stopped'", "'trial_state' is never 'stopped'"),
        ("interrupted == 'yes'", "'interrupted' is true or false, and never 'yes'"),
        ("ranks == 0", "'ranks' is text, and never 0 (write it in quotes)"),
    ],
)
def test_a_filter_that_chooses_no_job_whatever_there_is_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        compile_filter(text)


def test_a_filter_finds_what_was_interrupted_which_runs_again() -> None:
    attempt = {"outcome": "interrupted", "interrupted": True, "trial_state": "interrupted"}
    for text in ("outcome == 'interrupted'", "interrupted", "trial_state == 'interrupted'"):
        assert compile_filter(text)(attempt), text
        assert not compile_filter(text)({"outcome": "failed", "interrupted": False}), text


def test_a_filter_finds_a_signal_however_it_is_written() -> None:
    killed = {"returncode": -9, "signal": 9}
    for text in ("job.returncode == 137", "returncode == -9", "signal == 'SIGKILL'", "signal == 9"):
        assert compile_filter(text)(killed), text
        assert not compile_filter(text)({"returncode": 9, "signal": None}), text
