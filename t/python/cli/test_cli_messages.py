"""Log entries in words: what `run` announces and what `log` prints."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flux_ensemble.cli.commands.logs import _Printer, _Wanted
from flux_ensemble.cli.display.messages import announce, closing, not_over
from flux_ensemble.cli.display.views import failed_line
from flux_ensemble.client.responses import Entry
from flux_ensemble.eventlog import JobEvent
from flux_ensemble.results.log_lines import explain
from flux_ensemble.words import plain


def entry(name: str, /, **context: Any) -> Entry:
    return {"timestamp": 12.5, "name": name, "context": context}


def fire(action: dict[str, Any], cause: dict[str, Any] | None = None, **more: Any) -> Entry:
    given = {"rule": "rule-1", "firing": 0, "trigger": "start", "cause": cause or {}, **more}
    return entry("fire", action=action, **given)


def said(given: Entry) -> list[str]:
    return [plain(line) for line in announce(given)]


def explained(given: Entry) -> str:
    return plain(explain(given, 10.0, str))


ECHO = {"name": "echo", "command": "echo hello world", "count": 5, "nodes": 1}


def test_a_submission_is_announced_in_the_form_of_the_predecessor() -> None:
    given = fire({"name": "submit", "label": "echo"}, trigger="count.sleep.success", jobs=[ECHO])
    assert said(given) == [
        " => trigger count.sleep.success",
        "   submit echo        (name:echo),(command:echo hello world),(count:5),(nodes:1)",
    ]


def test_a_submission_with_parameters_of_its_own_says_which() -> None:
    given = fire(
        {"name": "submit", "label": "echo", "params": {"t": 280, "x": [1, 2]}}, jobs=[ECHO]
    )
    assert said(given)[1].endswith(",(nodes:1),(params:t=280 x=[1, 2])")
    given = fire({"name": "submit", "label": "echo", "params": {"t": list(range(99))}}, jobs=[ECHO])
    (params,) = said(given)[1].split("(params:")[1:]
    assert len(params) == 101
    assert params.endswith("...)")


def test_a_rule_that_fires_for_a_combination_says_for_which() -> None:
    cause = {"trigger": "idle", "group": "a", "params": {"t": 280, "x": "fine"}, "timestamp": 1.0}
    given = fire({"name": "custom", "label": "f"}, cause, trigger="idle a by t, x")
    assert said(given)[0] == " => trigger idle a by t, x (t=280 x=fine)"


def test_what_a_function_prints_is_announced_line_by_line() -> None:
    given = entry("custom-output", rule="r", firing=0, function="judge", text="a\nb\n")
    assert said(given) == ["   judge: a", "   judge: b"]


def test_each_job_set_of_a_group_has_a_line() -> None:
    given = fire({"name": "submit", "label": "echo"}, jobs=[ECHO, {**ECHO, "count": 2}])
    counts = [line.rpartition(",(count:")[2] for line in said(given)[1:]]
    assert counts == ["5),(nodes:1)", "2),(nodes:1)"]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"name": "custom", "label": "again"}, "custom again"),
        ({"name": "terminate"}, "terminate ensemble"),
        ({"name": "terminate", "cancel": True}, "terminate ensemble and cancel its jobs"),
        (
            {"name": "terminate", "state": "failed", "cancel": True},
            "terminate ensemble as failed and cancel its jobs",
        ),
        ({"name": "cancel"}, "cancel all jobs"),
        ({"name": "cancel", "jobs": "trigger"}, "cancel the triggering job"),
        (
            {"name": "update", "jobs": "trigger", "duration": 60.0},
            "update the triggering job duration=60.0",
        ),
        ({"name": "cancel", "label": "echo"}, "cancel echo"),
        ({"name": "update", "label": "echo", "urgency": 31}, "update echo urgency=31"),
        ({"name": "grow", "value": 2}, "grow by 2"),
        ({"name": "disable", "label": "rule-2"}, "disable rule-2"),
    ],
)
def test_every_action_is_announced(action: dict[str, Any], words: str) -> None:
    assert said(fire(action)) == [" => trigger start", f"   {words}"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            entry("outcome", rule="r", firing=0, ok=False, reason="no queue"),
            "   r failed: no queue",
        ),
        (
            entry("custom-error", rule="r", firing=0, ok=False, reason="it raised", detail="x"),
            "   r failed: it raised",
        ),
        (entry("rule-disabled", rule="r", reason="it raised"), "   rule r disabled"),
        (entry("rule-added", rule="s", by="r"), "   rule s added"),
        (entry("request", op="terminate", cancel=False), "   request terminate"),
        (
            entry("request", op="cancel", group="echo", jobs=3),
            "   request cancel group=echo jobs=3",
        ),
        (
            entry("outcome", rule="r", firing=0, ok=True, member="default", nodes=3, by=2),
            "   the size is 3 nodes now",
        ),
        (entry("pause"), "   paused"),
        (entry("resume"), "   resumed"),
        (
            entry("retry", rule="r", firing=0, index=3, attempt=1, retry=0),
            "   retry 1 of index 3 of r #0",
        ),
        (
            entry(
                "retry",
                rule="r",
                firing=0,
                index=3,
                attempt=1,
                group="md",
                point="t=300 s=1",
                retry=0,
                params={"t": 150},
            ),
            "   retry 1 of md t=300 s=1 (index 3 of r #0), with t=150",
        ),
        (
            entry("gave-up", rule="r", firing=0, index=3, attempt=1, reason="no value"),
            "   no retry of index 3 of r #0: no value",
        ),
    ],
)
def test_what_users_want_to_know_is_announced(given: Entry, line: str) -> None:
    assert said(given) == [line]


def test_what_goes_well_is_not_announced() -> None:
    assert said(entry("outcome", rule="r", firing=0, ok=True, jobs=3)) == []
    assert said(entry("load", document="jobs: []")) == []
    assert said(entry("finish", state="completed", reason="done")) == []


def test_a_job_that_runs_as_if_it_had_not_run_is_no_retry() -> None:
    assert said(entry("retry", rule="r", firing=0, index=3, attempt=0, retry=0)) == []


def ended(jobs: range, group: str = "sim", reason: str = "the allocation is over") -> list[Entry]:
    """What the log has where jobs are interrupted together, and run again."""
    entries = []
    for job in jobs:
        tag = {"rule": "r", "firing": 0, "index": job}
        entries.append(
            entry("interrupted", id=job, group=group, **tag, fate="again", reason=reason)
        )
        entries.append(entry("retry", **tag, attempt=0, retry=job))
    return entries


def printed(
    capsys: pytest.CaptureFixture[str], entries: list[Entry], *, follow: bool = False
) -> list[str]:
    """What `log` prints, without the times."""
    printer = _Printer(_Wanted(None, None, -math.inf), None, False, follow, str)
    for one in entries:
        printer.take(one)
    printer.go_on()
    return [line.split("s  ", 1)[1] for line in capsys.readouterr().out.splitlines()]


def test_jobs_that_an_end_of_the_allocation_interrupts_are_one_line_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    over = entry("epoch", epoch=2)
    assert printed(capsys, [*ended(range(44)), over]) == [
        "interrupted   44 jobs of group 'sim': the allocation is over; they run again",
        "epoch         service number 2 goes on with it",
    ]


def test_outcomes_of_their_retries_do_not_part_the_jobs_of_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries = []
    for job in range(3):
        entries += ended(range(job, job + 1))
        entries.append(entry("outcome", rule="retry", firing=job, ok=True, jobs=1))
    line = "interrupted   3 jobs of group 'sim': the allocation is over; they run again"
    assert printed(capsys, entries) == [line]
    assert printed(capsys, entries[:3])[1:] == [
        "retry         index 0 of r #0: again as firing retry #0 (attempt 0)",
        "outcome       retry #0: ok, 1 job",
    ]
    refused = entry("outcome", rule="retry", firing=0, ok=False, reason="no such queue")
    assert len(printed(capsys, [*entries[:2], refused, *entries[3:]])) == 4
    other = entry("outcome", rule="r", firing=0, ok=True, jobs=1)
    assert len(printed(capsys, [*entries[:2], other, *entries[3:]])) == 4


def test_jobs_of_other_groups_or_with_other_reasons_have_a_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mixed = [*ended(range(3)), *ended(range(3, 5), "md"), *ended(range(5, 8), reason="lost")]
    assert printed(capsys, mixed) == [
        "interrupted   3 jobs of group 'sim': the allocation is over; they run again",
        "interrupted   2 jobs of group 'md': the allocation is over; they run again",
        "interrupted   3 jobs of group 'sim': lost; they run again",
    ]


def test_a_single_job_that_is_interrupted_keeps_its_lines_and_so_do_all_that_are_followed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = [
        "interrupted   7 sim, index 7 of r #0: the allocation is over; it runs again",
        "retry         index 7 of r #0: again as firing retry #7 (attempt 0)",
    ]
    assert printed(capsys, ended(range(7, 8))) == one
    assert printed(capsys, ended(range(7, 9)), follow=True)[:2] == one


def test_a_job_that_is_interrupted_twice_has_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [*ended(range(2)), *ended(range(2))])
    assert (
        lines == ["interrupted   2 jobs of group 'sim': the allocation is over; they run again"] * 2
    )


def test_an_entry_that_is_not_known_is_not_announced_but_is_explained() -> None:
    given = entry("novelty", colour="red")
    assert said(given) == []
    assert explained(given) == "      2.500s  novelty       colour=red"


def test_the_log_says_what_was_done_and_why() -> None:
    cause = {
        "trigger": "job-finish",
        "job": 7,
        "group": "sleep",
        "timestamp": 12.0,
        "context": {"status": 0},
        "metric": "count.sleep.success",
        "value": 3,
    }
    given = fire({"name": "submit", "label": "echo", "count": 2, "repetitions": "unlimited"}, cause)
    assert explained(given) == (
        "      2.500s  fire          rule-1 #0: submit echo (count=2) "
        "on count.sleep.success = 3 (7 sleep finish status=0)"
    )


@pytest.mark.parametrize(
    ("trigger", "cause", "why"),
    [
        ("start", {"trigger": "start"}, "on start"),
        ("idle", {"trigger": "idle", "group": None, "timestamp": 1.0}, "on idle"),
        ("idle a", {"trigger": "idle", "group": "a", "timestamp": 1.0}, "on idle a"),
        (
            "idle a by t",
            {"trigger": "idle", "group": "a", "params": {"t": 280}, "timestamp": 1.0},
            "on idle a by t (t=280)",
        ),
        ("request", {"trigger": "request"}, "on request"),
        (
            "job-fail echo",
            {"trigger": "job-finish", "job": 7, "group": "echo", "context": {"status": 256}},
            "on job-fail echo (7 echo finish status=256)",
        ),
        (
            "job-start",
            {"trigger": "job-start", "job": 7, "group": None, "context": {}},
            "on job-start (7 start)",
        ),
        (
            "mean.a-duration",
            {"trigger": "heartbeat", "metric": "mean.a-duration", "value": None},
            "on mean.a-duration = null (heartbeat)",
        ),
        (
            "drift a-error",
            {
                **{"trigger": "job-memo", "job": 7, "group": "a", "context": {"error": 2}},
                **{"metric": "a-error", "value": 2},
            },
            "on drift a-error = 2 (7 a memo error=2)",
        ),
        (
            "start",
            {"trigger": "custom", "rule": "rule-1", "firing": 0},
            "on start (returned by rule-1 #0)",
        ),
    ],
)
def test_every_cause_is_explained(trigger: str, cause: dict[str, Any], why: str) -> None:
    given = fire({"name": "submit", "label": "echo"}, cause, trigger=trigger)
    assert explained(given).endswith(f": submit echo {why}")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (entry("outcome", rule="r", firing=2, ok=True, jobs=1), "r #2: ok, 1 job"),
        (entry("outcome", rule="r", firing=2, ok=True, jobs=0), "r #2: ok, 0 jobs"),
        (entry("outcome", rule="r", firing=2, ok=True), "r #2: ok"),
        (
            entry("outcome", rule="r", firing=2, ok=True, member="default", nodes=3, by=2),
            "r #2: ok, 3 nodes",
        ),
        (
            entry("outcome", rule="r", firing=2, ok=True, member="m", nodes=1, by=-1, late=True),
            "r #2: ok, 1 node, late",
        ),
        (entry("outcome", rule="r", firing=2, ok=False, reason="no queue"), "r #2: no queue"),
        (entry("rule-disabled", rule="r", reason="a request"), "r: a request"),
        (
            entry("retry", rule="r", firing=2, index=3, attempt=1, retry=0),
            "index 3 of r #2: again as firing retry #0 (attempt 1)",
        ),
        (
            entry("gave-up", rule="r", firing=2, index=3, attempt=1, group="md", reason="no value"),
            "md (index 3 of r #2): does not run again (attempt 1): no value",
        ),
        (
            entry("gave-up", rule="r", firing=2, index=3, attempt=1, reason="no value"),
            "index 3 of r #2: does not run again (attempt 1): no value",
        ),
        (entry("finish", state="failed", reason="a cap"), "failed: a cap"),
        (entry("rule-added", rule="s", by="r"), "rule=s by=r"),
    ],
)
def test_outcomes_are_explained(given: Entry, sentence: str) -> None:
    assert explained(given) == f"      2.500s  {given['name']:<13} {sentence}"


def test_the_log_has_the_traceback_of_a_custom_function() -> None:
    given = entry(
        "custom-error", rule="r", firing=0, ok=False, reason="it raised", detail="Trace:\n  line"
    )
    assert explained(given).splitlines()[1:] == [" " * 15 + "Trace:", " " * 15 + "  line"]


def test_the_whole_document_of_a_load_is_not_printed() -> None:
    assert explained(entry("load", document="jobs: []")) == "      2.500s  load"


def test_a_job_event_is_printed_as_flux_does() -> None:
    ended = JobEvent(id=7, name="finish", context={"status": 0, "note": "a b"})
    assert plain(ended.line(lambda id: f"f{id}")) == '   f7 finish status=0 note="a b"'
    assert plain(JobEvent(id=7, name="free", context={}).line(str)) == "   7 free"


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("completed", "md: completed after 2.000s: done, but 1 job failed"),
        ("failed", "md: failed after 2.000s: done, and 1 job failed"),
        ("canceled", "md: canceled after 2.000s: done, and 1 job failed"),
    ],
)
def test_what_went_wrong_is_no_contrast_to_an_ensemble_that_failed(state: str, line: str) -> None:
    group = {"failed": 1, "timeout": 0}
    status: Any = {"name": "md", "state": state, "reason": "done", "groups": {"a": group}}
    status.update(t_start=1.0, t_end=3.0, failed=1)
    assert plain(closing(status)) == line


@pytest.mark.parametrize(
    ("failed", "timeout", "more", "line"),
    [
        (8, 1, {}, "9 of 10 jobs failed: see 'flux ensemble failures md'"),
        (8, 1, {"failed": 5, "retries": 4}, "5 of 10 jobs failed: see 'flux ensemble failures md'"),
        (
            1,
            0,
            {"failed": 1, "retries": 1, "interrupted": 1},
            "1 of 10 jobs failed: see 'flux ensemble failures md'",
        ),
        (2, 0, {"failed": 0, "retries": 2}, None),
        (0, 0, {}, None),
    ],
)
def test_how_many_jobs_failed_does_not_count_those_that_were_tried_again(
    failed: int, timeout: int, more: dict[str, int], line: str | None
) -> None:
    group = {"finished": 10, "failed": failed, "timeout": timeout}
    status: Any = {"name": "md", "groups": {"a": group}, **more}
    found = failed_line(status, "flux ensemble failures md")
    assert (found and plain(found)) == line


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("failed", "the job of trial 4 failed"),
        ("timeout", "the job of trial 4 timed out"),
        ("canceled", "the job of trial 4 was canceled"),
        ("interrupted", "the job of trial 4 was interrupted"),
        ("it published no number 'loss'", "trial 4 failed: it published no number 'loss'"),
    ],
)
def test_a_trial_that_is_not_complete_says_why(reason: str, sentence: str) -> None:
    given = entry("trial-failed", search="hpo", trial=4, id=9, reason=reason)
    assert said(given) == [f"   hpo: {sentence}"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "2 jobs failed and 3 jobs ran out of time"),  # as a service of 0.2.0 has it
        ({"timed_out": 0}, "5 jobs failed"),
        ({"timed_out": 1}, "4 jobs failed and 1 job ran out of time"),
    ],
)
def test_of_jobs_that_ran_again_those_that_failed_and_ran_out_of_time_are_told_apart(
    more: dict[str, int], said: str
) -> None:
    from flux_ensemble.client.troubles import sentence

    status: Any = {"failed": 5, "groups": {"md": {"failed": 7, "timeout": 3}}, **more}
    assert sentence(status) == said


def test_the_last_line_says_why_a_rule_is_disabled() -> None:
    from flux_ensemble.client.troubles import sentence

    error = "judge failed: ZeroDivisionError: division by zero\n  File f.py, line 2\n    1 / 0"
    rules = [{"id": "judge", "error": error, "enabled": False}]
    status: Any = {"name": "md", "state": "completed", "reason": "done", "groups": {}, "failed": 0}
    status.update(t_start=1.0, t_end=3.0, rules=rules)
    wrong = "rule 'judge' is disabled (judge failed: ZeroDivisionError: division by zero)"
    assert plain(closing(status)) == f"md: completed after 2.000s: done, but {wrong}"
    rules[0].update(error="x" * 1000, enabled=True)
    assert len(sentence(status)) < 160
    rules[0].update(error="a \x1b[31m\tb")
    assert sentence(status) == r"rule 'judge' failed (a \x1b[31m\tb)"


@pytest.mark.parametrize(
    ("total", "searches", "sentence"),
    [
        (3, [], "2 of 3 jobs are done, and"),
        (1, [], "2 of 1 job is done, and"),
        (6, [("hpo", "running", 40)],
         "2 of 6 jobs so far are done (search 'hpo': 2 of 40 trials), and"),
        (6, [("a", "done", 4), ("b", "idle", 9), ("c", "closing", 1)],
         "2 of 6 jobs so far are done (search 'b': 2 of 9 trials; search 'c': 2 of 1 trial), and"),
        (6, [("a", "done", 4)], "2 of 6 jobs are done, and"),
    ],
)  # fmt: skip
def test_a_run_that_is_not_over_says_how_many_trials_its_searches_will_have(
    total: int, searches: list[tuple[str, str, int]], sentence: str
) -> None:
    counts = {"complete": 1, "failed": 1, "canceled": 0}
    status = {
        "name": "test",
        "groups": {"a": {"finished": 2}},
        "jobs": {"total": total},
        "searches": [
            {"id": id, "state": state, "trials": trials, **counts} for id, state, trials in searches
        ],
    }
    assert not_over(status, "again") == f"'test' is not over: {sentence} 'again' goes on with it"
