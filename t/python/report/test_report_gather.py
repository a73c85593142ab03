"""What a report says of an ensemble is what the status, the record and the log have."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from reports import SWEEP, columns, html, job, simulated, source
from simulations import predict
from warm import WarmProcess

from flux_ensemble.cli.common import Failure
from flux_ensemble.cli.display.reports import describe
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.report.document import text_of
from flux_ensemble.report.recorded import recorded
from flux_ensemble.runtime.recording import Recorder, RecordingError


def data(page: str) -> dict[str, dict[str, list[object]]]:
    (text,) = re.findall(r'id="data">([^<]*)<', page)
    return columns(text)


def test_totals_are_those_of_the_status() -> None:
    made = simulated(SWEEP)
    status = made.status
    jobs = data(html(made))["e0.jobs"]
    for group, counts in status["groups"].items():
        for outcome in ("success", "failed", "timeout", "canceled"):
            pairs = zip(jobs["group"], jobs["outcome"], strict=True)
            assert sum(pair == (group, outcome) for pair in pairs) == counts[outcome]
    assert len(jobs["id"]) == status["jobs"]["total"]
    assert status["groups"]["sim"]["failed"]
    assert status["groups"]["sim"]["timeout"]


def test_each_job_has_its_times_parameters_and_memo() -> None:
    jobs = [
        job(1, params={"t": 300}, memo={"fom": 0.5}),
        job(2, t_run=None, t_alloc=None, t_end=20.0, outcome="failed", returncode=None),
    ]
    found = data(html(source(jobs)))["e0.jobs"]
    assert found["t_submit"] == [0.0, 0.0]
    assert found["t_run"] == [pytest.approx(2.0), None]
    assert found["params.t"] == [300, None]
    assert found["memo.fom"] == [0.5, None]
    assert found["returncode"] == [0, None]


def test_the_first_card_says_why_most_jobs_failed_and_what_they_have_in_common() -> None:
    jobs = [
        job(number, params={"t": number % 4}, outcome="failed", returncode=3)
        if number % 4 == 3
        else job(number, params={"t": number % 4})
        for number in range(40)
    ]
    text = re.sub("<[^>]*>", "", html(source(jobs)))
    assert "10 of 40 jobs failed" in text
    assert "most often in sim: exit 3" in text
    assert "params.t = 3 is 4 times as frequent among them" in text


@pytest.mark.parametrize(("mode", "best"), [("max", 39), ("min", 0)])
def test_the_best_point_is_that_of_the_document(mode: str, best: int) -> None:
    jobs = [job(number, params={"t": number}, memo={"fom": number}) for number in range(40)]
    document = {"metrics": [{"best": {"name": "top", "of": "sim-fom", "mode": mode}}]}
    load = {"timestamp": 10.0, "name": "load", "context": {"document": document}}
    content = describe(source(jobs, entries=[load]), environment=False)
    assert content.figure is not None
    assert content.figure.mode == mode
    assert content.run.jobs.points.best("fom", mode)[0]["params"] == {"t": best}


def test_values_of_environment_variables_stay_out_unless_they_are_asked_for() -> None:
    made = {
        **SWEEP,
        "jobs": [{**one, "environment": {"TOKEN": "hunter2"}} for one in SWEEP["jobs"]],
        "rules": [
            {
                "trigger": "start",
                "action": {
                    "name": "submit",
                    "label": "sim",
                    "environment": {"TOKEN": "hunter3"},
                },
            }
        ],
    }
    page = html(simulated(made))
    assert "TOKEN" in page
    assert "hunter" not in page
    shown = html(simulated(made), environment=True)
    assert "hunter2" in shown
    assert "hunter3" in shown


@pytest.mark.parametrize(
    "text",
    [
        "a: &e {environment: {K: hunter2}}\nb: *e\n",
        "environment: &e {K: hunter2}\nb: {environment: *e}\n",
        "environment:\n  K: |\n    hunter2\n    more\nb: 1\n",
        "b: &e [hunter2]\nenvironment: {K: *e}\n",
        "environment: [hunter2, {x: hunter2}]",
        "environment: 'hunter2",
    ],
)
def test_no_form_of_yaml_shows_a_variable(text: str) -> None:
    assert "hunter2" not in text_of(text, environment=False)


def test_a_recording_gives_the_report_of_what_it_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", load_mapping(SWEEP), SWEEP)
    predict(SWEEP, tap=recorder)
    recorder.close()
    live, again = html(simulated(SWEEP)), html(recorded(tmp_path / "rec"))
    assert data(live) == data(again)
    (digest,) = {re.findall("[0-9a-f]{64}", page)[0] for page in (live, again)}
    assert digest
    (tmp_path / "cut").write_text((tmp_path / "rec").read_text()[:-40])
    with pytest.raises(RecordingError):
        html(recorded(tmp_path / "cut"))


def test_what_there_is_no_room_for_is_said() -> None:
    params = {f"p{number}": number for number in range(70)}
    page = html(source([job(1, params=params), job(2, params=params)], dropped=lambda: 5))
    assert "5 jobs are not in it: the record is full" in page
    assert "parameters beyond the first 60: 20 left out" in page
    assert "there is no record of them (records: false)" in html(
        source([], status={"groups": source([job(1)]).status["groups"]})
    )


def test_a_job_takes_less_than_fifty_bytes_of_the_page() -> None:
    draw = random.Random(1)
    jobs = [
        job(
            number * 83_886_080,
            params={"t": number % 97, "p": "low"},
            memo={"fom": draw.random()},
            t_run=12.0 + draw.random(),
            t_end=13.0 + 100 * draw.random(),
            ranks=str(number % 128),
        )
        for number in range(20_000)
    ]
    # So a hundred thousand are less than five megabytes.
    assert len(html(source(jobs))) - len(html(source(jobs[:1]))) < 50 * len(jobs)


def test_an_ensemble_without_jobs_has_a_report() -> None:
    assert "There are no jobs in the record" in html(source([]))


def test_replay_knows_whether_the_log_of_a_report_is_that_of_a_recording(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "jobs: [{name: echo, command: 'true', count: 3}]\n"
        "rules: [{trigger: start, action: {name: submit, label: echo}}]\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        with WarmProcess(arguments, tmp_path, subprocess.PIPE) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    local = ("--member", "local", "--state-dir", "state")
    assert run("run", *local, "a.yaml", "--record", "a.jsonl").returncode == 0
    assert run("report", "a", *local).returncode == 0
    assert (
        run("simulate", "a.yaml", "--record", "sim.jsonl", "--report", "sim.html").returncode == 0
    )
    same = run("replay", "a.jsonl", "--report", "a.html")
    assert (same.returncode, "its log is that of the recording" in same.stdout) == (0, True)
    assert run("replay", "sim.jsonl", "--report", "sim.html").returncode == 0
    other = run("replay", "sim.jsonl", "--report", "a.html")
    assert (other.returncode, "its log is not that" in other.stdout) == (1, True)
    none = run("replay", "a.jsonl", "--report", "a.yaml")
    assert (none.returncode, "expected a report" in none.stderr) == (2, True)
    compared = run("report", "a", *local, "--simulation", "sim.jsonl", "-o", "both.html")
    assert (compared.returncode, "both.html: 3 jobs" in compared.stderr) == (0, True)


def test_a_document_of_nested_aliases_is_read_once() -> None:
    lines = ["a0: &a0 {K: hunter2}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    text = "\n".join([*lines, "environment: *a29"])
    assert "hunter2" not in text_of(text, environment=False)


def test_entries_that_are_none_of_ours_are_refused_in_one_sentence() -> None:
    entry = {"timestamp": 1.0, "name": "fire", "context": {}}
    with pytest.raises(Failure, match="none of ours"):
        html(source([job(1)], entries=[entry]))


MEMBERS: dict[str, Any] = {
    "name": "shared",
    "seed": 3,
    "members": [{"name": "pool", "count": 2}],
    "jobs": [{"name": "sim", "command": "sim {s}", "params": {"s": {"range": [0, 20]}}}],
    "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
    "simulate": {"sim": {"duration": 10}},
}


def test_a_report_has_the_members_and_where_each_job_was() -> None:
    page = html(simulated(MEMBERS))
    jobs = data(page)["e0.jobs"]
    assert set(jobs["member"]) == {"pool.0", "pool.1"}
    assert set(jobs["ranks"]) == {"pool.0:0", "pool.1:0"}
    text = re.sub("<[^>]*>", "", page)
    assert "2 instances shared the jobs, and none of them was lost." in text
    assert re.search(r"<th scope=\"row\">pool.0:\d+</th>", page)


def test_a_report_without_members_does_not_name_any() -> None:
    page = html(simulated(SWEEP))
    assert "member" not in data(page)["e0.jobs"]
    assert "shared the jobs" not in page
