"""Warnings about documents that are valid, and not what was meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_text

ROOT = Path(__file__).parents[3]

START = "{trigger: start, action: {name: submit, label: a}}"


def found(jobs: str, rules: str = "", more: str = "") -> Warnings:
    """What is said of a document with these entries, after a rule that submits group a."""
    warnings = Warnings()
    text = f"jobs: [{jobs}]\nrules:\n  - {START}\n  - {rules}\n{more}\n".replace("  - \n", "")
    load_text(text, name="test", file="d.yaml", warnings=warnings)
    return warnings


@pytest.mark.parametrize(
    ("entry", "sentences"),
    [
        ("command: 'run {temprature}', params: {temperature: [1]}",
         ["d.yaml:1: jobs[0].command: '{temprature}' is left as it is "
          "(did you mean '{temperature}'?)"]),
        ("command: [run, '{seeds}'], params: {seed: [1]}, environment: {A: '{sead}'}",
         ["d.yaml:1: jobs[0].command: '{seeds}' is left as it is (did you mean '{seed}'?)",
          "d.yaml:1: jobs[0].environment.A: '{sead}' is left as it is (did you mean '{seed}'?)"]),
        ("command: x, output: 'out-{id}.txt'",
         ["d.yaml:1: jobs[0].output: '{id}' is left as it is "
          "(did you mean '{{id}}', which Flux fills in?)"]),
        ("command: 'run --log {id}.log'",
         ["d.yaml:1: jobs[0].command: '{id}' is left as it is "
          "(did you mean '{{id}}', which Flux fills in?)"]),
        ("command: 'run {id}', params: {id: [1]}", []),
        ("command: 'run {} {{id}} {{x}} {seed}', params: {seed: [1]}", []),
        # Programs have names of their own.
        ("command: [python, -c, 'seeds = 3; print(f\"{seeds} {seed}\")'], params: {seed: [1]}", []),
        ("command: [awk, '{prind $1}'], params: {print: [1]}", []),
    ],
)  # fmt: skip
def test_a_placeholder_that_is_nearly_one_has_a_warning(entry: str, sentences: list[str]) -> None:
    assert found(f"{{name: a, {entry}}}").warnings == sentences


@pytest.mark.parametrize(
    ("name", "more"),
    [("in.txt", ""), ("*.txt", " (no patterns: name each file, or their directory)")],
)
def test_an_input_that_is_missing_has_a_warning(name: str, more: str) -> None:
    (warning,) = found(f"{{name: a, command: x, workdir: w, inputs: ['/nowhere/{name}']}}").warnings
    missing = f"'/nowhere/{name}' does not exist, so these jobs would fail"
    assert warning == f"d.yaml:1: jobs[0].inputs[0]: {missing}{more}"


#: Rules none of which can submit the first job.
CIRCLES = (
    "{trigger: idle, group: a, action: {name: submit, label: a}}",
    "{trigger: idle, action: {name: submit, label: a}}",
    "{trigger: job-success, action: {name: submit, label: a}}",
    "{trigger: idle, group: [a, b], action: {name: submit, label: b}}\n"
    "  - {trigger: job-start, group: b, action: {name: submit, label: a}}",
    "{trigger: metric, when: count.b.success > 0, action: {name: submit, label: a}}\n"
    "  - {trigger: anomaly, name: a-duration, detector: {quantile: {q: 0.9}},\n"
    "     action: {name: submit, label: b}}",
)


def test_the_rule_that_would_begin_submits_what_is_waited_for() -> None:
    warnings = Warnings()
    rule = "{trigger: idle, group: a, action: {name: submit, label: b}}"
    text = f"jobs: [{{name: b, command: x}}, {{name: a, command: x}}]\nrules: [{rule}]\n"
    load_text(text, name="test", file="d.yaml", warnings=warnings)
    first, second = warnings.warnings
    assert first.startswith(
        "d.yaml:2: rules: no rule can submit the first job, because jobs of group 'a' are waited "
        "for, and no rule submits those"
    )
    assert first.endswith("'{trigger: start, action: {name: submit, label: a}}'")
    assert "the rule waits for jobs of group 'a', and no rule submits that" in second


@pytest.mark.parametrize("rules", CIRCLES)
def test_rules_none_of_which_can_begin_have_a_warning(rules: str) -> None:
    warnings = Warnings()
    text = f"jobs: [{{name: a, command: x}}, {{name: b, command: x}}]\nrules:\n  - {rules}\n"
    load_text(text, name="test", file="d.yaml", warnings=warnings)
    (warning,) = warnings.warnings
    assert warning.startswith("d.yaml:2: rules: no rule can submit the first job, because each ")
    for more in (
        "finish: never",
        "  - {trigger: timer, after: 1, action: {name: custom, label: f}}\n"
        "custom: 'def f(**_): pass'",
    ):
        warnings = Warnings()
        load_text(text + more, name="test", file="d.yaml", warnings=warnings)
        assert not [one for one in warnings.warnings if "first job" in one]


def test_rules_that_only_wait_for_each_other_have_a_warning() -> None:
    jobs = "{name: a, command: x}, {name: b, command: x}, {name: c, command: x}"
    rules = (
        "{trigger: idle, group: b, action: {name: submit, label: c}}\n"
        "  - {trigger: job-success, group: c, action: {name: submit, label: b, "
        "repetitions: unlimited}}"
    )
    told = (
        "the rule waits for jobs of group {!r}, and only rules that wait for such jobs submit that"
    )
    assert found(jobs, rules).warnings == [
        f"d.yaml:4: rules[1]: {told.format('b')}", f"d.yaml:5: rules[2]: {told.format('c')}",
    ]  # fmt: skip
    begins = "\n  - {trigger: metric, when: count.a.success > 2, action: {name: submit, label: b}}"
    assert found(jobs, rules + begins).warnings != []
    begins = "\n  - {trigger: job-fail, group: a, action: {name: submit, label: b}}"
    assert found(jobs, rules + begins).warnings == []


def test_a_generator_that_is_nowhere_here_has_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = """\
search:
  - {id: s, group: a, variables: {x: {low: 0, high: 1}}, minimize: y, trials: 2,
     generator: "learnt.here:Learner"}
jobs: [{name: a, command: run}]
rules: [{trigger: start, action: {name: search, label: s}}]
"""

    def sentences() -> list[str]:
        warnings = Warnings()
        load_text(searched, name="test", file="d.yaml", directory=str(tmp_path), warnings=warnings)
        return [one for one in warnings.warnings if "learnt" in one]

    assert sentences() == [
        "d.yaml:3: search[0].generator: there is no module 'learnt' beside the document, in "
        "PYTHONPATH or where flux-ensemble is installed"
    ]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "learnt.py").touch()
    assert sentences() == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("command: 'run {T}', params: {t: [1]}", "'{T}' is left as it is (did you mean '{t}'?)"),
        ("command: 'run {t', params: {t: [1]}", "'{t' is left as it is (its brace is not closed: "),
        ("command: [sh, -c, 'a {t; b {s}'], params: {t: 1, s: 1}", "'{t' is left as it is (its"),
        ("command: [run, '{ t}'], params: {t: [1]}", "'{ t}' is left as it is (write '{t}')"),
        ("command: [run, '{a b}'], params: {a_b: [1]}", "'{a b}' is left as it is (write '{a_b}')"),
        ("command: 'run {T}'", "'{T}' is left as it is: no parameter is called so"),
        ("command: 'run --t={x}', params: {t: [1]}", "no parameter is called so (parameters: t)"),
        ("command: [run, '{x}.log'], params: {t: [1]}", "no parameter is called so"),
        ("command: 'run {params.t}', params: {t: [1]}", "'{params.t}' is left as it is"),
        ("command: [sh, -c, 'run {job.params.t} | x'], params: {t: [1]}", "(write '{t}')"),
        ("command: 'run {job.index}'", "(write '{index}')"),
        ("command: 'run {index+1}'", "write '{index}', and compute with it in the program"),
        ("command: 'run {t:.2f}', params: {t: [1]}", "there are no formats here: write '{t}'"),
        ("command: [run, '{t + 1}'], params: {t: [1]}", "nothing is computed here: write '{t}'"),
        ("command: 'run {t + 1} {t}', params: {t: [1]}", "'{t + 1}' is left as it is (nothing is"),
        ("command: 'run {x}', params: {file: s.csv, limit: 5}", "{x: {file: s.csv, limit: 5}}"),
        ("command: x, environment: {SEED: '{sead}'}", "environment.SEED: '{sead}' is left"),
        ("command: x, queue: '{q}', params: {t: [1]}", "jobs[0].queue: '{q}' is left as it is"),
        ("command: x, workdir: 'runs/{job.id}'", "expressions in braces are for actions of rules"),
        ("command: x, attributes: {user: {a: '{b}'}}", "jobs[0].attributes: '{b}' is left"),
        ("command: x, params: {t: '{count.a.submitted}'}", "of braces only '{index}'"),
        ("command: x, params: {t: 'range(0, 5)'}", "for several write {range: [0, 5]}"),
        ("command: x, params: {t: [0..5]}", "'0..5' is one value, a text"),
    ],
)  # fmt: skip
def test_a_brace_that_is_no_parameter_has_a_warning(entry: str, said: str) -> None:
    (warning,) = found(f"{{name: a, {entry}}}").warnings
    assert said in warning


@pytest.mark.parametrize(
    "entry",
    [
        "command: [awk, '{print $1}']",
        "command: \"awk '{print}' x\"",
        "command: [jq, '{name}', x.json]",
        "command: [python, -c, 'print(f\"{x:.2f}\")'], params: {x: [1]}",
        "command: [curl, -d, '{\"a\": {\"b\": 1}}', host]",
        "command: [run, '{\"t\": {t}}'], params: {t: [1]}",
        "command: [sh, -c, '{ x ; }'], params: {x: [1]}",
        "command: [sh, -c, 'for i in {1..3}; do f() { run $i; }; done']",
        "command: 'run {index} {number} {attempt} {{id}} {{x}}', environment: {A: '${x}'}",
        "command: x, environment: {CONFIG: '{\"x\": 1}'}",
        "command: x, params: {t: [fast, '{index}', 'run-{index}', 1-5, '{{x}}']}",
    ],
)  # fmt: skip
def test_braces_that_may_be_meant_have_none(entry: str) -> None:
    assert found(f"{{name: a, {entry}}}").warnings == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("count: 4, output: out.txt", "jobs[0].output: 4 jobs write to this file"),
        ("count: 4, error: err.txt", "jobs[0].error: 4 jobs write to this file"),
        ("output: out.txt, params: {t: [1, 2]}", "2 jobs write to this file"),
        ("output: '{t}.txt', params: {t: [1, 2], s: [1, 2, 3]}", "3 jobs write to this file"),
        ("output: '{t}.txt', params: {t: [1, 1]}", "2 jobs write to this file"),
        ("output: '{{name}}.txt', count: 2", "2 jobs write to this file"),
        ("output: out.txt, retries: 3", "each attempt of a job begins the file"),
        ("output: '{attempt}', params: {attempt: 1}, retries: 3", "each attempt of a job begins"),
    ],
)
def test_a_file_that_is_written_more_than_once_has_a_warning(entry: str, said: str) -> None:
    (warning,) = found(f"{{name: a, command: x, {entry}}}").warnings
    assert said in warning


def test_two_groups_with_one_file_have_a_warning() -> None:
    entries = ", ".join(f"{{name: {name}, command: x, output: out.txt}}" for name in "ab")
    (warning,) = found(entries, "{trigger: idle, action: {name: submit, label: b}}").warnings
    assert "jobs[1].output: jobs[0] writes to the same file" in warning


@pytest.mark.parametrize(
    "entry",
    [
        "count: 4, output: 'out-{{id}}.txt', retries: 2",
        "count: 4, output: 'out-{index}.txt'",
        "count: 4, output: 'out-{number}.txt'",
        "count: 4, output: 'out-{index}-{attempt}.txt', retries: 2",
        "count: 4, output: 'out-{n}.txt', params: {n: '{index}'}",
        "output: '{t}-{s}.txt', params: {t: [1, 2], s: [1, 2]}",
        "output: '{t}.txt', params: {t: [1, 2], s: [5, 6]}, sweep: zip",
        "count: 4, output: none, error: kvs",
        "output: out.txt, error: out.txt",
        "count: 4, workdir: 'runs/{index}', output: out.txt",
        "workdir: 'runs/{t}', output: out.txt, params: {t: [1, 2]}",
    ],
)
def test_files_of_their_own_have_none(entry: str) -> None:
    assert found(f"{{name: a, command: x, {entry}}}").warnings == []


@pytest.mark.parametrize(
    ("entry", "rule", "said"),
    [
        ("count: 8, params: {seed: 1}", "", "8 jobs have the same 'seed' each time; '{index}' is"),
        ("count: 8, params: {rng-seed: [1, 2], t: 3}", "", "8 jobs have the same 'rng-seed'"),
        ("params: {i: 0}", "count: 8, params: {i: '{count.a.submitted}'}",
         "all 8 jobs of a submission have the same 'i'"),
        ("count: 8, params: {t: 0}", "params: {t: 'run-{count.a.finished + 1}'}",
         "all 8 jobs of a submission have the same 't'"),
    ],
)  # fmt: skip
def test_jobs_that_a_count_makes_equal_have_a_warning(entry: str, rule: str, said: str) -> None:
    action = f"{{name: submit, label: a, repetitions: unlimited, {rule}}}"
    rules = f"{{trigger: job-success, action: {action}}}" if rule else ""
    (warning,) = found(f"{{name: a, command: x, {entry}}}", rules).warnings
    assert said in warning


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ("count: 8", ""),
        ("count: 8, params: {t: [1, 2]}", ""),
        ("count: 8, params: {seed: '{index}'}", ""),
        ("count: 8, params: {seed: '{number}'}", ""),
        ("command: 'run {index}', count: 8, params: {seed: 5}", ""),
        ("params: {i: 0}", "count: 8, params: {i: '{index}'}"),
        ("count: 8, params: {i: 0}", "params: {i: '{index}'}"),
        ("params: {i: 0}", "params: {i: '{count.a.submitted}'}"),
        ("params: {t: 0}", "count: 8, params: {t: '{job.params.t}'}"),
        (
            "command: 'run {t} {index}', params: {t: 0}",
            "count: 8, params: {t: '{count.a.submitted}'}",
        ),
    ],
)
def test_jobs_that_are_not_equal_or_may_be_have_none(entry: str, rule: str) -> None:
    action = f"{{name: submit, label: a, repetitions: unlimited, {rule}}}"
    rules = f"{{trigger: job-success, action: {action}}}" if rule else ""
    command = "" if "command" in entry else "command: x, "
    assert found(f"{{name: a, {command}{entry}}}", rules).warnings == []


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("flux job memo $FLUX_JOB_ID fom=1", "$FLUX_JOB_ID"),
        ("run --out=${HOME}/x", "--out=${HOME}/x"),
        ('run "$x/y"', "$x/y"),
        ("run ${name}", "${name}"),
        ("run `hostname`", "`hostname`"),
        ("run *.txt", "*.txt"),
        ("run data/part-?.csv", "data/part-?.csv"),
        ("run ~/data", "~/data"),
        ("run --in=~/data", "--in=~/data"),
        ("run part{1..5}.txt", "part{1..5}.txt"),
        ("run {a,b}.txt", "{a,b}.txt"),
        ("run; check", "run;"),
        ("run &", "&"),
        ("run <in.txt", "<in.txt"),
        ("cd", "cd"),
        ("OMP_NUM_THREADS=4 run", "OMP_NUM_THREADS=4"),
        ("run | sort", "|"),
        ("make && make check", "&&"),
        ("run >out.txt", ">out.txt"),
        ("run 2> err.txt", "2>"),
    ],
)
def test_a_command_for_a_shell_that_none_runs_has_a_warning(command: str, word: str) -> None:
    entry = json.dumps({"name": "a", "command": command})
    assert found(entry).warnings == [
        f"d.yaml:1: jobs[0].command: '{word}' is left as it is: no shell runs the command; for one "
        "write [sh, -c, '...']"
    ]


@pytest.mark.parametrize(
    "command",
    [
        "'sh run.sh $HOME'",
        "'/bin/bash run.sh > out'",
        "[sh, -c, 'run | sort']",
        "[run, $HOME]",
        "'envsubst ''$HOME'''",
        "'run ${name} $1 $ a>b -> <x> find . -exec ls {} ;'",
        "'expr 1 < 2'",
        "'run ''*.txt'' ''$x'' \\$x'",
        "'run --pattern=*.txt 2*3 a?b what? #1 50% http://host/x?y=1 [0-9] a=b'",
        "'find . -name *.txt -exec ls {} ;'",
        "'ssh node7 cat ~/x'",
        "'mpirun -x A=b run'",
    ],
)
def test_a_command_that_may_be_meant_so_has_none(command: str) -> None:
    assert found(f"{{name: a, command: {command}}}").warnings == []


ANY = "action: {name: terminate}"


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (f"{{trigger: job-fail, group: b, {ANY}}}",
         "rules[1]: the rule waits for jobs of group 'b', and no rule submits that"),
        (f"{{trigger: idle, group: b, {ANY}}}",
         "rules[1]: the rule waits for jobs of group 'b', and no rule submits that"),
        (f"{{trigger: metric, name: count.b.success, when: 1, {ANY}}}",
         "rules[1].when: the rule waits for jobs of group 'b', and no rule submits that"),
        (f"{{trigger: metric, name: count.a.success, when: 6, {ANY}}}",
         "rules[1].when: 'count.a.success == 6' can never hold: the rules submit at most 5 jobs "
         "of group 'a'"),
        (f"{{trigger: metric, name: count.a.success, when: '> 5', {ANY}}}",
         "rules[1].when: 'count.a.success > 5' can never hold: the rules submit at most 5 jobs "
         "of group 'a'"),
        (f"{{trigger: job-success, when: '7 <= count.a.finished and mean[\"a-x\"] > 1', {ANY}}}",
         "rules[1].when: 'count.a.finished >= 7' can never hold: the rules submit at most 5 jobs "
         "of group 'a'"),
        (f"{{trigger: metric, name: count.a.failed, when: 2.5, {ANY}}}",
         "rules[1].when: 'count.a.failed == 2.5' can never hold: a counter is an integer >= 0"),
        (f"{{trigger: metric, name: count.a.gave-up, when: '> 0', {ANY}}}",
         "rules[1].when: 'count.a.gave-up > 0' can never hold: group 'a' has no 'retries', so no "
         "job of it gives up"),
        (f"{{trigger: metric, name: count.a.gave-up, when: 0, {ANY}}}", None),
        (f"{{trigger: metric, name: count.a.success, when: 5, {ANY}}}", None),
        (f"{{trigger: metric, name: count.a.success, when: '< 100', {ANY}}}", None),
        (f"{{trigger: metric, when: 'count.a.success >= 9 or count.a.failed > 1', {ANY}}}", None),
        (f"{{trigger: job-fail, group: b, scope: queue, {ANY}}}", None),
        ("{trigger: job-success, group: a, action: {name: submit, label: a, "
         "repetitions: unlimited}}", None),
    ],
)  # fmt: skip
def test_a_rule_that_can_never_fire_has_a_warning(rule: str, sentence: str | None) -> None:
    jobs = "{name: a, command: x, count: 5}, {name: b, command: y}"
    expected = [] if sentence is None else [f"d.yaml:4: {sentence}"]
    assert found(jobs, rule).warnings == expected


@pytest.mark.parametrize(
    "more",
    ["finish: never", "custom: 'def f(**event): pass'"],
)
def test_where_others_may_submit_there_is_no_warning(more: str) -> None:
    custom = "{trigger: start, action: {name: custom, label: f}}\n  - " if "def" in more else ""
    rule = f"{custom}{{trigger: job-fail, group: b, {ANY}}}"
    jobs = "{name: a, command: x}, {name: b, command: y}"
    assert found(jobs, rule, more).warnings == []


def test_retries_may_reach_a_count() -> None:
    rule = f"{{trigger: metric, name: count.a.failed, when: 2, {ANY}}}"
    assert found("{name: a, command: x, retries: 1}", rule).warnings == []
    assert found("{name: a, command: x}", rule).warnings != []


def test_a_document_whose_rules_submit_nothing_has_a_warning() -> None:
    warnings = Warnings()
    load_text("jobs: [{name: a, command: x}]", name="test", warnings=warnings)
    load_text("jobs: [{name: a, command: x}]\nfinish: never", name="test", warnings=warnings)
    assert warnings.warnings == [
        "document:1: no rule submits anything, so the ensemble ends as soon as it has started; add "
        "'rules: [{trigger: start, action: {name: submit, label: a}}]'"
    ]


def test_a_memo_key_that_is_not_simulated_has_a_note() -> None:
    rule = f"{{trigger: metric, name: mean.a-loss, when: '> 1', {ANY}}}"
    jobs = "{name: a, command: x}"
    assert found(jobs, rule).notes == []
    assert found(jobs, rule, "simulate: {a: {memo: {loss: 3}}}").notes == []
    assert found(jobs, rule, "simulate: {a: {memo: {los: 3}}}").notes == [
        "d.yaml:4: rules[1]: no simulated job publishes the memo key 'loss': 'simulate' does not "
        "say so of group 'a'"
    ]


@pytest.mark.parametrize(
    ("action", "noted"),
    [
        ("{name: submit, label: a, params: {x: '{job.params.x}'}}", True),
        ("{name: submit, label: a, params: trigger}", True),
        ("{name: cancel, jobs: trigger}", True),
        ("{name: submit, label: a, params: trigger, repetitions: 1}", False),
        ("{name: submit, label: a, params: trigger, repetitions: unlimited}", False),
        ("{name: submit, label: a}", False),
        ("{name: terminate, reason: 'x is {job.params.x}'}", False),
    ],
)
def test_a_rule_that_follows_up_the_first_job_alone_has_a_note(action: str, noted: bool) -> None:
    rule = f"{{trigger: job-finish, group: a, action: {action}}}"
    jobs = "{name: a, command: 'x {x}', params: {x: [1, 2]}}"
    note = (
        "d.yaml:4: rules[1]: fires once, so for the first such job alone: for each of them, write "
        "'repetitions: unlimited' in its action"
    )
    assert found(jobs, rule).notes == ([note] if noted else [])


def documents() -> list[tuple[str, str]]:
    """The examples, and the documents of the tests on Flux, with where they are."""
    texts = [(path.name, path.read_text()) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    for path in sorted((ROOT / "t").glob("*.t")):
        heredoc = r"cat >\S+\.yaml <<-?\\?(\w+)[^\n]*\n(.*?)^\t*\1$"
        for match in re.finditer(heredoc, path.read_text(), re.MULTILINE | re.DOTALL):
            text = re.sub(r"^\t*", "", match[2], flags=re.MULTILINE).replace("\\$", "$")
            texts.append((path.name, text))
    return texts


def test_the_documents_of_examples_and_tests_have_no_false_warning() -> None:
    warnings = Warnings()
    read = 0
    beside = str(ROOT / "examples")
    for name, text in documents():
        try:
            load_text(text, name="test", file=name, directory=beside, warnings=warnings)
            read += 1
        except DocumentError:
            # It is wrong on purpose, or is filled in by the shell.
            continue
    assert read > 50
    submits_nothing = "no rule submits anything, so the ensemble ends as soon as it has started"
    assert warnings.warnings == [
        "t1008-limits.t:5: rules[0]: the ensemble fails when this submits 11 jobs, because "
        "limits.jobs is 10; write 'limits: {jobs: 11}', or more",
        "t1021-output.t:2: jobs[0].output: 3 jobs write to this file, and each begins it anew: put "
        "'{{id}}', '{index}' or a parameter into its name",
        "t1022-why.t:15: rules[2].when: 'count.sim.success >= 3' can never hold: the rules submit "
        "at most 2 jobs of group 'sim'",
        f"t3302-odd-jobs.t:1: {submits_nothing}; add 'rules: [{{trigger: start, action: "
        "{name: submit, label: a}}]'",
    ]


def test_an_order_of_jobs_that_never_wait_is_warned_of() -> None:
    group = "{name: a, command: 'run {n}', params: {n: [1, 2]}, predict: [n], order: longest-first"
    assert found(f"{group}}}").warnings == [
        "d.yaml:1: jobs[0].order: makes no difference, since all jobs are in the queue at once; "
        "with 'max-active' others wait"
    ]
    assert found(f"{group}, max-active: 1}}").warnings == []
    # What no member has room for waits in the service.
    assert found(f"{group}}}", more="members: [{name: pool}]").warnings == []


def test_that_a_share_of_members_has_a_warning() -> None:
    assert found("{name: a, command: x}", more="share: 2").warnings == []
    assert found("{name: a, command: x}", more="members: [{name: p}]\nshare: 2").warnings == [
        "d.yaml:5: share: makes no difference: members are used by their own ensemble alone"
    ]


def test_that_a_pool_of_a_fixed_size_is_to_shrink_has_a_warning() -> None:
    job, shrink = "{name: a, command: x}", "{trigger: job-fail, action: {name: shrink, label: p}}"
    assert found(job, shrink, "members: [{name: p, count: 4}]").warnings == [
        "d.yaml:4: rules[1]: 'shrink' ends no member of 'p', which has 4 at least and at most; "
        "write 'count: {min: 1, max: 4}' there"
    ]
    there = found(job, shrink, "members: [{name: p, uri: 'ssh://host/run/flux/local'}]").warnings
    assert there == [
        "d.yaml:4: rules[1]: 'shrink' ends no member of 'p', an instance that is there already"
    ]
    assert found(job, shrink, "members: [{name: p, count: {min: 1, max: 4}}]").warnings == []


def test_a_uri_that_flux_alone_does_not_resolve_has_a_warning() -> None:
    job = "{name: a, command: x}"
    assert found(job, more="members: [{name: q}, {name: p, uri: 'http://x'}]").warnings == [
        "d.yaml:4: members[1].uri: Flux resolves no URI that begins with 'http:', unless a plugin "
        "of this site does: write local:///PATH, ssh://HOST/PATH, or the id of a job"
    ]
    for uri in (
        "f2Hu4Rn",
        "slurm:12",
        "ssh://h/run/flux/local",
        "local:///run/flux/local",
        "f1/f2",
    ):
        assert found(job, more=f"members: [{{name: p, uri: '{uri}'}}]").warnings == []


def test_a_submission_of_more_jobs_than_there_may_be_has_a_warning() -> None:
    job = "{name: a, command: 'x {n}', params: {n: {range: [0, 12]}}}"
    assert found(job, more="limits: {jobs: 11}").warnings == [
        "d.yaml:3: rules[0]: the ensemble fails when this submits 12 jobs, because limits.jobs is "
        "11; write 'limits: {jobs: 12}', or more"
    ]
    assert found(job, more="limits: {jobs: 12}").warnings == []


@pytest.mark.parametrize(
    ("members", "output", "notes"),
    [("{name: p, count: 2}", "'{{id}}'", 1), ("{name: p, count: 2}", "'{t}-{{id}}'", 0),
     ("{name: p}", "'{{id}}'", 0)],
)  # fmt: skip
def test_a_file_that_jobs_on_two_members_can_share_is_noted(
    members: str, output: str, notes: int
) -> None:
    said = found(
        f"{{name: a, command: x, params: {{t: [1, 2]}}, output: {output}}}",
        more=f"members: [{members}]",
    ).notes
    assert sum("put a parameter into its name" in note for note in said) == notes


@pytest.mark.parametrize(
    ("keys", "noted"), [("tasks: 2", 1), ("tasks: 1", 0), ("tasks: 2, member: p", 0)]
)
def test_several_processes_on_a_worker_are_noted_since_mpi_would_run_once_in_each(
    keys: str, noted: int
) -> None:
    more = "members: [{name: p}, {name: w, runs: tasks}]"
    said = found(f"{{name: a, command: x, {keys}}}", more=more).notes
    assert sum("know nothing of each other" in note for note in said) == noted


SWEPT = "{name: a, command: x, params: {mode: [fast, exact], t: [280, 300], on: [true]}}"
BY = "metrics: [{of: a-duration, by: [t]}]"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("trigger: job-fail, when: job.params.mode == 'fst'", "'job.params.mode' is never 'fst'"),
        ("trigger: job-fail, when: 310 == job.params.t", "is never 310 (values: 280, 300)"),
        ("trigger: job-fail, when: \"job.params.t == '300'\"", "is never '300'"),
        ("trigger: job-fail, when: \"job.params.mode in ['slow', 'fst']\"",
         "is never 'slow' or 'fst'"),
        ("trigger: job-fail, when: job.params.on == 2", "is never 2 (values: true)"),
        ("trigger: metric, when: \"n['a-duration[t=310]'] == 2\"", "no job has t=310"),
        ("trigger: metric, name: 'mean.a-duration[t=310]', when: 2", "no job has t=310"),
    ],
)  # fmt: skip
def test_a_value_that_no_job_has_is_warned_of(rule: str, said: str) -> None:
    rules = f"{{{rule}, action: {{name: terminate}}}}"
    (warning,) = found(SWEPT, rules, BY).warnings
    assert said in warning


@pytest.mark.parametrize(
    "rules",
    [
        "{trigger: job-fail, when: job.params.mode == 'fast', action: {name: terminate}}",
        "{trigger: job-fail, when: job.params.t == 300.0, action: {name: terminate}}",
        "{trigger: job-fail, when: job.params.mode != 'fst', action: {name: terminate}}",
        "{trigger: metric, when: \"n['a-duration[t=300]'] == 2\", action: {name: terminate}}",
        # Another rule gives it that value.
        "{trigger: job-fail, when: job.params.t == 310, "
        "action: {name: submit, label: a, params: {t: 310}}}",
        "{trigger: job-fail, when: job.params.t == 310, "
        "action: {name: submit, label: a, params: {t: '{job.params.t + 10}'}}}",
    ],
)
def test_a_value_that_a_job_can_have_is_not(rules: str) -> None:
    assert found(SWEPT, rules, BY).warnings == []


@pytest.mark.parametrize(
    ("more", "place", "text"),
    [
        ({"params": {"x": ["{x}"]}}, "params.x", "'{x}'"),
        ({"params": {"x": ["a-{y}"], "y": [1]}}, "params.x", "'a-{y}'"),
        ({"environment": {"A": "$HOME/x"}}, "environment.A", "'$HOME'"),
        ({"environment": {"B": "a:~/x"}}, "environment.B", "'~'"),
        ({"workdir": "${SCRATCH}/x"}, "workdir", "'${SCRATCH}'"),
        ({"workdir": "~/w"}, "workdir", "'~'"),
        ({"output": "$HOME/o"}, "output", "'$HOME'"),
        ({"environment": {"A": "$ORIGIN/lib", "B": "a~b", "C": "${x}"}}, None, ""),
        ({"params": {"x": ["{print}", "{index}"]}}, None, ""),
    ],
)
def test_a_text_that_only_a_shell_or_a_command_fills_in_has_a_warning(
    more: dict[str, Any], place: str | None, text: str
) -> None:
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.loading import load_mapping

    found = Warnings()
    rule = {"trigger": "start", "action": {"name": "submit", "label": "a"}}
    job = {"name": "a", "command": "echo {x}", "params": {"x": [1]}, **more}
    load_mapping({"name": "d", "jobs": [job], "rules": [rule]}, warnings=found)
    said = [one for one in found.warnings if "is left as it is" in one]
    assert len(said) == (place is not None)
    for one in said:
        assert f"jobs[0].{place}: {text} is left as it is" in one


@pytest.mark.parametrize(
    ("triggers", "when", "message"),
    [
        (["job-success"], 'job.outcome == "failed"', "'job.outcome' is never 'failed'"),
        (["job-success"], "job.returncode == 3", "'job.returncode' is never 3"),
        (["job-success"], "-11 == job.returncode", "'job.returncode' is never -11"),
        (["job-success"], "job.signal == 9", "'job.signal' is never 9"),
        (["job-success"], "job.returncode in (1, 2)", "'job.returncode' is never 1 or 2"),
        (["job-timeout"], 'job.outcome == "failed"', "'job.outcome' is never 'failed'"),
        (["job-success"], 'job.outcome == "success" and job.returncode == 0', None),
        (["job-success", "job-fail"], 'job.outcome == "failed"', None),
        (["job-fail"], "job.returncode == 0", None),
        (["job-success"], "job.returncode != 3", None),
    ],
)
def test_a_comparison_that_the_trigger_rules_out_is_an_error(
    triggers: list[str], when: str, message: str | None
) -> None:
    from flux_ensemble.document.loading import DocumentError, load_mapping

    rules = [
        {"trigger": "start", "action": {"name": "submit", "label": "a"}},
        {"trigger": triggers, "group": "a", "when": when, "action": {"name": "terminate"}},
    ]
    document = {"name": "d", "jobs": [{"name": "a", "command": "x"}], "rules": rules}
    if message is None:
        load_mapping(document)
        return
    with pytest.raises(DocumentError, match=re.escape(message)):
        load_mapping(document)


@pytest.mark.parametrize(
    ("jobs", "repetitions", "number", "wrong"),
    [(32, "unlimited", 33, True), (32, 1, 32, False), (32, "unlimited", 32, False)],
)
def test_more_successes_than_there_are_jobs_have_a_warning_though_jobs_are_tried_again(
    jobs: int, repetitions: Any, number: int, wrong: bool
) -> None:
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.loading import load_mapping

    found = Warnings()
    submit = {"name": "submit", "label": "a", "repetitions": repetitions}
    when = f"count.a.success >= {number}"
    rules = [
        {"trigger": "start", "action": submit},
        {"trigger": "metric", "when": when, "action": {"name": "terminate"}},
    ]
    job = {"name": "a", "command": "x {index}", "count": jobs, "retries": 2}
    load_mapping({"name": "d", "jobs": [job], "rules": rules}, warnings=found)
    assert any("can never hold" in one for one in found.warnings) is wrong


RESET = "{trigger: job-memo, group: a, %saction: {name: reset, label: a-x, repetitions: unlimited}}"
WHEN = "when: \"mean['a-x'] > 1\""
MEAN = "{trigger: metric, name: mean.a-x, when: '> 1', action: {name: terminate}}"


@pytest.mark.parametrize(
    ("rules", "never"),
    [
        (f"{RESET % ''}\n  - {MEAN}", True),
        (f"{RESET % ''}\n  - {{trigger: metric, {WHEN}, action: {{name: terminate}}}}", True),
        (f"{RESET % 'when: job.memo.x > 5, '}\n  - {MEAN}", False),
        (f"{RESET % ''}\n  - {{trigger: [job-memo, job-success], group: a, "
         f"{WHEN}, action: {{name: terminate}}}}", False),
        (f"{RESET.replace('unlimited', '3') % ''}\n  - {MEAN}", False),
        (f"{RESET.replace('label: a-x', 'label: a') % ''}\n  - {MEAN}", True),
        # In the other order the rule sees the values of before, as one reads it.
        (f"{MEAN}\n  - {RESET % ''}", None),
        (f"{RESET.replace('job-memo', 'job-success') % ''}\n  - {MEAN}", None),
        (f"{RESET % ''}\n  - {MEAN.replace('mean.a-x', 'mean.a-duration')}", None),
        (f"{RESET % ''}\n  - {MEAN.replace('mean.a-x', 'n.a-x')}", None),
    ],
)  # fmt: skip
def test_a_rule_after_a_reset_at_the_same_event_is_told(rules: str, never: bool | None) -> None:
    warnings = found("{name: a, command: x}", rules)
    said = [one for one in (*warnings.warnings, *warnings.notes) if "at the same event" in one]
    assert len(said) == (never is not None)
    if said:
        assert ("this rule never fires" in said[0]) is never
        assert (said[0] in warnings.warnings) is never
        assert said[0].startswith("d.yaml:5: rules[2]: rule 'rule-1', which acts before this one")


def joins(a: str, b: str, submit: str = "submit, label: b") -> list[str]:
    """What is said of a join of two groups by the parameter t."""
    jobs = (
        f"{{name: a, command: 'a {{t}}', params: {{t: {a}}}}}, "
        f"{{name: b, command: 'b {{t}}', params: {{t: {b}}}}}, "
        "{name: both, command: 'c {t}', params: {t: 0}}"
    )
    rules = (
        f"{{trigger: start, action: {{name: {submit}}}}}\n"
        "  - {trigger: idle, group: [a, b], by: [t], action: {name: submit, label: both, "
        "params: {t: '{job.params.t}'}}}"
    )
    return found(jobs, rules).warnings


NOTHING_SHARED = (
    "d.yaml:5: rules[2].by[0]: groups 'a' and 'b' have no value of 't' in common, so they are "
    "never joined"
)


@pytest.mark.parametrize(
    ("a", "b", "remedy"),
    [
        ("{linspace: [1, 2, 2]}", "[1, 2]", ": 1.0 and 1 are two values, write them alike"),
        ("[1.10]", "[1.1]", ": 1.10 and 1.1 are two values, write them alike"),
        ("['1']", "[1]", ": '1' and 1 are two values, write them alike"),
        ("[1, 2]", "[3, 4]", ""),
    ],
)
def test_groups_that_share_no_value_are_never_joined(a: str, b: str, remedy: str) -> None:
    assert joins(a, b) == [NOTHING_SHARED + remedy]


@pytest.mark.parametrize(
    ("a", "b"), [("[1, 2.0]", "[2.0]"), ("[x]", "[x, y]"), ("[1.10]", "[1.10]")]
)
def test_groups_that_share_a_value_are_joined(a: str, b: str) -> None:
    assert joins(a, b) == []


def test_groups_that_a_rule_gives_values_may_be_joined() -> None:
    assert joins("[1]", "[2]", "submit, label: b, params: {t: 1}") == []
