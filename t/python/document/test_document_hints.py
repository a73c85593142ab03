"""What is said to who writes something as it is written elsewhere: the remedy, in the sentence."""

from __future__ import annotations

import pytest

from flux_ensemble.document.loading import load_text
from flux_ensemble.document.problems import DocumentError

DOCUMENT = """\
jobs:
- {{name: a, command: "echo {{x}}", params: {{x: {values}}}{more}}}
rules:
- {{trigger: start, action: {{name: submit, label: a}}}}
- {rule}
"""

RULE = "{trigger: job-fail, action: {name: submit, label: a}}"


def refusal(rule: str = RULE, values: str = "[1, 2]", more: str = "") -> str:
    with pytest.raises(DocumentError) as caught:
        load_text(DOCUMENT.format(rule=rule, values=values, more=more), name="demo")
    return str(caught.value)


def when(condition: str, trigger: str = "job-fail") -> str:
    return f"trigger: {trigger}\n  when: {condition}\n  action: {{name: submit, label: a}}"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("> 5", 'put a comparison in quotes: when: "> 5"'),
        (">= count.a.failed", 'put a comparison in quotes: when: ">= count.a.failed"'),
        ("%x", 'put the value in quotes: when: "%x"'),
        ("@x", 'put the value in quotes: when: "@x"'),
        ("| x", 'put the value in quotes: when: "| x"'),
        ("`x`", 'put the value in quotes: when: "`x`"'),
    ],
)
def test_a_value_in_braces_that_yaml_does_not_take_has_a_remedy(value: str, said: str) -> None:
    action = "action: {name: submit, label: a}"
    for rule in (f"{{{action}, trigger: metric, when: {value}}}", f"{{when: {value}, {action}}}"):
        with pytest.raises(DocumentError) as caught:
            load_text(f"jobs: [{{name: a, command: x}}]\nrules:\n- {rule}\n", name="demo")
        assert f"3: malformed YAML: found character that cannot start any token ({said})" in str(
            caught.value
        )


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        # YAML takes these for something of its own.
        ("> 5", 'put a comparison in quotes: when: "> 5"'),
        (">= 5", 'put a comparison in quotes: when: ">= 5"'),
        (">5", 'put a comparison in quotes: when: "> 5"'),
        ("!= 5", "text that begins with '!' is put in quotes"),
        ("!job.copied", "text that begins with '!' is put in quotes"),
        # Other languages.
        ("count.a.success > 1 && job.id > 1", "write 'and' for '&&'"),
        ("count.a.success > 1 || job.id > 1", "write 'or' for '||'"),
        ("count.a.success = 1", "write '==' to compare"),
        ("count.a.success => 1", "write '>=' for '=>'"),
        ("count.a.success <> 1", "write '!=' for '<>'"),
        ("count.a.success ≥ 1", "write '>=' for '≥'"),
        ("count.a.failed / count.a.finished > 50%", "write 0.5 for '50%'"),
        ("job.params.x ^ 2 > 4", "a power is written as x ** 2"),
        ("job.params.x is 3", "write '==' for 'is'"),
        ("if job.params.x > 3", "leave out 'if'"),
        ("'{job.params.x} > 3'", "an expression has no braces: write job.params.x"),
        # Durations.
        ("job.runtime > 30min", "write 1800 for '30min', in seconds"),
        ("job.runtime > 1h30m", "write 5400 for '1h30m', in seconds"),
        ("job.runtime > 1:30:00", "write 5400 for '1:30:00', in seconds"),
        ("job.runtime > 2 hours and job.id > 1", "write 7200 for '2 hours', in seconds"),
        # Names.
        ("x > 3", "did you mean 'job.params.x'?"),
        ("params.x > 3", "did you mean 'job.params.x'?"),
        ("returncode == 3", "did you mean 'job.returncode'?"),
        ("job.outcome == failed", "text is written in quotes: 'failed'"),
        ("job.params.x == true", "write True"),
        # Braces that nothing fills in.
        ("n['a-duration[s={job.params.x}]'] == 2", "has braces, which nothing fills in"),
        ("mean['a-{job.memo.key}'] > 2", "or compare with job.memo.key itself"),
        ("job.memo.y == '{job.params.x}'", "write job.params.x without quotes and braces"),
    ],
)  # fmt: skip
def test_a_condition_as_it_is_written_elsewhere_gets_its_remedy(condition: str, said: str) -> None:
    assert said in refusal(when(condition))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"{x}"', "did you mean 'job.params.x'?"),
        ('"{params.x}"', "did you mean 'job.params.x'?"),
        ("{job.params.x}", "expected text with an expression, in quotes: '{job.params.x}'"),
        ('"{x:.2f}"', "there are no formats"),
        ('"{job.runtime > 5min}"', "write 300 for '5min', in seconds"),
    ],
)
def test_a_parameter_of_an_action_gets_its_remedy(value: str, said: str) -> None:
    action = f"{{name: submit, label: a, params: {{x: {value}}}}}"
    assert said in refusal(f"{{trigger: job-fail, action: {action}}}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("{1, 2}", "a list has brackets: [1, 2]"),
        ("{a, b}", "expected a list in brackets, [a, b], and not in braces"),
        ("{1: 2}", "put it in quotes"),
    ],
)
def test_values_in_braces_are_a_list_in_brackets(values: str, said: str) -> None:
    assert said in refusal(values=values)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("duration: 30min", "(write 30m)"),
        ("duration: 1:30:00", "(write 90m)"),
        ("duration: 1h30m", "(write 90m)"),
        ("duration: 1-00:00:00", "(write 1d)"),
        ("duration: 90 seconds", "(write 90s)"),
        ("nodes: {x}", 'put braces in quotes: "{x}"'),
        ("workdir: {x}", 'put braces in quotes: "{x}"'),
        ("retries: {times: 1, on: fail}", "did you mean 'failed'?"),
        ("retries: {times: 1, on: job.outcome == 'cancelled'}", "did you mean 'canceled'?"),
    ],
)
def test_a_key_of_a_group_as_it_is_written_elsewhere_gets_its_remedy(key: str, said: str) -> None:
    assert said in refusal(more=f", {key}")


def test_what_is_not_like_anything_gets_no_remedy() -> None:
    assert refusal(when("job.id ? 3")).endswith("not 'job.id ? 3'")
