"""The files that `run` writes when its ensemble has ended: `--report`, `--export`, `--summary`.

An instance can end with the command, as in `flux start flux ensemble run FILE`. Then its data about
the ensemble is gone, unless it has a statedir, so nothing can be requested later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_ensemble.cli.common import FAILED, OK, USAGE, Failure, print_error, say
from flux_ensemble.client import EnsembleError
from flux_ensemble.client.troubles import sentence
from flux_ensemble.files import writing
from flux_ensemble.metrics.names import ATTEMPT_OUTCOMES
from flux_ensemble.results.hosts import Target
from flux_ensemble.texts import printable

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Variables of which a session with a screen, or with a helper for one that is elsewhere, has one.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")

#: Size in bytes of a message that Kubernetes keeps, and so of the summary of a run; and the longest
#: text in it, in characters of at most four bytes each.
LARGEST = 4096
_LONGEST = 300

#: What precedes the file of an export of the best jobs.
BEST = "best:"


@dataclass(frozen=True)
class Export:
    """A file of `--export`.

    Args:
        path: the file; its suffix is its format.
        best: it has the best jobs only.
    """

    path: Path
    best: bool = False


class ExportFile(click.ParamType):
    """A file for jobs, `FILE`, or for the best ones, `best:FILE`."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Export:
        if isinstance(value, Export):
            return value
        best = value.startswith(BEST)
        path = value.removeprefix(BEST)
        if not path:
            self.fail(f"expected a file after {BEST!r}, such as {BEST}best.csv", param, ctx)
        return Export(Path(path), best)


@dataclass(frozen=True)
class Results:
    """The requested files.

    Args:
        report: for a report; None writes none.
        exports: for jobs, each in the format of its suffix.
        shown: open the report in a browser; without a file for it, it gets the ensemble's name.
        force: replace files that exist.
    """

    report: Path | None = None
    exports: tuple[Export, ...] = ()
    shown: bool = False
    force: bool = False

    def __bool__(self) -> bool:
        return self.report is not None or bool(self.exports) or self.shown

    def options(self) -> Iterator[str]:
        """Yield the words of a command line that asks for the same files."""
        if self.report is not None:
            yield from ("--report", str(self.report))
        for export in self.exports:
            yield from ("--export", f"{BEST if export.best else ''}{export.path}")
        yield from ["--open"] * self.shown
        yield from ["--force"] * self.force

    def absolute(self) -> Results:
        """Return the same files, for a command that is typed in another directory."""
        exports = tuple(replace(one, path=one.path.absolute()) for one in self.exports)
        return replace(self, report=self.report and self.report.absolute(), exports=exports)

    def check(self, name: str, *, best: bool) -> None:
        """Check before anything runs that the files can be written.

        Args:
            name: of the ensemble.
            best: its document has best jobs.

        Raises:
            Failure: a file exists, or its suffix is unknown, or the document has no best jobs.
        """
        from flux_ensemble.results.best import no_best
        from flux_ensemble.results.export import ExportError, check

        try:
            for export in self.exports:
                check(export.path)
                if export.path.exists() and not self.force:
                    raise ExportError(f"{export.path} exists: --force replaces it")
                if export.best and not best:
                    raise ExportError(f"{BEST}{export.path}: {no_best(name)}")
        except ExportError as error:
            raise Failure(f"--export: {error}", USAGE) from None
        if self.report is not None and not self.force:
            from flux_ensemble.results.report import check_free

            check_free(self.report)
        if self.report is not None:
            from flux_ensemble.results.report import check_suffix

            check_suffix(self.report)
        for path in filter(None, (self.report, *(export.path for export in self.exports))):
            check_place(path, path.absolute().parent)

    def write(self, target: Target, name: str) -> int:
        """Write the files.

        Returns:
            The exit code; errors are printed.
        """
        code = OK
        for export in self.exports:
            code = max(
                code, _tried(export.path, partial(_export, target, name, export, self.force))
            )
        if self.report is not None or self.shown:
            path = self.report or Path(f"{name}.html")
            write = partial(_report, target, name, self)
            code = max(code, _tried(path, write))
        return code


def check_place(path: Path, written: Path) -> None:
    """Check before anything runs that a file can be written.

    Args:
        path: the file.
        written: what has to be writable: its directory, or the file itself.

    Raises:
        Failure: it cannot be written.
    """
    if not path.absolute().parent.is_dir():
        raise Failure(f"cannot write {path}: its directory is not there", USAGE)
    if not os.access(written, os.W_OK):
        raise Failure(f"cannot write {path}: you have no permission to write {written}", USAGE)


def _tried(path: Path, write: Callable[[], None]) -> int:
    """Write one file; its errors do not keep the others from being written."""
    try:
        write()
    except (Failure, EnsembleError) as error:
        print_error(str(error) if str(path) in str(error) else f"{path}: {error}")
        return FAILED
    return OK


def _export(target: Target, name: str, export: Export, force: bool) -> None:
    from flux_ensemble.results.export import write, write_best

    path = export.path
    if export.best:
        count, noun = write_best(target, name, path, force=force), "best job"
    else:
        count, noun = write(path, target.jobs(name), force=force), "job"
    say(f"{path}: {count} {noun}{'s'[: count != 1]}")


def _report(target: Target, name: str, results: Results) -> None:
    from flux_ensemble.cli.display.reports import written
    from flux_ensemble.results.report import default_file, describe
    from flux_ensemble.results.sources import source_of

    source = source_of(target, name)
    path = results.report or default_file(name, [source])
    written(path, [describe(source, path=path, environment=False)], force=results.force)
    if results.shown:
        open_page(path)


def ends_with_us(attr_get: Callable[[str], Any]) -> bool:
    """Return True if the instance ends with this command, which its broker has started.

    Args:
        attr_get: reads an attribute of the broker.
    """
    return str(attr_get("broker.pid")) == str(os.getppid())


def is_job(attr_get: Callable[[str], Any]) -> bool:
    """Return True if the instance is a job of another one, and ends with that.

    Args:
        attr_get: as for `ends_with_us`.
    """
    return int(attr_get("instance-level")) > 0


class Summary:
    """The result of a run as one JSON object in a file: collects the final status, and writes it.

    In a pod the file is /dev/termination-log, whose contents Kubernetes keeps as the message of the
    container; the operator reads them there.

    Args:
        path: of the file; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}

    def check(self) -> None:
        """Check before anything runs that the file can be written.

        Raises:
            Failure: it cannot be written.
        """
        if self._path is not None:
            exists = self._path.exists()
            check_place(self._path, self._path if exists else self._path.absolute().parent)

    def take(self, status: EnsembleStatus) -> None:
        """Note the final status of the ensemble."""
        groups: Iterable[Mapping[str, Any]] = status.get("groups", {}).values()
        self._known = {
            "name": status["name"],
            "state": status["state"],
            "reason": _text(status.get("reason", "")),
            "trouble": _text(sentence(status)),
            "jobs": {
                outcome: sum(group[outcome] for group in groups) for outcome in ATTEMPT_OUTCOMES
            },
            "t_start": status["t_start"],
            "t_end": status["t_end"],
        }

    def write(self, code: int, error: str | None = None) -> int:
        """Write {"exit_code", "error"?} and, if the ensemble ended, its final status.

        Args:
            code: the exit code of the command.
            error: why it could not continue.

        Returns:
            The exit code; an error of the file is printed, and fails a run that succeeded.
        """
        if self._path is None:
            return code
        summary = {**self._known, "exit_code": code}
        if error is not None:
            summary["error"] = _text(error)
        try:
            # Written in place, because the file may be a mount of its own.
            with writing(self._path) as file:
                file.write(json.dumps(summary, ensure_ascii=False) + "\n")
        except OSError as exc:
            print_error(f"cannot write the summary {str(self._path)!r}: {exc.strerror}")
            return code or FAILED
        return code


def _text(text: str) -> str:
    """A text for the people who read the file in Kubernetes."""
    return printable(text[:_LONGEST])[:_LONGEST]


def open_page(path: Path) -> None:
    """Open a page, or print where it is.

    Browsers in the terminal are not started: they do not run the scripts of a report.
    """
    import webbrowser

    url = path.absolute().as_uri()
    if any(map(os.environ.get, SCREENS)) and webbrowser.open(url):
        return
    say(f"no browser can be opened here: the report is {path.absolute()} (one file, to copy)")
