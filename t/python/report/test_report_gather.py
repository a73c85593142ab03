"""What a report says of an ensemble is what the status, the record and the log have."""

from __future__ import annotations

import random
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from reports import SWEEP, columns, html, job, simulated, source
from simulations import predict
from warm import WarmProcess

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.metrics.statistics import ESTIMATES
from flux_ensemble.report.document import text_of
from flux_ensemble.report.gather import gather
from flux_ensemble.report.page import page
from flux_ensemble.report.recording_source import recorded
from flux_ensemble.report.source import Source
from flux_ensemble.results.report import ReportError, describe
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


def test_each_link_of_the_sections_leads_to_one() -> None:
    page = html(simulated(SWEEP))
    (links,) = re.findall('<nav class="parts".*?</nav>', page)
    targets = [unescape(target) for target in re.findall('href="#([^"]*)"', links)]
    assert len(targets) > 5
    for target in targets:
        assert page.count(f' id="{target}"') == 1


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
    page = html(source(jobs, tail=lambda job: ["step 1", "unstable"]))
    text = re.sub("<[^>]*>", "", page)
    assert "10 of 40 jobs failed" in text
    assert "most often in sim: exit 3" in text
    assert "params.t = 3 is 4 times as frequent among them" in text
    assert "<code>unstable</code>" in page


#: Two groups that publish the same keys, and of one of them the least of one key is the best.
TWINS: dict[str, Any] = {
    "name": "twins",
    "jobs": [
        {"name": "scan", "command": "scan {x}", "params": {"x": [3, 1, 2]}},
        {"name": "check", "command": "check {x}", "params": {"x": [7, 8]}},
    ],
    "metrics": [{"best": {"name": "top", "of": "scan-loss", "mode": "min"}}],
    "rules": [
        {
            "trigger": "start",
            "actions": [{"name": "submit", "label": one} for one in ("scan", "check")],
        }
    ],
    "simulate": {
        one: {"duration": 5, "memo": {"val-loss": {"expression": "9 - x"}, "loss": {"param": "x"}}}
        for one in ("scan", "check")
    },
}

#: A search for the least.
LEAST: dict[str, Any] = {
    "name": "least",
    "seed": 3,
    "jobs": [{"name": "trial", "command": "trial {x}"}],
    "search": [
        {
            "id": "hpo",
            "group": "trial",
            "variables": {"x": {"low": 0.0, "high": 1.0}},
            "minimize": "loss",
            "sampler": "random",
            "trials": 12,
            "parallel": 4,
        }
    ],
    "rules": [{"trigger": "start", "action": {"name": "search", "label": "hpo"}}],
    "simulate": {"trial": {"duration": 5, "memo": {"loss": {"param": "x"}}}},
}


def best_card(made: Source) -> str:
    """The text of the card with the best point."""
    (card,) = re.findall(r"<h3>The best point</h3>(.*?)</section>", html(made), re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", card))).strip()


def test_the_headline_counts_once_what_was_interrupted_and_ran_again() -> None:
    jobs = [job(0, outcome="interrupted", returncode=None), job(1), job(2)]
    text = re.sub(r"<[^>]+>", "", html(source(jobs)))
    assert "2 jobs ended in" in text
    assert "and all of them succeeded" in text
    failed = [jobs[0], job(1, outcome="failed", returncode=1), job(2)]
    assert "1 of 2 jobs failed in" in re.sub(r"<[^>]+>", "", html(source(failed)))


def told(**status: Any) -> str:
    (found,) = re.findall(r'<p class="headline">(.*?)</p>', html(source([job(0)], status=status)))
    return unescape(re.sub("<[^>]+>", "", found))


def test_the_headline_has_what_went_wrong_beside_the_jobs() -> None:
    status = simulated(LEAST).status
    nothing = "search 'hpo' found nothing in 12 trials: none has a loss"
    search = {**status["searches"][0], "trouble": nothing}
    rule = {**status["rules"][0], "error": "ValueError: no\nline 2"}
    assert told().endswith(" and all of them succeeded.")
    for wrong, words in (
        ({"searches": [search]}, nothing),
        ({"rules": [rule]}, f"rule '{rule['id']}' failed (ValueError: no)"),
        (
            {"state": "canceled", "reason": "canceled by the user"},
            "the ensemble was canceled by the user",
        ),
        ({"state": "canceled", "reason": "too long"}, "the ensemble was canceled: too long"),
        ({"state": "failed", "reason": "no space"}, "the ensemble failed: no space"),
    ):
        assert told(**wrong).endswith(f"all of them succeeded; {words}.")


def test_the_best_point_is_the_one_that_the_status_has_whatever_the_jobs_say() -> None:
    jobs = [job(number, params={"t": number}, memo={"fom": number}) for number in range(40)]
    best = {
        "name": "top", "group": "sim", "of": "fom", "mode": "max", "live": False, "running": False,
        "value": 7.0, "job": 7, "params": {"t": 7},
    }  # fmt: skip
    text = best_card(source(jobs, status={"best": [best]}))
    assert text == "7 highest fom t = 7 Best 'top': job 7 of sim."


def test_the_best_point_is_of_the_group_the_key_and_the_mode_of_the_document() -> None:
    assert best_card(simulated(TWINS)).startswith("1 lowest loss x = 1 Best 'top': job 2 of scan")
    (first,) = re.findall("<div data-first>.*?</table>", html(simulated(TWINS)), re.DOTALL)
    assert re.findall(r"<td>(\w+)</td>", first) == ["scan"] * 3


def test_the_best_point_of_a_search_that_minimizes_is_its_best_trial() -> None:
    made = simulated(LEAST)
    trial = made.status["searches"][0]["best"][0]
    card = best_card(made)
    assert card.endswith(f"Trial {trial['trial']} of search 'hpo'.")
    values = [one["value"] for one in made.status["searches"][0]["best"]]
    assert trial["value"] == min(values)
    assert card.startswith(f"{trial['value']:.6g} lowest loss")


def headings(made: Source, section: str) -> list[str]:
    (part,) = re.findall(f'id="e0-{section}".*?</section>', html(made), re.DOTALL)
    return re.findall(r'<th scope="col"[^>]*>([^<]*)<', part)


def test_a_count_that_no_group_has_is_no_column_of_the_groups() -> None:
    times = ["Least", "Median", "95 %", "Most"]
    plain = headings(simulated({**TWINS, "metrics": []}), "groups")
    assert plain == ["Group", "Submitted", "Success", "Failed", *times]
    assert "Timeout" in headings(simulated(SWEEP), "groups")
    made = source([job(0)])
    made.status["groups"]["sim"]["running"] = 1
    assert headings(made, "groups")[2] == "Running"


def test_what_jobs_used_is_told_by_group_where_it_is_known() -> None:
    used = {"cpu_seconds": 1.5, "max_rss": 1500.0, "ncores": 2}
    made = source([job(0), job(2, **used), job(2, **{**used, "cpu_seconds": 0.5, "max_rss": 500})])
    page = html(made)
    (part,) = re.findall("<caption><span>Processor time and peak.*?</table>", page, re.DOTALL)
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", part.partition("<tbody>")[2])
    # Of two jobs that had two cores for three seconds each.
    assert cells == ["sim", "2", "2s", "1s", "1.5s", "17%", "1 GB", "1.5 GB"]
    assert "kept busy 17% of the time" in page
    without = html(source([job(0)]))
    assert "Processor time" not in without
    assert "kept busy" not in without


def test_statistics_of_times_have_their_unit_and_others_have_none() -> None:
    page = html(simulated(SWEEP))
    (part,) = re.findall('id="e0-statistics".*?</section>', page, re.DOTALL)
    assert ESTIMATES in part
    variables = set(re.findall(r"</th><td>([^<]*)</td>", part))
    assert variables == {"duration\xa0(s)", "pending\xa0(s)", "fom"}


def test_values_have_their_units_where_all_that_are_shown_have_the_same() -> None:
    units = [{"of": "loss", "unit": "eV"}, {"of": "val-loss", "unit": "<meV>"}]
    given = {**TWINS, "metrics": [*TWINS["metrics"], *units]}
    assert best_card(simulated(given)).startswith("1 lowest loss [eV] x = 1")
    assert "loss [eV]" in headings(simulated(given), "sweep")
    page = html(simulated(given))
    (part,) = re.findall('id="e0-statistics".*?</section>', page, re.DOTALL)
    variables = set(re.findall(r"</th><td>([^<]*)</td>", part))
    assert {"loss [eV]"} <= variables
    assert "<meV>" not in page


def test_importances_slices_and_the_table_of_jobs_have_units_without_scripts() -> None:
    jobs = [
        job(number, params={"t": number % 6, "p": number // 6}, memo={"fom": number % 6})
        for number in range(36)
    ]
    best = {
        "name": "top", "of": "fom", "group": "sim", "mode": "max", "value": 5, "job": "5",
        "params": {"t": 5, "p": 0}, "running": False,
    }  # fmt: skip
    page = html(source(jobs, status={"best": [best], "units": {"sim-fom": "eV", "fom": "J"}}))
    for words in (
        "Importance of the parameters for fom [eV], from 36 jobs",
        "the variance of the ranks of fom [eV] between",
        "Slices: fom [eV] over each parameter",
        "the 36 jobs that succeeded and published fom [eV]. The ring is around the one with the "
        "highest fom [eV].",
        "<td>fom [eV]=3</td>",
    ):
        assert words in page
    assert "[J]" not in page


def test_jobs_that_are_compared_have_no_columns_of_parameters_of_others() -> None:
    other = {"name": "other", "command": "other {y}", "params": {"y": [1, 2]}}
    begin = {"id": "two", "trigger": "start", "action": {"name": "submit", "label": "other"}}
    made = simulated({**TWINS, "jobs": [*TWINS["jobs"], other], "rules": [*TWINS["rules"], begin]})
    assert headings(made, "sweep")[-1] == "x"


def test_where_the_document_keeps_no_best_the_card_says_so_and_guesses_none() -> None:
    text = best_card(simulated({**TWINS, "metrics": []}))
    assert text.startswith("\u2013 The document keeps no best point")
    page = html(simulated({**TWINS, "metrics": []}))
    assert "<div data-first>" not in page
    said = re.sub("<[^>]*>", "", page)
    # The first number that jobs published.
    assert "the strongest lines are jobs that succeeded with the lowest val-loss." in said
    silent = {key: {"duration": 5} for key in TWINS["simulate"]}
    said = re.sub("<[^>]*>", "", html(simulated({**TWINS, "metrics": [], "simulate": silent})))
    assert "the strongest lines are jobs that succeeded with the lowest runtime." in said


def test_a_failed_job_with_the_highest_value_is_no_best_point() -> None:
    failing = {**TWINS["simulate"]["scan"], "failure-rate": 1.0}
    text = best_card(simulated({**TWINS, "simulate": {**TWINS["simulate"], "scan": failing}}))
    assert text.endswith("No job of scan that succeeded has a value of loss.")


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

    local = ("--queue", "local", "--state-dir", "state")
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
    with pytest.raises(ReportError, match="none of ours"):
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


@pytest.mark.parametrize(("again", "said"), [(0, "1 of 2 jobs"), (1, "1 of 1 job")])
def test_jobs_that_were_interrupted_were_not_tried_again(again: int, said: str) -> None:
    outcomes = ("interrupted", "failed", "success")
    made = source(
        [job(number, outcome=outcome) for number, outcome in enumerate(outcomes)],
        status={"retries": 1 + again},
    )
    made.status["groups"]["sim"]["finished"] -= again
    assert f"{said} failed in" in re.sub(r"<[^>]+>", "", html(made))


def test_attempts_that_a_user_had_run_again_are_counted_nowhere_as_others() -> None:
    # Jobs 2 and 3 failed three times each; run again, 2 succeeded and 3 failed three times more.
    jobs = [job(1), job(8)]
    jobs += [
        job(number, index=index, attempt=attempt, outcome="failed", rule=rule, **more)
        for number, index, attempt, rule, more in [
            (2, 2, 0, "begin", {"replaced": "retry:9"}),
            (3, 3, 0, "begin", {"replaced": "retry:9"}),
            (4, 2, 1, "retry", {"replaced": "retry:9"}),
            (5, 3, 1, "retry", {"replaced": "retry:9"}),
            (9, 3, 0, "retry", {}),
            (10, 3, 1, "retry", {}),
        ]
    ]
    jobs = [{**one, "cpu_seconds": 1.0, "max_rss": 1.0, "ncores": 1} for one in jobs]
    made = source(jobs, status={"retries": 5})
    group = made.status["groups"]["sim"]
    # The status leaves them out of all but the jobs that were submitted.
    group.update(attempts=4, failed=2, finished=3)
    said = re.sub(r"<[^>]+>", " ", html(made))
    assert re.search(r"2 of 3 jobs failed in .*?; 2 of 4 attempts did", said)
    assert "0 firings of rules; 1 further attempt; 4 earlier attempts left out" in said
    assert "4 attempts and 4 earlier attempts" in said
    assert "; 2 of the 4 attempts failed or ran out of time." in said
    assert "4 attempts had ended after" in said
    run = gather(made, lambda entry, t: "")
    assert (run.jobs.use["sim"].jobs, run.jobs.again) == (4, 1)
    assert sum(run.jobs.outcomes.values()) == 4


def test_a_rule_with_two_actions_that_has_fired_once_has_fired_once() -> None:
    submit = {"name": "submit", "label": "analyse"}
    rules = [{"id": "both", "trigger": "start", "actions": [submit, submit]}]
    made = simulated({**SWEEP, "rules": rules})
    assert [rule["fired"] for rule in made.status["rules"]] == [1]
    said = re.sub(r"<[^>]+>", " ", html(made))
    assert "1 firing of rules" in said
    assert re.search(r"2 jobs on \d nodes? and 1 firing in ", said)


def near(tmp_path: Path, jobs: list[dict[str, Any]], **more: Any) -> str:
    """A report in a directory beside the files of jobs."""
    content = describe(
        source(jobs, **more), path=tmp_path / "reports" / "a.html", environment=False
    )
    return page([content], 1_790_000_000.0)


def test_output_that_is_there_is_linked_and_what_is_not_there_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "reports" / "with ü").mkdir(parents=True)
    near_by, above = tmp_path / "reports" / "with ü" / "a.txt", tmp_path / "b.txt"
    far = Path(__file__).resolve()
    for file in (near_by, above):
        file.touch()
    gone = tmp_path / "elsewhere" / "gone.txt"
    # A job that has written nothing has no file on the local queue.
    outputs = [near_by, above, far, gone, None, tmp_path / "nothing.txt"]
    jobs = [
        job(number, output=None if file is None else str(file))
        for number, file in enumerate(outputs)
    ]
    text = near(tmp_path, jobs)
    expected = ["./with%20%C3%BC/a.txt", "../b.txt", f"file://{quote(str(far))}", str(gone)]
    assert data(text)["e0.jobs"]["output"] == [*expected, None, None]
    for link in expected[:3]:
        assert f'<a href="{link}" rel="noreferrer">' in text
    assert f'href="{gone}' not in text
    assert "gone.txt</td>" in text
    assert "nothing.txt" not in text
    assert "output" not in data(near(tmp_path, jobs[-2:]))["e0.jobs"]
    # The page of standard output is in no directory.
    (where,) = {*data(html(source(jobs[:1])))["e0.jobs"]["output"]}
    assert where == str(near_by)


def test_of_jobs_without_files_there_is_no_column_and_a_simulation_has_none() -> None:
    assert "output" not in data(html(source([job(1)])))["e0.jobs"]
    made = source([job(1, output="/etc/passwd")], kind="simulation")
    assert "output" not in data(html(made))["e0.jobs"]


def test_a_failure_links_the_output_of_its_example(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "1.out").touch()
    failed = job(1, outcome="failed", returncode=3, output=str(tmp_path / "reports" / "1.out"))
    text = near(tmp_path, [failed])
    section = text.split('class="failure"', 1)[1].split("</article>", 1)[0]
    assert 'Its output: <a href="./1.out"' in section


def test_names_of_files_that_look_like_scripts_are_names_of_files(tmp_path: Path) -> None:
    directory = tmp_path / "reports"
    directory.mkdir()
    for name in ("javascript:alert(1)", 'a" onclick="b', "<b>"):
        (directory / name).touch()
        text = near(tmp_path, [job(1, output=str(directory / name))])
        assert f'href="./{quote(name)}"' in text


def test_what_the_jobs_used_is_on_the_first_card() -> None:
    jobs = [
        job(number, ncores=8, ngpus=1, runtime=900.0, t_run=1000.0 * number,
            t_end=1000.0 * number + 900, outcome="failed" if number == 3 else "success")
        for number in range(4)
    ]  # fmt: skip
    text = re.sub("<[^>]*>", "", html(source(jobs)))
    used = "Used: 1 node hour; 8 core hours, 25% of them by jobs that failed; 1 GPU hour, 25% of"
    assert used in text
    # A record of an earlier version does not know the cores.
    for one in jobs:
        del one["ncores"], one["ngpus"]
    assert "Used: 1 node hour." in re.sub("<[^>]*>", "", html(source(jobs)))


def test_two_jobs_on_a_node_use_the_node_once() -> None:
    jobs = [job(number, ncores=2, t_run=0.0, t_end=3600.0) for number in range(2)]
    assert "Used: 1 node hour; 4 core hours." in re.sub("<[^>]*>", "", html(source(jobs)))


def test_a_sweep_with_a_best_point_has_importances_of_its_parameters() -> None:
    jobs = [
        job(number, params={"t": number % 6, "p": number // 6}, memo={"fom": (number % 6) / 7})
        for number in range(36)
    ]
    best = {
        "name": "top", "of": "fom", "group": "sim", "mode": "max", "value": 5 / 7, "job": "5",
        "params": {"t": 5, "p": 0}, "running": False,
    }  # fmt: skip
    text = html(source(jobs, status={"best": [best]}))
    table = text.split("Importance of the parameters for fom, from 36 jobs</span>", 1)[1]
    assert re.findall(r"</svg>(\d+%)<", table.split("</table>", 1)[0]) == ["100%", "0%"]


def test_a_sweep_without_a_best_point_has_those_for_the_first_number_that_is_published() -> None:
    jobs = [
        job(number, params={"t": number % 6, "p": number // 6, "one": 1},
            memo={"fom": (number % 6) / 7})
        for number in range(36)
    ]  # fmt: skip
    table = html(source(jobs)).split("Importance of the parameters for fom, from 36 jobs</span>")[1]
    assert re.findall(r"</svg>(\d+%)<", table.split("</table>", 1)[0]) == ["100%", "0%"]
    # The document does not say what is good.
    assert "Slices: fom over each parameter" in html(source(jobs))
    assert "The ring" not in html(source(jobs))
    for one in jobs:
        one["memo"] = {}
    assert "Importance" not in html(source(jobs))
    assert "Slices: fom" not in html(source(jobs))


def test_slices_are_of_the_most_important_parameters_and_of_some_values() -> None:
    jobs = [
        job(
            12 * number + group, group=f"g{group}",
            params={f"p{at}": (number >> at) % 2 for at in range(10)}, memo={"fom": number},
        )
        for number in range(64)
        for group in range(12)
    ]  # fmt: skip
    text = html(source(jobs))
    assert text.count('data-chart="slices"') == 10
    assert "<li>slices of more than 10 values</li>" in text
    few = [job(number, params={f"p{at}": (number >> at) % 2 for at in range(10)},
               memo={"fom": number}) for number in range(1024)]  # fmt: skip
    assert "Not shown: 2 less important parameters." in html(source(few))


def test_of_several_groups_it_is_said_whose_parameters_matter() -> None:
    jobs = [
        job(number, group=f"sim{number % 2}", params={"t": number % 3, "p": number // 6},
            memo={"fom": number % 3})
        for number in range(36)
    ]  # fmt: skip
    text = html(source(jobs))
    for group in ("sim0", "sim1"):
        assert f"Importance of the parameters of {group} for fom, from 18 jobs</span>" in text
