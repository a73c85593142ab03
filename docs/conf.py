"""The documentation as a site: Sphinx with MyST and Furo over the Markdown of this folder.

The pages are also read as they are, in a clone or on a forge, so they are plain Markdown with
relative links. What only the site needs is made from them here:

- each heading of index.md becomes a part of the contents, with the pages that are listed below it;
  a page that index.md does not list joins the part of its folder,
- README.md and others that lie outside are the pages of site/,
- examples.md shows the text of each example, and links to examples lead there,
- a link to any other file of the repository becomes plain text.

    sphinx-build -W docs _site
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"

#: Pages of the site whose text lies outside of this folder.
OUTSIDE = {
    "site/readme": ROOT / "README.md",
    "site/changelog": ROOT / "CHANGELOG.md",
    "site/contributing": ROOT / "CONTRIBUTING.md",
    "site/etc": ROOT / "etc" / "README.md",
}

#: The part of the contents for pages of a folder, and for all others.
PARTS = {"tutorials": "Tutorials", "howto": "How-to guides"}
OTHERS = "Reference"

project = "flux-ensemble"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
# What GitHub makes of headings; the deepest that something links to.
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
# `--name` is an option, not a dash and a name.
smartquotes = False
highlight_language = "console"
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
html_search_scorer = str(DOCS / "search.js")

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
_PART = re.compile(r"^## (.+)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_LISTED = re.compile(r"^- \[([^\]]*)\]\(([^()\s#:]+)\.md\)", re.MULTILINE)


def with_site_links(text: str, page: Path, directory: Path) -> str:
    """The text of a page with links that hold on the site.

    Args:
        text: of the page, Markdown.
        page: where it lies.
        directory: the folder of docs/ that it is shown in.
    """
    pages = {path: f"{docname}.md" for docname, path in OUTSIDE.items()}

    def link(match: re.Match[str]) -> str:
        mark, label, file, anchor = match[1], match[2], match[3], match[4] or ""
        target = (page.parent / file).resolve()
        if target.is_relative_to(DOCS) or not target.exists():
            if page.is_relative_to(DOCS):
                return match[0]
            shown = os.path.relpath(target, DOCS)
        elif target == EXAMPLES:
            shown = "examples.md"
        elif target.parent == EXAMPLES and target.is_file():
            shown, anchor = "examples.md", "#" + re.sub(r"[^\w-]", "", target.name.lower())
        elif target in pages:
            shown = pages[target]
        else:
            return label
        return f"{mark}[{label}]({os.path.relpath(DOCS / shown, directory)}{anchor})"

    return _LINK.sub(link, text)


def contents(text: str, docnames: Iterable[str]) -> str:
    """The contents of the site, as index.md has them; pages from outside are called as there.

    Args:
        text: of index.md.
        docnames: all pages of the site.
    """
    parts: dict[str, list[str]] = {}
    unlisted = set(docnames) - {"index"}
    for heading, below in _PART.findall(text):
        parts[heading] = pages = []
        for label, page in _LISTED.findall(below):
            pages.append(f"{label} <{page}>" if page in OUTSIDE else page)
            unlisted.discard(page)
    for docname in sorted(unlisted):
        parts[PARTS.get(docname.split("/")[0], OTHERS)].append(docname)
    return "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n" + "\n".join(pages) + "\n```\n"
        for heading, pages in parts.items()
        if pages
    )


def examples() -> str:
    """The text of each example, under a heading that links lead to."""
    sections = []
    for path in sorted(filter(Path.is_file, EXAMPLES.iterdir())):
        language = path.suffix.removeprefix(".").replace("csv", "text")
        sections.append(f"## {path.name}\n\n```{language}\n{path.read_text()}```\n")
    return "\n".join(sections)


def make_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a page the text that it has on the site."""
    path = OUTSIDE.get(docname, DOCS / f"{docname}.md")
    text = with_site_links(path.read_text(), path, (DOCS / docname).parent)
    if docname == "index":
        text += "\n" + contents(text, app.project.docnames)
    elif docname == "examples":
        text += "\n" + examples()
    source[0] = text


def setup(app: Sphinx) -> None:
    """Have `make_page` called for each page."""
    app.connect("source-read", make_page)
