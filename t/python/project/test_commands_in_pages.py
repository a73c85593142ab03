"""Commands, options and methods that the pages name exist."""

from __future__ import annotations

import ast
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
        parameters = inspect.signature(getattr(Client, name)).parameters
        assert of_page == [one for one in parameters if one != "self"], name
    assert {"load", "jobs", "submit", "log", "why", "scale"} <= written.keys()


#: Functions whose arguments are the words of a command of this program.
_RECOMMEND = {"own_command", "advice", "_advice", "command", "_command"}


def recommended(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yield the commands that code recommends: the line, and the words that are literals.

    Whoever passes on words of somebody else's recommends nothing by itself.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            literals = [one.value if isinstance(one, ast.Constant) else None for one in node.args]
            words = [word for word in literals if isinstance(word, str)]
            if called in _RECOMMEND and words and words[0] == literals[0]:
                yield node.lineno, words


def problem(words: list[str]) -> str | None:
    """Return what is wrong with a command that is recommended; None if it exists."""
    if words[0] == "--help":
        return None
    command = ensemble.get_command(click.Context(ensemble), words[0])
    if command is None:
        return f"there is no command {words[0]!r}"
    known = {word for one in command.params for word in getattr(one, "opts", ())}
    wrong = [word for word in words if word.startswith("--") and word not in known]
    return f"{words[0]} has no option {wrong[0]!r}" if wrong else None


def test_commands_that_the_program_recommends_exist() -> None:
    found = 0
    for path in sorted((ROOT / "flux_ensemble").rglob("*.py")):
        for line, words in recommended(ast.parse(path.read_text(encoding="utf-8"))):
            found += 1
            assert problem(words) is None, f"{path}:{line}: {problem(words)}"
    assert found > 10


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("own_command('restart', name)", "there is no command 'restart'"),
        ("self._advice('run', '--bogus', file)", "run has no option '--bogus'"),
        ("own_command('run', '--queue', 'local', file)", None),
    ],
)
def test_commands_that_are_recommended_and_do_not_exist_are_found(
    code: str, wrong: str | None
) -> None:
    ((_, words),) = recommended(ast.parse(code))
    assert problem(words) == wrong
