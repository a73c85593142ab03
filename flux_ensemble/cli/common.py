"""Common parts of all sub-commands: errors, the connection, the document, types.

A command returns its exit code (None is 0). For errors it raises `Failure`, `EnsembleError`,
`BindingsError` or a click usage error, which `main` prints.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol

import click

from flux_ensemble.cli.prose import fitted
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.errors import AFTER_LOSS
from flux_ensemble.queues.local.client import LocalStateError
from flux_ensemble.texts import hanging, printable

if TYPE_CHECKING:
    from flux_ensemble.document.feature import JobsOf
    from flux_ensemble.document.model import Spec
    from flux_ensemble.runtime.recording import Recorder

OK = 0
FAILED = 1
USAGE = 2
CANCELED = 3
TIMED_OUT = 124
INTERRUPTED = 130

#: Most nodes of a virtual cluster, and most cores and GPUs of each.
MOST = 1_000_000

#: Ends of the names of documents.
DOCUMENTS = (".yaml", ".yml", ".json")

#: Exit code by the state in which an ensemble ended.
EXIT_CODES = {"completed": OK, "failed": FAILED, "canceled": CANCELED}


#: Most problems of one document that are printed.
MOST_PROBLEMS = 20


class Failure(Exception):
    """Ends the command: one sentence per line, and the exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def print_error(message: str) -> None:
    """Print an error to standard error, with the command's name before each line.

    If nobody can read it, as on a terminal that is gone, only the exit code has the error.
    """
    with suppress(OSError):
        for line in message.splitlines() or [""]:
            click.echo(fitted(f"flux-ensemble: ERROR: {printable(line)}", err=True), err=True)


def say(sentence: str) -> None:
    """Print a message that is no error to standard error, after the command's name."""
    with suppress(OSError):
        click.echo(fitted(f"flux-ensemble: {hanging(sentence)}", err=True), err=True)


def warn(sentence: str) -> None:
    """Print a warning to standard error."""
    with suppress(OSError):
        click.echo(fitted(f"warning: {hanging(sentence)}", err=True), err=True)


def drop_output() -> None:
    """Make later output no error, because nobody reads standard output any more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def recorded(code: int, recorder: Recorder | None) -> int:
    """Return the exit code of a command that has made a recording; report an incomplete one."""
    if recorder is None or recorder.problem is None:
        return code
    print_error(recorder.problem)
    return code or FAILED


def own_cores() -> int:
    """Return the number of cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


#: The path of a file in an option or an argument.
FILE = click.Path(path_type=Path, dir_okay=False)


class Duration(click.ParamType):
    """A duration in seconds or RFC 23 text (30s, 2m, 1.5h); 0 is no limit."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from flux_ensemble.document.duration import parse_duration

        try:
            return parse_duration(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


class Since(click.ParamType):
    """A time: `-1h` or `1h` ago, or a date such as 2026-11-25T14:00; in epoch seconds."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from flux_ensemble.document.duration import parse_duration

        text = str(value)
        with suppress(ValueError):
            return time.time() - parse_duration(text.removeprefix("-"))
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            self.fail(
                f"expected how long ago (1h, 30m) or a date (2026-11-25T14:00), not {text!r}",
                param,
                ctx,
            )


class Assignment(click.ParamType):
    """`key=value`, where the value is read as YAML, as it would be in a document.

    Args:
        written: the value is one of a parameter, which keeps its spelling.
    """

    name = "key=value"

    def __init__(self, *, written: bool = False) -> None:
        self._written = written

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        from flux_ensemble.document.problems import DocumentError
        from flux_ensemble.document.spellings import read_argument, read_setting

        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not (key and equals and text):
            self.fail(f"expected key=value, not {value!r}", param, ctx)
        try:
            return key, read_argument(text) if self._written else read_setting(key, text)
        except DocumentError as error:
            reason = error.problems[0].message.removeprefix("malformed YAML: ")
            self.fail(f"the value of {key!r} is not YAML: {text!r} ({reason})", param, ctx)


class Mapped(click.ParamType):
    """A mapping in YAML, as it would be in a document."""

    name = "mapping"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        from flux_ensemble.document.problems import DocumentError
        from flux_ensemble.document.spellings import read_action

        if isinstance(value, dict):
            return value
        try:
            mapping = read_action(value)
        except DocumentError:
            mapping = None
        if not isinstance(mapping, dict):
            self.fail(f"expected a mapping such as '{{name: submit, label: x}}', not {value!r}")
        return mapping


def run_reactor(handle: Any) -> None:
    """Run the reactor of a Flux handle until it is stopped.

    Raises:
        EnsembleError: the connection to the broker was lost.
        KeyboardInterrupt: SIGINT.
    """
    if handle.reactor_run() < 0:
        lost = f"the connection to Flux was lost: {AFTER_LOSS}"
        raise EnsembleError(errno.ECONNRESET, lost)


def read_document(file: str) -> tuple[str, str | None]:
    """Return the text of a document and its name in messages; `-` is standard input.

    Raises:
        Failure: it cannot be read, or is not text.
    """
    label = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise Failure(f"cannot read {label}: {exc.strerror}{_instead(file, exc)}", USAGE) from exc
    try:
        return data.decode(), None if file == "-" else file
    except UnicodeDecodeError as exc:
        raise Failure(f"{label}: not UTF-8 text (byte {exc.start})", USAGE) from exc


def _instead(file: str, error: OSError) -> str:
    """Return, in brackets, the document that was probably meant; "" if there is none."""
    from flux_ensemble.suggestions import nearest

    path = Path(file)
    folder = path if isinstance(error, IsADirectoryError) else path.parent
    with suppress(OSError):
        there = sorted(one.name for one in folder.iterdir() if one.suffix in DOCUMENTS)
        if folder == path:
            files = ", ".join(str(folder / name) for name in there[:5])
            return f" (documents in it: {files})" if files else " (it has no document in it)"
        stems = {PurePath(name).stem: name for name in there}
        near = nearest(path.stem, stems)
        return f" (did you mean {str(folder / stems[near])!r}?)" if near else ""
    return ""


def first_problems(text: str, file: str | None) -> str:
    """Return the first problems of a document, one per line, and the number of further ones."""
    lines = text.splitlines()
    more = len(lines) - MOST_PROBLEMS
    if more > 1:
        last = f"{file or 'document'}: and {more} more: 'flux-ensemble validate --json' has them"
        lines = [*lines[:MOST_PROBLEMS], last]
    return "\n".join(lines)


def check_document(
    text: str,
    file: str | None,
    name: str | None,
    workers: int | None = None,
    *,
    begins: Literal["here", "elsewhere"] | None = None,
    jobs: JobsOf | None = None,
) -> Spec:
    """Read a document as the service will, and print the warnings about it.

    Args:
        text: the document.
        file: its name.
        name: the ensemble's name, if it is not the document's.
        workers: as of `LoadOptions`.
        begins: where the ensemble is about to begin. If a package for it is missing here, that is
            an error; elsewhere it is the host that knows, and nothing is printed.
        jobs: as of `LoadOptions`.

    Raises:
        Failure: it has errors; all of them, one per line. Or it cannot begin here.
    """
    from flux_ensemble.document.feature import objection, unknown_jobs
    from flux_ensemble.document.lint import Warnings
    from flux_ensemble.document.loading import DocumentError, load_text

    warnings = Warnings()
    directory = str(Path(file or "-").parent)
    try:
        where: Any = {"name": name, "file": file, "directory": directory}
        known = jobs or unknown_jobs
        spec = load_text(text, **where, warnings=warnings, workers=workers, jobs=known)
    except DocumentError as exc:
        raise Failure(first_problems(str(exc), file), USAGE) from exc
    reason = objection(spec, None) if begins else None
    for sentence in warnings.warnings:
        if reason is None or not sentence.endswith(reason):
            warn(sentence)
        elif begins == "here":
            raise Failure(sentence, USAGE)
    return spec


def understood(spec: Spec, text: str) -> str:
    """Return the text of a document, with the expansion of its `use`.

    Args:
        spec: the document, checked.
        text: as it was written.
    """
    if spec.expansion is None:
        return text
    from flux_ensemble.api.yaml_writer import to_yaml

    return to_yaml(spec.expansion)


class Named(Protocol):
    """A host that knows the names of ensembles, of their groups and of their rules."""

    def list(self) -> Sequence[Any]: ...

    def status(self, name: str | None = None) -> Any: ...


@contextmanager
def naming(
    client: Named, name: str, group: str | None = None, rule: str | None = None
) -> Iterator[None]:
    """Add what helps to the error of a request: a similar name, or what can be done about the end.

    A similar name is that of something known, where the request named something unknown.
    """
    try:
        yield
    except EnsembleError as exc:
        if exc.errno == errno.EINVAL and (ways := _ways_on(client, name, str(exc))):
            raise EnsembleError(errno.EINVAL, f"{exc}: {ways}") from exc
        if exc.errno != errno.ENOENT or isinstance(exc, LocalStateError):
            raise
        guess = _near(client, name, group, rule)
        if guess is None:
            raise
        raise EnsembleError(errno.ENOENT, f"{exc}; did you mean {guess!r}?") from exc


def _ways_on(client: Named, name: str, said: str) -> str:
    """Return what can be done about an ensemble, if a service said only that it has ended."""
    if not said.startswith(f"ensemble {name!r} has ended (") or not said.endswith(")"):
        return ""
    from flux_ensemble.client.troubles import ways_on
    from flux_ensemble.own_command import own_command

    try:
        status = client.status(name)["ensembles"][0]
    except EnsembleError:
        return ""
    return ways_on(status, partial(own_command, flux=True))


def _near(client: Named, name: str, group: str | None, rule: str | None) -> str | None:
    from flux_ensemble.suggestions import nearest

    try:
        names = [one["name"] for one in client.list()]
        if name in names:
            ensemble = client.status(name)["ensembles"][0]
            if group is not None:
                name, names = group, list(ensemble["groups"])
            elif rule is not None:
                name, names = rule, [one["id"] for one in ensemble["rules"]]
            else:
                return None
    except EnsembleError:
        return None  # the original error is the one to print
    return nearest(name, names)
