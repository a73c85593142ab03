"""Which jobs `jobs`, `export` and `output` take, in which order, and how many."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flux_ensemble.cli.commands.jobs import MOST_JOBS, STATES, Order, States
from flux_ensemble.cli.common import Failure, Since
from flux_ensemble.cli.display.jobs_table import dotted_format, jobs_table, nested_fields
from flux_ensemble.cli.main import run_command
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.tables import JobTable
from flux_ensemble.metrics.job_filter import FIELDS, compile_filter
from flux_ensemble.queues.local.client import LocalClient
from flux_ensemble.results.job_output import Outputs

SWEEP = """
name: s
jobs:
  - name: a
    command: [sh, -c, "echo said {x}; exit {x}"]
    params: {x: [3, 0, 2, 1]}
    output: '%s/out-{x}'
  - {name: b, command: "true"}
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: idle, group: a, action: {name: submit, label: b}}
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of a run with four jobs of a, of which one succeeded, and one of b."""
    root = tmp_path_factory.mktemp("run")
    (root / "s.yaml").write_text(SWEEP % root)
    local = ["--queue", "local", "--state-dir", str(root / "state")]
    assert run_command(["run", *local, str(root / "s.yaml")]) == 0
    return root / "state"


def printed(capsys: pytest.CaptureFixture[str], state: Path, *words: str) -> list[str]:
    """What a command about the run prints, in lines."""
    command, *rest = words
    assert run_command([command, "--state-dir", str(state), "s", *rest]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["-f", "completed", "--group", "a"], {"0"}),
        (["-f", "failed"], {"1", "2", "3"}),
        (["-f", "pending,running"], set()),
        (["-f", "interrupted"], set()),
        (["-f", "completed,interrupted", "--group", "a"], {"0"}),
        (["--outcome", "interrupted"], set()),
        (["-f", "failed", "--filter", "params.x > 1"], {"2", "3"}),
        (["--since", "1h", "-f", "failed"], {"1", "2", "3"}),
        (["--since", "2999-01-01"], set()),
    ],
)
def test_states_and_times_choose_jobs_as_for_flux_jobs(
    options: list[str], codes: set[str], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, state, "jobs", "-n", "-o", "{returncode}", *options)
    assert set(lines) == codes


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["--sort", "params.x"], ["0", "1", "2", "3", "-"]),
        (["--sort", "-params.x", "-c", "2"], ["3", "2"]),
        (["--sort", "group,-job.returncode"], ["3", "2", "1", "0", "-"]),
        (["--sort", 'group,-job.params["x"]', "-c", "2"], ["3", "2"]),
    ],
)
def test_jobs_are_sorted_and_the_first_are_taken(
    options: list[str], codes: list[str], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, state, "jobs", "-n", "-o", '{params["x"]}-', *options)
    assert [line.removesuffix("-") or "-" for line in lines] == codes


def test_what_jobs_are_sorted_by_is_a_column_of_the_default_table(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heading, *rows = printed(capsys, state, "jobs", "--sort", "-index,t_end,outcome,params.x")
    assert heading.split()[6:] == ["INDEX", "T_END", "PARAMS"]
    assert len({len(row.split()) for row in rows}) <= 2
    assert "INDEX" not in printed(capsys, state, "jobs", "--sort", "group")[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sort", "params.y"], "no job has 'params.y' (did you mean 'params.x'? parameters: x)"),
        (["--sort", "-memo.e"], "no job has 'memo.e' (jobs have published: nothing)"),
        (["--filter", "params.xx > 1"], "no job has 'params.xx' (did you mean 'params.x'? para"),
        (["-o", "{id} {memo.e} {params.x}"], "no job has 'memo.e' (jobs have published: nothing)"),
        (["--filter", "params.x > 7", "--sort", "params.x", "-o", "{params.x}"], ""),
        (["--group", "b", "-o", "{params.x}"], ""),
    ],
)
def test_what_no_job_has_is_named(
    options: list[str], said: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["jobs", "--state-dir", str(state), "s", *options]) == 0
    error = capsys.readouterr().err
    assert said in error if said else error == ""


def test_an_outcome_that_is_none_is_refused(state: Path) -> None:
    with pytest.raises(EnsembleError, match="outcome: expected one of success, failed"):
        list(LocalClient(state).jobs("s", outcome="faild"))


def test_without_an_order_the_last_are_taken(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, state, "jobs", "-n", "-o", "{group}", "--limit", "1") == ["b"]


def test_a_table_has_the_last_thousand_and_says_so_unless_all_are_asked_for() -> None:
    rows = [{"id": number} for number in range(MOST_JOBS + 5)]
    kept, total = Order().take(iter(rows), MOST_JOBS)
    assert (kept[0], len(kept), total) == ({"id": 5}, MOST_JOBS, MOST_JOBS + 5)
    assert len(Order(count=0).take(iter(rows), MOST_JOBS)[0]) == MOST_JOBS + 5


def test_jobs_without_a_value_come_last_whichever_way_they_are_sorted() -> None:
    rows = [{"runtime": None}, {"runtime": 2.0}, {"runtime": 1.0}]
    assert Order("runtime").take(rows)[0] == [rows[2], rows[1], rows[0]]
    assert Order("-runtime").take(rows)[0] == [rows[1], rows[2], rows[0]]


def test_values_are_sorted_as_the_numbers_that_they_are_however_they_are_written() -> None:
    rows = [{"params": {"x": value}} for value in ("z", "1e2", 20, "0x0A", 9.5, "a")]
    ordered = [row["params"]["x"] for row in Order("params.x").take(rows)[0]]
    assert ordered == [9.5, "0x0A", 20, "1e2", "a", "z"]
    ordered = [row["params"]["x"] for row in Order("-params.x").take(rows)[0]]
    assert ordered == ["1e2", 20, "0x0A", 9.5, "z", "a"]


@pytest.mark.parametrize("name", STATES)
def test_each_state_that_can_be_named_is_a_filter(name: str) -> None:
    compile_filter(States().convert(name, None, None))


def test_columns_stand_below_each_other_whatever_became_of_the_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = jobs_table("default")
    row = dict.fromkeys(table.headings, "")
    statuses = ("success", "interrupted")
    table.show([{**row, "status": status, "nnodes": "7", "runtime": 1.0} for status in statuses])
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index("7") for line in lines[1:]} | {lines[0].index("NNODES") + 5}) == 1


def test_a_field_that_jobs_do_not_have_is_named() -> None:
    with pytest.raises(Failure, match="--sort: a job has no field 'colour'"):
        Order("colour").take([{}])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("memo.p-value > 1", 'write memo["p-value"] for'),
        ("job.memo.k_cat/K_M < 3 and runtime > 1", 'write job.memo["k_cat/K_M"] for'),
        ("params.a.b == 1", 'write params["a.b"] for'),
        ("memo.E [eV] > 1", 'write memo["E [eV]"] for'),
        ("memo.2x > 1", 'write memo["2x"] for'),
        ("memo.loss-1 > 0 and colour == 1", "a job has no field 'colour'"),
    ],
)
def test_a_name_with_other_characters_is_told_to_be_in_brackets(text: str, written: str) -> None:
    with pytest.raises(ValueError, match=re.escape(written)):
        compile_filter(text)


def test_a_name_in_brackets_is_one_for_filter_order_and_format() -> None:
    name = 'memo["a,b.c-d [eV]"]'
    rows = [{"memo": {"a,b.c-d [eV]": value}} for value in (3, 1, 2)]
    assert [compile_filter(f"{name} > 1")(row) for row in rows] == [True, False, True]
    assert Order(f"-{name}").take(rows)[0] == [rows[0], rows[2], rows[1]]
    assert nested_fields(dotted_format(f"{{{name}:>8}}")) == ["memo.a,b.c-d [eV]"]


def test_what_is_no_time_is_refused_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["jobs", "s", "--since", "yesterday"]) == 2
    assert "expected how long ago (1h, 30m) or a date" in capsys.readouterr().err
    assert Since().convert("2026-11-25", None, None) > 0


def test_a_state_that_there_is_not_gets_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["jobs", "s", "-f", "runing"]) == 2
    assert "did you mean 'running'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--color", "always", "jobs"], ["jobs", "--color=always"]])
def test_colour_is_chosen_before_or_after_the_name_of_the_command(
    words: list[str], state: Path
) -> None:
    program = [sys.executable, "-m", "flux_ensemble.cli.main"]
    done = subprocess.run(
        [*program, *words, "--state-dir", str(state), "s", "-o", "{color_status}{outcome}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "\x1b[" in done.stdout


def test_names_of_columns_and_filters_are_those_of_expressions(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "{ntasks},{ncores},{ngpus},{urgency}"
    lines = printed(capsys, state, "jobs", "-n", "-o", names, "--filter", "job.pending >= 0")
    assert lines == ["1,1,0,16"] * 5


def test_each_name_of_a_filter_is_a_column_and_is_empty_where_a_job_has_no_value(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "|".join(f"{{{name}}}" for name in FIELDS)
    lines = printed(capsys, state, "jobs", "-n", "-o", columns, "--filter", "group == 'b'")
    (values,) = [dict(zip(FIELDS, line.split("|"), strict=True)) for line in lines]
    assert (values["group"], values["outcome"], values["ntasks"]) == ("b", "success", "1")
    assert [values[name] for name in ("copy_of", "member", "trial")] == ["", "", ""]


@pytest.mark.parametrize(
    ("chosen", "copies"),
    [("copy_of == 'start:0'", 1), ("job.copy_of == 'start:1'", 0), ("group == 'a'", 2)],
)
def test_copies_are_chosen_by_what_they_are_copies_of(chosen: str, copies: int) -> None:
    jobs = [{"group": "a"}, {"group": "a", "copy_of": "start:0"}]
    assert sum(map(compile_filter(chosen), jobs)) == copies


def test_what_a_copy_is_of_is_a_text_and_no_number() -> None:
    with pytest.raises(ValueError, match="copy_of"):
        compile_filter("copy_of == 3")


def test_export_takes_an_order_and_a_number(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    printed(capsys, state, "export", str(file), "--sort", "params.x", "--count", "2")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["returncode"] for row in rows] == [0, 1]


def test_output_prints_what_the_jobs_of_a_group_wrote(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, state, "output", "--group", "a", "-f", "failed")
    # Each is preceded by the job and its file, also in a file and a pipe.
    heads, said = lines[::2], lines[1::2]
    assert sorted(said) == ["said 1", "said 2", "said 3"]
    assert all(re.fullmatch(r"==> job \d: .*", head) for head in heads)


def test_output_of_a_choice_passes_over_jobs_that_wrote_nothing(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["output", "--state-dir", str(state), "s", "--group", "b"]) == 0
    assert capsys.readouterr() == ("", "")


def test_output_of_several_jobs_prints_those_that_wrote_and_fails_for_the_others(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = printed(capsys, state, "jobs", "-n", "-o", "{id}", "--sort", "group")
    wrote, silent = ids[0].strip(), ids[-1].strip()
    assert run_command(["output", "--state-dir", str(state), "s", silent, wrote]) == 1
    out, err = capsys.readouterr()
    assert re.match(r"==> job \d: .*\nsaid ", out)
    assert f"ERROR: job {silent}: it wrote nothing\n" in err


def test_a_job_whose_file_is_empty_wrote_nothing_and_one_whose_file_is_away_may_have(
    state: Path, tmp_path: Path
) -> None:
    outputs = Outputs(LocalClient(state), "s")
    job = next(iter(LocalClient(state).jobs("s", group="b")))
    (tmp_path / "empty").touch()
    empty = {**job, "output": str(tmp_path / "empty"), "error": None}
    away = {**job, "output": str(tmp_path / "away"), "error": None}
    somewhere = "it has written nothing that can be read from here"
    assert outputs.nothing(empty) == "it wrote nothing"
    assert outputs.nothing(away) == somewhere
    assert outputs.nothing({**empty, "t_end": None}) == somewhere
    assert outputs.nothing({**empty, "output": None}) == somewhere


@pytest.mark.parametrize("command", ["jobs", "output"])
def test_a_job_that_does_not_exist_fails_the_command_and_those_that_do_are_named(
    state: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run_command([command, "--state-dir", str(state), "s", "9999"]) == 1
    said = capsys.readouterr().err
    assert re.search(r"has no job 9999 in its record \(jobs: (\d+, )+(\d+|and \d+ more)\)", said)


def test_a_number_after_n_is_said_to_be_a_job(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job, *_) = printed(capsys, state, "jobs", "-n", "-o", "{id}")
    words = ["jobs", "--state-dir", str(state), "s", "-n", job.strip()]
    assert run_command(words) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    said = " ".join(err.split())
    assert f"-n leaves out the headings, so that {job.strip()} is the id of a job: '" in said
    assert re.search(rf" s -c {job.strip()} [^']*' shows so many jobs", said)
    for script in (["-o", "{id}"], ["--json"]):
        assert run_command([*words, *script]) == 0
        assert capsys.readouterr().err == ""


def test_output_wants_jobs_or_a_choice_of_them(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["output", "--state-dir", str(state), "s"]) == 2
    said = capsys.readouterr().err
    assert "name jobs, or choose them by options such as --group or --outcome failed" in said
    assert run_command(["jobs", "--state-dir", str(state), "s", "-o", "{dt}"]) == 2
    said = capsys.readouterr().err
    assert "a parameter is '{params.dt}', and a value that jobs publish '{memo.dt}'" in said


SHARED = """
name: s
jobs:
  - {name: a, command: [sh, -c, "echo try; exit 1"], output: '%s/a.txt', retries: 1}
  - {name: b, command: [echo, own], output: '%s/b.txt'}
rules:
  - {trigger: start, action: {name: submit, label: a}}
  - {trigger: start, action: {name: submit, label: b}}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of a run with two attempts that wrote to one file, and a job alone."""
    root = tmp_path_factory.mktemp("shared")
    (root / "s.yaml").write_text(SHARED % (root, root))
    local = ["--state-dir", str(root / "state"), "--queue", "local"]
    assert run_command(["run", "-q", *local, str(root / "s.yaml")]) == 0
    return root / "state"


@pytest.mark.parametrize("choice", [["--group", "a"], ["-f", "failed"], ["1"]])
def test_output_says_that_others_wrote_to_the_file_of_a_job(
    shared: Path, capsys: pytest.CaptureFixture[str], choice: list[str]
) -> None:
    assert run_command(["output", "--state-dir", str(shared), "s", *choice]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if "==>" not in line] == ["try"] * out.count("try\n")
    assert "try" in out
    said = err.count("other jobs, or other attempts, wrote to its file, too")
    assert said == out.count("try\n")


def test_output_says_nothing_of_a_file_that_is_a_jobs_own(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["output", "--state-dir", str(shared), "s", "--group", "b"]) == 0
    assert capsys.readouterr() == ("own\n", "")


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The filters by which jobs are requested."""
    asked: list[str | None] = []
    requested = LocalClient.jobs

    def jobs(self: LocalClient, name: str, **choice: Any) -> JobTable:
        asked.append(choice.get("filter"))
        return requested(self, name, **choice)

    monkeypatch.setattr(LocalClient, "jobs", jobs)
    return asked


def test_only_jobs_with_the_same_file_are_requested_for_the_output_of_one(
    shared: Path, filters: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["output", "--state-dir", str(shared), "s", "1"]) == 0
    assert "wrote to its file, too" in capsys.readouterr().err
    path = str(shared.parent / "a.txt")
    assert filters == ["id == 1", f"output in ['{path}'] or error in ['{path}']"]


def test_no_other_job_is_requested_if_a_job_wrote_to_the_file_that_its_run_keeps(
    state: Path, filters: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["output", "--state-dir", str(state), "s", "5"]) == 1
    assert "it wrote nothing" in capsys.readouterr().err
    assert filters == ["id == 5"]


def test_long_names_of_files_are_compared_with_those_of_all_jobs(
    tmp_path: Path, filters: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    deep = tmp_path.joinpath(*["it's \\ deep" * 20] * 6)
    (tmp_path / "s.yaml").write_text(
        json.dumps(
            {
                "name": "s",
                "jobs": [
                    {
                        "name": "a",
                        "command": ["echo", "said"],
                        "output": f"{deep}/{{x}}.txt",
                        "params": {"x": [1, 1, 2, 3]},
                    }
                ],
                "rules": [{"trigger": "start", "action": {"name": "submit", "label": "a"}}],
            }
        )
    )
    local = ["--state-dir", str(tmp_path / "state")]
    assert run_command(["run", "-q", "--queue", "local", *local, str(tmp_path / "s.yaml")]) == 0
    assert run_command(["output", *local, "s", "1"]) == 0
    assert capsys.readouterr().err.count("wrote to its file, too") == 1
    assert run_command(["output", *local, "s", "1", "2", "3", "4"]) == 0
    assert capsys.readouterr().err.count("wrote to its file, too") == 2
    assert filters[-1] is None
    assert filters[1] is not None


def test_the_output_of_a_job_is_found_from_another_directory_than_that_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(
        "{name: s, jobs: [{name: a, command: [echo, said]}],"
        " rules: [{trigger: start, action: {name: submit, label: a}}]}"
    )
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", "-q", "--queue", "local", "--state-dir", "runs", "s.yaml"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert run_command(["output", "--state-dir", "../runs", "s", "1"]) == 0
    assert capsys.readouterr().out == "said\n"


def test_the_live_view_says_it_too(shared: Path) -> None:
    from flux_ensemble.cli.top.source import Source
    from flux_ensemble.queues.local.client import LocalClient

    source = Source(LocalClient(shared), "s")
    source.look()
    jobs, _ = source.jobs(None, None)
    texts = {job["group"]: source.output(job) for job in jobs}
    assert texts["a"].startswith("other jobs, or other attempts, wrote to its file, too")
    assert "other attempts" not in texts["b"]


AGAIN = """
name: %s
jobs: [{name: a, command: [sh, -c, '%s'], output: '%s/{x}.txt', params: {x: [1, 2]}}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""


@pytest.fixture
def rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The state directory of a run of which another one wrote a file again, a minute later."""
    local = ["--state-dir", str(tmp_path / "state"), "--queue", "local"]
    for name, script in ("s", "echo no table {x}; exit {x}"), ("again", "echo all is well {x}"):
        (tmp_path / "s.yaml").write_text(AGAIN % (name, script, tmp_path))
        run_command(["run", "-q", *local, str(tmp_path / "s.yaml")])
        if name == "s":
            (tmp_path / "2.txt").rename(tmp_path / "kept")
    (tmp_path / "kept").rename(tmp_path / "2.txt")
    os.utime(tmp_path / "1.txt", (time.time() + 60,) * 2)
    capsys.readouterr()
    return tmp_path / "state"


def note_on(file: Path) -> str:
    return f"{file} was written again after the job ended, perhaps by another run"


def test_what_another_run_wrote_later_is_no_reason_of_a_failure(
    rewritten: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ["--state-dir", str(rewritten)]
    assert run_command(["failures", *local, "s"]) == 0
    said = capsys.readouterr().out
    assert "all is well" not in said
    assert f"\n  job 1: {note_on(rewritten.parent / '1.txt')}\n" in said
    assert "job 2 wrote at last:\n    no table 2\n" in said
    page = rewritten.parent / "s.html"
    assert run_command(["report", *local, "s", "-o", str(page)]) == 0
    assert "all is well" not in page.read_text()
    assert note_on(rewritten.parent / "1.txt") in page.read_text()
    assert "no table 2" in page.read_text()


def test_what_another_run_wrote_a_moment_later_is_no_reason_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ["--state-dir", str(tmp_path / "state"), "--queue", "local"]
    for name, script in ("s", "echo no table {x}; exit {x}"), ("again", "echo all is well {x}"):
        (tmp_path / "s.yaml").write_text(AGAIN % (name, script, tmp_path))
        run_command(["run", "-q", *local, str(tmp_path / "s.yaml")])
    states = LocalClient(tmp_path / "state")
    end = max(one["t_run"] or 0.0 for one in states.jobs("again")) + 0.01
    for job in states.jobs("s"):
        assert job["output"] is not None
        os.utime(job["output"], (end, end))
        outputs = Outputs(states, "s")
        assert outputs.rewritten(job) == note_on(Path(job["output"]))
        assert outputs.rewritten({**job, "t_end": end}) == ""
        assert Outputs(states, "again").rewritten({**job, "t_end": end - 0.005}) == ""
    capsys.readouterr()


def test_output_says_that_a_file_was_written_again_after_the_job(
    rewritten: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ["--state-dir", str(rewritten)]
    assert run_command(["output", *local, "s", "1", "2"]) == 0
    out, err = capsys.readouterr()
    assert "all is well 1\n" in out
    assert "no table 2\n" in out
    assert " ".join(err.split()) == f"flux-ensemble: job 1: {note_on(rewritten.parent / '1.txt')}"
    (rewritten.parent / "1.txt").write_text("")
    os.utime(rewritten.parent / "1.txt", (time.time() + 60,) * 2)
    assert run_command(["output", *local, "s", "1"]) == 1
    assert note_on(rewritten.parent / "1.txt") in " ".join(capsys.readouterr().err.split())


def test_the_live_view_says_that_a_file_was_written_again(rewritten: Path) -> None:
    from flux_ensemble.cli.top.source import Source

    source = Source(LocalClient(rewritten), "s")
    source.look()
    jobs, _ = source.jobs(None, None)
    texts = {job["id"]: source.output(job) for job in jobs}
    assert texts[1].startswith(note_on(rewritten.parent / "1.txt"))
    assert "written again" not in texts[2]


def test_a_moment_later_or_in_a_copy_of_the_record_a_file_is_that_of_its_job(
    rewritten: Path, tmp_path: Path
) -> None:
    run_command(["rm", "--state-dir", str(rewritten), "again"])  # else the file is of its job
    outputs = Outputs(LocalClient(rewritten), "s")
    (one, two) = sorted(LocalClient(rewritten).jobs("s"), key=lambda job: job["id"])
    assert one["t_end"] is not None
    assert outputs.rewritten({**one, "outcome": "interrupted"}) == ""
    assert outputs.rewritten({**one, "t_end": None}) == ""
    os.utime(tmp_path / "1.txt", (one["t_end"] + 1,) * 2)
    assert outputs.rewritten(one) == ""
    device = {**one, "output": "/dev/zero", "error": "/dev/null", "t_end": 0.0}
    assert outputs.rewritten(device) == ""
    kept = LocalClient(rewritten).kept_file("s", one["id"])
    Path(kept).parent.mkdir(parents=True, exist_ok=True)
    Path(kept).write_text("no table 1\n")
    os.utime(kept, (one["t_end"] + 60,) * 2)
    assert outputs.rewritten({**one, "output": kept, "error": None}) == ""
    both = {**two, "t_end": 0.0, "error": one["output"]}
    assert f"2.txt and {tmp_path / '1.txt'} were written again" in outputs.rewritten(both)


@pytest.mark.parametrize("command", ["jobs", "failures", "output"])
def test_a_group_that_the_ensemble_has_not_is_an_error_and_no_empty_answer(
    command: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([command, "--state-dir", str(state), "s", "--group", "c"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no job group named 'c' (groups: a, b)" in err


def test_nothing_is_exported_of_a_group_that_the_ensemble_has_not(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "--state-dir", str(state), "s", str(tmp_path / "s.csv"), "--group", "aa"]
    assert run_command(words) == 1
    assert "no job group named 'aa' (groups: a, b); did you mean 'a'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def ordered(sort: str, *values: Any, of: str = "memo") -> list[Any]:
    rows = [{of: {"x": value}} for value in values]
    taken, _ = Order(sort=sort).take(rows)
    return [row[of]["x"] for row in taken]


def test_values_of_memos_that_are_not_finite_are_sorted_as_numbers() -> None:
    values = ["inf", 2, "NaN", "-Infinity", 1.5, "fast", None]
    up = ordered("memo.x", *values)
    assert up == ["-Infinity", 1.5, 2, "inf", "fast", "NaN", None]
    down = ordered("-memo.x", *values)
    assert down == ["inf", 2, 1.5, "-Infinity", "fast", "NaN", None]


def test_a_parameter_that_is_not_a_number_is_last_and_does_not_disturb_the_order() -> None:
    assert ordered("params.x", ".nan", 2, ".inf", 1, of="params") == [1, 2, ".inf", ".nan"]
    # A text is a text, however it reads.
    assert ordered("params.x", "nan", "m", 3, of="params") == [3, "m", "nan"]


def test_a_filter_finds_values_that_are_not_finite_by_the_text_that_was_published() -> None:
    rows = [{"memo": {"x": value}} for value in ("nan", "inf", 0.5)]
    assert [compile_filter("memo.x == 'nan'")(row) for row in rows] == [True, False, False]
    assert [compile_filter("memo.x > 0")(row) for row in rows] == [False, False, True]
