"""Rules that see the job: expressions in conditions and actions, and what firing does with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from play import (
    CallCustom,
    CancelJobs,
    Finish,
    Play,
    SubmitJobs,
    UpdateJobs,
    document,
    on_start,
    submit,
)

from flux_ensemble.engine.job_view import JobView
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.engine.snapshot import dump, restore
from flux_ensemble.metrics.job_fields import JobField
from flux_ensemble.metrics.job_row import IN_RULES

JOBS = [
    {
        "name": "sim",
        "command": "simulate {x} {mode}",
        "params": {"x": [1, 2], "mode": "fast"},
        "nodes": 2,
        "tasks": 4,
        "cores": 3,
        "gpus": 1,
        "duration": "10m",
        "urgency": 10,
    },
    {"name": "after", "command": "analyse {x} {y}", "params": {"x": 0, "y": 0}},
]


def of_job(action: dict[str, Any], trigger: str = "job-success", **rule: Any) -> dict[str, Any]:
    """A rule on the jobs of sim."""
    return {"id": "r", "trigger": trigger, "group": "sim", "action": action, **rule}


def played(*rules: dict[str, Any], **given: Any) -> Play:
    custom = "def f(**kwargs): ...\n"
    return Play(document(jobs=JOBS, rules=[on_start("sim"), *rules], custom=custom, **given))


def fired(action: dict[str, Any], memo: dict[str, Any] | None = None, **rule: Any) -> Play:
    """The rule fires once, for job 2, whose x is 2."""
    play = played(of_job(action, **rule))
    play.begin(2)
    if memo is not None:
        play.event(2, "memo", **memo)
    play.end(2)
    return play


def sent(play: Play, group: str = "after") -> list[SubmitJobs]:
    return [command for command in play.of(SubmitJobs) if command.group == group]


# -- what expressions give --------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{job.params.x}", 2),
        ("{job.params['x'] * 2.5}", 5.0),
        ("{job.params.mode}", "fast"),
        ("{job.id}", 2),
        ("{job.index}", 1),
        ("{job.attempt}", 0),
        ("{job.nnodes}", 2),
        ("{job.ntasks}", 4),
        ("{job.ncores}", 12),
        ("{job.ngpus}", 4),
        ("{job.duration / 60}", 10.0),
        ("{job.urgency}", 10),
        ("{job.outcome}", "success"),
        ("{job.returncode}", 0),
        ("{job.memo.word}", "done"),
        ("{job.memo.fom > 0.5}", True),
        ("{job.outcome == 'success' and job.memo.word != '}'}", True),
        ("{count.sim.success + 1}", 2),
        ("{max(job.params.x, 7)}", 7),
        ("run-{job.params.x}-{job.memo.fom}", "run-2-0.75"),
        ("{job.memo.fom > 0.5}!", "true!"),
        ("{{x}} {{{job.id}}}", "{x} {2}"),
        ("}}{{", "}{"),
        ("{ job.params.x\n}", 2),
    ],
)
def test_an_expression_keeps_its_type_and_text_around_it_makes_text(text: str, value: Any) -> None:
    play = fired(submit("after", params={"x": text}), {"word": "done", "fom": 0.75})
    (command,) = sent(play)
    assert command.params == {"x": value}
    assert type(command.params["x"]) is type(value)


def test_a_parameter_can_have_several_values_of_which_some_are_expressions() -> None:
    values = ["{job.params.x}", 7, {"range": [0, 3]}]
    play = fired(submit("after", params={"x": values[:2], "y": values[2]}))
    assert sent(play)[0].params == {"x": [2, 7], "y": {"range": [0, 3]}}
    assert sent(play)[0].count == 6


def test_the_parameters_of_the_trigger_are_those_that_the_group_declares() -> None:
    (command,) = sent(fired(submit("after", params="trigger")))
    assert command.params == {"x": 2}


def test_a_submission_takes_the_place_of_everything_that_its_group_says() -> None:
    play = fired(
        submit(
            "after",
            count="{job.params.x}",
            nodes="{job.nnodes * 2}",
            tasks=16,
            cores="{job.ncores / 12}",
            gpus="{0}",
            duration="{job.duration * 2}",
            urgency="{job.urgency + 1}",
            queue="q{job.index}",
            bank="{job.params.mode}",
            environment={"X": "{job.params.x}", "Y": "{{}}"},
            workdir="/tmp/run-{job.id}",
            attributes={"user": {"parent": "{job.id}"}, "system": {"cwd": "{job.id}"}},
        )
    )
    (command,) = sent(play)
    assert command.count == 2
    assert command.overrides == {
        "nodes": 4,
        "tasks": 16,
        "cores": 1,
        "gpus": 0,
        "duration": 1200.0,
        "urgency": 11,
        "queue": "q1",
        "bank": "fast",
        "environment": {"X": "2", "Y": "{}"},
        "workdir": "/tmp/run-2",
        "attributes": {"user": {"parent": 2}, "system": {"cwd": "2"}},
    }
    job_set, _ = play.engine.spec.groups["after"].submission(2, None, command.overrides)[0]
    assert (job_set.nodes, job_set.tasks, job_set.duration) == (4, 16, 1200.0)


def test_a_job_with_more_nodes_waits_for_so_many() -> None:
    play = fired(submit("after", nodes="{job.nnodes * 4}"))
    (job,) = [job for job, tag in play.queued.items() if tag.group == "after"]
    play.event(job, "submit")
    assert play.engine.workload.jobs[job].nodes == 8


def test_a_rule_on_no_job_can_use_metrics() -> None:
    rule = {
        "trigger": "idle",
        "group": "sim",
        "action": submit("after", count="{count.sim.failed}"),
    }
    play = played(rule)
    play.run(1, 256)
    play.run(2)
    assert sent(play)[0].count == 1


# -- conditions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("job.returncode == 3", True),
        ("job.params.x == 2 and job.params.mode == 'fast'", True),
        ("job.outcome in ['failed', 'timeout']", True),
        ("job.params.mode in 'very fast'", True),
        ("job.outcome not in ('failed',)", False),
        ("job.memo.loss < 1", False),
        ("job.memo['no-such'] != 1", False),
        ("job.params.mode < 1", False),
        ("job.params.mode + 1 == 2 or 1 == 1", False),
        ("job.exception.type == 'x'", False),
        ("job.returncode / 0 > 1 or job.attempt == 0", True),
        ("job.runtime >= 0 and job.pending >= 0", True),
        ("count.sim.failed == 1 and not job.params.x == 1", True),
    ],
)
def test_a_condition_on_the_job(when: str, holds: bool) -> None:
    play = played(of_job(submit("after"), "job-fail", when=when))
    play.run(2, 3 << 8)
    assert bool(sent(play)) is holds


@pytest.mark.parametrize(
    ("status", "code"),
    [(0, 0), (3 << 8, 3), (9, -9), (139, -11), (139 << 8, -11), (150 << 8, 150), (255 << 8, 255)],
)
def test_the_returncode_is_the_exit_code_or_the_negative_signal(status: int, code: int) -> None:
    play = played(of_job(submit("after", params={"x": "{job.returncode}"}), "job-finish"))
    play.run(1, status)
    assert sent(play)[0].params == {"x": code}


@pytest.mark.parametrize(
    "when",
    [
        "job.returncode == -11",
        "job.returncode == 139",
        "job.returncode in [137, 139]",
        "job.signal == 11",
        "job.signal == 'SIGSEGV'",
        "job.signal in ('kill', 'segv')",
        "job.signal != 9 and job.signal >= 1",
    ],
)
@pytest.mark.parametrize("status", [11, 139, 139 << 8], ids=["bare", "core dumped", "of a shell"])
def test_a_signal_is_found_however_it_is_written_and_told(when: str, status: int) -> None:
    play = played(of_job(submit("after"), "job-fail", when=when))
    play.run(1, status)
    assert sent(play)
    play = played(of_job(submit("after"), "job-fail", when=when))
    play.run(1, 3 << 8)
    assert not sent(play)


def test_a_job_that_was_canceled_before_it_ran_has_no_returncode_and_no_signal() -> None:
    play = played(
        of_job(submit("after"), "job-cancel", when="job.returncode < 1000 or job.signal > 0")
    )
    play.event(1, "submit")
    play.event(1, "validate")
    play.event(1, "exception", type="cancel", severity=0)
    play.event(1, "clean")
    assert not sent(play)


def test_an_exception_has_its_type_and_note() -> None:
    action = submit("after", params={"x": "{job.exception.type}: {job.exception.note}"})
    play = played(of_job(action, "job-exception"))
    play.begin(1)
    play.event(1, "exception", type="oom", severity=0, note="out of memory")
    assert sent(play)[0].params == {"x": "oom: out of memory"}


def test_memos_are_those_so_far_and_null_removes_one() -> None:
    rule = of_job(submit("after", repetitions="unlimited"), "job-memo", when="job.memo.a == 1")
    play = played(rule)
    play.begin(1)
    for memo, submissions in ({"a": 1}, 1), ({"b": 2}, 2), ({"a": None}, 2), ({"a": [1]}, 2):
        play.event(1, "memo", **memo)
        assert len(sent(play)) == submissions


def test_the_jobs_of_others_have_no_parameters_and_no_size() -> None:
    fields = ["params.x", "nnodes", "duration", "index", "attempt"]
    rules = [
        of_job(submit("after", repetitions="unlimited"), "job-finish", id=field, scope="queue",
               group="other", when=f"job.{field} >= 0")
        for field in fields
    ]  # fmt: skip
    rules.append(
        of_job({"name": "custom", "label": "f"}, "job-finish", scope="queue", group="other")
    )
    play = played(*rules)
    for name in ("submit", "validate", "start"):
        play.foreign(50, name, "other")
    play.foreign(50, "finish", "other", status=256)
    assert not sent(play)
    (call,) = play.of(CallCustom)
    event = call.kwargs["event"]
    assert (event["params"], event["index"], event["attempt"]) == ({}, None, None)
    assert event["returncode"] == 1


# -- what cannot be used ----------------------------------------------------------------

NO_VALUE = "has no value"
LONG = "{" + " + ".join(["job.params.x"] * 60) + " + job.memo.none}"


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (submit("after", params={"x": "{job.index / 0}"}),
         f"params: {{job.index / 0}} {NO_VALUE} where job.index is 1"),
        (submit("after", params={"x": "{job.memo.none}"}), f"params: {{job.memo.none}} {NO_VALUE}"),
        (submit("after", params={"x": "{job.memo.nan}"}), f"params: {{job.memo.nan}} {NO_VALUE}"),
        (submit("after", params={"x": "{job.memo.long}"}), f"params: {{job.memo.long}} {NO_VALUE}"),
        (submit("after", params={"x": "{job.memo.list}"}),
         f"params: {{job.memo.list}} {NO_VALUE}: it computes with text, a list or a mapping"),
        (submit("after", params={"x": "{job.memo.word * 2}"}),
         f"params: {{job.memo.word * 2}} {NO_VALUE}: it computes with text, a list or a mapping"),
        (submit("after", params={"x": "{9e18 * 9e300 * 9e300}"}),
         f"params: {{9e18 * 9e300 * 9e300}} {NO_VALUE}"),
        (submit("after", params={"x": LONG}),
         f"params: {LONG[:57]}... {NO_VALUE} where job.memo.none is empty"),
        (submit("after", params={"x": "{log(job.params.x - 2)}"}),
         f"params: {{log(job.params.x - 2)}} {NO_VALUE} where job.params.x is 2"),
        (submit("after", params={"x": "{sqrt(-job.params.x)}"}),
         f"params: {{sqrt(-job.params.x)}} {NO_VALUE} where job.params.x is 2"),
        (submit("after", params={"x": "{job.params.x ** 9000 ** job.params.x}"}),
         f"params: {{job.params.x ** 9000 ** job.params.x}} {NO_VALUE} where job.params.x is 2"),
        (submit("after", params={"x": "{job.memo.nul}"}),
         "params: expected text without the character '\\0'"),
        (submit("after", params={"x": "a{job.memo.half}"}),
         "params: expected UTF-8 text, not a lone surrogate"),
        (submit("after", params={"x": {"range": [0, "{job.memo.word}"]}}),
         "parameter 'x': expected a range such as [start, stop, step], not [0, 'many']"),
        (submit("after", nodes="{job.memo.word}"), "nodes: expected an integer >= 1, not 'many'"),
        (submit("after", nodes="{-job.nnodes}"), "nodes: expected an integer >= 1, not -2"),
        (submit("after", nodes="{job.nnodes / 4}"), "nodes: expected an integer >= 1, not 0.5"),
        (submit("after", nodes="{10000000000}"),
         "nodes: expected an integer >= 1, not 10000000000"),
        (submit("after", tasks="{job.nnodes == 2}"), "tasks: expected an integer >= 1, not true"),
        (submit("after", count="{0}"), "count: expected an integer >= 1, not 0"),
        (submit("after", gpus="{-1}"), "gpus: expected an integer >= 0, not -1"),
        (submit("after", urgency="{job.urgency * 4}"),
         "urgency: expected an integer >= 0 and <= 31, not 40"),
        (submit("after", duration="{job.memo.word}"), "duration: expected a duration (seconds, or "
         "text such as '30s', '1.5h' or '100ms'), not 'many'"),
        (submit("after", duration="{-1}"), "duration: expected a duration (seconds, or "
         "text such as '30s', '1.5h' or '100ms'), not -1"),
        (submit("after", queue="{job.memo.empty}"),
         "queue: expected text that is not empty, not ''"),
        (submit("after", environment={"A": "{job.memo.nul}"}),
         "environment: expected text without the character '\\0'"),
        (submit("after", workdir="{job.memo.nul}"),
         "workdir: expected text without the character '\\0'"),
        ({"name": "update", "label": "sim", "urgency": "{99}"},
         "urgency: expected an integer >= 0 and <= 31, not 99"),
        ({"name": "update", "jobs": "trigger", "duration": "{job.duration / 0}"},
         f"duration: {{job.duration / 0}} {NO_VALUE} where job.duration is 600.0"),
        ({"name": "grow", "value": "{0.5}"}, "value: expected an integer >= 1, not 0.5"),
        ({"name": "terminate", "reason": "{job.exception.type}"},
         f"reason: {{job.exception.type}} {NO_VALUE}"),
    ],
)  # fmt: skip
def test_a_firing_without_a_fitting_value_fails_with_a_sentence(
    action: dict[str, Any], sentence: str
) -> None:
    memo = {"word": "many", "empty": "", "list": [1], "nan": float("nan"), "nul": "a\0b",
            "half": "\ud800", "long": "x" * 2**20}  # fmt: skip
    play = fired(action, memo)
    label = " ".join(filter(None, (action["name"], action.get("label"))))
    assert play.recorded("outcome")[-1] == {
        "rule": "r", "firing": 0, "ok": False, "reason": f"{label}: {sentence}", "detail": ""
    }  # fmt: skip
    assert play.recorded("fire")[-1]["rule"] == "r"
    assert not sent(play)
    assert not play.of(UpdateJobs)
    assert play.recorded("rule-disabled") == [{"rule": "r", "reason": f"{label}: {sentence}"}]
    assert play.engine.state == "running"
    play.run(1)
    assert not sent(play)


@pytest.mark.parametrize("on_error", ["disable", "retry", "fail"])
def test_on_error_decides_what_follows(on_error: str) -> None:
    action = submit("after", nodes="{job.memo.n}", repetitions="unlimited")
    play = fired(action, {"n": "two"}, **{"on-error": on_error})
    sentence = "submit after: nodes: expected an integer >= 1, not 'two'"
    if on_error == "fail":
        assert play.of(Finish) == [Finish("failed", f"rule 'r': {sentence}")]
        return
    assert play.status()["rules"][1]["error"] == sentence
    assert not play.status()["rules"][1]["enabled"]
    play.request("rules", id="r", enabled=True)
    play.begin(1)
    play.event(1, "memo", n=2)
    play.end(1)
    assert sent(play)[0].overrides == {"nodes": 2}


def test_more_jobs_than_the_ensemble_may_have_end_it() -> None:
    play = fired(submit("after", count="{2e9}"))
    (finish,) = play.of(Finish)
    assert finish.state == "failed"
    assert "limits.jobs" in finish.reason


# -- actions on the trigger ---------------------------------------------------------------


def test_the_triggering_job_alone_is_cancelled() -> None:
    play = played(of_job({"name": "cancel", "jobs": "trigger"}, "job-memo", when="job.memo.bad"))
    play.begin(1)
    play.begin(2)
    play.event(2, "memo", bad=1)
    assert [command.jobs for command in play.of(CancelJobs)] == [(2,)]
    assert play.recorded("outcome")[-1] == {"rule": "r", "firing": 0, "ok": True, "jobs": 1}


def test_the_triggering_job_alone_is_updated() -> None:
    action = {"name": "update", "jobs": "trigger", "duration": "{job.duration * 2}"}
    play = played(of_job(action, "job-start"))
    play.begin(1)
    assert [(one.jobs, one.duration) for one in play.of(UpdateJobs)] == [((1,), 1200.0)]


@pytest.mark.parametrize("name", ["cancel", "update"])
def test_a_triggering_job_that_is_over_is_left_alone(name: str) -> None:
    more = {"urgency": 1} if name == "update" else {}
    play = fired({"name": name, "jobs": "trigger", **more})
    assert not play.of(CancelJobs)
    assert not play.of(UpdateJobs)
    assert play.recorded("outcome")[-1]["jobs"] == 0


def test_what_is_held_by_a_pause_has_the_values_of_its_trigger() -> None:
    rules = [
        of_job(submit("after", params={"x": "{job.memo.a}"}), "job-memo", id="s"),
        of_job({"name": "cancel", "jobs": "trigger"}, "job-memo", id="c"),
        of_job({"name": "custom", "label": "f"}, "job-memo", id="f"),
    ]
    play = played(*rules)
    play.begin(1)
    play.request("pause")
    play.event(1, "memo", a=1)
    play.event(1, "memo", a=2)
    play.request("resume")
    assert sent(play)[0].params == {"x": 1}
    assert play.of(CancelJobs)[0].jobs == (1,)
    assert play.of(CallCustom)[0].kwargs["event"]["memo"] == {"a": 1}


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_terminate_says_how_it_ended_and_why(state: str) -> None:
    reason = "{count.sim.failed} failed, {job.params.x} too"
    action = {"name": "terminate", "state": state, "reason": reason}
    play = played(of_job(action, "job-fail"))
    play.run(2, 256)
    assert play.of(Finish) == [Finish(state, "1 failed, 2 too (rule 'r')")]


def test_terminate_as_failed_cancels_first_where_it_says_so() -> None:
    action = {"name": "terminate", "state": "failed", "reason": "enough", "cancel": True}
    play = played(of_job(action, "job-fail"))
    play.begin(1)
    play.run(2, 256)
    assert play.engine.state == "ending"
    play.event(1, "exception", type="cancel", severity=0)
    play.end(1, 15)
    assert play.of(Finish) == [Finish("failed", "enough (rule 'r')")]


# -- lists ------------------------------------------------------------------------------


def test_a_rule_with_several_triggers_fires_once_for_each_job() -> None:
    action = submit("after", repetitions="unlimited")
    rule = {"trigger": ["job-fail", "job-timeout", "job-finish"], "action": action}
    play = played({**rule, "group": "sim"})
    play.run(1, 256)
    assert len(sent(play)) == 1
    play.run(2)
    assert len(sent(play)) == 2


def test_a_rule_with_several_groups_sees_the_jobs_of_each() -> None:
    rule = {"trigger": "job-success", "group": ["after", "sim"], "action": submit("after")}
    play = played({**rule, "action": submit("after", repetitions=2)})
    play.run(1)
    play.run(3)
    assert len(sent(play)) == 2


def test_actions_are_performed_in_order_with_one_turn() -> None:
    rule = {
        "id": "r",
        "trigger": "job-success",
        "group": "sim",
        "actions": [
            submit("after", params="trigger"),
            {"name": "cancel", "label": "sim"},
            {"name": "disable", "label": "r"},
            submit("after", params={"x": "{job.params.x * 10}"}),
        ],
    }
    play = played(rule)
    play.begin(1)
    play.run(2)
    assert [(one.params or {})["x"] for one in sent(play)] == [2, 20]
    assert [entry["firing"] for entry in play.recorded("fire") if entry["rule"] == "r"] == [
        0,
        1,
        2,
        3,
    ]
    assert play.status()["rules"][1]["fired"] == 1
    assert play.of(CancelJobs)[0].jobs == (1,)


def test_of_several_actions_none_is_performed_where_one_cannot_be() -> None:
    actions = [
        submit("after"),
        {"name": "cancel", "label": "sim"},
        submit("after", nodes="{1 / 0}"),
    ]
    play = played({"id": "r", "trigger": "job-success", "actions": actions})
    play.begin(1)
    play.run(2)
    assert not sent(play)
    assert not play.of(CancelJobs)
    assert [entry["rule"] for entry in play.recorded("rule-disabled")] == ["r"]


def test_actions_after_the_end_of_the_ensemble_are_not_performed() -> None:
    actions = [{"name": "terminate", "state": "failed"}, submit("after")]
    play = played({"trigger": "job-success", "actions": actions})
    play.run(1)
    assert not sent(play)
    assert play.engine.state == "failed"


# -- what custom functions are told -------------------------------------------------------


@pytest.mark.parametrize(
    ("triggers", "status", "told"),
    [
        ("job-success", 0, ("job-success", "finish")),
        ("job-finish", 0, ("job-finish", "finish")),
        (["job-fail", "job-success"], 0, ("job-success", "finish")),
        (["job-success", "job-fail"], 256, ("job-fail", "finish")),
        (["job-start", "job-gave-up"], 256, ("job-gave-up", "finish")),
        (["job-clean", "job-cancel", "job-gave-up"], 256, ("job-gave-up", "finish")),
        (["job-run", "job-clean"], 0, ("job-clean", "clean")),
    ],
)
def test_a_function_is_told_the_trigger_of_its_rule(
    triggers: Any, status: int, told: tuple[str, str]
) -> None:
    jobs = [{"name": "sim", "command": "true", "retries": 1}]
    rule = {"trigger": triggers, "action": {"name": "custom", "label": "f"}, "enabled": False}
    rules = [on_start("sim"), {**rule, "id": "r"}]
    play = Play(document(jobs=jobs, rules=rules, custom="def f(**kwargs): ...\n"))
    play.run(1, 256)
    play.begin(2)
    play.request("rules", id="r", enabled=True)
    play.end(2, status)
    event = play.of(CallCustom)[0].kwargs["event"]
    assert (event["trigger"], event["name"]) == told


def test_a_function_is_told_all_of_the_job() -> None:
    jobs = [
        {
            "name": "sim",
            "command": "simulate {x}",
            "params": {"x": [1, 2]},
            "output": "out/{x}.txt",
            "workdir": "/data/{x}",
            "retries": 1,
        }
    ]
    rule = {"trigger": "job-fail", "action": {"name": "custom", "label": "f", "repetitions": 2}}
    custom = "def f(**kwargs): ...\n"
    play = Play(document(jobs=jobs, rules=[on_start("sim"), rule], custom=custom))
    play.begin(2)
    play.event(2, "memo", fom=1.5, word="w")
    play.end(2, 9)
    play.run(3, 256)
    first, second = (call.kwargs["event"] for call in play.of(CallCustom))
    assert first["trigger"] == "job-fail"
    assert first["job"] == 2
    assert first["params"] == {"x": 2}
    assert first["memo"] == {"fom": 1.5, "word": "w"}
    assert (first["returncode"], first["index"], first["attempt"]) == (-9, 1, 0)
    assert first["workdir"] == "/data/2"
    assert first["output"].endswith("out/2.txt")
    assert (second["job"], second["returncode"], second["attempt"]) == (3, 1, 1)


@pytest.mark.parametrize("output", ["none", "kvs", None])
def test_a_function_is_told_no_path_where_the_output_goes_to_no_file(output: str | None) -> None:
    sim = {"name": "sim", "command": "simulate", **({"output": output} if output else {})}
    rule = {"trigger": "job-success", "action": {"name": "custom", "label": "f"}}
    custom = "def f(**kwargs): ...\n"
    play = Play(document(jobs=[sim], rules=[on_start("sim"), rule], custom=custom))
    play.run(1)
    assert play.of(CallCustom)[0].kwargs["event"]["output"] is None


# -- the same again -----------------------------------------------------------------------


def test_a_rule_with_lists_that_a_function_returned_survives_a_snapshot() -> None:
    call = {"trigger": "start", "action": {"name": "custom", "label": "f"}}
    play = played(call)
    play.engine.stats.keep_values()
    returned = {
        "id": "added",
        "trigger": ["job-fail", "job-success"],
        "group": ["after", "sim"],
        "when": "job.params.x > 1",
        "actions": [
            submit("after", params={"y": "{job.params.x}"}, repetitions=2),
            submit("after", nodes="{job.nnodes}"),
        ],
    }
    play.done(play.of(CallCustom)[0], returned=[{"kind": "rule", "value": returned}])
    play.begin(2)
    values = play.engine.stats.take_values()
    snapshot = json.loads(json.dumps(dump(play.engine)))
    restored = restore(play.engine.spec, snapshot, [values])
    assert json.loads(json.dumps(dump(restored))) == snapshot
    assert restored.rules.states["added"].rule == play.engine.rules.states["added"].rule
    play.engine, play.handle = restored, restored.handle
    play.end(2)
    assert [(one.params, one.overrides) for one in sent(play)] == [
        ({"y": 2}, None),
        (None, {"nodes": 2}),
    ]


# -- the number of each job -------------------------------------------------------------


def numbers(play: Play, command: SubmitJobs, name: str) -> list[Any]:
    """The values of a parameter of the jobs that a command submits."""
    group = play.engine.spec.groups[command.group]
    submission = group.submission(command.each, command.params, command.overrides)
    return [submission[command.first + number][1][name] for number in range(command.count)]


def test_jobs_that_an_action_submits_together_each_have_their_own_number() -> None:
    play = played(of_job(submit("after", count=3, params={"x": "{index}"}), "job-success"))
    play.run(1)
    (command,) = sent(play)
    assert numbers(play, command, "x") == [0, 1, 2]


def test_an_expression_and_the_number_of_each_job_stand_in_one_text() -> None:
    action = submit("after", count=2, params={"x": "{job.params.x}-{index}"})
    play = played(of_job(action, "job-success"))
    play.run(1)
    (command,) = sent(play)
    assert numbers(play, command, "x") == ["1-0", "1-1"]


def test_a_job_that_runs_again_keeps_its_number() -> None:
    mc = {"name": "mc", "command": "run {i}", "count": 3, "retries": 1, "params": {"i": "{index}"}}
    play = Play(document(jobs=[mc], rules=[on_start("mc")]))
    play.begin(2)
    play.end(2, 1 << 8)
    command = play.of(SubmitJobs)[-1]
    assert (numbers(play, command, "i"), command.count) == ([1], 1)


def test_an_idle_rule_fires_for_each_number() -> None:
    mc = {"name": "mc", "command": "run {i}", "count": 2, "params": {"i": "{index}"}}
    after = {"name": "after", "command": "reduce {x}", "params": {"x": 0}}
    rule = {"trigger": "idle", "group": "mc", "by": ["i"],
            "action": submit("after", params={"x": "{job.params.i}"})}  # fmt: skip
    play = Play(document(jobs=[mc, after], rules=[on_start("mc"), rule]))
    play.run(2)
    play.run(1)
    values = [command.params for command in play.of(SubmitJobs) if command.group == "after"]
    assert values == [{"x": 1}, {"x": 0}]


def seeds(play: Play) -> list[Any]:
    """The seeds of the jobs that have been sent, in order."""
    return [seed for command in play.of(SubmitJobs) for seed in numbers(play, command, "seed")]


#: Two jobs with numbers among all of their group, and again while there are fewer than six.
SEEDED = {"name": "mc", "command": "run {seed}", "count": 2, "params": {"seed": "{number}"}}
AGAIN = {
    "trigger": "idle",
    "group": "mc",
    "action": submit("mc", repetitions=2),
}


def test_numbers_go_on_from_one_submission_of_a_group_to_the_next() -> None:
    play = Play(document(jobs=[SEEDED], rules=[on_start("mc"), AGAIN]))
    for job in (1, 2, 3, 4, 5, 6):
        play.run(job)
    assert seeds(play) == [0, 1, 2, 3, 4, 5]


def test_numbers_count_jobs_of_submissions_that_do_not_name_them() -> None:
    plain = {**SEEDED, "params": {"seed": 7}}
    again = {**AGAIN, "action": submit("mc", params={"seed": "s{number}-{index}"})}
    play = Play(document(jobs=[plain], rules=[on_start("mc"), again]))
    play.run(1)
    play.run(2)
    assert seeds(play) == [7, 7, "s2-0", "s3-1"]


def test_numbers_go_on_after_a_snapshot() -> None:
    play = Play(document(jobs=[SEEDED], rules=[on_start("mc"), AGAIN]))
    play.engine.stats.keep_values()
    play.run(1)
    values = play.engine.stats.take_values()
    snapshot = json.loads(json.dumps(dump(play.engine)))
    play.engine = restore(play.engine.spec, snapshot, [values])
    play.handle = play.engine.handle
    assert json.loads(json.dumps(dump(play.engine))) == snapshot
    for job in (2, 3, 4, 5, 6):
        play.run(job)
    assert seeds(play) == [0, 1, 2, 3, 4, 5]


def test_what_runs_again_keeps_its_number_and_takes_none() -> None:
    play = Play(document(jobs=[{**SEEDED, "retries": 1}], rules=[on_start("mc"), AGAIN]))
    for job, status in ((1, 0), (2, 0), (3, 0), (4, 1 << 8), (5, 0), (6, 0), (7, 0)):
        play.run(job, status)
    assert seeds(play) == [0, 1, 2, 3, 3, 4, 5]


def test_a_copy_has_the_number_of_its_job() -> None:
    copy = {"id": "copy", "trigger": "job-running", "group": "mc", "when": "job.runtime >= 60",
            "action": {"name": "copy"}}  # fmt: skip
    play = Play(document(jobs=[{**SEEDED, "count": 1}], rules=[on_start("mc"), AGAIN, copy]))
    play.run(1)
    play.begin(2)
    play.t += 60
    play.timer("rule:copy")
    assert seeds(play) == [0, 1, 1]


def test_an_idle_rule_fires_for_each_number_among_all() -> None:
    after = {"name": "after", "command": "reduce {x}", "params": {"x": 0}}
    rule = {"trigger": "idle", "group": "mc", "by": ["seed"],
            "action": submit("after", params={"x": "{job.params.seed}"})}  # fmt: skip
    again = {"trigger": "timer", "every": 10, "action": submit("mc"), "id": "more"}
    play = Play(document(jobs=[SEEDED, after], rules=[on_start("mc"), rule, again]))
    play.timer("rule:more")
    for job in (1, 2, 3, 4):
        play.run(job)
    values = [command.params for command in play.of(SubmitJobs) if command.group == "after"]
    assert values == [{"x": 0}, {"x": 1}, {"x": 2}, {"x": 3}]


def test_a_number_of_nodes_is_the_same_for_all_jobs_of_a_submission() -> None:
    with pytest.raises(ValueError, match=r"action.nodes: no metric named 'index'"):
        played(of_job(submit("after", nodes="{index}"), "job-success"))


@pytest.mark.parametrize("name", IN_RULES)
def test_each_field_that_rules_know_can_be_asked_of_each_job(name: str) -> None:
    field = JobField(name, "x" if name in ("params", "memo") else None)
    play = played()
    play.begin(2)
    foreign = ActiveJob(9, "other", None, 0, play.t)
    for job in (*play.engine.workload.jobs.values(), foreign):
        JobView(play.engine, job, play.t, "start")(field)
