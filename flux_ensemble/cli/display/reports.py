"""Reports as commands write them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_ensemble.report.texts import plural

if TYPE_CHECKING:
    from flux_ensemble.report.sections import Content


def written(path: Path, contents: Sequence[Content], *, force: bool) -> None:
    """Write a report to a file, or to standard output (`-`), and print what was written.

    Raises:
        ReportError: the file exists and is no report, or it cannot be written.
    """
    from flux_ensemble.report.page import page
    from flux_ensemble.results.report import write

    text = page(contents, time.time())
    if str(path) == "-":
        sys.stdout.write(text)
        return
    size = write(path, text, force=force)
    jobs = plural(sum(content.run.jobs.count for content in contents), "job")
    click.echo(f"{path}: {jobs}, {size / 1e6:.1f} MB", err=True)
