"""Turns the manual page from Markdown into roff, for man(1): MyST's parser, docutils' writer.

    make manual

writes flux-ensemble.1 beside flux-ensemble.1.md. It is under version control, so that nobody needs
these two to install the package.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from docutils import nodes
from docutils.core import publish_string
from docutils.writers import manpage
from myst_parser.parsers.docutils_ import Parser

from flux_ensemble import __version__


def to_roff(text: str, version: str) -> str:
    """The manual page in roff.

    Args:
        text: of the page, Markdown: `# NAME(SECTION)`, then its sections.
        version: of the program, for the page's foot.

    Raises:
        ValueError: it does not begin so.
        docutils.utils.SystemMessage: it is no Markdown that MyST reads without a warning.
    """
    title = re.match(r"# ([\w-]+)\((\d)\)\n", text)
    if title is None:
        raise ValueError("the page has to begin with '# NAME(SECTION)'")
    name, section = title.groups()
    digest = hashlib.sha256(text.encode()).hexdigest()

    class Translator(manpage.Translator):
        """docutils' translator; the page has its own section NAME."""

        def header(self) -> str:
            title = f'.TH "{name.upper()}" "{section}" "" "{name} {version}"\n'
            return f'.\\" Made by roff.py of a source with SHA-256\n.\\" {digest}\n{title}'

        def visit_raw(self, node: nodes.raw) -> None:
            # MyST has a line that ends with a backslash for each format that knows none.
            if node["format"] == "html":
                self.body.append("\n.br\n")
            raise nodes.SkipNode

    writer = manpage.Writer()
    writer.translator_class = Translator
    # A link leads nowhere on a terminal.
    text = re.sub(r"\[([^\[\]]+)\]\([^()\s]+\)", r"\1", text[title.end() :])
    # Colours would need Pygments.
    text = re.sub(r"^( *```)\w+$", r"\1", text, flags=re.MULTILINE)
    settings = {
        "myst_enable_extensions": ["deflist"],
        # The page begins with headings of the second level.
        "myst_suppress_warnings": ["myst.header"],
        "output_encoding": "unicode",
        # Warnings are errors.
        "halt_level": 2,
        "report_level": 2,
    }
    return str(publish_string(text, parser=Parser(), writer=writer, settings_overrides=settings))


if __name__ == "__main__":
    for source in Path(__file__).parent.glob("*.md"):
        source.with_suffix("").write_text(to_roff(source.read_text(), __version__))
