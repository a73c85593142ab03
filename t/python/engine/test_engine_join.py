"""Rules on `idle` that join several groups, and that know how the jobs went."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, cast

import pytest
from play import CallCustom, Play, document, on_start, submit

from flux_ensemble.cli.display.reasons import reasons
from flux_ensemble.client.responses import Why
from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.engine.rule_reasons import why
from flux_ensemble.engine.snapshot import dump, restore

SAMPLES = ["s1", "s2"]
ALIGN: Mapping[str, Any] = {
    "name": "align",
    "command": "align {sample} {lane}",
    "params": {"sample": SAMPLES, "lane": [1, 2]},
}
QC: Mapping[str, Any] = {"name": "qc", "command": "qc {sample}", "params": {"sample": SAMPLES}}
CALL: Mapping[str, Any] = {
    "name": "call",
    "command": "call {sample} {n}",
    "params": {"sample": "none", "n": 0},
}

#: Jobs of `align` by sample and lane, and of `qc` by sample, in the order of their submission.
S1_1, S1_2, S2_1, S2_2, QC_1, QC_2 = range(1, 7)


def joined(
    *rules: dict[str, Any],
    when: str | None = "idle.failed == 0",
    by: Any = ("sample",),
    align: Mapping[str, Any] = ALIGN,
    qc: Mapping[str, Any] = QC,
    rule: Mapping[str, Any] | None = None,
    n: str = "{idle.success}",
    **given: Any,
) -> Play:
    sample = "{job.params.sample}" if by else "all"
    join: dict[str, Any] = {
        "id": "join",
        "trigger": "idle",
        "group": ["align", "qc"],
        "action": submit("call", params={"sample": sample, "n": n}),
        **({"by": list(by)} if by else {}),
        **({} if when is None else {"when": when}),
        **(rule or {}),
    }
    jobs = [dict(align), dict(qc), dict(CALL)]
    start = {"trigger": "start", "actions": [submit("align"), submit("qc")]}
    return Play(document(jobs=jobs, rules=[start, join, *rules], **given))


def called(p: Play) -> list[tuple[Any, Any]]:
    """The sample, and how many jobs of it had succeeded, of each firing of the join."""
    fired = [entry for entry in p.recorded("fire") if entry["rule"] == "join"]
    params = [entry["action"]["params"] for entry in fired]
    return [(each["sample"], each["n"]) for each in params]


def lines(p: Play) -> list[str]:
    """The output of `why`."""
    answer = {"state": "running", "reason": "", "t": p.t, "rules": why(p.engine, p.t)}
    return list(reasons(cast(Why, answer)))


def unmet(p: Play) -> list[str]:
    """For what the join did not fire, as `why` says it."""
    (join,) = why(p.engine, p.t, "join")
    return cast(list[str], join.get("unmet", []))


def test_a_join_fires_for_each_value_when_every_group_is_done_with_it():
    p = joined()
    for job in (S1_1, QC_2, S1_2, S2_1):
        p.run(job)
    assert called(p) == []
    p.run(QC_1)
    assert called(p) == [("s1", 3)]
    p.run(S2_2)
    assert called(p) == [("s1", 3), ("s2", 3)]
    cause = p.recorded("fire")[-1]["cause"]
    assert cause["groups"] == ["align", "qc"]
    assert cause["params"] == {"sample": "s2"}


def test_a_sample_of_which_one_lane_has_failed_is_not_joined_as_if_it_had_succeeded():
    bad = {
        "id": "bad",
        "trigger": "idle",
        "group": ["align", "qc"],
        "by": ["sample"],
        "when": "idle.failed > 0",
        "action": {"name": "terminate", "reason": "{job.params.sample}: {idle.failed}"},
    }
    p = joined(bad)
    for job in (S1_1, S2_1, S2_2, QC_2, QC_1):
        p.run(job)
    p.run(S1_2, status=256)
    assert called(p) == [("s2", 3)]
    assert p.status()["reason"] == "s1: 1 (rule 'bad')"


@pytest.mark.parametrize("how", ["cancelled", "never started", "never sent"])
def test_a_job_that_never_ran_to_its_end_has_failed(how):
    p = joined(
        when=None,
        n="{idle.failed}",
        finish="never",
        limits={"active-jobs": 1} if how == "never sent" else {},
    )
    if how == "never sent":
        p.begin(S1_1)
        p.request("cancel", group="align")
        p.event(S1_1, "exception", type="cancel", severity=0)
        p.end(S1_1, status=15)
        p.run(2)
        p.run(3)
        assert called(p) == [("s1", 2), ("s2", 2)]
        return
    for job in (S1_1, S2_1, S2_2, QC_1, QC_2):
        p.run(job)
    p.event(S1_2, "submit")
    if how == "cancelled":
        p.event(S1_2, "validate")
        p.event(S1_2, "start")
        p.request("cancel", group="align")
        p.event(S1_2, "exception", type="cancel", severity=0)
        p.end(S1_2, status=15)
    else:
        p.event(S1_2, "exception", type="alloc", severity=0, note="no")
        p.event(S1_2, "clean")
    assert called(p) == [("s2", 0), ("s1", 1)]


def test_jobs_that_a_rerun_sends_after_a_cancel_count_once():
    p = joined(limits={"active-jobs": 1})
    p.run(S1_1)
    p.begin(2)
    p.request("cancel")
    p.event(2, "exception", type="cancel", severity=0)
    p.end(2, status=15)
    assert p.status()["state"] == "canceled"
    chosen = [
        {"rule": "rule-0", "firing": 0, "group": "align", "jobs": [[1, 2, "canceled", 0, 0, None]]}
    ]
    assert p.request("rerun", firings=chosen, unsent=True).result["jobs"] == 5
    for job in range(3, 8):
        p.run(job)
    assert sorted(called(p)) == [("s1", 2), ("s2", 3)]


def test_a_job_that_succeeds_when_it_is_tried_again_is_one_job_that_has_succeeded():
    p = joined(align={**ALIGN, "retries": 2})
    p.run(S1_1, status=256)
    again = 7
    p.run(again, status=256)
    for job in (S1_2, QC_1, again + 1):
        p.run(job)
    assert called(p) == [("s1", 3)]


def test_a_job_that_gave_up_has_failed_once():
    p = joined(align={**ALIGN, "retries": 1}, when=None, n="{idle.failed}")
    p.run(S1_1, status=256)
    p.run(7, status=256)
    p.run(S1_2)
    p.run(QC_1)
    assert called(p) == [("s1", 1)]


def test_a_job_that_was_lost_too_often_has_failed_once():
    p = joined(when=None, n="{idle.failed}", limits={"losses": 1})
    for job in (S1_1, 7):
        p.begin(job)
        p.event(job, "exception", type="lost", severity=0, note="the node is gone")
        p.end(job, status=9)
    for job in (S1_2, QC_1):
        p.run(job)
    assert p.recorded("gave-up")[0]["point"] == "sample=s1 lane=1"
    assert called(p) == [("s1", 1)]


@pytest.mark.parametrize(
    "values",
    [[0.1, 0.1 + 0.2, 1e-300, -0.0], ["a b", 'c"d', "{}", "x,y=z"], [True, False], [1, "1"]],
)
def test_values_of_any_kind_can_be_joined_by(values):
    align = {**ALIGN, "command": "align", "params": {"sample": values, "lane": [1]}}
    p = joined(align=align, qc={**QC, "command": "qc", "params": {"sample": values}})
    for job in range(1, 2 * len(values) + 1):
        p.run(job)
    assert [n for _, n in called(p)] == [2] * len(values)
    assert p.recorded("not-joined") == []


def test_an_interrupted_job_is_not_counted_twice():
    p = joined()
    p.begin(S1_1)
    p.event(S1_1, "exception", type="lost", severity=0, note="the node is gone")
    p.end(S1_1, status=9)
    for job in (S1_2, QC_1, 7):
        p.run(job)
    assert called(p) == [("s1", 3)]


def test_what_failed_and_is_submitted_again_by_hand_completes_the_join():
    p = joined(finish="never")
    p.run(S1_1, status=256)
    p.run(S1_2)
    p.run(QC_1)
    assert called(p) == []
    p.request("submit", group="align", params={"sample": ["s1"], "lane": [1]})
    p.run(max(p.queued))
    assert called(p) == [("s1", 1)]


def test_after_it_has_fired_each_group_has_to_have_a_job_again():
    p = joined(
        finish="never",
        rule={
            "action": submit(
                "call",
                params={"sample": "{job.params.sample}", "n": "{idle.jobs}"},
                repetitions="unlimited",
            )
        },
    )
    for job in range(1, 7):
        p.run(job)
    assert called(p) == [("s1", 3), ("s2", 3)]
    p.request("submit", group="align", params={"sample": ["s1"], "lane": [1]})
    p.run(max(p.queued))
    assert len(called(p)) == 2
    p.request("submit", group="qc", params={"sample": ["s1"]})
    p.run(max(p.queued))
    assert called(p)[2:] == [("s1", 2)]


def test_without_by_the_groups_are_joined_as_a_whole():
    p = joined(by=(), n="{idle.jobs}")
    for job in (*range(S1_1, QC_1), QC_2):
        p.run(job)
    assert called(p) == []
    p.run(QC_1)
    assert called(p) == [("all", 6)]


def test_a_rule_on_one_group_without_a_condition_knows_how_its_jobs_went():
    said = {"name": "terminate", "reason": "{idle.failed} of {idle.jobs}"}
    idle = {"id": "end", "trigger": "idle", "group": "a", "action": said}
    p = Play(document(rules=[on_start("a", count=2), idle]))
    p.run(1, status=256)
    p.run(2)
    assert p.status()["reason"] == "1 of 2 (rule 'end')"


def test_a_rule_on_one_group_and_on_the_ensemble_know_how_their_jobs_went():
    rules = [
        on_start("a", count=3),
        {
            "id": "of-a",
            "trigger": "idle",
            "group": "a",
            "when": "idle.failed == 1 and idle.success == 2",
            "action": submit("b", count=2),
        },
        {
            "id": "of-all",
            "trigger": "idle",
            "when": "idle.jobs == 5",
            "action": {"name": "terminate", "reason": "{idle.failed} of {idle.jobs}"},
        },
    ]
    p = Play(document(rules=rules))
    for job, status in ((1, 0), (2, 256), (3, 0), (4, 256), (5, 0)):
        p.run(job, status=status)
    assert p.status()["reason"] == "2 of 5 (rule 'of-all')"


def test_the_counts_of_a_loop_are_those_of_its_last_round():
    loop = {
        "id": "loop",
        "trigger": "idle",
        "group": "a",
        "when": "idle.failed > 0",
        "action": submit("a", count=2, repetitions=5),
    }
    p = Play(document(rules=[on_start("a", count=2), loop]))
    p.run(1, status=256)
    p.run(2)
    p.run(3)
    p.run(4)
    assert p.submitted("a") == 4
    assert p.status()["state"] == "completed"


def test_the_statistic_of_the_values_of_the_combination_can_be_named():
    p = joined(
        metrics=[{"of": "align-coverage", "by": ["sample"]}],
        when="mean['align-coverage[sample]'] > 5",
        n="{mean['align-coverage[sample]']}",
    )
    for job, coverage in ((S1_1, 4), (S1_2, 10), (S2_1, 1), (S2_2, 2)):
        p.begin(job)
        p.event(job, "memo", coverage=coverage)
        p.end(job)
    p.run(QC_1)
    p.run(QC_2)
    assert called(p) == [("s1", 7)]


def test_a_rule_on_a_job_can_name_the_statistic_of_its_own_values():
    p = Play(
        document(
            jobs=[{"name": "a", "command": "a {t}", "params": {"t": [1, 2.5]}}, dict(CALL)],
            metrics=[{"of": "a-e", "by": ["t"]}],
            rules=[
                on_start("a"),
                {
                    "id": "join",
                    "trigger": "job-success",
                    "group": "a",
                    "when": "n['a-e[t]'] == 1",
                    "action": submit(
                        "call",
                        params={"sample": "{job.params.t}", "n": "{max['a-e[t]']}"},
                        repetitions="unlimited",
                    ),
                },
            ],
        )
    )
    for job, e in ((1, 3), (2, 4)):
        p.begin(job)
        p.event(job, "memo", e=e)
        p.end(job)
    assert called(p) == [(1, 3), (2.5, 4)]


def test_a_combination_that_a_group_never_had_is_named_by_why_and_at_the_end():
    p = joined(qc={**QC, "params": {"sample": ["s1"]}})
    for job in (S1_1, S2_1, S2_2):
        p.run(job)
    assert unmet(p) == ["no job of group 'qc' was submitted with sample=s2"]
    p.run(S1_2)
    p.run(5)
    p.run(6)
    assert called(p) == [("s1", 3)]
    assert [dict(entry) for entry in p.recorded("not-joined")] == [
        {"rule": "join", "reason": "no job of group 'qc' was submitted with sample=s2"}
    ]


def test_an_ensemble_that_is_ended_early_names_no_combinations():
    p = joined()
    p.run(S1_1)
    p.request("terminate")
    assert p.recorded("not-joined") == []
    assert unmet(p) == ["no job of group 'qc' was ever submitted"]


def test_a_combination_for_which_the_condition_did_not_hold_is_named_by_why():
    p = joined(finish="never")
    for job in (S1_1, QC_1, S2_1, S2_2, QC_2):
        p.run(job)
    assert unmet(p) == []
    p.run(S1_2, status=256)
    assert unmet(p) == ["did not fire for sample=s1 (1 of 3 jobs failed)"]
    (line,) = [each for each in lines(p) if "did not" in each]
    assert line == "  did not fire for sample=s1 (1 of 3 jobs failed)"
    assert "        depends on the values of sample" in lines(p)
    p.request("submit", group="align", params={"sample": ["s1"], "lane": [1]})
    p.run(max(p.queued))
    assert unmet(p) == []


def test_why_has_the_values_by_which_a_combination_did_not_fire():
    p = joined(
        metrics=[{"of": "align-depth", "by": ["sample"]}],
        when='idle.failed == 0 and mean["align-depth[sample]"] > 5',
        finish="never",
    )
    assert "        depends on the values of sample" in lines(p)
    for job, depth in ((S1_1, 2), (S1_2, 4), (S2_1, 6), (S2_2, 8)):
        p.begin(job)
        p.event(job, "memo", depth=depth)
        p.end(job)
    p.run(QC_1)
    p.run(QC_2)
    assert called(p) == [("s2", 3)]
    of_s1, of_s2 = "mean.align-depth[sample=s1] is 3", "mean.align-depth[sample=s2] is 7"
    assert unmet(p) == [f"did not fire for sample=s1 (0 of 3 jobs failed, {of_s1})"]
    assert f"        {of_s1}, {of_s2}" in lines(p)


def test_a_combination_that_has_fired_as_often_as_it_may_is_not_named():
    p = joined(finish="never")
    for job in range(S1_1, QC_2 + 1):
        p.run(job)
    for group, more in (("align", {"lane": [1]}), ("qc", {})):
        p.request("submit", group=group, params={"sample": ["s1"], **more})
        p.run(max(p.queued))
    assert unmet(p) == []


def test_groups_that_are_joined_as_a_whole_say_how_many_failed():
    p = joined(by=(), finish="never")
    for job in range(S1_1, QC_2 + 1):
        p.run(job, status=256 if job == QC_1 else 0)
    assert unmet(p) == ["did not fire when idle: 1 of 6 jobs failed"]


def test_a_custom_function_learns_how_the_jobs_went():
    p = joined(
        when=None,
        rule={"action": {"name": "custom", "label": "f"}},
        custom="def f(event, **kwargs): ...",
    )
    for job in (S1_1, QC_1):
        p.run(job)
    p.run(S1_2, status=256)
    (call,) = p.of(CallCustom)
    assert call.kwargs["event"]["idle"] == {"jobs": 3, "success": 2, "failed": 1}
    assert call.kwargs["event"]["params"] == {"sample": "s1"}


def test_a_function_that_a_group_calls_puts_the_join_off():
    call = {"trigger": "job-success", "group": "qc", "action": {"name": "custom", "label": "f"}}
    p = joined(call, custom="def f(**kwargs): ...")
    for job in (S1_1, QC_1, S1_2):
        p.run(job)
    assert called(p) == []
    p.done(p.of(CallCustom)[0])
    assert called(p) == [("s1", 3)]


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_the_jobs_a_recovery_and_failures_change_no_join(seed):
    """Every order of ends, cut by recoveries: each sample is joined once, with its true counts."""
    shuffle = random.Random(seed)
    p = joined(align={**ALIGN, "retries": 1}, when=None, n="{idle.success}")
    p.engine.stats.keep_values()
    values: list[Any] = []
    fails = {job: shuffle.choice((0, 0, 1, 2)) for job in range(1, 7)}
    todo, succeeded = list(range(1, 7)), dict.fromkeys(SAMPLES, 0)
    sample = {S1_1: "s1", S1_2: "s1", QC_1: "s1", S2_1: "s2", S2_2: "s2", QC_2: "s2"}
    while todo:
        job = todo.pop(shuffle.randrange(len(todo)))
        bad = fails.pop(job, 0)
        last = max(p.queued)
        p.run(job, status=256 * (bad > 0))
        tag = p.queued[job]
        if bad and tag.group == "align" and tag.rule != "retry":
            fails[last + 1] = bad - 1
            again = max(p.queued)
            assert again > last
            sample[again] = sample[job]
            todo.append(again)
        elif not bad:
            succeeded[sample[job]] += 1
        if shuffle.random() < 0.5:
            values.append(p.engine.stats.take_values())
            text = json.dumps(dump(p.engine))
            engine = restore(p.engine.spec, json.loads(text), values)
            engine.check()
            assert json.dumps(dump(engine)) == text
            p.engine, p.handle = engine, engine.handle
            engine.stats.keep_values()
    assert sorted(called(p)) == sorted(succeeded.items())


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"group": ["align", "qc"], "by": ["lane"]}, "group 'qc' has no parameter 'lane'"),
        ({"group": ["align", "qc"], "by": ["lane"]}, "that all of them have: sample"),
        ({"group": ["align", "nothing"]}, "nothing"),
        ({"group": ["align", "qc"], "when": "idle.fail == 0"}, "did you mean 'failed'?"),
        ({"group": ["align", "qc"], "when": "idle.failed == 'no'"}, "is a number"),
        ({"group": ["align", "qc"], "when": "job.params.sample == 's1'"}, "no job triggers"),
        ({"trigger": "job-fail", "group": "qc", "when": "idle.failed > 0"}, "'trigger: idle'"),
        (
            {"group": ["align"], "by": ["lane"], "when": "mean['align-c[sample]'] > 0"},
            "knows the parameters in 'by' (lane), and 'sample' is not among them",
        ),
        (
            {"trigger": "timer", "after": 1, "when": "mean['align-c[sample]'] > 0"},
            "is for the values of a job",
        ),
    ],
)
def test_what_cannot_be_joined_is_an_error_that_says_what_can(rule, sentence):
    jobs = [dict(ALIGN), dict(QC), dict(CALL)]
    given = document(
        jobs=jobs,
        metrics=[{"of": "align-c", "by": ["sample"]}],
        rules=[{"trigger": "idle", "action": submit("call"), **rule}],
    )
    with pytest.raises(DocumentError) as caught:
        load_mapping(given)
    assert sentence in str(caught.value)


# -- repetitions that are used up ---------------------------------------------------------


def sampled(**given: Any) -> Play:
    """Jobs by t, of which one more is run up to twice while the mean is below 5."""
    more = {
        "id": "more",
        "trigger": "idle",
        "group": "a",
        "by": ["t"],
        "when": 'mean["a-x[t]"] < 5',
        "action": submit("a", params={"t": "{job.params.t}"}, repetitions=2),
        **given,
    }
    jobs = [{"name": "a", "command": "a {t}", "params": {"t": [1, 2]}}]
    metrics = [{"of": "a-x", "by": ["t"]}]
    rule = {key: value for key, value in more.items() if value is not None}
    return Play(document(jobs=jobs, metrics=metrics, rules=[on_start(), rule]))


def ran(p: Play, job: int, x: float) -> None:
    p.begin(job)
    p.event(job, "memo", x=x)
    p.end(job)


SPENT = "it has fired its 2 repetitions for t=1 (mean.a-x[t=1] is 1), and its condition still holds"


def test_a_rule_whose_repetitions_are_used_up_while_its_condition_holds_is_named_at_the_end():
    p = sampled()
    ran(p, 1, 1.0)
    ran(p, 2, 9.0)
    ran(p, 3, 1.0)
    # Its second repetition runs.
    assert unmet_of(p) == []
    assert p.recorded("used-up") == []
    ran(p, 4, 1.0)
    assert p.engine.state == "completed"
    assert [dict(entry) for entry in p.recorded("used-up")] == [{"rule": "more", "reason": SPENT}]
    assert unmet_of(p) == [SPENT]


def unmet_of(p: Play) -> list[str]:
    (rule,) = why(p.engine, p.t, "more")
    return cast(list[str], rule.get("unmet", []))


def test_a_rule_without_by_whose_repetitions_are_used_up_is_named_too():
    p = sampled(by=None, when='mean["a-x"] < 5', action=submit("a", repetitions=2))
    for job in range(1, 7):
        ran(p, job, 1.0)
    assert unmet_of(p) == [
        "it has fired its 2 repetitions (mean.a-x is 1), and its condition still holds"
    ]


def test_what_such_a_rule_reads_may_be_empty():
    p = sampled(
        by=None,
        when='count.a.success > 0 and not (mean["a-y"] >= 5)',
        action=submit("a", repetitions=2),
    )
    for job in range(1, 7):
        p.run(job)
    (reason,) = unmet_of(p)
    assert "mean.a-y is empty" in reason


@pytest.mark.parametrize(
    ("given", "x"),
    [({}, 9.0), ({"action": submit("a", params={"t": "{job.params.t}"})}, 1.0)],
    ids=["its condition holds no more", "it was to fire once"],
)
def test_a_rule_that_has_done_what_it_was_to_do_is_not(given, x):
    p = sampled(**given)
    ran(p, 1, 1.0)
    ran(p, 2, 9.0)
    ran(p, 3, 1.0)
    if not given:
        ran(p, 4, 99.0)
    assert p.engine.state == "completed"
    assert p.recorded("used-up") == []
    assert unmet_of(p) == []
