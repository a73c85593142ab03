"""Links the input files of a job into its working directory, before it starts.

    a/in.lammps ◄── runs/7/in.lammps        inputs: [a/in.lammps], workdir: runs/{x}

A link that is there already is left alone if it leads to the same file: so it is for a job that
runs again, and for jobs that share a directory.
"""

from __future__ import annotations

import os

from flux_ensemble.document.jobspec import Links
from flux_ensemble.texts import bounded

#: Most levels of directories that are made.
_MAX_LEVELS = 32


def link(links: Links) -> str | None:
    """Link the inputs of a job; make its working directory if it is missing.

    Args:
        links: of the job.

    Returns:
        Why the job cannot run, or None.

    >>> link(Links(("/nowhere/a.cif",), "/tmp", frozenset()))
    "cannot link the input '/nowhere/a.cif': it does not exist"
    """
    directory = links.directory
    try:
        if directory.count("/") <= _MAX_LEVELS:
            os.makedirs(directory, exist_ok=True)
    except (OSError, ValueError) as error:
        return bounded(f"cannot make the working directory {directory!r}: {reason_of(error)}")
    targets: dict[str, str] = {}
    # All are looked at before the first one is linked.
    for act in (_look, _link):
        for path in links.paths:
            target = f"{directory}/{path.rstrip('/').rpartition('/')[2]}"
            try:
                reason = act(path, target, links)
            except (OSError, ValueError) as error:
                reason = reason_of(error)
            if targets.setdefault(target, path) != path:
                reason = f"the input {targets[target]!r} has the same name"
            if reason is not None:
                return bounded(f"cannot link the input {path!r}: {reason}")
    return None


def _look(path: str, target: str, links: Links) -> str | None:
    """Return why an input cannot be linked, whatever is in the directory."""
    if target.endswith(("/", "/.", "/..")):
        return "this is no name of a file"
    if not {target, os.path.normpath(path)}.isdisjoint(links.outputs):
        return "the job would write its output there"
    try:
        os.stat(path)
    except FileNotFoundError:
        return "it is a link to nothing" if os.path.islink(path) else "it does not exist"
    if os.path.isdir(path) and os.path.samefile(path, links.directory):
        return "it is the working directory of the job"
    return None if os.access(path, os.R_OK) else "it cannot be read"


def _link(path: str, target: str, links: Links) -> str | None:
    """Link an input, unless that is done; return why that cannot be done."""
    try:
        os.symlink(path, target)
    except FileExistsError:
        if not (os.path.exists(target) and os.path.samefile(path, target)):
            return f"{target!r} is there already, and is another file"
    return None


def reason_of(error: Exception) -> str:
    """Return the reason in an error of the system, without its number and its file."""
    return getattr(error, "strerror", None) or str(error)
