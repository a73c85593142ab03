"""Commands, options and methods that the pages name exist."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flux_ensemble.cli.main import ensemble
from flux_ensemble.client.client import Client

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "etc" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_COMMAND = re.compile(
    r"(?<![\w/-])(?<!namespace )flux[ -]ensemble((?: [a-z][a-z-]*(?![\w/.]))+)((?:[^`|;&\n]|\\\n)*)"
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<=[ \[])--[a-z][a-z-]*")


def named(text: str) -> Iterator[tuple[str, click.Command, list[str]]]:
    """Yield the commands in code of a page: as it is written, the command, its options."""
    blocks = [
        block for kind, block in _BLOCK.findall(text) if kind in ("", "console", "text", "sh")
    ]
    spans = re.findall(r"`[^`\n]+`", _BLOCK.sub("", text))
    for words, rest in _COMMAND.findall("\n".join([*blocks, *spans])):
        command: click.Command = ensemble
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"there is no command {word!r}"
            command = found
        yield f"{words}{rest}", command, _OPTION.findall(f" {words}{rest}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_and_option_of_a_page_exists(page: Path) -> None:
    for written, command, options in named(page.read_text()):
        known = {"--help", *(word for one in command.params for word in getattr(one, "opts", ()))}
        known |= {word for one in command.params for word in getattr(one, "secondary_opts", ())}
        assert set(options) <= known, written


def test_commands_that_do_not_exist_and_options_that_are_none_are_found() -> None:
    ((_, command, options),) = named("`flux ensemble run --bogus a.yaml | head --lines 1`")
    assert (command.name, options) == ("run", ["--bogus"])
    with pytest.raises(AssertionError, match="'rnu'"):
        list(named("```\n$ flux-ensemble rnu a.yaml\n```"))


def test_the_page_of_the_client_has_the_arguments_of_each_method() -> None:
    table = re.findall(r"^\| (`[^|]+\)`) \|", (ROOT / "docs" / "client.md").read_text(), re.M)
    written = dict(re.findall(r"`(\w+)\(([^)]*)\)`", " ".join(table)))
    for name, arguments in written.items():
        of_page = re.findall(r"\w+(?==)|\w+", re.sub(r"=\w+", "", arguments))
        assert of_page == list(inspect.signature(getattr(Client, name)).parameters)[1:], name
    assert {"load", "jobs", "submit", "log", "why", "scale"} <= written.keys()
