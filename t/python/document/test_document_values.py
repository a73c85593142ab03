"""Values of parameters: how they are written is their text, and they have a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flux_ensemble.api.yaml_writer import to_yaml
from flux_ensemble.document import jobspec
from flux_ensemble.document.actions import parse_action
from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.document.points import Points, cell_of
from flux_ensemble.document.problems import Problems
from flux_ensemble.document.use import plain_form
from flux_ensemble.document.values import parse_values
from flux_ensemble.document.yaml_reader import read_yaml
from flux_ensemble.metrics.expressions import compile_expression
from flux_ensemble.scalars import Spelled, number, packed, spelled

#: Scalars as they stand in a document without quotes.
PLAIN = st.one_of(
    st.sampled_from(
        ["NO", "no", "yes", "On", "TRUE", "true", "False", ".inf", "-.INF", ".nan", "1e999", "-0"]
    ),
    st.from_regex(
        r"\A[-+]?(0x[0-9a-fA-F_]{1,8}|0b[01_]{1,8}|0o?[0-7]{1,4}"
        r"|[0-9][0-9_]{0,30}(\.[0-9_]{0,8})?([eE][-+]?[0-9]{1,4})?)\Z"
    ),
    st.from_regex(r"\A[A-Za-z0-9.][A-Za-z0-9._+-]{0,12}\Z"),
).filter(lambda text: text not in ("null", "Null", "NULL", ""))

#: Those with quotes.
QUOTED = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1)


def in_quotes(text: str) -> str:
    """A text with the escapes of YAML."""
    escaped = (one if one.isascii() and one.isalnum() else f"\\U{ord(one):08x}" for one in text)
    return f'"{"".join(escaped)}"'


WRITTEN = st.one_of(
    PLAIN.map(lambda text: (text, text)), QUOTED.map(lambda text: (text, in_quotes(text)))
)


def words(spec: Spec) -> list[str]:
    """The last word of the command of each job of the group `a`."""
    found = []
    for job_set, params in spec.groups["a"].submission():
        built = jobspec.build(job_set, params, environment={}, cwd="/", tag={})
        found.append(built["tasks"][0]["command"][-1])
    return found


@given(st.lists(WRITTEN, min_size=1, max_size=20))
@example([("1e-05", "1e-05"), ("1e+16", "1e+16"), ("-2.5e-07", "-2.5e-07")])
def test_any_scalar_is_run_as_it_is_written(values: list[tuple[str, str]]) -> None:
    text = "{jobs: [{name: a, command: [echo, '{x}'], params: {x: [{}]}}]}"
    text = text.replace("[{}]", "[" + ", ".join(written for _, written in values) + "]")
    spec = load_text(text, name="t")
    expected = [text for text, _ in values]
    assert words(spec) == expected
    # As it is sent, where it is not the text of the document, and as YAML again.
    form = json.loads(json.dumps(plain_form(read_yaml(text)[0])))
    assert words(load_mapping(form, name="t")) == expected
    assert words(load_text(to_yaml(form), name="t")) == expected


@given(st.lists(st.one_of(PLAIN, QUOTED), min_size=1, max_size=20))
def test_any_cell_is_read_as_it_was_written(texts: list[str]) -> None:
    values = [spelled(text) for text in texts]
    values = [text if value is None else value for text, value in zip(texts, values, strict=True)]
    # In JSON between them, as in an export.
    cells = "x\r\n" + "".join(f"{cell_of(json.loads(json.dumps(value)))}\r\n" for value in values)
    column = Points(lambda name, problems: cells).column("x.csv", "x", Problems(), ())
    assert column is not None
    assert list(map(str, column.values)) == [
        str(value).lower() if isinstance(value, bool) else str(value) for value in values
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs: [{name: a, command: 'echo {x}', params: {x: &v 1.10, y: *v}}]", ["1.10"]),
        ("jobs: [{name: a, command: 'echo {y}', params: {x: &v 1.10, y: *v}}]", ["1.10"]),
        ("jobs: [{name: a, command: 'echo {y}', params: {x: &v [NO, 1e5], y: *v}, sweep: zip}]",
         ["NO", "1e5"]),
        ("jobs: [&j {name: b, command: 'echo {x}', params: {x: 0x1F}}, {<<: *j, name: a}]",
         ["0x1F"]),
        ("jobs: [{name: a, command: 'echo {x}', params: {x: !!float 1}}]", ["1"]),
        ("jobs: [{name: a, command: 'echo {x}', params: {x: !!str 1.10}}]", ["1.10"]),
        ("jobs: [{name: a, command: 'echo {x}', params: {x: {range: [1e1, 12]}}}]",
         ["10.0", "11.0"]),
        ("jobs: [{name: a, command: 'echo {x}', params: {x: {written: [1.10]}}}]", None),
        ("jobs: [{name: a, command: 'echo {x}', params: {x: {written: ['1.10', 'null']}}}]",
         ["1.10", "null"]),
    ],
)  # fmt: skip
def test_spellings_come_through_aliases_merges_and_tags(
    text: str, expected: list[str] | None
) -> None:
    if expected is None:
        with pytest.raises(DocumentError, match=r"expected a value as text, such as '1\.10'"):
            load_text(text, name="t")
    else:
        assert words(load_text(text, name="t")) == expected


def test_what_a_program_gives_has_the_text_that_python_has_and_true_is_that_of_yaml() -> None:
    job = {"name": "a", "command": "echo {x}", "params": {"x": [True, 1.10, 1e5, 0x1F, "1.10"]}}
    spec = load_mapping({"jobs": [job]}, name="t")
    assert words(spec) == ["true", "1.1", "100000.0", "31", "1.10"]


@pytest.mark.parametrize(
    ("expression", "written", "holds"),
    [
        ("x == 1.1", "1.10", True),
        ('x == "1.10"', "1.10", True),
        ('x == "1.1"', "1.10", False),
        ("x == 1.1", "'1.10'", False),
        ('x == "1.10"', "'1.10'", True),
        ("x > 1 and x + 1 == 2.1", "1.10", True),
        ("x > 1", "'1.10'", False),
        ("not x", "NO", True),
        ("x != false", "NO", False),
        ('x in ("NO", "no")', "NO", True),
        ("x in (31, 32)", "0x1F", True),
        ("x not in (31, 32)", "0x1F", False),
        ("x == x", "1e3", True),
        ("x < 1e300", ".inf", False),
        ("0 < x < 2", "1.10", True),
        ("max(x, 1) == 1.1", "1.10", True),
    ],
)
def test_expressions_have_the_number_and_compare_with_a_text_as_it_is_written(
    expression: str, written: str, holds: bool
) -> None:
    spec = load_text(f"jobs: [{{name: a, command: x, params: {{x: {written}}}}}]", name="t")
    ((_, params),) = spec.groups["a"].submission()
    compiled = compile_expression(expression.replace("false", "False"), lambda keys: ".".join(keys))
    assert compiled.holds(params.get) is holds


def test_sizes_are_numbers_however_they_are_written() -> None:
    text = (
        "jobs: [{name: a, command: x, tasks: '{n}', duration: '{m}m', params: {n: 0x10, m: 1e1}}]"
    )
    ((job_set, _),) = load_text(text, name="t").groups["a"].submission()
    assert (job_set.tasks, job_set.duration) == (16, 600.0)


def test_an_action_keeps_spellings_through_json() -> None:
    text = """
    jobs: [{name: a, command: 'echo {x}', params: {x: 1}}]
    rules: [{trigger: start, action: {name: submit, label: a, params: {x: [1.10, "1.10", NO]}}}]
    """
    spec = load_text(text, name="t")
    params = json.loads(json.dumps(spec.rules[0].action.params))
    values = [found["x"] for _, found in spec.groups["a"].submission(params=params)]
    assert values == ["1.10", "1.10", "NO"]
    assert list(map(number, values)) == [1.1, "1.10", False]


def test_an_environment_of_an_action_has_texts_as_they_are_written() -> None:
    text = """
    jobs: [{name: a, command: x}]
    rules:
    - trigger: start
      action: {name: submit, label: a, environment: {V: 1.10, DEBUG: NO, N: 7}}
    """
    overrides = load_text(text, name="t").rules[0].action.overrides
    assert overrides is not None
    assert overrides["environment"] == {"V": "1.10", "DEBUG": "NO", "N": "7"}


def test_an_environment_and_attributes_are_merged_over_those_of_the_group() -> None:
    text = """
    jobs:
    - name: a
      command: x
      environment: {A: 1, B: 2}
      attributes: {system: {constraints: {properties: [gpu]}, x: 1}, user: {k: 1}}
    """
    group = load_text(text, name="t").groups["a"]
    overrides = {"environment": {"B": "3"}, "attributes": {"system": {"x": 2}}}
    (job_set, _), *_ = group.submission(overrides=overrides)
    assert job_set.environment == {"A": "1", "B": "3"}
    assert job_set.attributes == {
        "system": {"constraints": {"properties": ["gpu"]}, "x": 2},
        "user": {"k": 1},
    }


def test_a_request_can_spell_values_as_json_cannot() -> None:
    spec = load_text("jobs: [{name: a, command: 'echo {x}', params: {x: 1}}]", name="t")
    value = {"name": "submit", "label": "a", "params": {"x": {"written": ["1.10", "NO"]}}}
    action = parse_action(value, spec, ())
    assert [params["x"] for _, params in spec.groups["a"].submission(params=action.params)] == [
        "1.10",
        "NO",
    ]


@given(PLAIN)
def test_a_spelling_comes_back_from_json_as_the_same_value(text: str) -> None:
    value = spelled(text)
    (back,) = parse_values([json.loads(json.dumps(packed(value)))])
    assert (type(back), str(back)) == (type(value), str(value))
    if type(value) is Spelled:
        assert repr(back.value) == repr(value.value)


def test_choices_that_are_equal_as_texts_are_there_twice() -> None:
    text = """
    jobs: [{name: a, command: 'x {c}'}]
    search: [{id: s, group: a, variables: {c: [1.10, "1.10"]}, minimize: loss}]
    rules: [{trigger: start, action: {name: search, label: s}}]
    """
    with pytest.raises(DocumentError, match=r"the choice '1\.10' is there twice"):
        load_text(text, name="t")


def test_a_sheet_with_a_million_characters_has_no_more_objects_than_cells(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x\n" + "1.10\n" * 100_000)
    text = "jobs: [{name: a, command: 'echo {x}', params: {x: {file: points.csv}}}]"
    group: Any = load_text(text, name="t", directory=str(tmp_path)).groups["a"]
    assert len(group.submission()) == 100_000
    assert group.submission()[99_999][1] == {"x": "1.10"}


@pytest.mark.parametrize(
    "when",
    ["job.params.c == 1.1", "job.params.c == '1.10'", "job.params.c == False",
     "mean['a-x[c=1.1]'] > 0"],
)  # fmt: skip
def test_nothing_is_called_never_true_because_it_is_spelled_otherwise(when: str) -> None:
    text = f"""
    jobs: [{{name: a, command: "x {{c}}", params: {{c: [1.10, NO]}}}}]
    metrics: [{{of: a-x, by: [c]}}]
    rules:
    - {{trigger: start, action: {{name: submit, label: a}}}}
    - {{trigger: job-fail, when: "{when}", action: {{name: terminate}}}}
    """
    found = Warnings()
    load_text(text, name="t", warnings=found)
    assert found.warnings == []


@pytest.mark.parametrize(
    ("values", "warned"),
    [("[1.10, 1.1]", True), ("[1e2, 100.0]", True), ("['1.10', 1.1]", False), ("[1, 2]", False)],
)
def test_values_that_share_statistics_as_one_number_are_warned_of(
    values: str, warned: bool
) -> None:
    text = f"""
    jobs: [{{name: a, command: "x {{c}}", params: {{c: {values}}}}}]
    metrics: [{{of: a-x, by: [c]}}]
    rules: [{{trigger: start, action: {{name: submit, label: a}}}}]
    """
    found = Warnings()
    load_text(text, name="t", warnings=found)
    assert any("share the statistics a-x[c=VALUE]" in one for one in found.warnings) is warned
