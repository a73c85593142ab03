"""`--help`: commands by what one wants, options in parts; the manual page has the same."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from flux_ensemble.cli.commands.run import run
from flux_ensemble.cli.help_parts import InParts
from flux_ensemble.cli.main import ensemble, run_command
from flux_ensemble.cli.table import COMMANDS, HIDDEN, SECTIONS

MANUAL = (Path(__file__).parents[3] / "docs" / "man" / "flux-ensemble.1.md").read_text()


def _section(title: str) -> str:
    return MANUAL.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_manual_has_the_commands_of_the_help_in_its_sections() -> None:
    for title, entries in SECTIONS.items():
        headings = re.findall(r"^### (.*)$", _section(title.upper()), re.MULTILINE)
        words = [[part.split()[0] for part in heading.split(", ")] for heading in headings]
        described = [name for names in words for name in names if name not in HIDDEN]
        assert described == list(entries), title


def test_the_synopsis_has_every_command_in_the_order_of_the_help() -> None:
    names = re.findall(r"^\*\*flux.ensemble\*\* \*\*(\S+)\*\*", _section("SYNOPSIS"), re.MULTILINE)
    shown = [name for entries in SECTIONS.values() for name in entries]
    assert list(dict.fromkeys(names)) == shown


def test_the_manual_describes_every_option_of_run() -> None:
    text = MANUAL.partition("\n### run *FILE*\n")[2].partition("\n### ")[0]
    told = set(re.findall(r"\*\*(--?[\w-]+)\*\*", text))
    options = {name for param in run.params for name in (*param.opts, *param.secondary_opts)}
    general = {"file", "--help-all", "--color"}
    assert options - general <= told


def test_a_command_that_the_help_leaves_out_works_and_is_not_completed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["unload", "--help"]) == 0
    assert "Usage: flux-ensemble unload" in capsys.readouterr().out
    completed = ensemble.shell_complete(click.Context(ensemble), "un")
    assert [item.value for item in completed] == []
    assert set(HIDDEN) < set(COMMANDS)


def test_options_of_a_minicluster_are_in_the_whole_help_of_run_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["run", "--help"]) == 0
    short = capsys.readouterr().out
    assert run_command(["run", "--help-all"]) == 0
    whole = capsys.readouterr().out
    for option in ("--tls-cert", "--port", "--host", "--serve", "--isolate", "--record"):
        assert f"{option} " not in short
        assert f"{option} " in whole
    for option in ("--report", "--nodes", "--resume", "--help-all"):
        assert f"{option} " in short


def test_each_option_of_run_is_under_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["run", "--help-all"])
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert len(shown) == len(set(shown))
    visible = {
        param.opts[-1]
        for param in run.params
        if isinstance(param, click.Option) and not param.hidden
    }
    assert set(shown) == visible | {"--help"}


def test_a_part_names_options_that_there_are() -> None:
    @click.command(cls=InParts, parts={"More": ("nowhere",)}, rare={})
    def command() -> None: ...

    with pytest.raises(KeyError):
        command.get_help(click.Context(command))


def test_an_option_that_the_help_leaves_out_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("""
jobs: [{name: a, command: "false"}]
rules: [{trigger: start, action: {name: submit, label: a}}]
""")
    local = ["--queue", "local", "--state-dir", str(tmp_path / "state")]
    assert run_command(["run", *local, "--fail-on-job-failure", str(tmp_path / "a.yaml")]) == 1
    assert "1 of 1 job failed" in capsys.readouterr().out
