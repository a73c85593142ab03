"""The files that `run` writes when its ensemble has ended: `--report` and `--export`.

An instance can end with the command, as in `flux start flux ensemble run FILE`. Then its data about
the ensemble is gone, unless it has a statedir, so nothing can be requested later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flux_ensemble.cli.common import FAILED, OK, USAGE, Failure, print_error, say
from flux_ensemble.cli.session.target import Target
from flux_ensemble.client import EnsembleError


@dataclass(frozen=True)
class Results:
    """The requested files.

    Args:
        report: for a report; None writes none.
        exports: for the jobs, each in the format of its suffix.
    """

    report: Path | None = None
    exports: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return self.report is not None or bool(self.exports)

    def check(self) -> None:
        """Check before anything runs that the files can be written.

        Raises:
            Failure: a file exists, or its suffix is unknown.
        """
        from flux_ensemble.cli.display.export import ExportError, check

        try:
            for path in self.exports:
                check(path)
                if path.exists():
                    raise ExportError(f"{path} exists: remove it, or name another file")
        except ExportError as error:
            raise Failure(f"--export: {error}", USAGE) from None
        if self.report is not None:
            from flux_ensemble.cli.display.reports import check_free

            check_free(self.report)
        for path in filter(None, (self.report, *self.exports)):
            if not path.absolute().parent.is_dir():
                raise Failure(f"cannot write {path}: its directory is not there", USAGE)

    def write(self, target: Target, name: str) -> int:
        """Write the files.

        Returns:
            The exit code; errors are printed.
        """
        code = OK
        for path in self.exports:
            code = max(code, _tried(path, partial(_export, target, name, path)))
        if self.report is not None:
            code = max(code, _tried(self.report, partial(_report, target, name, self.report)))
        return code


def _tried(path: Path, write: Callable[[], None]) -> int:
    """Write one file; its errors do not keep the others from being written."""
    from flux_ensemble.cli.display.export import ExportError

    try:
        write()
    except (ExportError, Failure, EnsembleError) as error:
        print_error(str(error) if str(path) in str(error) else f"{path}: {error}")
        return FAILED
    return OK


def _export(target: Target, name: str, path: Path) -> None:
    from flux_ensemble.cli.display.export import write

    count = write(path, target.jobs(name))
    say(f"{path}: {count} job{'s'[: count != 1]}")


def _report(target: Target, name: str, path: Any) -> None:
    from flux_ensemble.cli.display.reports import describe, written
    from flux_ensemble.cli.session.sources import source_of
    from flux_ensemble.report.page import page

    contents = [describe(source_of(target, name), None, environment=False)]
    written(path, page(contents, time.time()), contents, force=False)


def ends_with_us(attr_get: Callable[[str], Any]) -> bool:
    """Return True if the instance ends with this command, which its broker has started.

    Args:
        attr_get: reads an attribute of the broker.
    """
    return str(attr_get("broker.pid")) == str(os.getppid())
