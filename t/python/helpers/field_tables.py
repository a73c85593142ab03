"""The tables of the fields of a job in the docs, which follow from `flux_ensemble.metrics.job_row`.

python t/python/helpers/field_tables.py       write them anew (`make tables`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flux_ensemble.metrics.job_row import COLUMNS, IN_RULES, MEMO, PARAMS, Known

DOCS = Path(__file__).parents[3] / "docs"

#: From when on rules know a field.
KNOWN = {
    Known.SUBMISSION: "for every `job-*` trigger, `drift` and `anomaly`",
    Known.START: "from `job-start` on",
    Known.END: "when it has ended",
}


def of_rows() -> Iterator[str]:
    """Yield the lines of the table of all fields."""
    yield "| field | |"
    yield "|---|---|"
    yield from (f"| `{field.name}` | {field.column.about} |" for field in COLUMNS.values())


def of_rules() -> Iterator[str]:
    """Yield the lines of the table of what expressions of rules know of a job."""
    yield "| name | is | known |"
    yield "|---|---|---|"
    before = None
    for name, column in sorted(IN_RULES.items(), key=lambda item: item[1].known):
        key = f"{name}.NAME" if name in (PARAMS, MEMO) else name
        known = "" if column.known is before else KNOWN[column.known]
        before = column.known
        yield f"| `job.{key}` | {column.in_rules or column.about} | {known} |"


#: Page -> the lines of its table, which stands between two comments.
TABLES = {"rpc.md": of_rows, "document.md": of_rules}
_TABLE = re.compile(r"(?<=<!-- written by make tables -->\n\n).*?(?=\n\n<!-- until here -->)", re.S)


def written(page: str) -> str:
    """The text of a page with its table as it has to be."""
    text = (DOCS / page).read_text()
    table = "\n".join(TABLES[page]())
    changed, count = _TABLE.subn(lambda match: table, text)
    assert count == 1, f"docs/{page} has {count} places for its table"
    return changed


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(written(name))
