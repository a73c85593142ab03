"""Reports: the content in words (failures, statistics, log lines), and the file."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.eventlog import Stored
from flux_ensemble.files import replacing
from flux_ensemble.report.document import logarithmic, text_of
from flux_ensemble.report.files import Files
from flux_ensemble.report.gather import gather
from flux_ensemble.report.page import MARK, RUNS, page, runs_of
from flux_ensemble.report.sections import Content
from flux_ensemble.report.source import Failure, Source
from flux_ensemble.report.summary import figure_of
from flux_ensemble.report.usage import usage
from flux_ensemble.results.failures import Failures, described
from flux_ensemble.results.hosts import Target
from flux_ensemble.results.log_lines import explain
from flux_ensemble.results.sources import source_of
from flux_ensemble.results.statistics import metrics_rows
from flux_ensemble.words import plain

#: Bytes at the beginning of a report within which its runs are.
_HEAD = 65536


class ReportError(EnsembleError):
    """A report cannot be made; the text is one sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EIO, sentence)


def describe(
    source: Source,
    simulated: Source | None = None,
    *,
    path: Path | None = None,
    environment: bool,
) -> Content:
    """Return the content of a report on an ensemble.

    Args:
        source: of the data.
        simulated: another run to compare it with.
        path: of the report, from which files with output are linked; None or "-" links none.
        environment: values of environment variables may be included.

    Raises:
        OSError: jobs or log cannot be had.
    """
    counted = Failures()
    files = Files(None if path is None or str(path) == "-" else path.absolute().parent)
    run = gather(source, _line(source), counted.add, files=files, environment=environment)
    loaded = run.log.document
    document = _read(loaded)
    times, size = run.jobs.times, source.size
    return Content(
        run=run,
        failures=list(_failures(counted, source)),
        statistics=_statistics(source.metrics),
        files=files,
        document=None if loaded is None else text_of(loaded, environment=environment),
        figure=figure_of(run),
        seed=None if document is None else document.get("seed"),
        logarithmic=logarithmic(document or {}),
        usage=usage(
            times.rows("t_run"), times.rows("t_end"), run.jobs.ranks, run.end, size and size[0]
        ),
        simulated=None if simulated is None else gather(simulated, _line(simulated)),
    )


def write_report(
    target: Target, name: str, path: Path, *, force: bool = False, environment: bool = False
) -> None:
    """Write a report of an ensemble to a file.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
        path: the file.
        force: replace a file that is no report.
        environment: values of environment variables may be included.

    Raises:
        EnsembleError: there is no such ensemble, or the file cannot be written.
    """
    if not force:
        check_free(path)
    content = describe(source_of(target, name), path=path, environment=environment)
    write(path, page([content], time.time()), force=force)


def write(path: Path, text: str, *, force: bool) -> int:
    """Write a page to a file, as a whole; return its size in bytes.

    Raises:
        ReportError: the file exists and is no report, or is named as one of another format, or
            cannot be written.
    """
    check_suffix(path)
    if not force:
        check_free(path)
    try:
        with replacing(path) as beside:
            return beside.write_bytes(text.encode())
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror}") from None


def check_free(path: Path) -> None:
    """Check that a path is free or has a report.

    Raises:
        ReportError: it has another file.
    """
    if path.exists() and not _is_report(path):
        raise ReportError(f"{path} exists and is no report: --force replaces it")


def check_suffix(path: Path) -> None:
    """Check that the name of a file is not that of another format.

    Raises:
        ReportError: it is.
    """
    if path.suffix.lower() not in ("", ".html", ".htm"):
        raise ReportError(
            f"{path}: a report is an HTML file: name it {path.with_suffix('.html')}; "
            "to have a PDF, open that in a browser and print it into a file"
        )


def default_file(name: str, sources: Sequence[Source]) -> Path:
    """Return the file for a report for which none was named.

    NAME.html, unless it has a report of other runs, as of a run of that name in an earlier
    instance: then NAME-2.html, and so on.
    """
    runs = runs_of(source.status for source in sources)
    path, number = Path(f"{name}.html"), 1
    while path.exists() and _is_report(path) and _runs_in(path) != runs:
        number += 1
        path = Path(f"{name}-{number}.html")
    return path


def _runs_in(path: Path) -> str | None:
    with path.open(errors="replace") as file:
        found = re.search(rf'<meta [^>]*name="{RUNS}"[^>]*>', file.read(_HEAD))
    content = None if found is None else re.search(r'content="([^"]*)"', found[0])
    return None if content is None else content[1]


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror}") from None


def _line(source: Source) -> Callable[[Stored, float], str]:
    """Return a function that converts an entry of the log to a line of text."""

    def line(entry: Stored, t_start: float) -> str:
        try:
            return plain(explain(entry, t_start, source.label))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise ReportError("an entry of the log is none of ours") from None

    return line


def _failures(counted: Failures, source: Source) -> Iterator[Failure]:
    command, name = source.command, source.status["name"]
    return described(
        counted,
        label=source.label,
        tail=source.tail,
        missing=source.missing,
        command=lambda kind: "" if command is None else command(*kind.words(name)),
        files=not source.virtual,
    )


def _statistics(metrics: Any) -> tuple[list[str], list[list[str]]]:
    rows = metrics_rows(metrics)
    if not rows:
        return [], []
    names = [name for name in rows[0] if name not in ("group", "variable", "ignored")]
    return ["Group", "Variable", *names], [
        [row[name] for name in ("group", "variable", *names)] for row in rows
    ]


def _read(document: Any) -> Any:
    """Return a document as a mapping, to look up a few keys; None if it is none."""
    import yaml

    if isinstance(document, str):
        try:
            document = yaml.safe_load(document)
        except (yaml.YAMLError, RecursionError, ValueError):
            return None
    return document if isinstance(document, dict) else None
