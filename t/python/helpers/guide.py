"""The pages of docs/ on documents, and the documents that they show."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"

#: The pages that say what documents are made of, besides those that are generated.
PAGES = (
    "document",
    "checking",
    "elastic",
    "expressions",
    "generators",
    "jobspecs",
    "members",
    "metrics",
    "predictions",
    "retries",
    "searches",
    "simulate",
    "sweeps",
    "trials",
)
GUIDE = "\n".join((DOCS / f"{page}.md").read_text() for page in PAGES)
REFERENCE = "\n".join((DOCS / f"{page}.md").read_text() for page in ("actions", "keys", "triggers"))

_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DOCUMENT = re.compile(r"^(jobs|rules):", re.MULTILINE)

#: The documents on all pages, by page and number; those with `use` are in test_document_use.py.
EXAMPLES = {
    f"{path.stem}-{number}": text
    for path in sorted(DOCS.glob("*.md"))
    if path.stem != "algorithms"
    for number, text in enumerate(_YAML.findall(path.read_text()))
    if _DOCUMENT.search(text)
}
