"""Name the links of the built site that lead nowhere: to a page, a file or an anchor that is none.

python docs/links.py _site
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

_LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*\b(?:href|src)="([^"]*)"')
_ANCHOR = re.compile(r'\bid="([^"]+)"')


def dead_links(site: Path) -> list[str]:
    """Return the links within a site that lead nowhere, each as `PAGE: LINK`."""
    texts = {path: path.read_text() for path in sorted(site.rglob("*.html"))}
    anchors = {path: set(_ANCHOR.findall(text)) for path, text in texts.items()}
    dead = []
    for path, text in texts.items():
        for link in dict.fromkeys(_LINK.findall(text)):
            if re.match(r"[a-z]+:|//", link):
                continue
            page, _, anchor = html.unescape(link).partition("#")
            there = (path.parent / page.partition("?")[0]).resolve() if page else path
            if not (anchor in anchors.get(there, ()) if anchor else there.is_file()):
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]).resolve())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
