"""Statistics by the values of parameters: `mean.sim-fom[t=300]`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import Play, document, on_start, submit
from test_engine_snapshot import Cuts

from flux_ensemble.cli.display.metrics_tables import summary_table
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.metrics import streams
from flux_ensemble.results.statistics import metrics_rows

JOBS: list[dict[str, Any]] = [
    {"name": "sim", "command": "run {t} {s}", "params": {"t": [280, 300.0], "s": [1, 2]}},
    {"name": "b", "command": "true"},
]
BY = {"of": "sim-fom", "by": ["t"]}
UNLIMITED = {"repetitions": "unlimited"}


def played(*rules: dict[str, Any], metrics: Any = (BY,), jobs: Any = JOBS, **given: Any) -> Play:
    rules = (on_start("sim"), *rules)
    return Play(document(jobs=jobs, metrics=list(metrics), rules=list(rules), **given))


def memo(play: Play, job: int, **values: Any) -> None:
    if job not in play.engine.workload.jobs:
        play.begin(job)
    play.event(job, "memo", **values)


def named(play: Play, statistic: str = "mean", variable: str = "fom") -> dict[str, Any]:
    metrics = play.engine.metrics(play.t)[statistic]
    return {name: value for name, value in metrics.items() if f"sim-{variable}" in name}


def test_each_value_has_statistics_of_its_own():
    play = played()
    # Jobs 1 and 2 have t = 280.
    for job, fom in ((1, 1.0), (2, 3.0), (3, 10.0), (4, 20.0)):
        memo(play, job, fom=fom)
    assert named(play) == {"sim-fom": 8.5, "sim-fom[t=280]": 2.0, "sim-fom[t=300]": 15.0}
    assert named(play, "n") == {"sim-fom": 4, "sim-fom[t=280]": 2, "sim-fom[t=300]": 2}


@pytest.mark.parametrize(
    "rule",
    [
        {"trigger": "metric", "name": "mean.sim-fom[t=300]", "when": "> 5"},
        {"trigger": "metric", "name": "mean.sim-fom[ t = 3e2 ]", "when": "> 5"},
        {"trigger": "metric", "when": 'mean["sim-fom[t=300.0]"] > 5'},
        {"trigger": "job-memo", "when": 'mean["sim-fom[t=300]"] > 5 and fom > 15'},
    ],
)
def test_rules_name_them(rule: dict[str, Any]):
    play = played({**rule, "action": submit("b", **UNLIMITED)})
    memo(play, 1, fom=100.0)
    memo(play, 3, fom=1.0)
    assert play.submitted("b") == 0
    memo(play, 4, fom=20.0)
    assert play.submitted("b") == 1
    # That of another value has not changed.
    memo(play, 2, fom=10.0)
    assert play.submitted("b") == 1


def test_actions_name_them():
    action = submit("b", count='{n["sim-fom[t=280,s=2]"] + 1}')
    by = {"of": "sim-fom", "by": ["t", "s"]}
    play = played({"trigger": "job-success", "action": action}, metrics=[by])
    memo(play, 2, fom=1.0)
    play.end(2)
    assert play.submitted("b") == 2


def test_the_same_metric_can_be_kept_by_several_parameters_in_any_order():
    both = {"of": "sim-fom", "by": ["t", "s"]}
    rule = {"trigger": "metric", "name": "max.sim-fom[s=1,t=280]", "when": 7, "action": submit("b")}
    play = played(rule, metrics=[BY, both])
    memo(play, 1, fom=7)
    assert set(named(play)) == {"sim-fom", "sim-fom[t=280]", "sim-fom[t=280,s=1]"}
    assert play.submitted("b") == 1


def test_durations_by_value_are_of_the_jobs_that_succeeded_or_of_all():
    by = {"of": "sim-duration", "by": ["t"]}
    longest = {"name": "longest", "statistic": "max", "of": "finished"}
    rules = [
        {"trigger": "metric", "name": f"{name}.sim-duration[t=280]", "action": submit("b")}
        for name in ("max", "longest")
    ]
    play = played(*rules, metrics=[by, longest])
    for job, seconds, status in ((1, 5.0, 256), (2, 3.0, 0)):
        play.begin(job)
        play.t += seconds
        play.end(job, status)
        assert play.submitted("b") == job
    assert round(named(play, "longest", "duration")["sim-duration[t=280]"]) == 5
    assert round(named(play, "max", "duration")["sim-duration[t=280]"]) == 3
    assert named(play, "n", "duration") == {"sim-duration": 1, "sim-duration[t=280]": 1}


def test_of_a_value_with_failed_jobs_alone_only_that_of_all_has_a_value():
    longest = {"name": "longest", "statistic": "max", "of": "finished"}
    play = played(metrics=[{"of": "sim-duration", "by": ["t"]}, longest])
    play.run(1, 256)
    assert named(play, "longest", "duration")["sim-duration[t=280]"] is not None
    assert named(play, "n", "duration") == {"sim-duration": 0, "sim-duration[t=280]": 0}


def test_pending_can_be_kept_by_value():
    play = played(metrics=[{"of": "sim-pending", "by": ["s"]}])
    play.begin(1)
    assert named(play, "n", "pending") == {"sim-pending": 1, "sim-pending[s=1]": 1}


def test_texts_and_booleans_are_values_too_and_are_told_apart_from_numbers():
    values = ["fast", "300", 300, True, "true", "a,b]", 'say "x"', "a=b", ""]
    jobs = [{"name": "sim", "command": "run {m}", "params": {"m": values}}, JOBS[1]]
    names = ["fast", '"300"', "300", "true", '"true"', '"a,b]"', r'"say \"x\""', '"a=b"', '""']
    rules = [
        {"trigger": "metric", "name": f"n.sim-fom[m={name}]", "action": submit("b")}
        for name in names
    ]
    play = played(*rules, jobs=jobs, metrics=[{"of": "sim-fom", "by": ["m"]}])
    for job in range(1, len(values) + 1):
        memo(play, job, fom=job)
        assert play.submitted("b") == job
    assert set(named(play)) == {"sim-fom", *(f"sim-fom[m={name}]" for name in names)}


@pytest.mark.parametrize(
    ("label", "left"),
    [
        ("sim-fom[t = 280.0]", {"sim-fom", "sim-fom[t=300]"}),
        ("sim-fom", set()),
        ("sim", set()),
        ("sim-fomo", {"sim-fom", "sim-fom[t=280]", "sim-fom[t=300]"}),
    ],
)
def test_a_reset_of_a_metric_is_one_of_its_values_too(label: str, left: set[str]):
    reset = {"name": "reset", "label": label}
    play = played({"trigger": "job-memo", "when": "end > 0", "action": reset})
    memo(play, 1, fom=1.0)
    memo(play, 3, fom=1.0)
    memo(play, 3, end=1)
    assert set(named(play)) == left


def test_values_beyond_the_limit_are_left_out_and_said_once(monkeypatch: pytest.MonkeyPatch):
    count = streams.MAX_VALUES + 3
    jobs = [{"name": "sim", "command": "run {t}", "params": {"t": {"range": [0, count]}}}, JOBS[1]]
    reset = {"name": "reset", "label": "sim-fom[t=7]"}
    play = played({"trigger": "job-memo", "when": "end > 0", "action": reset}, jobs=jobs)
    for job in range(1, count + 1):
        memo(play, job, fom=job)
    assert len(named(play)) == 1 + streams.MAX_VALUES
    assert named(play, "n")["sim-fom"] == count
    [entry] = play.recorded("values-left-out")
    assert entry["group"] == "sim"
    assert entry["reason"].startswith("no statistics of sim-fom[t=VALUE] for [t=1000], and of othe")
    assert play.engine.metrics(play.t)["memo-ignored"] == {"sim": {"fom[t=VALUE]": 3}}
    # A reset makes room.
    memo(play, 1, end=1)
    memo(play, count, fom=1)
    assert "sim-fom[t=1002]" in named(play)


def test_memo_keys_that_look_like_them_are_others():
    play = played()
    memo(play, 1, **{"fom[t=280]": 5, "fom[0]": 6, "other[t=280]": 7, "fom": 1})
    assert named(play) == {"sim-fom": 1, "sim-fom[0]": 6, "sim-fom[t=280]": 1}
    assert named(play, variable="other") == {"sim-other[t=280]": 7}
    assert play.engine.metrics(play.t)["memo-ignored"] == {"sim": {"fom[t=280]": 1}}


def test_without_them_names_in_brackets_are_memo_keys_as_ever():
    rule = {"trigger": "metric", "name": "mean.sim-fom[0]", "when": 6, "action": submit("b")}
    play = played(rule, metrics=[])
    memo(play, 1, **{"fom[0]": 6, "fom[t=280]": 5})
    assert play.submitted("b") == 1
    assert named(play)["sim-fom[t=280]"] == 5


def test_they_survive_a_recovery_at_any_event():
    reset = {"trigger": "job-memo", "when": "fom > 5", "action": {"name": "reset", "label": "sim"}}
    metrics = [
        BY,
        {"of": "sim-duration", "by": ["t", "s"]},
        {"name": "longest", "statistic": "max", "of": "finished"},
    ]
    after = {"trigger": "metric", "name": "longest.sim-duration[t=280,s=1]", "action": submit("b")}
    play = played(reset, after, metrics=metrics)
    cuts = Cuts(play.engine)
    play.handle = cuts.handle
    for job, fom in ((1, 1.0), (2, 9.0), (3, 2.0), (4, 3.0)):
        memo(play, job, fom=fom)
        play.end(job, 256 * (job % 2))
    cuts.check()


def test_a_job_that_runs_again_counts_by_the_same_values():
    jobs = [{**JOBS[0], "retries": {"times": 1, "on": 'n["sim-fom[t=280]"] == 1'}}, JOBS[1]]
    play = played(jobs=jobs)
    memo(play, 1, fom=1.0)
    play.end(1, 256)
    memo(play, 5, fom=3.0)
    assert named(play, "n")["sim-fom[t=280]"] == 2


def test_tables_have_them_and_the_closing_table_does_not():
    metrics: dict[str, dict[str, Any]] = {
        "count": {"a": {}},
        "mean": {"a-fom": 1.5, "a-fom[t=280]": 2.5},
    }
    assert [row["variable"] for row in metrics_rows(metrics)] == ["fom", "fom[t=280]"]
    assert "t=280" not in json.dumps(summary_table(metrics).headings)


DOCUMENT = """\
jobs:
  - {name: c, command: "true"}
  - {name: sim, command: "run {t}", params: {t: [280, 300]}}
  - {name: b, command: "true", retries: {times: 1, on: 'mean["sim-fom[x=1]"] > 0'}}
metrics:
  - METRIC
rules:
  - {trigger: metric, name: "NAME", action: {name: submit, label: b}}
  - {trigger: start, when: 'WHEN', action: ACTION}
"""


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("METRIC", "{of: sim-fom, by: [p]}", "d:6: metrics[0].by[0]: group 'sim' has no paramete"),
        ("METRIC", "{of: c-fom, by: [t]}", "d:6: metrics[0].by[0]: group 'c' has no parameter 't'"),
        ("METRIC", "{of: d-fom, by: [t]}", "d:6: metrics[0].of: no job group for 'd-fom'"),
        ("METRIC", "{of: sim-running, by: [t]}", "d:6: metrics[0].of: 'sim-running' cannot be"),
        ("METRIC", "{of: sim-fom, by: []}", "d:6: metrics[0].by: expected a list of parameters"),
        ("METRIC", "{by: [t]}", "d:6: metrics[0]: the key 'of' is missing"),
        ("METRIC", "{statistic: max, of: sim-fom, by: [t]}", "d:6: metrics[0].statistic: unknown"),
        ("METRIC", "{unit: eV}", "d:6: metrics[0]: the key 'of' is missing"),
        ("METRIC", "{of: sim-fom, by: [t], unit: eV}", "d:6: metrics[0].unit: unknown key 'unit'"),
        ("NAME", "mean.sim-fom[x=1]", "d:8: rules[0].name: no statistics 'sim-fom[x=1]': expecte"),
        ("NAME", "mean.sim-fom[t]", "d:8: rules[0].name: no statistics 'sim-fom[t]': expected sim"),
        ("NAME", "mean.sim-fom[t=]", "d:8: rules[0].name: no statistics 'sim-fom[t=]': expected"),
        ("NAME", "mean.sim-fom[t=1", "d:8: rules[0].name: no statistics 'sim-fom[t=1': expected"),
        ("NAME", "mean.sim-fom[t=1,t=2]", "d:8: rules[0].name: no statistics 'sim-fom[t=1,t=2]'"),
        ("NAME", "mean.sim-err[t=1]", "d:8: rules[0].name: no statistics 'sim-err[t=1]': 'sim-er"),
        ("WHEN", 'mean["sim-fom[x=1]"] > 0', "d:9: rules[1].when: no statistics 'sim-fom[x=1]'"),
        ("ACTION", "{name: reset, label: 'sim-fom[x=1]'}", "d:9: rules[1].action.label: no stati"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(key: str, text: str, sentence: str):
    usual = {
        "METRIC": "{of: sim-fom, by: [t]}",
        "NAME": "mean.sim-fom[t=300]",
        "WHEN": "1 > 0",
        "ACTION": "{name: submit, label: sim}",
        "[x=1]\"] > 0'}": "[t=280]\"] > 0'}",
    }
    document = DOCUMENT
    for word, value in {**usual, key: text}.items():
        document = document.replace(word, value, 1)
    with pytest.raises(DocumentError) as caught:
        load_text(document, file="d")
    found = str(caught.value).splitlines()
    assert any(line.startswith(sentence) for line in found), found


def test_retries_are_checked_too():
    document = DOCUMENT.replace("METRIC", "{of: sim-fom, by: [t]}").replace("NAME", "n.sim-fom")
    document = document.replace("WHEN", "1 > 0").replace("ACTION", "{name: submit, label: b}")
    with pytest.raises(DocumentError, match=r"d:4: jobs\[2\].retries: on: no statistics 'sim-fom"):
        load_text(document, file="d")
