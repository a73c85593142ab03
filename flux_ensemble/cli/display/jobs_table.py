"""The table of an ensemble's jobs; its formats can name parameters and keys of memos."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from flux_ensemble.cli.display.colours import colour, colour_off
from flux_ensemble.cli.display.formats import Table
from flux_ensemble.engine.job_keys import shown
from flux_ensemble.metrics.job_filter import FIELDS
from flux_ensemble.scalars import as_spelling, as_text

#: Columns: the fields of jobs by their names in expressions, and what a job waits for.
_TIMES = ("t_submit", "t_alloc", "t_run", "t_end")
_PLAIN = (*(name for name in FIELDS if name != "id" and name not in _TIMES), "waits")
_HEADINGS = {
    "id": "JOBID",
    **{name: name.upper() for name in (*_PLAIN, *_TIMES)},
    "returncode": "RC",
    "status": "STATUS",
    "params": "PARAMS",
    "memo": "MEMO",
    "exception.type": "EXCEPTION-TYPE",
    "exception.note": "EXCEPTION-NOTE",
    "color_status": "",
    "color_off": "",
}
_FORMATS = {
    "default": {
        "description": "how each job ended, and its parameters",
        "format": "+:{id:>12} +:{group:<8} {color_status}+:{status:<8}{color_off} {nnodes:>6h} "
        "{runtime!F:>8h} {returncode:>4h} ?:{params} ?:{waits}",
    },
    "long": {
        "description": "with times, ranks and exceptions",
        "format": "+:{id:>12} +:{group:<8} +:{rule:<6} {index:>6} {attempt:>7} "
        "{color_status}+:{status:<8}{color_off} +:{ranks:>5h} {t_run!D:<19} {runtime!F:>8h} "
        "{returncode:>4h} +:{exception.type:<14h} ?:{params}",
    },
}

_STYLES = {
    "success": "good", "failed": "bad", "timeout": "bad", "canceled": "warn", "running": "action",
    "interrupted": "warn",
}  # fmt: skip


#: A column that is there if it is asked for.
_NESTED = re.compile(r"\{((params|memo)\.([A-Za-z_][\w-]*))")


def jobs_table(fmt: str) -> Table:
    """The table of jobs, for a format."""
    more = {field: name.upper() for field, _, name in _NESTED.findall(fmt)}
    return Table("jobs", {**_HEADINGS, **more}, _FORMATS, ("params.NAME", "memo.NAME"), "params")


def job_row(job: Mapping[str, Any], table: Table, label: Callable[[int], str]) -> dict[str, Any]:
    """A row of the table; `label` gives the text of a job id. Guests see some fields only."""
    status = job["outcome"] or job["state"]
    row = {
        "id": shown(job["id"], job, label),
        **{name: _known(job.get(name)) for name in _PLAIN},
        **{name: job.get(name) or 0.0 for name in _TIMES},
        "status": status,
        "params": _pairs(job.get("params", {})),
        "memo": _pairs(job.get("memo", {})),
        **{f"exception.{key}": job.get("exception", {}).get(key) or "" for key in ("type", "note")},
        "color_status": colour(_STYLES.get(status, "")),
        "color_off": colour_off(),
    }
    for field in table.headings.keys() - row.keys():
        kind, _, name = field.partition(".")
        value = job.get(kind, {}).get(name)
        # So that a format of numbers has the number.
        row[field] = _known(as_spelling(value) if kind == "params" else value)
    return row


def _known(value: Any) -> Any:
    return "" if value is None else as_text(value) if isinstance(value, bool) else value


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={as_text(value)}" for name, value in values.items())
