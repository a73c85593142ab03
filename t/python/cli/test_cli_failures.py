"""Why jobs failed, and what those that failed have in common."""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.cli.main import run_command
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.results import failures
from flux_ensemble.results.failures import (
    Failures,
    FailureSummary,
    chance,
    described,
    failures_of,
    reason,
)
from flux_ensemble.results.job_output import Outputs


def job(outcome: str | None = "success", code: int | None = 0, **more: Any) -> dict[str, Any]:
    return {
        "group": "a",
        "rule": "start",
        "firing": 0,
        "index": 0,
        "attempt": 0,
        "outcome": outcome,
        "returncode": code,
        "signal": -code if code is not None and code < 0 else None,
        "exception": {"type": None, "note": None},
        "params": {},
        "ranks": "0",
        "t_run": 1.0,
        "t_end": math.inf,  # no file of these tests was written later
        "output": None,
        "error": None,
        **more,
    }


def counted(*jobs: dict[str, Any]) -> Failures:
    found = Failures()
    for one in jobs:
        found.add(one)
    return found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (job("failed", 3), "exit 3"),
        (job("failed", -9), "SIGKILL"),
        (job("failed", -63), "signal 63"),
        (job("failed", 255), "exit 255"),
        (job("timeout", -14), "timeout"),
        (job("failed", 1, exception={"type": "alloc", "note": "no"}), "exception alloc"),
        (job("failed", None), "unknown"),
    ],
)
def test_the_reason_is_the_exit_code_the_signal_or_the_exception(
    given: dict[str, Any], words: str
) -> None:
    assert reason(given) == words


def test_kinds_are_the_groups_and_reasons_the_most_frequent_first() -> None:
    found = counted(
        job(), job("failed", 1), job("failed", 2), job("failed", 2, ranks="1"),
        job("failed", 2, group="b"), job("canceled", None), job(None, None),
    )  # fmt: skip
    assert (found.failed, found.ended) == (4, 6)
    kinds = [(kind.group, kind.reason, kind.jobs) for kind in found.kinds()]
    assert kinds == [("a", "exit 2", 2), ("a", "exit 1", 1), ("b", "exit 2", 1)]
    assert found.kinds()[0].ranks == {"0": 1, "1": 1}


def test_kinds_that_are_equally_frequent_go_by_group_and_reason() -> None:
    found = counted(job("failed", 2, group="b"), job("failed", 3), job("failed", 1))
    kinds = [(kind.group, kind.reason) for kind in found.kinds()]
    assert kinds == [("a", "exit 1"), ("a", "exit 3"), ("b", "exit 2")]


def test_further_attempts_are_counted_active_ones_too() -> None:
    found = counted(job("timeout", -14), job(attempt=1), job(None, None, attempt=1))
    assert (found.failed, found.ended, found.again) == (1, 2, 2)


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (job("failed", 3), "job.returncode == 3"),
        (job("timeout", -14), 'job.outcome == "timeout"'),
        (
            job("failed", 127, exception={"type": "exec", "note": "no"}),
            'job.exception.type == "exec"',
        ),
    ],
)
def test_the_filter_of_a_kind_needs_single_quotes_in_a_shell_alone(
    given: dict[str, Any], expression: str
) -> None:
    (kind,) = counted(given).kinds()
    assert kind.expression == expression


def test_a_value_that_failed_jobs_share_has_a_lift() -> None:
    good = [job(params={"t": t, "seed": seed}) for t in (1, 2, 3) for seed in range(10)]
    bad = [job("failed", 1, params={"t": 4, "seed": seed}) for seed in range(10)]
    found = counted(*good, *bad)
    (kind,) = found.kinds()
    (lift,) = found.lifts(kind)
    assert (lift.words, lift.failed, lift.ended) == ("params.t = 4", 10, 10)
    assert lift.lift == pytest.approx(4.0)


def test_so_has_a_rank() -> None:
    found = counted(*(job() for _ in range(20)), *(job("failed", 1, ranks="7") for _ in range(5)))
    (lift,) = found.lifts(found.kinds()[0])
    assert lift.words == "ranks = 7"


def words(found: Failures) -> list[str]:
    return [lift.words for lift in found.lifts(found.kinds()[0])]


def test_parameters_are_blamed_and_not_the_node_that_the_last_jobs_had() -> None:
    steps, springs = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5), (1, 5, 10, 20, 40, 50)
    unstable = {(0.5, k) for k in (10, 20, 40, 50)}
    unstable |= {(0.3, 40), (0.3, 50), (0.2, 50), (0.1, 50)}
    jobs = [
        job(
            *(("failed", 3) if (dt, k) in unstable else ()),
            params={"dt": dt, "k": k}, ranks=str(int(number >= 18)),
        )
        for number, (dt, k) in enumerate(itertools.product(steps, springs))
    ]  # fmt: skip
    assert sorted(words(counted(*jobs))) == ["params.dt = 0.5", "params.k = 50"]


def test_two_values_that_only_together_fail_are_one_condition() -> None:
    jobs = [
        job(
            *(("failed", 3) if (dt, k) == (0.1, "b") else ()),
            params={"dt": dt, "k": k, "seed": seed}, ranks=str(seed % 2),
        )
        for dt, k, seed in itertools.product((0.05, 0.1, 0.2), "abc", range(4))
    ]  # fmt: skip
    found = counted(*jobs)
    assert words(found) == ["params.dt = 0.1 and params.k = b"]
    (lift,) = found.lifts(found.kinds()[0])
    assert (lift.failed, lift.ended, lift.lift) == (4, 4, 9.0)


def test_of_two_values_that_each_fail_there_is_no_combination() -> None:
    jobs = [
        job(*(("failed", 3) if dt == 2 else ()), params={"dt": dt, "k": k, "seed": seed})
        for dt, k, seed in itertools.product(range(4), "ab", range(6))
    ]
    assert words(counted(*jobs)) == ["params.dt = 2"]


def test_accidents_are_rare() -> None:
    chosen = random.Random(7)
    shown = 0
    for _ in range(200):
        bad = chosen.sample(range(64), 9)
        found = counted(*(
            job(
                *(("failed", 1) if number in bad else ()), ranks=str(number // 16),
                params={"a": number % 4, "b": number // 4 % 4, "c": "xyzw"[number // 16]},
            )
            for number in range(64)
        ))  # fmt: skip
        shown += bool(words(found))
        assert not any("ranks" in one for one in words(found))
    assert shown < 30


def test_a_value_that_is_frequent_by_chance_has_none() -> None:
    # Three of five failed jobs ran on one of the four ranks, and four had the same of two values.
    bad = [
        job("failed", 1, ranks=rank, params={"p": p})
        for rank, p in zip("22213", ("low", "low", "low", "high", "low"), strict=True)
    ]
    good = [job(ranks=str(n % 4), params={"p": ("low", "high")[n // 4 % 2]}) for n in range(64)]
    found = counted(*good, *bad)
    assert found.lifts(found.kinds()[0]) == []


@pytest.mark.parametrize("numbers", [(3, 5, 21, 70), (5, 5, 5, 25), (1, 4, 9, 30), (8, 9, 10, 12)])
def test_the_chance_is_the_tail_of_the_hypergeometric_distribution(
    numbers: tuple[int, int, int, int],
) -> None:
    failed, drawn, ended, everyone = numbers
    ways = sum(
        math.comb(ended, k) * math.comb(everyone - ended, drawn - k)
        for k in range(failed, min(drawn, ended) + 1)
    )
    assert chance(*numbers) == pytest.approx(ways / math.comb(everyone, drawn))


def test_jobs_that_ran_again_are_counted_as_attempts() -> None:
    assert counted(job(), job("failed", 1)).said == "1 of 2 jobs failed"
    assert counted(job("failed", 1)).said == "1 of 1 job failed"
    found = counted(job(), job("failed", 1), job("timeout", None), job(attempt=1))
    assert found.said == "2 of 4 attempts at 3 jobs failed; 1 ran again"


def copy(*given: Any, **more: Any) -> dict[str, Any]:
    return job(*given, rule="slow", copy_of="start:0", **more)


def test_a_copy_is_no_job_of_its_own() -> None:
    found = counted(copy(), job("canceled", None), job("failed", 1, index=1))
    assert found.said == "1 of 3 attempts at 2 jobs failed; 1 was a copy"


def test_copies_of_jobs_that_run_again_are_counted_apart_from_those() -> None:
    found = counted(
        job("failed", 1), copy("failed", 1), job(rule="retry", attempt=1), job(index=1),
        copy(index=1),
    )  # fmt: skip
    assert found.said == "2 of 5 attempts at 2 jobs failed; 1 ran again, 2 were copies"


def test_a_copy_stands_for_a_job_that_was_interrupted_beside_it() -> None:
    found = counted(job("interrupted", None), copy(), job("failed", 1, index=1))
    assert found.said == "1 of 2 jobs failed"


def test_a_copy_that_has_not_ended_does_not_count() -> None:
    found = counted(job("failed", 1), copy(None, None))
    assert found.said == "1 of 1 job failed"


def test_a_node_on_which_all_jobs_fail_is_named() -> None:
    good = [job(ranks=str(number % 3)) for number in range(20)]
    bad = [job("failed", 1 + number % 2, ranks="7") for number in range(5)]
    found = counted(*good, *bad, job("failed", 1, ranks="1"))
    assert list(found.bad_places()) == [("7", "all 5 jobs failed, and 1 of 21 jobs elsewhere")]


@pytest.mark.parametrize(
    "jobs",
    [
        # Everything fails.
        [job("failed", 1, ranks=str(number % 2)) for number in range(20)],
        # Something has run well there.
        [job(ranks="1"), *[job("failed", 1, ranks="1")] * 5, *[job()] * 20],
        # Two jobs are chance.
        [*[job("failed", 1, ranks="1")] * 2, *[job()] * 20],
        # Jobs of several nodes name none of them.
        [*[job("failed", 1, ranks="1-2")] * 5, *[job()] * 20],
    ],
)
def test_no_node_is_named_where_it_need_not_be_the_node(jobs: list[dict[str, Any]]) -> None:
    assert list(counted(*jobs).bad_places()) == []


class Own(LocalClient):
    """Runs of the user's own."""

    def owner(self, name: str) -> int:
        return os.geteuid()


def test_what_was_interrupted_is_no_job_of_its_own_and_no_further_attempt() -> None:
    found = counted(
        job("interrupted", None, attempt=1), job("failed", 1), job("success", 0, attempt=1)
    )
    assert found.said == "1 of 2 attempts at 1 job failed; 1 ran again"
    assert counted(job("interrupted", None), job("failed", 1)).said == "1 of 1 job failed"


def test_values_are_compared_with_those_of_jobs_that_ended_by_themselves() -> None:
    failed = [job("failed", 1, params={"t": 3}) for _ in range(3)]
    others = [job(params={"t": number}) for number in range(10, 30)]
    cut_off = [job("interrupted", None, params={"t": 3}) for _ in range(20)]
    (kind,) = (found := counted(*failed, *others, *cut_off)).kinds()
    (lift,) = found.lifts(kind)
    assert (lift.words, lift.failed, lift.ended) == ("params.t = 3", 3, 3)


def test_what_was_canceled_is_said_and_is_no_evidence() -> None:
    failed = [job("failed", 1, params={"t": t % 2}) for t in range(6)]
    canceled = [job("canceled", None, params={"t": 2}, ranks="9", index=n) for n in range(30)]
    found = counted(*failed, *canceled)
    assert found.said == "6 of 36 jobs failed; 30 were canceled"
    assert words(found) == []
    assert counted(job("canceled", None)).said == "0 of 1 job failed; 1 was canceled"


def test_what_an_exception_says_is_not_told_twice(tmp_path: Path) -> None:
    outputs = Outputs(Own(tmp_path), "a")
    file = tmp_path / "a.err"
    file.write_text("loading\nflux-shell[0]: FATAL: start failed: no such file\n")
    one = job("failed", 127, error=str(file), output=None)
    assert len(outputs.tail(one)) == 2
    one["exception"] = {"type": "exec", "note": "start failed: no such file"}
    assert outputs.tail(one) == ["loading"]


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        ("./pub.sh", " (chmod +x ./pub.sh, or sh ./pub.sh)"),
        ("/a/md", " (chmod +x /a/md)"),
        ("md", ""),
    ],
)
def test_a_program_that_may_not_be_executed_has_a_remedy(program: str, remedy: str) -> None:
    note = f"task 0 (host node7): start failed: {program}: Permission denied"
    found = counted(job("failed", 126, id=1, exception={"type": "exec", "note": note}))
    (one,) = described(
        found, label=str, tail=lambda job: [], missing=lambda job: "", command=lambda kind: ""
    )
    assert one.note == note + remedy


def test_a_reason_on_standard_output_is_not_hidden_by_lines_on_standard_error(
    tmp_path: Path,
) -> None:
    out, err = tmp_path / "a.out", tmp_path / "a.err"
    out.write_text("".join(f"step {step}\n" for step in range(9)) + "ERROR: dt is too large\n")
    err.write_text("note: floating-point exceptions\n")
    outputs, one = Outputs(Own(tmp_path), "a"), job("failed", 1, error=str(err), output=str(out))
    end = ["step 7", "step 8", "ERROR: dt is too large"]
    assert outputs.tail(one) == [*end, "note: floating-point exceptions"]
    err.write_text("")
    assert outputs.tail(one) == ["step 5", "step 6", *end]


def test_few_jobs_show_nothing() -> None:
    found = counted(job(), job(), job("failed", 1, ranks="7"), job("failed", 1, ranks="7"))
    assert found.lifts(found.kinds()[0]) == []


def test_parameters_with_ever_new_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_VALUES", 10)
    found = counted(*(job("failed", 1, params={"seed": seed}) for seed in range(100)))
    assert len(found.kinds()[0].traits) <= 11


def test_members_are_compared_and_each_has_ranks_of_its_own() -> None:
    found = counted(
        *(job("failed", 1, member="pool.1") for _ in range(6)),
        *(job(member="pool.0") for _ in range(12)),
    )
    (kind,) = found.kinds()
    assert kind.ranks == {"pool.1:0": 6}
    assert words(found) == ["member = pool.1", "ranks = pool.1:0"]


@pytest.mark.parametrize(
    ("others", "own"),
    [
        ([job(output="/a.out")], False),
        ([job(output="/b.out", error="/a.out")], False),
        ([job("failed", 1, output="/a.out", attempt=1)], False),
        ([job(output="/b.out"), job(output=None)], True),
        # It has not run, so it has not written.
        ([job("canceled", None, output="/a.out", t_run=None)], True),
    ],
)
def test_what_a_job_wrote_is_shown_where_it_alone_wrote_to_its_file(
    others: list[dict[str, Any]], own: bool
) -> None:
    failed = job("failed", 3, output="/a.out")
    assert (counted(failed, *others).unshown(failed) == "") is own
    assert (counted(*others, failed).unshown(failed) == "") is own


def test_what_others_wrote_is_not_shown_of_a_job_that_never_ran() -> None:
    refused = job("failed", None, output="/a.out", t_run=None)
    assert counted(refused).unshown(refused) == ""
    assert "wrote to its file" in counted(job(output="/a.out"), refused).unshown(refused)


def summed(tails: list[str], **more: Any) -> FailureSummary:
    """Return the summary of failed jobs of one kind, each with the line that it wrote at last."""
    jobs = [
        job("failed", 1, id=number, index=number, params={"x": number})
        for number, _ in enumerate(tails)
    ]

    class Told(LocalClient):
        def owner(self, name: str) -> int:
            return os.geteuid()

        def command(self, *words: str) -> str:
            return " ".join(words)

    class Lines(Outputs):
        def tail(self, job: Any) -> list[str]:
            return [tails[job["id"]]] if tails[job["id"]] else []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "Outputs", Lines)
        return failures_of(Told(Path("/none")), "b", jobs)


def test_jobs_that_gave_their_trials_no_value_are_told_of() -> None:
    trial: dict[str, Any] = {"rule": "search:hpo", "trial_state": "failed"}

    class Told(LocalClient):
        def command(self, *words: str) -> str:
            return " ".join(words)

        def owner(self, name: str) -> int:
            return os.geteuid()

        def status(self, name: Any = None) -> Any:
            search = {"id": "hpo", "objective": "loss"}
            return {"ensembles": [{"searches": [{"id": "other"}, search]}]}

    jobs = [
        job(id=1, memo={"los": 1.0}, **trial),
        job(id=2, memo={}, **trial),
        job(id=3, memo={"loss": 2.0}, **{**trial, "trial_state": "complete"}),
        job("failed", 1, id=4, memo={}, **trial),
    ]
    summary = failures_of(Told(Path("/none")), "b", jobs)
    assert (summary.ended, summary.failed) == (4, 1)
    assert summary.trials == [
        (
            "search 'hpo': 2 jobs succeeded and gave no value of 'loss', so their trials failed "
            "(did you mean 'los'? published: los)",
            'jobs b --group a --filter job.trial_state == "failed" and job.outcome == "success"',
        )
    ]


def test_two_problems_with_one_exit_code_have_an_example_each() -> None:
    (one,) = summed(
        ["no file '/a/1.dat'", "no file '/a/2.dat'", "bad value 3.5e-4", "no file '/b/x'"]
    )
    assert [(found.example, found.tail, found.jobs) for found in one.written] == [
        ("3", ["no file '/b/x'"], 3),
        ("2", ["bad value 3.5e-4"], 1),
    ]
    assert (one.example, one.tail) == ("3", ["no file '/b/x'"])


def test_examples_of_one_exit_code_are_shown_with_their_number() -> None:
    text = repr(summed(["no file a1", "no file a2", "bad value", "bad", "worse", ""]))
    assert text.splitlines()[2:-3] == [
        "a: exit 1: 6 jobs",
        "  ranks: 0 (6)",
        "  job 1 wrote at last (2 of 6 jobs: x=0; x=1):",
        "    no file a2",
        "  job 4 wrote at last (1 of 6 jobs: x=4):",
        "    worse",
        "  job 3 wrote at last (1 of 6 jobs: x=3):",
        "    bad",
        "  something else, or nothing: 2 of 6 jobs",
    ]


def test_what_is_common_to_the_jobs_of_one_problem_is_told_of_that_alone() -> None:
    tails = ["no file a"] * 6 + ["bad value"] * 6
    jobs = [
        job("failed", 1, id=number, index=number, params={"x": number, "far": number < 6})
        for number in range(12)
    ]
    found = counted(*jobs, *(job(params={"x": 99, "far": "not"}) for _ in range(12)))
    (one,) = described(
        found,
        label=str,
        tail=lambda job: [tails[job["id"]]],
        missing=lambda job: "",
        command=lambda kind: "",
    )
    assert [written.where for written in one.written] == [
        "params.far = false in 6 of them (lift 4)",
        "params.far = true in 6 of them (lift 4)",
    ]
    same = [job("failed", 1, id=number, index=number) for number in range(12)]
    (one,) = described(
        counted(*same),
        label=str,
        tail=lambda job: ["no file a"],
        missing=lambda job: "",
        command=lambda kind: "",
    )
    assert one.written[0].where == ""


def test_of_many_jobs_some_are_read_which_are_spread_among_them() -> None:
    lines = [f"step {number}: energy is {number / 7}" for number in range(600)]
    lines += ["killed by a neighbour"] * 400
    (one,) = summed(lines)
    assert [written.jobs for written in one.written] == [10, 7]
    assert one.read == 17


def test_a_thousand_different_last_lines_stay_readable() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(1000)]
    text = repr(summed(words))
    assert len(text.splitlines()) == 14
    assert "something else, or nothing: 14 of 17 jobs read" in text


def test_the_points_of_a_few_failed_jobs_are_named() -> None:
    same = {"seed": 7, "name": "two words"}
    good = [job(params={"t": t, **same}) for t in range(5)]
    bad = [job("failed", 1, index=-t, params={"t": t / 4, **same}) for t in (9, 10)]
    found = counted(*good, *bad)
    assert found.points(found.kinds()[0]) == ["t=2.5", "t=2.25"]
    # A further attempt has the same point, and where nothing varies all is named.
    found = counted(job("failed", 1, params=same), job("failed", 1, params=same, attempt=1))
    assert found.points(found.kinds()[0]) == ["seed=7 name=two words"]
    assert counted(job("failed", 1)).points(found.kinds()[0]) == ["seed=7 name=two words"]


def test_the_points_of_many_failed_jobs_are_not_named() -> None:
    found = counted(*(job("failed", 1, params={"t": t}) for t in range(6)))
    assert found.points(found.kinds()[0]) == []


FAILS = """
name: b
jobs: [{name: a, command: "false"}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""


def test_a_recommended_command_asks_where_the_run_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "the runs"
    (tmp_path / "b.yaml").write_text(FAILS)
    run_command(
        ["run", "-q", "--queue", "local", "--state-dir", str(place), str(tmp_path / "b.yaml")]
    )
    (said,) = re.findall(r"see '(.*)'$", capsys.readouterr().out, re.MULTILINE)
    for pattern in (r"see: (.*)$", None):
        words = shlex.split(said)
        assert words[0] == "flux-ensemble"
        assert run_command(words[1:]) == 0
        out = capsys.readouterr().out
        if pattern is not None:
            (said,) = re.findall(pattern, out, re.MULTILINE)
    assert "exit 1" in out or "failed" in out


@pytest.mark.parametrize("more", [[], ["--group", "a"]])
def test_what_all_failed_jobs_wrote_is_a_command_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    loud = FAILS.replace('"false"', "sh -c 'echo no luck >&2; exit 3'")
    (tmp_path / "b.yaml").write_text(loud)
    place = ["--state-dir", str(tmp_path / "runs")]
    run_command(["run", "-q", "--queue", "local", *place, str(tmp_path / "b.yaml")])
    capsys.readouterr()
    assert run_command(["failures", "b", *more, *place]) == 0
    (said,) = re.findall(r"^all that they wrote: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert " ".join(["output", "b", *more, "--outcome", "failed"]) in said
    assert run_command(shlex.split(said)[1:]) == 0
    assert "no luck" in capsys.readouterr().out


def test_a_run_that_the_user_put_on_the_local_queue_is_looked_for_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "b.yaml").write_text(FAILS)
    run_command(["run", "-q", "--queue", "local", str(tmp_path / "b.yaml")])
    assert "see 'flux-ensemble failures b --queue local'" in capsys.readouterr().out
    run_command(["failures", "b", "--queue", "local"])
    assert "--filter 'job.returncode == 1' --queue local" in capsys.readouterr().out
    run_command(["run", "-q", "--queue", "local", str(tmp_path / "b.yaml")])
    said = capsys.readouterr().err
    assert "this run is 'b-2' ('flux-ensemble rm b --queue local' removes the earlier one)" in said
    run_command(["cancel", "b", "--queue", "local"])
    assert "'flux-ensemble rerun b" in capsys.readouterr().err


def test_commands_in_errors_of_a_state_directory_name_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.yaml").write_text(FAILS)
    place = ["--queue", "local", "--state-dir", str(tmp_path / "runs")]
    run_command(["run", "-q", *place, str(tmp_path / "b.yaml")])
    capsys.readouterr()
    assert run_command(["pause", "b", *place]) != 0
    assert f"'flux-ensemble rm b --state-dir {tmp_path / 'runs'}'" in capsys.readouterr().err
    (tmp_path / "runs" / "b" / "status.json").write_text("{")
    assert run_command(["status", "b", *place]) == 1
    assert f"rm --force b --state-dir {tmp_path / 'runs'}'" in capsys.readouterr().err
