"""The texts of a report in the words of the command line: failures, statistics, log lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from flux_ensemble.cli.common import Failure as CommandFailure
from flux_ensemble.cli.display.failures import Failures
from flux_ensemble.cli.display.messages import explain
from flux_ensemble.cli.display.metrics_tables import metrics_rows
from flux_ensemble.eventlog import Stored
from flux_ensemble.files import replacing
from flux_ensemble.job_ids import shown
from flux_ensemble.report.document import text_of
from flux_ensemble.report.files import Files
from flux_ensemble.report.gather import gather
from flux_ensemble.report.page import MARK
from flux_ensemble.report.sections import Content
from flux_ensemble.report.source import Failure, Source
from flux_ensemble.report.summary import figure_of
from flux_ensemble.report.texts import plural
from flux_ensemble.report.usage import usage
from flux_ensemble.words import plain

#: Most places that are named of the jobs that failed for a reason.
MOST_RANKS = 5


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
        usage=usage(
            times.rows("t_run"), times.rows("t_end"), run.jobs.ranks, run.end, size and size[0]
        ),
        simulated=None if simulated is None else gather(simulated, _line(simulated)),
    )


def written(path: Path, text: str, contents: Sequence[Content], *, force: bool) -> None:
    """Write a page to a file, as a whole, and print that.

    Raises:
        CommandFailure: the file exists and is no report, or it cannot be written.
    """
    if str(path) == "-":
        sys.stdout.write(text)
        return
    if not force:
        check_free(path)
    try:
        with replacing(path) as beside:
            size = beside.write_bytes(text.encode())
    except OSError as error:
        raise CommandFailure(f"cannot write {path}: {error.strerror}") from None
    jobs = plural(sum(content.run.jobs.count for content in contents), "job")
    click.echo(f"{path}: {jobs}, {size / 1e6:.1f} MB", err=True)


def check_free(path: Path) -> None:
    """Check that a path is free or has a report.

    Raises:
        CommandFailure: it has another file.
    """
    if path.exists() and not _is_report(path):
        raise CommandFailure(f"{path} exists and is no report: --force replaces it")


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError as error:
        raise CommandFailure(f"cannot write {path}: {error.strerror}") from None


def _line(source: Source) -> Callable[[Stored, float], str]:
    """Return a function that converts an entry of the log to a line of text."""

    def line(entry: Stored, t_start: float) -> str:
        try:
            return plain(explain(entry, t_start, source.label))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
            raise CommandFailure("an entry of the log is none of ours") from None

    return line


def _failures(counted: Failures, source: Source) -> list[Failure]:
    name = source.status["name"]
    command = source.command
    found = []
    for kind in counted.kinds():
        unshown = counted.unshown(kind.example)
        job, most = kind.example, kind.ranks.most_common(MOST_RANKS)
        more = ", ..." if len(kind.ranks) > MOST_RANKS else ""
        found.append(
            Failure(
                group=kind.group,
                reason=kind.reason,
                outcome=job["outcome"],
                returncode=job["returncode"],
                jobs=kind.jobs,
                noun=counted.noun,
                where=", ".join(f"{ranks} ({jobs})" for ranks, jobs in most) + more,
                lifts=[
                    (one.name, one.value, one.failed, one.ended, one.lift)
                    for one in counted.lifts(kind)
                ],
                note=job["exception"]["note"] or "",
                example=shown(job["id"], job, source.label),
                tail=[] if unshown else source.tail(job),
                missing=unshown or source.missing(job),
                file=None if source.virtual else job["output"],
                command="" if command is None else command(*kind.words(name)),
            )
        )
    return found


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
