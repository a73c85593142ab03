"""Reports as commands write them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_ensemble.report.texts import numbers

if TYPE_CHECKING:
    from flux_ensemble.report.sections import Content


def written(path: Path, contents: Sequence[Content], *, force: bool) -> None:
    """Write a report to a file, or to standard output (`-`), and print what was written.

    Raises:
        ReportError: the file exists and is no report, or it cannot be written.
    """
    from flux_ensemble.report.page import page
    from flux_ensemble.report.summary import noun
    from flux_ensemble.results.report import write

    text = page(contents, time.time())
    if str(path) == "-":
        sys.stdout.write(text)
        return
    size = write(path, text, force=force)
    found = [content.run.jobs for content in contents]
    rows, replaced = sum(jobs.count for jobs in found), sum(jobs.replaced for jobs in found)
    what = max((noun(content.run) for content in contents), key="attempt".__eq__)
    click.echo(f"{path}: {numbers(rows, replaced, what)}, {size / 1e6:.1f} MB", err=True)
