"""The how-to pages: their files, their sessions, and whether what is printed is what they show.

A block of a page is a file if its first line, or that after `#!`, is a comment with the file's name
(`# sweep.yaml`, and what may follow after a colon), and a session if it has lines that begin with
`$ `: commands, each with what it prints. Commands from `flux start` on run in the Flux instance
that it makes, and those before it on the local queue.

Printed lines are compared without what differs from run to run: job ids, process ids, versions,
durations, times, hosts, the widths of columns, lines on ranks, and empty lines. `...` on a page
stands for any lines. A comment before a block says what else is not compared in it:
`<!-- counts differ -->` numbers, `<!-- any order -->` the order of lines.

    python t/python/helpers/pages.py docs/howto/sweep.md

runs the commands of a page, and writes what they print into it: to be read before it is committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]

_BLOCK = re.compile(
    r"(?:^<!-- (counts differ|any order|counts differ, any order) -->\n+)?^```(\w*)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"(?:#!.*\n)?# ([\w-]+(?:\.\w+)+)\b")

#: What differs from run to run, and what it is compared as.
_VARIES = (
    (re.compile(r"\bƒ\w+"), "ƒ"),
    # The local queue has numbers for ids.
    (re.compile(r"\bjob \d+ wrote\b"), "job ƒ wrote"),
    (re.compile(r"\bflux ensemble\b"), "flux-ensemble"),
    (re.compile(r"\bpid \d+"), "pid"),
    (re.compile(r" \(host [\w.-]+\)"), ""),
    (re.compile(r"\buserid=\d+"), "userid"),
    (re.compile(r"rank\d+/core\d+|ranks=\"\w+\""), "ranks"),
    (re.compile(r"^\d+\.\d{6}\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+){2,}"), "VERSION"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|[mh]( \d+[ms])?)\b"), "TIME"),
    # A time below half a millisecond is shown as none is.
    (re.compile(r"(?<=\s)-(?=\s|$)"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "DATE"),
    (re.compile(r"\s+"), " "),
)

#: What `run` prints of its progress where there is no terminal.
_PROGRESS = re.compile(r"^\s*progress ")

#: What `failures` says of the ranks where jobs failed.
_RANKS = re.compile(r"^\s*ranks( =|:) ")


NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Command:
    """A command of a session.

    Args:
        words: what is typed.
        shown: the lines that the page shows as printed.
        lenient: what else is not compared: "counts differ", "any order", both
            with a comma, or "".
    """

    words: str
    shown: tuple[str, ...]
    lenient: str = ""


@dataclass(frozen=True)
class Page:
    """What a page has: files by name, and the commands of its session."""

    files: Mapping[str, str]
    commands: Sequence[Command]


def read_page(text: str) -> Page:
    """The files and commands of a page.

    Args:
        text: of the page, Markdown.
    """
    files: dict[str, str] = {}
    commands: list[Command] = []
    for lenient, _, block in _BLOCK.findall(text):
        if block.startswith("$ "):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                words, *shown = part.splitlines()
                while shown and shown[0].startswith("> "):
                    more = shown.pop(0).removeprefix("> ")
                    words = words[:-1] + more if words.endswith("\\") else f"{words}\n{more}"
                commands.append(Command(words, tuple(shown), lenient))
        elif named := _FILE.match(block):
            files[named[1]] = block
    return Page(files, commands)


def comparable(lines: Sequence[str], lenient: str = "") -> list[str]:
    """Lines without what differs from run to run."""
    compared = []
    for line in lines:
        for pattern, text in _VARIES:
            line = pattern.sub(text, line)
        if "counts differ" in lenient:
            line = re.sub(r"-?\d+(\.\d+)?", "N", line)
        if line.strip() and not _PROGRESS.match(line) and not _RANKS.match(line):
            compared.append(line.strip())
    return sorted(compared) if "any order" in lenient else compared


def same(shown: Sequence[str], printed: Sequence[str], lenient: str = "") -> bool:
    """Whether printed lines are those that a page shows."""
    parts = [None if line == "..." else re.escape(line) for line in comparable(shown, lenient)]
    pattern = "".join(r"(?:.*\n)*" if part is None else rf"{part}\n" for part in parts)
    text = "".join(f"{line}\n" for line in comparable(printed, lenient))
    return re.fullmatch(pattern, text) is not None


def run_session(
    page: Page, directory: Path, before: str = "", variables: Mapping[str, str] = NONE
) -> list[list[str]]:
    """Run the commands of a page; the lines that each prints.

    Args:
        page: the page.
        directory: where to: the files of the page are made there.
        before: what those commands run in that come before `flux start`, such as another
            `flux start`; without it, nothing but the shell.
        variables: of the environment, besides what it has.
    """
    write_files(page, directory)
    words = [command.words for command in page.commands]
    starts = [number for number, word in enumerate(words) if word.startswith("flux start")]
    first = starts[0] if starts else len(words)
    printed = run_commands(before.split(), words[:first], directory, variables)
    if starts:
        start, rest = words[first].split(), words[first + 1 :]
        printed += [[], *run_commands(start, rest, directory, variables)]
    return printed


def run_commands(
    within: Sequence[str],
    words: Sequence[str],
    directory: Path,
    variables: Mapping[str, str] = NONE,
) -> list[list[str]]:
    """Run commands one after the other; the lines that each prints.

    Args:
        within: what they run in, such as `flux start`; empty: nothing.
        words: the commands.
        directory: where to.
        variables: of the environment, besides what it has.
    """
    if not words:
        return []
    results = directory / "printed.json"
    done = subprocess.run(
        [*within, sys.executable, __file__, str(results)],
        cwd=directory,
        env={**environment(), **variables, "XDG_STATE_HOME": str(directory / ".state")},
        input=json.dumps(words),
        capture_output=True,
        text=True,
    )
    printed: list[list[str]] = json.loads(results.read_text())
    assert len(printed) == len(words), done.stderr
    return printed


@contextlib.contextmanager
def instance(start: Sequence[str], variables: Mapping[str, str] = NONE) -> Iterator[dict[str, str]]:
    """Have a Flux instance; yields the environment of what runs in it.

    Args:
        start: the command that starts it.
        variables: of the environment, besides what it has.
    """
    code = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [*start, sys.executable, "-c", code],
        env={**environment(), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()
    assert process.returncode == 0


#: Ends the service, however it was started, and leaves nothing of it and of any job.
_CLEAR = """
flux module list | awk '/^ensemble/ {print $1}' | sort -r | xargs -r -n1 flux module remove
flux cancel --all --quiet
flux queue idle --quiet
flux job purge --force --num-limit=0 >/dev/null
flux kvs unlink -R -f ensemble ensemble-service
"""


def clear(variables: Mapping[str, str]) -> None:
    """Make an instance as if it had just begun.

    Args:
        variables: the environment of what runs in it.
    """
    subprocess.run(["sh", "-e", "-c", _CLEAR], env=variables, check=True)


def write_files(page: Page, directory: Path) -> None:
    """Make the files of a page."""
    for name, text in page.files.items():
        (directory / name).write_text(text)


def environment() -> dict[str, str]:
    """The environment of a user of the project's virtual environment, without settings."""
    dropped = ("FLUX_", "XDG_", "TEST_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "LC_ALL": "C.UTF-8", "COLUMNS": "120"}


def with_printed(text: str, printed: Sequence[Sequence[str]]) -> str:
    """The text of a page with other lines in the place of those that its commands print.

    Args:
        text: of the page.
        printed: the lines of each command, in their order.
    """
    left = iter(printed)

    def session(block: re.Match[str]) -> str:
        if not block[3].startswith("$ "):
            return block[0]
        lines = []
        for command in re.findall(r"^(\$ .*(?:\n> .*)*)$", block[3], re.MULTILINE):
            shown = [
                re.sub(r"\(host [\w.-]+\)", "(host node7)", line.rstrip())
                for line in next(left)
                if not _PROGRESS.match(line)
            ]
            lines += [command, *"\n".join(shown).rstrip("\n").splitlines()]
        return block[0].replace(block[3], "".join(f"{line}\n" for line in lines))

    return _BLOCK.sub(session, text)


def update(path: Path) -> None:
    """Run the commands of a page, and write what they print into it."""
    text = path.read_text()
    with tempfile.TemporaryDirectory() as directory:
        path.write_text(with_printed(text, run_session(read_page(text), Path(directory))))


def inside(results: Path) -> None:
    """Run the commands on standard input; write what they print."""
    printed = []
    for words in json.load(sys.stdin):
        done = subprocess.run(
            ["sh", "-c", words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed.append(done.stdout.splitlines())
    results.write_text(json.dumps(printed))


if __name__ == "__main__":
    argument = Path(sys.argv[1])
    update(argument) if argument.suffix == ".md" else inside(argument)
