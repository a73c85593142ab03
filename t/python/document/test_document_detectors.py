"""Rules on drift and anomalies in documents: what is read, and what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_ensemble.document import rules
from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Rule

JOBS = """\
jobs: [{name: md, command: "md {t}", params: {t: [1, 2]}}, {name: md-x, command: x}]
metrics: [{of: md-error, by: [t]}]
rules:
- {trigger: start, action: {name: submit, label: md}}
"""
DETECTOR = "detector: {adwin: {delta: 0.01}}"
END = "action: {name: terminate}"


def read(rule: str) -> Rule:
    return load_text(f"{JOBS}- {{{rule}, {END}}}\n", name="test").rules[1]


def wrong(rule: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_text(f"{JOBS}- {{{rule}, {END}}}\n", name="test", file="d.yaml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("md-error", ("md", "error")),
        ("md-x-error", ("md-x", "error")),
        ("md-duration", ("md", "duration")),
        ("md-pending", ("md", "pending")),
        ('"md-error[ t = 2.0 ]"', ("md", "error[t=2]")),
    ],
)
def test_the_name_is_that_of_a_stream(name: str, stream: tuple[str, str]) -> None:
    rule = read(f"trigger: drift, name: {name}, {DETECTOR}")
    assert rule.detector is not None
    assert (rule.detector.group, rule.detector.variable) == stream
    assert rule.title == f"drift {rule.name}"


@pytest.mark.parametrize(
    ("trigger", "given", "arguments"),
    [
        ("drift", "adwin: {delta: 1e-3, clock: 1}",
         {"delta": 0.001, "clock": 1, "grace-period": 10, "min-window-length": 5, "mode": "both"}),
        ("drift", "page-hinkley: {mode: up}",
         {"min-instances": 30, "delta": 0.005, "threshold": 50, "alpha": 0.9999, "mode": "up"}),
        ("anomaly", "quantile: {}",
         {"q": 0.999, "warm-up": 200, "window": 10000, "mode": "up"}),
        ("anomaly", "quantile: {q: 0.5, warm-up: 30, mode: both}",
         {"q": 0.5, "warm-up": 30, "window": 30, "mode": "both"}),
        ("anomaly", "quantile: {q: 0.9999999999999999, window: 200}",
         {"q": 0.9999999999999999, "warm-up": 200, "window": 200, "mode": "up"}),
        ("anomaly", "quantile: {q: 0.9999999999999999}",
         {"q": 0.9999999999999999, "warm-up": 200, "window": 100000, "mode": "up"}),
    ],
)  # fmt: skip
def test_arguments_have_defaults(trigger: str, given: str, arguments: dict[str, Any]) -> None:
    rule = read(f"trigger: {trigger}, name: md-error, detector: {{{given}}}")
    assert rule.detector is not None
    assert rule.detector.arguments == arguments


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (f"trigger: drift, {DETECTOR}",
         ": the trigger 'drift' needs 'name', the values that it watches, such as "
         "'name: GROUP-KEY' for a memo key"),
        ("trigger: anomaly, name: md-error",
         ": the trigger 'anomaly' needs 'detector', such as "
         "'detector: {quantile: {q: 0.999, warm-up: 200}}'"),
        (f"trigger: drift, name: md, {DETECTOR}",
         ".name: 'md' is a job group; say which of its variables, such as 'md-duration'"),
        (f"trigger: drift, name: mean.md-error, {DETECTOR}",
         ".name: a detector watches values, and no statistic of them: write 'md-error', not "
         "'mean.md-error'"),
        (f"trigger: drift, name: count.md.success, {DETECTOR}",
         ".name: no job group for 'count.md.success': expected GROUP-VARIABLE (groups: md, md-x)"),
        (f"trigger: drift, name: md-waiting, {DETECTOR}",
         ".name: 'md-waiting' is computed at each heartbeat, so there are no values to watch"),
        (f"trigger: drift, name: '', {DETECTOR}",
         ".name: expected text that is not empty, not ''"),
        (f"trigger: drift, name: md-error, group: md, {DETECTOR}",
         ".group: 'group' means nothing to the trigger 'drift' (only to: job-*, idle)"),
        (f"trigger: job-memo, name: md, {DETECTOR}",
         ".detector: 'detector' means nothing to the trigger 'job-memo' (only to: drift, anomaly)"),
        (f"trigger: [drift, job-fail], name: md-error, {DETECTOR}",
         ".trigger: a list of triggers can have 'job-*' only"),
        ("trigger: drift, name: md-error, detector: {adwn: {}}",
         ".detector.adwn: unknown key 'adwn' (did you mean 'adwin'? keys: adwin, page-hinkley, "
         "quantile)"),
        ("trigger: drift, name: md-error, detector: {quantile: {}}",
         ".detector: the trigger 'drift' has no detector 'quantile'; give one such as "
         "{adwin: {delta: 0.002}}"),
        ("trigger: anomaly, name: md-error, detector: {adwin: {}}",
         ".detector: the trigger 'anomaly' has no detector 'adwin'; give one such as "
         "{quantile: {q: 0.999, warm-up: 200}}"),
        ("trigger: drift, name: md-error, detector: adwin",
         ".detector: expected one detector, such as {adwin: {delta: 0.002}}, not 'adwin'"),
        ("trigger: drift, name: md-error, detector: {}",
         ".detector: expected one detector, such as {adwin: {delta: 0.002}}, not a mapping with 0 "
         "keys"),
        ("trigger: drift, name: md-error, detector: {adwin: {}, page-hinkley: {}}",
         ".detector: expected one detector, such as {adwin: {delta: 0.002}}, not a mapping with 2 "
         "keys"),
        ("trigger: drift, name: md-error, detector: {adwin: {delta: 0}}",
         ".detector.adwin.delta: expected a number > 0 and < 1, not 0"),
        ("trigger: drift, name: md-error, detector: {adwin: {detla: 0.1}}",
         ".detector.adwin.detla: unknown key 'detla' (did you mean 'delta'? keys: delta, clock, "
         "grace-period, min-window-length, mode)"),
        ("trigger: drift, name: md-error, detector: {page-hinkley: {mode: rise}}",
         ".detector.page-hinkley.mode: expected a mode, not 'rise' (one of: up, down, both)"),
        ("trigger: drift, name: md-error, detector: {page-hinkley: {threshold: .nan}}",
         ".detector.page-hinkley.threshold: expected a finite number, not nan"),
        *(
            (f"trigger: anomaly, name: md-error, detector: {{quantile: {{q: {q}}}}}",
             ".detector.quantile.q: expected a number >= 0.5 and < 1 (for small values 'mode: "
             f"down'), not {q}")
            for q in ("1", "1.5", "-0.1", "0.001")
        ),
        ("trigger: anomaly, name: md-error, detector: {quantile: {warm-up: 0}}",
         ".detector.quantile.warm-up: expected an integer >= 1 and <= 100000, not 0"),
        ("trigger: anomaly, name: md-error, detector: {quantile: {window: 100}}",
         ".detector.quantile.window: expected at least 200, which is 'warm-up', not 100"),
        (f"trigger: drift, name: md-error, {DETECTOR}, when: '> 5'",
         ".when: '> 5' compares the metric of a metric rule; this trigger has none, so write an "
         "expression such as 'count.GROUP.success > 3'"),
        (f"trigger: drift, name: md-error, {DETECTOR}, when: job.params.x > 1",
         ".when: no job has the parameter 'x' (parameters: t)"),
        (f"trigger: drift, name: md-pending, {DETECTOR}, when: job.returncode == 1",
         ".when: 'job.returncode' is not known yet at the trigger 'drift'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line_and_the_remedy(rule: str, sentence: str) -> None:
    assert wrong(rule) == [f"d.yaml:5: rules[1]{sentence}"]


def many(number: int, detector: str) -> str:
    rule = f"- {{trigger: anomaly, name: md-error, detector: {detector}, {END}}}\n"
    return JOBS + rule * number


def test_a_document_has_so_many_detectors_at_most() -> None:
    detector = "{quantile: {q: 0.5, warm-up: 1}}"
    load_text(many(rules.MAX_DETECTORS, detector), name="test")
    with pytest.raises(DocumentError, match="at most 1000 rules with a detector"):
        load_text(many(rules.MAX_DETECTORS + 1, detector), name="test")


def test_their_windows_have_so_many_values_at_most() -> None:
    detector = "{quantile: {window: 100000}}"
    load_text(many(10, detector), name="test")
    with pytest.raises(DocumentError, match="at most 1000000 values in the windows"):
        load_text(many(11, detector), name="test")


def said(*rules: dict[str, Any], **more: Any) -> Warnings:
    document = {
        "name": "test",
        "jobs": [{"name": "md", "command": "x"}, {"name": "b", "command": "x"}],
        "rules": [{"trigger": "start", "action": {"name": "submit", "label": "md"}}, *rules],
        **more,
    }
    warnings = Warnings()
    load_mapping(json.loads(json.dumps(document)), warnings=warnings)
    return warnings


def rule(name: str, action: dict[str, Any]) -> dict[str, Any]:
    return {"trigger": "anomaly", "name": name, "detector": {"quantile": {}}, "action": action}


def test_it_is_warned_of_a_rule_on_values_of_jobs_that_nobody_submits() -> None:
    (warning,) = said(rule("b-x", {"name": "terminate"})).warnings
    assert warning.endswith(
        "rules[1]: the rule waits for jobs of group 'b', and no rule submits that"
    )


def test_it_is_noted_that_such_a_rule_fires_once() -> None:
    cancel = {"name": "cancel", "jobs": "trigger"}
    (note,) = said(rule("md-x", cancel)).notes
    assert "fires once, so for the first such job alone" in note
    assert said(rule("md-x", {**cancel, "repetitions": 1})).notes == []


def test_it_is_noted_that_simulated_jobs_do_not_publish_what_it_watches() -> None:
    simulate = {"md": {"memo": {"y": 1}}}
    (note,) = said(rule("md-x", {"name": "terminate"}), simulate=simulate).notes
    assert "no simulated job publishes the memo key 'x'" in note
    assert said(rule("md-y", {"name": "terminate"}), simulate=simulate).notes == []
