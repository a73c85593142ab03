"""Files of jobs in a page: links to those that are there, and paths of the others."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from flux_ensemble.report.markup import Child, h
from flux_ensemble.report.texts import MAX_VALUE, shown

#: Number of directories above the page from which a file is not near any more.
_ABOVE = 2

#: The beginning of a link; a path begins with a slash.
_LINK = re.compile(r"\.\.?/|file:")

#: Longest text of a file in a table.
_LONGEST = 40


class Files:
    """The references of a page to files.

    Args:
        directory: of the page; None if it is in no directory, so that no file is linked.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def of(self, path: str | None) -> str | None:
        """Return a link to a file, relative if it is near the page; its path if it is elsewhere.

        A file that is not there, though its directory is, has nothing to show: its job has written
        nothing, or it was removed.

        >>> Files(Path("/")).of("/etc/no such file")
        >>> Files(Path("/")).of("/no/such file"), Files(None).of("/etc/passwd")
        ('/no/such file', '/etc/passwd')
        >>> Files(Path("/usr/bin")).of("/etc/passwd"), Files(Path("/usr/lib/a")).of("/etc/passwd")
        ('../../etc/passwd', 'file:///etc/passwd')
        """
        if path is None:
            return None
        if self._directory is None or not os.path.isabs(path):
            return shown(path, MAX_VALUE)
        if not os.path.isfile(path):
            return None if os.path.isdir(os.path.dirname(path)) else shown(path, MAX_VALUE)
        near = os.path.relpath(path, self._directory)
        above = near.split(os.sep).count(os.pardir)
        if above > _ABOVE:
            return "file://" + quote(os.fsencode(path))
        return ("" if above else "./") + quote(os.fsencode(near))


#: Of a page that is in no directory.
NOWHERE = Files(None)


def reference(file: str | None) -> Child:
    """Return an element for a reference that `Files.of` has made; data.js has the same.

    >>> reference("./out/a%20b.txt"), reference("/gone")
    ('<a href="./out/a%20b.txt" rel="noreferrer">out/a b.txt</a>', '/gone')
    """
    if file is None:
        return None
    link = _LINK.match(file)
    text = unquote(file.removeprefix("./").removeprefix("file://")) if link else file
    if len(text) > _LONGEST:
        text = f"…{text[-_LONGEST + 1 :]}"
    return h("a", text, href=file, rel="noreferrer") if link else text
