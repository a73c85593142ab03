"""What a document can ask for is bounded, and so is what is said of it.

None of these tests takes long, and none measures time: without the bounds most of them run
until the limit of the suite, or out of memory.
"""

from __future__ import annotations

import ast
import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble import suggestions
from flux_ensemble.document import groups, jobspec, rules, schema, spec_reader, yaml_reader
from flux_ensemble.document.actions import MAX_OVERRIDES, parse_action
from flux_ensemble.document.job_sets import Group, JobSet
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.plain_data import MAX_CHARACTERS
from flux_ensemble.document.problems import MAX_MESSAGE, MAX_PROBLEMS, MAX_TEXT, Problems, TooMany
from flux_ensemble.document.rules import parse_rule
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.sweep import MAX_PARAMETERS, Sweep
from flux_ensemble.document.texts import MAX_TEXTS, MAX_WORD, split_command
from flux_ensemble.engine.engine import Engine
from flux_ensemble.metrics import expressions

JOB = "name: a\njobs: [{name: g, command: c}]\n"
TERMINATE = {"name": "terminate"}
V1 = (
    "{version: 1, resources: [{type: slot, count: 1, label: task, with: [{type: core, count: 1}]}],"
    " tasks: [{command: [app], slot: task, count: {per_slot: 1}}]}"
)


def refused(document: str | dict[str, Any], **given: Any) -> DocumentError:
    """The error of a document that is refused, which is never long."""
    load: Any = load_text if isinstance(document, str) else load_mapping
    with pytest.raises(DocumentError) as caught:
        load(document, name="a", **given)
    error = caught.value
    assert len(str(error).encode()) <= MAX_TEXT
    assert len(error.problems) <= MAX_PROBLEMS
    return error


def sentences(document: str | dict[str, Any], **given: Any) -> list[str]:
    """What is said of a document that is refused."""
    return str(refused(document, **given)).splitlines()


# -- what is said -----------------------------------------------------------------------


def labels(groups: int, rules: int) -> str:
    """A document whose rules all misspell their job group."""
    return "".join(
        [
            "jobs:\n",
            *(f"- {{name: group-number-{number}, command: c}}\n" for number in range(groups)),
            "rules:\n",
            *(
                f"- {{trigger: start, action: {{name: submit, label: group-numbr-{number}}}}}\n"
                for number in range(rules)
            ),
        ]
    )


def test_of_many_problems_the_first_are_told_and_that_there_are_more() -> None:
    error = refused(labels(2, 5000), file="d.yaml")
    assert len(error.problems) == MAX_PROBLEMS
    lines = str(error).splitlines()
    assert lines[0] == (
        "d.yaml:5: rules[0].action.label: no job group named 'group-numbr-0' (did you mean "
        "'group-number-0'? groups: group-number-0, group-number-1)"
    )
    assert lines[MAX_PROBLEMS:] == ["d.yaml: there are more problems than these"]


def test_as_many_problems_as_are_told_are_all_of_them() -> None:
    error = refused(labels(2, MAX_PROBLEMS))
    assert len(str(error).splitlines()) == len(error.problems) == MAX_PROBLEMS


def test_names_that_were_meant_are_looked_for_in_the_first_problems_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def counted(name: str, *more: Any) -> list[str]:
        looked.append(name)
        return difflib.get_close_matches(name, *more)

    monkeypatch.setattr(suggestions, "get_close_matches", counted)
    refused(labels(3000, 3000))
    assert 0 < len(looked) <= MAX_PROBLEMS + 1


@pytest.mark.parametrize(
    "text",
    [
        f"{JOB}x: [{'.inf, ' * 20_000}]",
        f"{JOB}rules: [{'{}, ' * 20_000}]",
        f"{JOB}rules: [{'{trigger: strt, action: {nme: submt}}, ' * 5_000}]",
        "".join(f"{number}: 1\n" for number in range(20_000)),
        "".join(f"key{number}: 1\n" for number in range(20_000)),
        f"jobs: [{'{name: g, command: [], environment: {a=: ~}}, ' * 2_000}]",
        f"{JOB}simulate: {{g: {{duration: [{'x, ' * 20_000}]}}}}",
        f"{JOB}simulate: {{{''.join(f'g{number}: {{}}, ' for number in range(5_000))}}}",
        f"jobs: [{{name: g, jobspec: {{version: 1, tasks: [{'{}, ' * 10_000}]}}}}]",
    ],
    ids=lambda text: text[-60:],
)
def test_problems_of_every_kind_are_bounded(text: str) -> None:
    assert refused(text).more


def test_a_long_text_is_not_repeated_in_what_is_said() -> None:
    long = "k" * 1_000_000
    for text in (
        f"? {long}\n: 1\n",
        f"{JOB}simulate:\n  ? {long}\n  : {{x: 1, y: 1}}\n",
        f"{JOB}x: !{long} 1\n",
        f"{JOB}x: *{long}\n",
        f"{JOB}x: &{long} [*{long}]\n",
        f"{JOB}x: [&k {long}]\ny: {{*k : 1, *k : 2}}\n",
        f"{JOB}rules: [{{id: a, trigger: start, name: {long}, action: {{name: {long}}}}}]",
        f"{JOB}rules: [{{trigger: start, action: {{name: submit, label: {long}}}}}]",
        f"{JOB}rules: [{{trigger: metric, name: {long}, action: {{name: terminate}}}}]",
        f"{JOB}metrics: [{long}]",
        f"{JOB}plugins: [{long}.]",
        f"jobs: [{{name: g, jobspec: {long}}}]",
        f"{JOB}custom: |\n  {long} = = 1\n",
    ):
        assert all(len(line) < 2 * MAX_MESSAGE for line in sentences(text))
    assert len(sentences(JOB + "x: 1\n", file="f" * 1_000_000)[0]) < 2 * MAX_MESSAGE


def test_what_a_function_returns_has_problems_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_text(JOB)
    compared: list[str] = []
    nearest = schema.nearest

    def counted(name: str, known: Iterable[str]) -> str | None:
        compared.append(name)
        return nearest(name, known)

    monkeypatch.setattr(schema, "nearest", counted)
    for parse in (
        lambda: parse_action({str(number): 1 for number in range(100_000)}, spec, []),
        lambda: parse_rule({str(number): 1 for number in range(100_000)}, spec, [], "x"),
    ):
        with pytest.raises(ValueError, match=r"there are more problems than these$") as caught:
            parse()
        assert len(str(caught.value)) <= MAX_TEXT
    # The service waits for that.
    assert len(compared) < 1000


def test_problems_of_a_part_are_taken_over_with_its_path() -> None:
    part, whole = Problems(), Problems()
    part.add(("b", 1), "wrong")
    whole.take(part, ("a",))
    assert [problem.path for problem in whole.listed()] == ["a.b[1]"]
    assert whole.blames(("a", "b"))
    assert not whole.full
    part.full = True
    with pytest.raises(TooMany):
        whole.take(part, ("c",))
    assert whole.full


def test_a_name_that_cannot_be_encoded_is_escaped_where_it_is_listed() -> None:
    jobs = [{"name": "\ud800", "command": "c"}, {"name": "a\nb", "command": "c"}]
    rules = [{"trigger": "start", "action": {"name": "submit", "label": "x"}}]
    assert sentences({"jobs": jobs, "rules": rules})[2].endswith(r"(groups: 'a\nb', '\ud800')")


def test_an_integer_that_python_cannot_print_is_no_reason_to_fail() -> None:
    mapping: dict[Any, Any] = {"jobs": [], 10**5000: 1}
    assert sentences(mapping)[0] == (
        "document: expected a key that is text, not an integer of 16610 bits"
    )


# -- how large it is --------------------------------------------------------------------


def test_an_alias_counts_as_all_the_text_that_it_stands_for() -> None:
    text = f"jobs:\n- {{name: g, command: [&t {'x' * 100_000}, {'*t, ' * 10}]}}\n"
    assert len(load_text(text, name="a").groups["g"].sets[0].command) == 11
    wanted = f"document:1: expected at most {MAX_CHARACTERS} characters of text"
    assert sentences(text.replace("*t, ", "*t, " * 10_000)) == [wanted]
    keys = "".join(f"- {{*k : 1, name: g{number}}}\n" for number in range(20_000))
    assert sentences(f"x: [&k {'k' * 1000_000}]\njobs:\n{keys}") == [wanted]


class Counted(dict[str, Any]):
    """A mapping that counts how often it is asked for a key."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        Counted.asked += 1
        return super().__contains__(key)


def test_the_form_of_what_aliases_repeat_is_checked_once() -> None:
    def asked(times: int) -> int:
        Counted.asked = 0
        one = Counted(name="g", command="c")
        found = Problems()
        checked = check_form("document", {"jobs": [one] * times}, found)
        assert checked == {"jobs": [one] * times}
        assert not found
        return Counted.asked

    assert 0 < asked(1) == asked(1000)


def test_what_aliases_repeat_is_a_problem_wherever_it_stands() -> None:
    text = "jobs:\n- &g {name: g, command: c, count: x}\n- {name: h, command: c}\n- *g\n"
    assert sentences(text) == [
        f"document:{line}: jobs[{place}].count: expected an integer >= 1, not 'x'"
        for line, place in ((2, 0), (2, 2))
    ]


def test_an_expression_that_is_repeated_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = Mock(side_effect=ast.parse)
    monkeypatch.setattr(ast, "parse", parse)
    texts = ("often.a + 17 > 2", "often.a + 18 > 2")
    found = [expressions.compile_expression(text, len).variables for text in texts * 3]
    again = expressions.compile_expression(texts[0], ".".join).variables
    assert [call.args[0] for call in parse.call_args_list] == list(texts)
    # What a name stands for is not kept with the text.
    assert found == [{2}] * 6
    assert again == {"often.a"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: x" + " " * 5000 + "y\n", "1: expected at most 4096 blanks in a row, not 5000"),
        ("a: x\nb: 'x\t" + " \t" * 2500 + "'\n", "2: expected at most 4096 blanks in a row"),
        ("a: x" + "\n" * 5000 + "  y\n", "1: expected at most 4096 empty lines in a row, not 5000"),
        ("a: x" + "\n \t" * 5000 + "y\n", "1: expected at most 4096 empty lines in a row"),
        ("a: x" + "\r\n" * 5000 + "  y\n", "1: expected at most 4096 empty lines in a row"),
    ],
)
def test_rows_of_blanks_for_which_the_parser_would_take_too_long_are_refused(
    text: str, problem: str
) -> None:
    with pytest.raises(DocumentError) as error:
        load_text(text + "na " * 100_000)
    assert str(error.value).startswith(f"document:{problem}")


def test_rows_of_blanks_that_people_write_are_read() -> None:
    assert load_text(f"{' ' * 4096}\n{JOB}{chr(10) * 4000}").name == load_text(JOB).name


def test_a_document_has_few_tag_directives() -> None:
    text = "".join(f"%TAG !a{number}! tag:a\n" for number in range(180_000)) + f"---\n{JOB}"
    wanted = f"document: a document has at most {yaml_reader.MAX_DIRECTIVES} %TAG directives"
    assert sentences(text) == [wanted]
    assert load_text(f"%YAML 1.1\n%TAG !a! tag:a\n---\n{JOB}").name == "a"


# -- commands ---------------------------------------------------------------------------

texts = st.text(st.sampled_from(" \t\r\n'\"\\abé\x0b\u2003$#"), max_size=14)


@given(texts | st.text(max_size=8))
def test_a_command_is_split_as_shlex_does(text: str) -> None:
    try:
        expected: list[str] | str = shlex.split(text) or "expected a command of at least one word"
    except ValueError as error:
        expected = str(error).lower()
    try:
        found: list[str] | str = split_command(text)
    except ValueError as error:
        found = str(error)
    if isinstance(found, str) and isinstance(expected, str):
        assert found.endswith(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "x" * 4_000_000,
        f'"{"x" * 4_000_000}"',
        "\\x" * 200_000,
        "'x'" * 100_000,
        '""' * 200_000,
    ],
    ids=["plain", "quoted", "escaped", "parts", "empty parts"],
)
def test_a_long_word_takes_no_longer_than_many_words(text: str) -> None:
    assert split_command(text) == [text.replace('"', "").replace("'", "").replace("\\", "")]


def test_the_words_of_a_command_are_not_too_many() -> None:
    assert sentences(f"jobs: [{{name: g, command: {'x ' * 300_000}}}]") == [
        "document:1: jobs[0].command: expected a command of at most 250000 words, not 300000"
    ]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"command": "x" * (MAX_WORD + 1)}, "a word of a command"),
        ({"command": ["a", "x" * (MAX_WORD + 1)]}, "a word of a command"),
        ({"command": ["é" * (MAX_WORD // 2 + 1)]}, "a word of a command"),
        ({"command": ["a"], "environment": {"A": "x" * (MAX_WORD - 1)}}, "an environment variable"),
        ({"command": ["a"], "workdir": "x" * (MAX_WORD + 1)}, "a path in 'workdir'"),
        ({"command": ["a"], "output": "x" * (MAX_WORD + 1)}, "a path in 'output'"),
        ({"command": ["a"], "error": "x" * (MAX_WORD + 1)}, "a path in 'error'"),
        ({"jobspec": {"version": 1, "tasks": [{"command": ["x" * (MAX_WORD + 1)]}]}},
         "a word of a command"),
    ],
)  # fmt: skip
def test_a_text_with_which_no_program_can_be_started_is_refused(
    entry: dict[str, Any], what: str
) -> None:
    assert sentences({"jobs": [{"name": "g", **entry}]}) == [
        f"document: jobs[0]: expected {what} of at most {MAX_WORD} bytes, not {MAX_WORD + 1}"
    ]


def test_the_longest_word_and_variable_are_those_of_the_kernel() -> None:
    entry = {"name": "g", "command": ["x" * MAX_WORD], "environment": {"A": "x" * (MAX_WORD - 2)}}
    (one,) = load_mapping({"jobs": [entry]}, name="a").groups["g"].sets
    assert len(one.command[0]) == MAX_WORD


def test_what_parameters_make_of_a_text_is_counted() -> None:
    word = "{p}" * 1000
    entry = {"name": "g", "command": [word, "{q}{{p}}"], "params": {"p": ["x", "é" * 100]}}
    assert sentences({"jobs": [entry]}) == [
        f"document: jobs[0]: expected a word of a command of at most {MAX_WORD} bytes, not 200000"
    ]
    assert load_mapping({"jobs": [{**entry, "params": {"p": "x" * 100, "q": 1}}]}, name="a")
    entry = {"name": "g", "command": ["{p}"] * 1000, "params": {"p": {"range": [0, 10**6]}}}
    assert load_mapping({"jobs": [entry]}, name="a")
    assert sentences({"jobs": [{**entry, "params": {"p": "x" * 10_000}}]}) == [
        f"document: jobs[0]: expected a command and an environment of at most {MAX_TEXTS} bytes, "
        f"not 10000000"
    ]


def test_what_an_overridden_parameter_makes_of_a_text_is_counted() -> None:
    entry = {"name": "g", "command": ["{p}" * 1000], "params": {"p": 1}}
    group = load_mapping({"jobs": [entry]}, name="a").groups["g"]
    assert len(group.submission(None, {"p": [1, "x" * 100]})) == 2
    with pytest.raises(ValueError, match=f"of at most {MAX_WORD} bytes, not 200000"):
        group.submission(None, {"p": ["x" * 200]})


def test_the_words_of_a_command_that_is_named_often_are_split_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split: list[str] = []

    def counted(text: str) -> list[str]:
        split.append(text)
        return split_command(text)

    monkeypatch.setattr(groups, "split_command", counted)
    text = "jobs:\n- {name: a, command: &c x}\n" + "- {name: b, command: *c}\n" * 1000
    assert len(load_text(text, name="a").groups["b"].sets) == 1000
    assert split == ["x"]


# -- submissions ------------------------------------------------------------------------


def test_a_group_of_many_job_sets_submits_without_looking_at_each() -> None:
    group = Group("g", tuple(JobSet("g", number, count=number % 3 + 1) for number in range(1000)))
    assert group.submission() is group.submission()
    for count in (None, 1, 7):
        submission = group.submission(count)
        expected = [one.index for one in group.sets for _ in range(count or one.count)]
        assert [one.index for one, _ in submission] == expected
        assert [size for _, size in submission.sizes] == [count or one.count for one in group.sets]


def test_a_group_of_many_job_sets_and_many_rules_that_submit_it_load() -> None:
    many = "- {name: g, command: c}\n" * 5_000
    submit = "- {trigger: start, action: {name: submit, label: g, count: 2}}\n" * 5_000
    spec = load_text(f"jobs:\n{many}rules:\n{submit}", name="a")
    assert len(spec.groups["g"].submission(2)) == 10_000


def test_overrides_of_parameters_are_counted_for_each_job_set() -> None:
    many = "- {name: g, command: c, params: {x: 1}}\n" * 1000
    submit = "- {trigger: start, action: {name: submit, label: g, params: {x: 2}}}\n" * 1000
    assert sentences(f"jobs:\n{many}rules:\n{submit}")[0] == (
        "document:1103: rules[100].action.params: rules give parameters to more than "
        f"{MAX_OVERRIDES} job sets in all"
    )


def test_the_parameters_of_a_sweep_are_not_too_many() -> None:
    entry = {"name": "g", "command": "c", "params": {f"p{number}": 1 for number in range(50_000)}}
    assert sentences({"jobs": [entry]}) == [
        f"document: jobs[0].params: expected at most {MAX_PARAMETERS} parameters, not 50000"
    ]


def test_combinations_that_python_cannot_print_are_refused_in_a_sentence() -> None:
    sweep = Sweep({f"p{number}": range(2**62) for number in range(1000)})
    with pytest.raises(ValueError, match="not an integer of 62001 bits"):
        sweep.check()


# -- rules ------------------------------------------------------------------------------


def test_a_condition_that_many_rules_have_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[Any] = []
    compile_condition = rules.compile_condition

    def counted(when: float | str, names: Any) -> Any:
        compiled.append(when)
        return compile_condition(when, names)

    monkeypatch.setattr(rules, "compile_condition", counted)
    rule = {"trigger": "job-success", "when": "count.g.success > 1", "action": TERMINATE}
    spec = load_mapping({"jobs": [{"name": "g", "command": "c"}], "rules": [rule] * 100}, name="a")
    assert compiled == ["count.g.success > 1"]
    states = Engine(spec).rules.states.values()
    assert len({id(state.condition) for state in states}) == 1


def test_a_metric_of_many_hyphens_is_no_search_without_end() -> None:
    path = "mean." + "g-" * 500_000
    rule = {"trigger": "metric", "name": path, "when": 1, "action": TERMINATE}
    jobs = [{"name": "g", "command": "c"}, {"name": "h", "command": "c"}]
    (found,) = load_mapping({"jobs": jobs, "rules": [rule]}, name="a").rules
    assert found.name == path
    rule["name"] = "mean." + "i-" * 500_000
    assert sentences({"jobs": jobs, "rules": [rule]})[0].startswith("document: rules[0].name: no ")


def test_known_names_are_not_all_listed_for_a_metric() -> None:
    jobs = [{"name": f"g{number:03}", "command": "c"} for number in range(100)]
    rule = {"trigger": "metric", "name": "count.h.success", "when": 1, "action": TERMINATE}
    (sentence,) = sentences({"jobs": jobs, "rules": [rule]})
    assert sentence.endswith(", g059, and 40 more)")


def test_rules_on_foreign_jobs_of_one_name_leave_one_by_one() -> None:
    action = {"name": "terminate"}
    rule = {"trigger": "job-success", "scope": "queue", "group": "theirs", "action": action}
    every = {"trigger": "job-fail", "scope": "queue", "action": action}
    spec = load_mapping({"rules": [rule, rule, every]}, name="a")
    index = Engine(spec).rules
    one, two, three = index.states.values()
    assert index.wants_job("other")
    index.retire(three)
    assert index.wants_job("theirs")
    assert not index.wants_job("other")
    index.retire(one)
    index.retire(one)
    assert index.wants_job("theirs")
    index.retire(two)
    assert not index.wants_job("theirs")


def test_a_rule_that_a_function_returns_can_name_itself() -> None:
    spec = load_text(JOB)
    rule = parse_rule(
        {"id": "own", "trigger": "start", "action": {"name": "disable", "label": "own"}},
        spec, ["rule-0"], "rule-1",
    )  # fmt: skip
    assert rule.action.label == "own"
    with pytest.raises(ValueError, match=r"no rule with the id 'x' \(ids: rule-0, rule-1\)"):
        parse_rule(
            {"trigger": "start", "action": {"name": "disable", "label": "x"}},
            spec, ["rule-0"], "rule-1",
        )  # fmt: skip


def test_the_statistics_of_all_groups_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_reader, "MAX_KEPT", 6000)
    jobs = [{"name": f"g{number}", "command": "c"} for number in range(1001)]
    wanted = (
        "expected at most 6000 statistics in all, each counted for each group, and once more for "
        "each 50 values of its window, not"
    )
    assert load_mapping({"jobs": jobs[:1000]}, name="a")
    assert sentences({"jobs": jobs}) == [f"document: jobs: {wanted} 6006"]
    window = {"statistic": "rolling_max", "name": "w", "window_size": 100_000}
    assert load_mapping({"jobs": jobs[:2], "metrics": [window]}, name="a")
    assert sentences({"jobs": jobs[:3], "metrics": [window]}) == [
        f"document: metrics: {wanted} 6021"
    ]


# -- jobspecs ---------------------------------------------------------------------------


def test_counts_that_multiply_beyond_what_flux_can_count_are_refused() -> None:
    resources = "{type: slot, count: 1, label: task}"
    for _ in range(20):
        resources = f"{{type: node, count: 2147483647, with: [{resources}]}}"
    text = V1.replace(V1[V1.index("[") + 1 : V1.index("], tasks")], resources)
    (line, _) = sentences(f"jobs: [{{name: g, jobspec: {text}}}]")
    assert line.startswith("document:1: jobs[0].jobspec: expected at most 2147483647 nodes, not 4")


def test_a_file_that_many_entries_name_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str | None] = []
    read_yaml = jobspec.read_yaml

    def counted(text: str, file: str | None = None) -> Any:
        read.append(file)
        return read_yaml(text, file)

    monkeypatch.setattr(jobspec, "read_yaml", counted)
    (tmp_path / "one.yaml").write_text(V1)
    (tmp_path / "bad.yaml").write_text("a: 1\n")
    entries = "".join(f"- {{name: g{number}, jobspec: one.yaml}}\n" for number in range(1000))
    spec = load_text(f"jobs:\n{entries}", name="a", directory=str(tmp_path))
    assert len(spec.groups) == 1000
    assert read == ["one.yaml"]
    found = sentences(f"jobs:\n{entries.replace('one', 'bad')}", directory=str(tmp_path))
    missing = "the key 'version' is missing"
    assert found[0] == f"document:2: jobs[0].jobspec: {missing}"
    assert sum(missing in line for line in found) > 40
    assert read == ["one.yaml", "bad.yaml"]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (f"{{version: 1, tasks: [{'{command: a}, ' * 200}]}}", "10000 values in files with "
         "jobspecs, and words and variables of the jobs in all jobspecs"),
        (f"[{'1, ' * 500}", "10000 values in files with jobspecs, and words and variables of the "
         "jobs in all jobspecs"),
        (f"# {'x' * 5000}\n{V1}", "100000 characters in files with jobspecs"),
    ],
)  # fmt: skip
def test_all_files_of_a_document_together_are_bounded(
    text: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_VALUES", 10_000)
    monkeypatch.setattr(groups, "MAX_CHARACTERS", 100_000)
    (tmp_path / "one.yaml").write_text(text)
    # Every one of these is the same file under another name.
    entries = "".join(
        f"- {{name: g{number}, jobspec: {'./' * number}one.yaml}}\n" for number in range(90)
    )
    lines = sentences(f"jobs:\n{entries}", directory=str(tmp_path))
    assert any(line.endswith(f": expected at most {limit}") for line in lines)
    assert not any("more problems" in line for line in lines)


def test_environments_of_tasks_do_not_multiply() -> None:
    variables = ", ".join(f"V{number}: b" for number in range(5_000))
    tasks = "{command: a}, " * 5_000
    for text in (
        f"jobs: [{{name: g, jobspec: {{version: 1, attributes: {{environment: {{{variables}}}}}, "
        f"tasks: [{tasks}]}}}}]",
        f"jobs: [{{name: g, environment: {{{variables}}}, "
        f"jobspec: {{version: 1, tasks: [{tasks}]}}}}]",
    ):
        assert sentences(text)[0] == (
            "document:1: jobs[0].jobspec: expected at most 250000 values in files with jobspecs, "
            "and words and variables of the jobs in all jobspecs"
        )


def test_resources_that_many_tasks_name_are_looked_at_once() -> None:
    cores = "{type: core, count: 4}, " * 10_000
    tasks = "{command: a, resources: one}, " * 10_000
    text = f"{{version: 1, resources: {{one: {{type: node, count: 2, with: [{cores}]}}}}, "
    spec = load_text(f"jobs: [{{name: g, jobspec: {text}tasks: [{tasks}]}}}}]", name="a")
    assert len(spec.groups["g"].sets) == 10_000


def test_a_parameter_that_many_distributions_name_is_looked_at_once() -> None:
    memo = "".join(f"k{number}: {{param: p}}, " for number in range(5_000))
    values = "1, " * 50_000
    text = (
        f"jobs: [{{name: g, command: c, params: {{p: [{values}]}}}}]\n"
        f"simulate: {{g: {{memo: {{{memo}}}}}}}"
    )
    assert len(load_text(text, name="a").simulate["g"].memo) == 5_000
