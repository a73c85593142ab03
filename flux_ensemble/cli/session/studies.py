"""Export of the searches of an ensemble for Optuna: `export --to optuna`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flux_ensemble.cli.common import USAGE, Failure, naming
from flux_ensemble.files import replacing

if TYPE_CHECKING:
    from flux_ensemble.cli.session.target import Target


def write_studies(target: Target, name: str, path: Path, *, force: bool) -> str:
    """Write the searches to a file, which appears only when it is complete.

    Args:
        target: the host of the ensemble.
        name: the ensemble.
        path: the file.
        force: replace an existing file.

    Returns:
        The message about the file.

    Raises:
        Failure: Optuna is missing, there is no search, or the file cannot be written.
    """
    try:
        from flux_ensemble.exporter.studies import SUFFIXES, StudyError, searches_of, write
    except ImportError:
        raise Failure("--to optuna needs Optuna: pip install 'flux-ensemble[search]'") from None
    if path.suffix.lower() not in SUFFIXES:
        listed = ", ".join(SUFFIXES)
        raise Failure(f"{path}: expected a file that ends in one of: {listed}", USAGE)
    if path.exists() and not force:
        raise Failure(f"{path} exists: --force replaces it")
    try:
        with naming(target, name):
            searches = searches_of(target.log(name))
            jobs = list(target.jobs(name))
        with replacing(path) as beside:
            written = write(beside, name, searches, jobs)
    except StudyError as error:
        raise Failure(f"{name}: {error}") from None
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None
    told = ", ".join(
        f"{count} trial{'s'[: count != 1]} of search {id!r}" for id, count in written.items()
    )
    return f"{told} written to {path}"
