"""Opens a report in the user's browser, where there is one."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

from flux_ensemble.cli.common import say

#: Variables of which a session with a screen, or with a helper for one that is elsewhere, has one.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_page(path: Path) -> None:
    """Open a page, or print where it is.

    Browsers in the terminal are not started: they do not run the scripts of a report.
    """
    url = path.absolute().as_uri()
    if any(map(os.environ.get, SCREENS)) and webbrowser.open(url):
        return
    say(f"no browser can be opened here: the report is {path.absolute()} (one file, to copy)")
