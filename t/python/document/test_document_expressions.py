"""Expressions in a document: which are accepted where, and what is said of the others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flux_ensemble.document import actions as reading
from flux_ensemble.document import groups as groups_reading
from flux_ensemble.document.keys.rules import (
    JOB_EVENTS,
    KNOWN_AT,
    OUTCOME_TRIGGERS,
    TRIGGER_ALIASES,
    TRIGGERS,
)
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.document.model import Rule
from flux_ensemble.document.retries import Retries
from flux_ensemble.document.templates import MAX_EXPRESSIONS, compile_template
from flux_ensemble.metrics.conditions import Names

JOBS = """\
jobs:
- {name: sim, command: "sim {x}", params: {x: [1, 2]}}
- {name: other, command: "other {y}", params: {y: 1}}
- {name: spec, jobspec: {version: 1, resources: [{type: slot, count: 1, label: t, with: [
    {type: core, count: 1}]}], tasks: [{command: [app], slot: t, count: {per_slot: 1}}]}}
rules:
"""
SUBMIT = "action: {name: submit, label: sim, "
NO_JOB = "no job triggers this"


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_text(text, name="test", file="d.yaml")
    return str(caught.value).splitlines()


def read(rule: str) -> Rule:
    return load_text(f"{JOBS}- {rule}\n", name="test").rules[0]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("{trigger: timer, after: 1s, " + SUBMIT + 'nodes: "{job.nnodes}"}}',
         ".action.nodes: 'job.nnodes' is of a job, and no job triggers this rule "
         "(only those of 'job-*', 'drift' and 'anomaly')"),
        ("{trigger: start, " + SUBMIT + "params: trigger}}",
         f".action.params: 'trigger' means the parameters of the triggering job, and {NO_JOB} "
         "(only rules on 'job-*', 'drift' and 'anomaly' have one)"),
        ("{trigger: idle, action: {name: cancel, jobs: trigger}}",
         f".action.jobs: {NO_JOB} (only rules on 'job-*', 'drift' and 'anomaly' have a "
         "triggering job)"),
        ("{trigger: job-submit, when: job.returncode == 1, " + SUBMIT + "count: 1}}",
         ".when: 'job.returncode' is not known yet at the trigger 'job-submit'"),
        ("{trigger: job-start, " + SUBMIT + 'params: {x: "{job.outcome}"}}}',
         ".action.params: 'job.outcome' is not known yet at the trigger 'job-start'"),
        ("{trigger: job-alloc, " + SUBMIT + 'params: {x: "{job.memo.a}"}}}',
         ".action.params: 'job.memo.a' is not known yet at the trigger 'job-alloc'"),
        ("{trigger: job-dependency-add, when: job.returncode == 1, " + SUBMIT + "count: 1}}",
         ".when: 'job.returncode' is not known yet at the trigger 'job-dependency-add'"),
        ("{trigger: job-urgency, when: job.outcome == 'failed', " + SUBMIT + "count: 1}}",
         ".when: 'job.outcome' is not known yet at the trigger 'job-urgency'"),
        ("{trigger: job-fail, group: sim, " + SUBMIT + 'params: {x: "{job.params.y}"}}}',
         ".action.params: no job has the parameter 'y' (parameters: x)"),
        ("{trigger: job-fail, group: sim, when: job.params.y > 1, " + SUBMIT + "count: 1}}",
         ".when: no job has the parameter 'y' (parameters: x)"),
        ("{trigger: job-fail, when: job.foo > 1, " + SUBMIT + "count: 1}}",
         ".when: no field 'job.foo' (fields of 'job': attempt, copied, "
         "cpu_seconds, duration, efficiency, exception.note, exception.type, id, index, "
         "interrupted, max_rss, memo.NAME, ncores, ngpus, nnodes, ntasks, outcome, params.NAME, "
         "pending, reason, returncode, runtime, signal, urgency)"),
        ("{trigger: job-fail, when: job > 1, " + SUBMIT + "count: 1}}",
         ".when: no metric named 'job' (metrics begin with: count, iqr, mad, max, mean, min, n, "
         "nodes, queue, rate, share, time, variance)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {y: "{job.params.x}"}}}',
         ".action.params: group 'sim' has no parameter 'y' (parameters: x)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{job.params.x"}}}',
         ".action.params: a '{' is not closed in '{job.params.x' (write '{{' for a brace)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "job.params.x}"}}}',
         ".action.params: a '}' is not opened in 'job.params.x}' (write '}}' for a brace)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{{{job.id}}"}}}',
         ".action.params: a '}' is not opened in '{{{job.id}}' (write '}}' for a brace)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{}"}}}',
         ".action.params: expected an expression such as 'job.params.NAME', not '' (write '{{' "
         "for a brace)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{x}"}}}',
         ".action.params: no metric named 'x' (did you mean 'job.params.x'?)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{job.id; 1}"}}}',
         ".action.params: expected an expression such as 'job.params.NAME', not 'job.id; 1' "
         "(write '{{' for a brace)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{lambda: 1}"}}}',
         ".action.params: 'lambda: 1' is not allowed in an expression"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{open(1)}"}}}',
         ".action.params: 'open' is not a function of conditions (functions: abs, max, min, "
         "round, floor, ceil, sqrt, exp, log, log2, log10, sin, cos, tan, tanh, pow)"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{' + "-" * 300 + '1}"}}}',
         ".action.params: an expression nests at most 200 levels deep, where each term of a sum "
         "counts as one"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "{' + "1" * 5000 + '}"}}}',
         ".action.params: an expression has at most 4096 characters, not 5000"),
        ("{trigger: job-fail, " + SUBMIT + 'params: {x: "' + "{1}" * 101 + '"}}}',
         ".action.params: expected at most 100 expressions in a text"),
        ("{trigger: job-fail, " + SUBMIT + "nodes: many}}",
         ".action.nodes: expected an integer >= 1, not 'many'"),
        ("{trigger: job-fail, " + SUBMIT + "duration: soon}}",
         ".action.duration: expected a duration (seconds, or text such as '30s', '1.5h' or "
         "'100ms'), not 'soon'"),
        ("{trigger: job-fail, " + SUBMIT + "environment: {A: [1]}}}",
         ".action.environment: A: expected text, a number, true or false, not a list with 1 item"),
        ("{trigger: job-fail, " + SUBMIT + "attributes: {user: {ensemble: 1}}}}",
         ".action.attributes: the user attribute 'ensemble' is where flux-ensemble marks its jobs"),
        ("{trigger: job-fail, action: {name: submit, label: spec, nodes: 2}}",
         ".action.nodes: 'nodes' cannot be replaced in group 'spec', whose jobspec says it"),
        ('{trigger: job-fail, action: {name: submit, label: spec, cores: "{job.ncores}"}}',
         ".action.cores: 'cores' cannot be replaced in group 'spec', whose jobspec says it"),
        ("{trigger: job-fail, action: {name: cancel, label: sim, nodes: 2}}",
         ".action.nodes: 'nodes' means nothing to the action 'cancel' (only to: submit)"),
        ("{trigger: job-fail, action: {name: cancel, label: sim, jobs: trigger}}",
         ".action.label: give one of 'label' and 'jobs'"),
        ("{trigger: job-fail, action: {name: submit, label: sim, reason: why}}",
         ".action.reason: 'reason' means nothing to the action 'submit' (only to: terminate)"),
        ("{trigger: job-fail, action: {name: terminate, state: canceled}}",
         ".action.state: expected a final state, not 'canceled' (one of: completed, failed)"),
        ("{trigger: [job-fail, timer], after: 1, " + SUBMIT + "params: trigger}}",
         ".trigger: a list of triggers can have 'job-*' only"),
        ("{trigger: [], " + SUBMIT + "params: trigger}}",
         ".trigger: expected a trigger, or a list of them, not a list with 0 items"),
        ("{trigger: idle, group: [sim, other], by: [x], " + SUBMIT + "count: 1}}",
         ".by[0]: group 'other' has no parameter 'x' in jobs[0] (parameters: y); groups are joined "
         "by parameters that all of them have: none"),
        ("{trigger: job-fail, group: [sim, nope], " + SUBMIT + "count: 1}}",
         ".group: no job group named 'nope' (groups: other, sim, spec)"),
        ("{trigger: [job-fail, 3], " + SUBMIT + "params: trigger}}",
         ".trigger[1]: expected a trigger, not 3"),
        ("{trigger: [3], when: job.returncode == 1, " + SUBMIT + "params: trigger}}",
         ".trigger[0]: expected a trigger, not 3"),
        ("{trigger: job-fail, group: [sim, 3], " + SUBMIT + "params: trigger}}",
         ".group[1]: expected text that is not empty, not 3"),
        ("{trigger: job-fail, group: [null], " + SUBMIT + "params: trigger}}",
         ".group[0]: expected text that is not empty, not null"),
        ("{trigger: job-fail, actions: [{name: cancel}, 3]}",
         ".actions[1]: expected an action such as {name: submit, label: GROUP}, not 3"),
        ("{trigger: job-fail, actions: []}",
         ".actions: expected a list of actions, not a list with 0 items"),
        ("{trigger: job-fail}", ": the key 'action' is missing"),
        ("{trigger: job-fail, action: {name: terminate}, actions: [{name: terminate}]}",
         ".actions: give one of 'action' and 'actions'"),
        ("{trigger: job-fail, actions: [{name: cancel}, {name: cancel, backoff: 1}]}",
         ".actions[1].backoff: 'backoff' counts for the whole rule: write it at actions[0]"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule_is_said_with_its_line(rule: str, sentence: str) -> None:
    assert problems(f"{JOBS}- {rule}\n") == [f"d.yaml:7: rules[0]{sentence}"]


def test_a_wrong_trigger_is_the_only_problem_of_what_names_its_job() -> None:
    rule = "{trigger: job-finnish, when: job.returncode == 1, action: {name: submit, label: sim, "
    (sentence,) = problems(f"{JOBS}- {rule}params: trigger, nodes: '{{job.nnodes}}'}}}}\n")
    assert sentence.startswith("d.yaml:7: rules[0].trigger: expected a trigger, not 'job-finnish'")


@pytest.mark.parametrize("event", [*JOB_EVENTS])
def test_every_job_event_knows_what_its_job_asked_for(event: str) -> None:
    when = "job.nnodes > 0 and job.params.x != job.attempt"
    assert read(f"{{trigger: job-{event}, when: {when}, action: {{name: terminate}}}}").when == when


@pytest.mark.parametrize("trigger", [*OUTCOME_TRIGGERS, "job-finish", "job-clean", "job-gave-up"])
def test_every_end_of_a_job_knows_how_it_ended(trigger: str) -> None:
    outcomes = "['success', 'failed', 'canceled', 'timeout']"
    when = f"job.returncode > 1 or job.outcome in {outcomes} or job.memo.x > job.runtime"
    assert read(f'{{trigger: {trigger}, when: "{when}", action: {{name: terminate}}}}').when == when


def test_it_is_said_of_each_trigger_on_jobs_and_of_no_other_what_is_known_of_them() -> None:
    on_jobs = {name for name in TRIGGERS if name.startswith("job-")}
    assert KNOWN_AT.keys() == on_jobs - TRIGGER_ALIASES.keys()


def test_lists_are_read_once_each_and_in_order() -> None:
    rule = read(
        "{trigger: [job-cleanup, job-fail, job-clean], group: [other, sim, other], actions: ["
        "{name: cancel, repetitions: 3}, {name: terminate}]}"
    )
    assert rule.triggers == ("job-clean", "job-fail")
    assert rule.groups == ("other", "sim")
    assert [action.name for action in rule.actions] == ["cancel", "terminate"]
    assert rule.action.repetitions == 3


def test_names_with_hyphens_are_written_in_brackets() -> None:
    text = "jobs: [{name: a, command: x, params: {t-x: 1}}]\nrules:\n- {trigger: job-fail, %s}\n"
    good = """when: 'job.params["t-x"] > 1', action: {name: submit, label: a, params: trigger}"""
    assert load_text(text % good, name="test")
    for name, right in [
        ("job.params.t-x", 'job.params["t-x"]'),
        ("params.t-x", 'job.params["t-x"]'),
        ("memo.my-loss", 'job.memo["my-loss"]'),
    ]:
        bad = f"when: {name} > 1, action: {{name: terminate}}"
        assert problems(text % bad) == [
            f"d.yaml:3: rules[0].when: write {right} for '{name}', a name with other characters "
            "than letters, digits and '_'"
        ]
    bad = "when: job.params.t-y > 1, action: {name: terminate}"
    assert problems(text % bad) == [
        "d.yaml:3: rules[0].when: no job has the parameter 't' (parameters: t-x)"
    ]


LOST = """\
jobs:
- {name: mc, command: "mc {d} {r}", params: {d: [A, B], r: [1, 2]}}
- {name: other, command: "o {d}", params: {d: [A, B]}}
- {name: fit, command: "fit {d} {r} {s}", params: {d: none, r: 99, s: 0}}
- {name: plain, command: "fit {d} {s}", params: {d: none, s: 0}}
rules:
"""
PASSES = "rules[0].action.params: 'trigger' passes what is in 'by', and 'r' of these jobs is not: "
OWN = """'params: {d: "{job.params.d}"}' for group """


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            "{trigger: idle, group: mc, by: [d], action: {name: submit, label: mc, "
            "params: trigger}}",
            f"{PASSES}write 'by: [d, r]', or {OWN}'mc' with its own values of 'r'",
        ),
        (
            "{trigger: idle, group: [mc, other], by: [d], action: {name: submit, label: fit, "
            "params: trigger}}",
            f"{PASSES}write {OWN}'fit' with its own values of 'r'",
        ),
        (
            "{trigger: idle, group: mc, action: {name: submit, label: mc, params: trigger}}",
            "rules[0].action.params: 'trigger' means the parameters of the triggering job, and an "
            "'idle' rule without 'by' knows of none: give it 'by', or write the values",
        ),
    ],
)
def test_params_of_a_trigger_on_idle_are_those_in_by_and_others_would_be_lost(
    rule: str, sentence: str
) -> None:
    assert problems(f"{LOST}- {rule}\n") == [f"d.yaml:7: {sentence}"]


def test_a_parameter_of_the_jobs_of_an_idle_rule_that_is_not_in_by_is_told_so() -> None:
    rule = (
        "{trigger: idle, group: mc, by: [d], action: {name: submit, label: mc, "
        "params: {r: '{job.params.r}'}}}"
    )
    assert problems(f"{LOST}- {rule}\n") == [
        "d.yaml:7: rules[0].action.params: of its jobs an 'idle' rule knows the parameters in 'by' "
        "(d), and 'r' is not among them: add it to 'by'"
    ]
    (other,) = problems(f"{LOST}- {rule.replace('params.r}', 'params.q}')}\n")
    assert "no job has the parameter 'q' (parameters: d)" in other


@pytest.mark.parametrize(
    "rule",
    [
        "{trigger: idle, group: mc, by: [d, r], action: {name: submit, label: fit, "
        "params: trigger}}",
        "{trigger: idle, group: mc, by: [d], action: {name: submit, label: plain, "
        "params: trigger}}",
        "{trigger: idle, group: other, by: [d], action: {name: submit, label: fit, "
        "params: trigger}}",
    ],
)
def test_params_of_a_trigger_on_idle_pass_where_none_is_lost(rule: str) -> None:
    assert load_text(f"{LOST}- {rule}\n", name="test").rules


# -- retries ----------------------------------------------------------------------------

DURATION = "expected a duration (seconds, or text such as '30s', '1.5h' or '100ms')"


@pytest.mark.parametrize(
    ("retries", "sentence"),
    [
        ("'3'", ": expected an integer >= 0, or a mapping such as {times: 3, on: [failed, "
         "timeout]}, not '3' (write 3)"),
        ("{on: failed}", ": the key 'times' is missing"),
        ("{times: true}", ".times: expected an integer >= 0, not true"),
        ("{times: 1, on: success}", ".on: a job that succeeded does not run again"),
        ("{times: 1, on: []}", ".on: expected an outcome or an expression, or a list of them, "
         "not a list with 0 items"),
        ("{times: 1, on: fail}", ": on: no metric named 'fail' (metrics begin with: count, iqr, "
         "mad, max, mean, min, n, nodes, queue, rate, share, time, variance) "
         "(did you mean 'failed'?)"),
        ("{times: 1, on: '> 3'}", ": on: expected an expression such as 'job.params.NAME', not "
         "'> 3' (write '{{' for a brace)"),
        ("{times: 1, on: job.params.z == 1}", ": on: no job has the parameter 'z' (parameters: x)"),
        ("{times: 1, after: inf}", f".after: {DURATION}, not 'inf'"),
        ("{times: 1, after: -1}", f".after: {DURATION}, not -1"),
        ("{times: 1, factor: 0.5}", ".factor: expected a number >= 1, not 0.5"),
        ("{times: 1, factor: .inf}", ".factor: expected a finite number, not inf"),
        ("{times: 1, with: {duration: soon}}", f": with.duration: {DURATION}, not 'soon'"),
        ("{times: 1, with: {nodes: 0}}", ".with.nodes: expected an integer >= 1, not 0"),
        ("{times: 1, with: {nodes: '4'}}", ": with.nodes: expected an integer >= 1, not '4'"),
        ("{times: 1, with: {environment: {A: [1]}}}",
         ": with.environment: A: expected text, a number, true or false, not a list with 1 item"),
        ("{times: 1, with: {nodes: '{job.z}'}}", ": with.nodes: no field 'job.z' (fields of "
         "'job': attempt, copied, cpu_seconds, duration, efficiency, exception.note, "
         "exception.type, id, index, interrupted, max_rss, memo.NAME, ncores, ngpus, nnodes, "
         "ntasks, outcome, params.NAME, pending, reason, returncode, runtime, signal, urgency)"),
        ("{times: 1, with: {attributes: {user: {ensemble: 1}}}}",
         ": the user attribute 'ensemble' is where flux-ensemble marks its jobs"),
        ("{times: 1, with: {label: a}}", ".with.label: unknown key 'label' (keys: nodes, tasks, "
         "cores, gpus, duration, urgency, queue, bank, environment, workdir, attributes, params)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_retries(retries: str, sentence: str) -> None:
    text = f"jobs:\n- {{name: a, command: x, params: {{x: 1}}, retries: {retries}}}\n"
    assert problems(text) == [f"d.yaml:2: jobs[0].retries{sentence}"]


def test_the_shape_of_a_jobspec_cannot_be_other_than_before() -> None:
    text = JOBS.replace("{name: spec,", "{name: spec, retries: {times: 1, with: {nodes: 2}},")
    assert problems(text.removesuffix("rules:\n")) == [
        "d.yaml:4: jobs[2].retries: 'nodes' cannot be replaced in group 'spec', whose jobspec "
        "says it"
    ]


def test_retries_are_read() -> None:
    retries = (
        "{times: 3, on: [timeout, job.returncode == 3], after: 1m, factor: 2, with: {cores: 2}}"
    )
    text = f"jobs: [{{name: a, command: x, retries: {retries}}}]"
    (job_set,) = load_text(text, name="test").groups["a"].sets
    assert job_set.retries == Retries(
        3, frozenset({"timeout"}), ("job.returncode == 3",), 60.0, 2.0, {"cores": 2}
    )


# -- how much -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["{{" * 2**19, "a" * 2**20 + "{1}", "{{}}" * 2**18 + "{1}", "}}" * 2**19, "{1}" + "é" * 2**20],
    ids=["braces", "plain", "both", "closing", "after"],
)
def test_a_long_text_is_compiled_at_once(text: str) -> None:
    # Without one look at each part this takes until the limit of the suite.
    template = compile_template(text, Names([], [], None, None))
    assert template is not None
    filled: Any = template.fill(lambda variable: None)
    assert len(filled) >= 2**18


@pytest.mark.parametrize("text", ["{" + "'" * 2**20, "{" + "x" * 2**20, "{'" * 2**19])
def test_a_long_text_that_is_not_closed_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="is not closed") as caught:
        compile_template(text, Names([], [], None, None))
    assert len(str(caught.value)) < 200


def test_a_text_has_a_bounded_number_of_expressions() -> None:
    names = Names([], [], None, None)
    template = compile_template("{1}" * MAX_EXPRESSIONS, names)
    assert template is not None
    assert template.fill(lambda variable: None) == "1" * MAX_EXPRESSIONS
    with pytest.raises(ValueError, match="at most 100 expressions in a text"):
        compile_template("{1}" * (MAX_EXPRESSIONS + 1), names)


def test_all_actions_have_a_bounded_number_of_expressions() -> None:
    value = "{1}" * 100
    action = f"{{name: submit, label: sim, environment: {{A: '{value}', B: '{value}'}}}}"
    rules = f"- {{trigger: job-fail, action: {action}}}\n" * (reading.MAX_EXPRESSIONS // 200)
    assert load_text(JOBS + rules, name="test")
    one = "- {trigger: job-fail, action: {name: submit, label: sim, nodes: '{1}'}}\n"
    (sentence,) = problems(JOBS + rules + one)
    assert sentence.endswith(
        f"expected at most {reading.MAX_EXPRESSIONS} expressions in all actions"
    )


def test_all_retries_have_a_bounded_number_of_expressions() -> None:
    on = ", ".join(["1 == 2"] * (groups_reading.MAX_EXPRESSIONS + 1))
    (sentence,) = problems(f"jobs: [{{name: a, command: x, retries: {{times: 1, on: [{on}]}}}}]\n")
    assert sentence.endswith(
        f"expected at most {groups_reading.MAX_EXPRESSIONS} expressions in retries"
    )


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("job.params.mode == fast", "(text is written in quotes: 'fast')"),
        ("job.params.mode in (fast, slow)", "(text is written in quotes)"),
        ("$t > 1", "(write job.params.t for '$t')"),
        ("job.runtime > ${t}", "(write job.params.t for '${t}')"),
        ("job.runtime > 1 AND job.runtime < 9", "(write 'and' for 'AND')"),
        ("job.runtime > 1 OR job.runtime < 9", "(write 'or' for 'OR')"),
        ("job.returncode == null", "a comparison with a value that is missing is false"),
        ("job.runtime > 1,5", "(write 1.5 for '1,5')"),
    ],
)
def test_what_other_languages_write_has_a_hint(when: str, message: str) -> None:
    from flux_ensemble.document.loading import DocumentError, load_mapping

    job = {"name": "a", "command": "x {mode} {t}", "params": {"mode": ["fast", "slow"], "t": [1]}}
    rules = [{"trigger": "job-fail", "group": "a", "when": when, "action": {"name": "terminate"}}]
    with pytest.raises(DocumentError, match=re.escape(message)):
        load_mapping({"name": "d", "jobs": [job], "rules": rules})
