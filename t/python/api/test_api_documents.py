"""Documents made in Python: the same as those from YAML, checked by the same code."""

from __future__ import annotations

import enum
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble import Action, Ensemble, Job, Rule
from flux_ensemble.api.yaml_writer import to_yaml
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.yaml_reader import read_yaml

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def keywords(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in mapping.items()}


def ensemble_of(document: dict[str, Any], name: str) -> Ensemble:
    """A document as a program would write it: with objects and keywords."""
    rest = {key: value for key, value in document.items() if key not in ("name", "jobs", "rules")}
    rules = []
    for rule in document.get("rules", []):
        words = keywords(rule)
        if "action" in words:
            words["action"] = Action(**keywords(words["action"]))
        if "actions" in words:
            words["actions"] = [Action(**keywords(one)) for one in words["actions"]]
        rules.append(Rule(**words))
    return Ensemble(
        name=document.get("name", name),
        jobs=[Job(**keywords(job)) for job in document.get("jobs", [])],
        rules=rules,
        **keywords(rest),
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_gives_the_same_model_from_python_as_from_yaml(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    text = path.read_text()
    ensemble = ensemble_of(read_yaml(text)[0].value, path.stem)
    expected = load_text(text, name=path.stem)
    assert repr(load_mapping(ensemble.document)) == repr(expected)
    assert repr(load_text(ensemble.to_yaml())) == repr(expected)
    ensemble.validate()


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=32)), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["on", "no", "1", "a b", "x"]), PLAIN, min_size=1))
def test_what_is_written_as_yaml_is_read_as_it_was(document: dict[str, Any]) -> None:
    assert read_yaml(to_yaml(document))[0].value == document


@pytest.mark.parametrize(
    "text",
    [
        "yes", "010", "1e-3", "12:30:00", "2024-01-01", "0x10", "", "~", "null", " a ", "a: b",
        "- a", "#", "a\nb\n", "\n a", "é\t", "a\r\nb", "!x", "&a", "*a", "{t}", "%TAG", "\x07",
    ],
)  # fmt: skip
def test_text_stays_text_in_yaml(text: str) -> None:
    assert read_yaml(to_yaml({"command": [text]}))[0].value == {"command": [text]}


def test_an_error_names_the_line_of_the_program() -> None:
    jobs = [
        Job(name="a", command="true"),
        Job(name="b", comand="true"),  # type: ignore[call-arg]
    ]
    line = sys._getframe().f_lineno - 2
    with pytest.raises(DocumentError) as raised:
        Ensemble(name="demo", jobs=jobs).validate()
    assert str(raised.value).startswith(f"{__file__}:{line}: jobs[1]")
    assert "did you mean 'command'" in str(raised.value)


def test_an_error_of_the_whole_names_the_line_of_the_ensemble() -> None:
    ensemble = Ensemble(name="demo", job=[])  # type: ignore[call-arg]
    with pytest.raises(DocumentError, match=r"test_api_documents.py:\d+: .*did you mean 'jobs'"):
        ensemble.validate()


def test_the_errors_are_those_of_yaml() -> None:
    text = "name: demo\njobs: [{name: a, command: x, nodes: 0}]\nrules: [{trigger: stat}]\n"
    with pytest.raises(DocumentError) as from_yaml:
        load_text(text)
    value = read_yaml(text)[0].value
    with pytest.raises(DocumentError) as from_python:
        ensemble_of(value, "demo").validate()
    told = [
        sorted((problem.path, problem.message) for problem in error.value.problems)
        for error in (from_yaml, from_python)
    ]
    assert told[0] == told[1]


def wrong(**keys: Any) -> str:
    """What is said of a document: its errors, or its warnings."""
    try:
        return "\n".join(Ensemble(name="demo", **keys).validate())
    except DocumentError as error:
        return str(error)


START = Rule(trigger="start", action=Action(name="submit", label="a"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"jobs": [Job(name="a", command="true")]},
            """add 'rules=[Rule(trigger="start", action=Action(name="submit", label="a"))]'""",
        ),
        (
            {"jobs": [Job(name="a", command="true", max_active="3")], "rules": [START]},  # type: ignore[arg-type]
            "jobs[0].max_active: expected an integer >= 1",
        ),
        (
            {"jobs": [Job(name="a", command="true", maxactive=3)], "rules": [START]},  # type: ignore[call-arg]
            "unknown key 'maxactive' (did you mean 'max_active'? keys: name,",
        ),
        (
            {"jobs": [{"name": "a", "command": "true", "max_active": 3}], "rules": [START]},
            "unknown key 'max_active' (did you mean 'max-active'? keys: name,",
        ),
        (
            {"jobs": Job(name="a", command="true")},
            "jobs: expected a list of job groups, not a mapping with 2 keys (put it in brackets",
        ),
        ({"on_failure": "stop"}, "on_failure: unknown key 'on_failure' (keys: name, logging"),
        (
            {"rules": [Rule(trigger="start", action="submit a")]},  # type: ignore[arg-type]
            'expected an action such as Action(name="submit", label="GROUP"), not',
        ),
        (
            {"jobs": [Job({"name": "a", "params": [{"x": 1, "y": "b"}, {"x": 2, "y": 3}]})]},
            """side by side: {"x": [1, ...], "y": ["b", ...]} with 'sweep="zip"')""",
        ),
        (
            {"jobs": [Job(name="a", command="true", retries="3x")], "rules": [START]},  # type: ignore[arg-type]
            'such as {"times": 3, "on": ["failed", "timeout"]}, not \'3x\'',
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_python(keys: dict[str, Any], said: str) -> None:
    told = wrong(**keys)
    assert said in told
    assert "{name:" not in told
    assert "{trigger:" not in told


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "expected a finite number, not nan"),
        (1j, "expected plain data, not 1j"),
        (date(2020, 1, 2), "not datetime.date(2020, 1, 2): write its text, such as '2020-01-02'"),
        (keywords, "write a program that calls it"),
    ],
)
def test_a_value_that_no_document_can_hold_has_one_sentence(value: Any, said: str) -> None:
    job = Job(name="a", command="x {t}", params={"t": [1, value]})
    (told,) = wrong(jobs=[job], rules=[START]).splitlines()
    assert said in told


def test_a_function_as_custom_is_told_what_stands_there() -> None:
    actions = [Action(name="custom", label="keywords")]
    rules = [Rule(trigger="start", actions=actions)]
    told = wrong(jobs=[Job(name="a", command="x")], rules=rules, custom=keywords)
    assert "write its source, inspect.getsource(keywords), or name its file under 'plugins'" in told
    rules = [Rule(trigger="start", action=Action(name="custom", label=keywords))]  # type: ignore[arg-type]
    told = wrong(rules=rules, custom=inspect.getsource(keywords))
    assert "label: expected plain data, not <function keywords" in told
    assert "write its name, 'keywords'" in told


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_as_parameters_is_a_job_for_each_row(library: str) -> None:
    table = pytest.importorskip(library).DataFrame({"t": [280, 300], "seed": [0.5, 1.5]})
    job = Job(name="a", command="x {t} {seed}", params=table)
    ensemble = Ensemble(name="demo", jobs=[job], rules=[START])
    assert ensemble.document["jobs"][0] == {
        "sweep": "zip", "name": "a", "command": "x {t} {seed}",
        "params": {"t": [280, 300], "seed": [0.5, 1.5]},
    }  # fmt: skip
    assert ensemble.simulate().status["groups"]["a"]["success"] == 2
    column = Job(name="a", command="x {t}", params={"t": table["t"]})
    assert Ensemble(name="demo", jobs=[column]).document["jobs"][0]["params"] == {"t": [280, 300]}
    rule = Rule(trigger="start", action=Action(name="submit", label="a", params=table))
    assert "not a DataFrame: write its columns as lists, such as {'t': list(df['t'])}" in wrong(
        jobs=[job], rules=[rule]
    )


@pytest.mark.parametrize(
    ("library", "remedy"), [("pandas", "df.dropna()"), ("polars", "df.drop_nulls().drop_nans()")]
)
@pytest.mark.parametrize("missing", [float("nan"), None])
def test_a_cell_of_a_table_without_a_value_is_named_with_what_to_do(
    library: str, remedy: str, missing: float | None
) -> None:
    table = pytest.importorskip(library).DataFrame({"t": [1.0, 2.0, missing], "seed": [1, 2, 3]})
    text = wrong(jobs=[Job(name="a", command="x {t}", params=table)], rules=[START])
    assert f"params.t[2]: row 2 of the DataFrame has no value of 't': {remedy} leaves" in text


def test_a_cell_of_a_nullable_column_without_a_value_is_named() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"t": pandas.array([1, None], dtype="Int64")})
    text = wrong(jobs=[Job(name="a", command="x {t}", params=table)], rules=[START])
    assert "row 1 of the DataFrame has no value of 't': df.dropna() leaves such rows out" in text


def test_a_parameter_that_an_f_string_has_replaced_is_told() -> None:
    x, y, rules = [1, 2], 7, [START]
    (told,) = wrong(
        jobs=[
            Job(name="b", command="true"),
            Job(
                name="a",
                command=f"echo {x}",
                params={"x": x},
            ),
        ],
        rules=rules,
    ).splitlines()
    assert re.search(
        r"test_api_documents.py:\d+: jobs\[1\].command: the f-string has a value of the program in "
        r"place of \{x\}, the same for all jobs: leave out the f, or write \{\{x\}\}$",
        told,
    )
    assert "place of {x}" in wrong(
        jobs=[Job(name="a", command=["echo", f"{y} {x}"], params={"x": range(3)})], rules=rules
    )
    for job in (
        Job(name="a", command=f"echo {y} {{x}}", params={"x": [1, 2]}),
        Job(name="a", command=f"echo {y}", params={"y": y, "x": [1, 2]}),
        Job(name="a", command=f"echo {y}", params={"x": [1, 2]}),
        Job(name="a", command=f"echo {len(x)}", params={"x": x}),
    ):
        assert wrong(jobs=[job], rules=rules) == ""


def searched(variables: Any) -> str:
    search = {"id": "s", "group": "a", "variables": variables, "minimize": "f", "trials": 4}
    start = Rule(trigger="start", action=Action(name="search", label="s"))
    return wrong(jobs=[Job(name="a", command="x {x}")], rules=[start], search=[search])


def test_the_bounds_of_other_tools_are_no_choices() -> None:
    for bounds in ((-5, 5), (1e-05, 0.1)):
        low, high = bounds
        assert searched({"x": bounds}).endswith(
            f"search[0].variables.x: this is a choice of two values, {low} and {high}: a range is "
            f'{{"low": {low}, "high": {high}}}'
        )
    for choices in ([16, 32], ("sgd", "adam"), (False, True), (1, 2, 3), (5, -5)):
        assert searched({"x": choices}) == ""


def test_points_whose_lists_make_a_product_are_told_how_to_go_side_by_side() -> None:
    def told(**keys: Any) -> str:
        return wrong(jobs=[Job(name="a", command="x {t} {h}", **keys)], rules=[START])

    assert told(params={"h": [1, 2, 3, 4], "t": [0, 0, 0, 5]}).endswith(
        "jobs[0].params.t: 0 is there 3 times, each time with all values of the other parameters: "
        "'sweep=\"zip\"' takes the lists side by side"
    )
    assert "h: 'a' is there twice, each" in told(params={"h": ["a", "a"], "t": [1, 2]})
    for fine in (
        {"params": {"h": [1, 2], "t": [0, 0]}, "sweep": "zip"},
        {"params": {"h": [1, 2, 3], "t": [0, 0]}},
        {"params": {"h": [1, 2], "t": [1, 2]}},
        {"params": {"h": 1, "t": [0, 0]}},
    ):
        assert told(**fine) == ""


def test_a_document_as_plain_data_is_an_ensemble() -> None:
    plain = read_yaml("name: demo\njobs: [{name: a, command: x, max-active: 2}]")[0].value
    assert Ensemble(plain).document == plain
    assert Ensemble(plain, name="other", finish="never").document == {
        **plain, "name": "other", "finish": "never",
    }  # fmt: skip


def test_what_is_no_keyword_says_so() -> None:
    classes: Any = {"Ensemble": Ensemble, "Job": Job, "Rule": Rule, "Action": Action}
    for called, words, said in (
        ("Ensemble", ("demo",), r"Ensemble: its arguments are keywords: name='demo'"),
        ("Ensemble", ("b/a.yaml",), r"'flux-ensemble run b/a.yaml' runs a file, .*h\('a'\)"),
        ("Ensemble", (), r"it needs a name, such as name='sweep'"),
        ("Job", ("a",), r"Job: its arguments are keywords: name='a'"),
        ("Rule", ("start",), r"Rule: its arguments are keywords: trigger='start'"),
        ("Action", ("submit", "a"), r"Action: its arguments are keywords: name='submit'"),
    ):
        with pytest.raises(TypeError, match=said):
            classes[called](*words)


def test_a_warning_names_the_line_of_the_program() -> None:
    (warning,) = Ensemble(name="demo", jobs=[Job(name="a", command="true")]).validate()
    assert warning.startswith(f"{__file__}:")


class Colour(enum.StrEnum):
    RED = "red"


def test_values_of_python_become_plain_data() -> None:
    job = Job(
        name="a",
        command=("echo", Path("/x"), "{t}", Colour.RED),
        duration=timedelta(minutes=1),
        params={"t": range(3), "c": [Colour.RED]},
        nodes=None,  # type: ignore[arg-type]
    )
    start = Rule(trigger="start", action=Action(name="submit", label="a"))
    ensemble = Ensemble(name="demo", jobs=[job], rules=(start,), rate_window=timedelta(seconds=5))
    assert ensemble.document["jobs"] == [
        {
            "name": "a",
            "command": ["echo", "/x", "{t}", "red"],
            "duration": 60.0,
            "params": {"t": {"range": [0, 3, 1]}, "c": ["red"]},
        }
    ]
    assert ensemble.document["rate-window"] == 5.0
    assert ensemble.validate() == []
    # The types are the plain ones.
    assert type(ensemble.document["jobs"][0]["params"]["c"][0]) is str


def test_numbers_of_numpy_become_plain_data() -> None:
    numpy = pytest.importorskip("numpy")
    job = Job(
        name="a", command="x {t}", params={"t": numpy.linspace(0, 1, 3)}, count=numpy.int64(2)
    )
    assert Ensemble(name="d", jobs=[job]).document["jobs"][0] == {
        "name": "a", "command": "x {t}", "params": {"t": [0.0, 0.5, 1.0]}, "count": 2,
    }  # fmt: skip


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, b"x", 2**70])
def test_what_no_document_can_hold_is_refused(value: Any) -> None:
    ensemble = Ensemble(name="demo", jobs=[Job(name="a", command="x", params={"t": value})])
    for use in (ensemble.validate, ensemble.to_yaml, ensemble.simulate):
        with pytest.raises(DocumentError, match=r"jobs\[0\].params.t"):
            use()


def test_to_import_the_package_imports_nothing_heavy() -> None:
    script = "import sys, flux_ensemble; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    ours = {name for name in done.stdout.split() if name.startswith("flux_ensemble")}
    assert ours == {"flux_ensemble", "flux_ensemble.entries"}
    assert not {"yaml", "asyncio", "jsonschema", "rich"} & set(done.stdout.split())
