"""The table of an ensemble's jobs; its formats can name parameters and keys of memos."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flux_ensemble.cli.display.colours import colour, colour_off
from flux_ensemble.cli.display.formats import Table
from flux_ensemble.cli.display.tables import words_of
from flux_ensemble.job_ids import shown
from flux_ensemble.metrics.job_row import COLUMNS, MEMO, PARAMS, Field
from flux_ensemble.scalars import as_spelling, as_text

_HEADINGS = {
    **{field.name: field.heading for field in COLUMNS.values()},
    "status": "STATUS",
    "color_status": "",
    "color_off": "",
}
_FORMATS = {
    "default": {
        "description": "how each job ended, its parameters, and what it published",
        "format": "+:{id:>5} +:{group:<8} {color_status}+:{status:<8}{color_off} {nnodes:>6h} "
        "{runtime!F:>8h} {returncode:>4h} ?+:{params:<6} ?+:{memo:<4} ?:{waits}",
    },
    "long": {
        "description": "with times, ranks and exceptions",
        "format": "+:{id:>5} +:{group:<8} +:{rule:<6} {index:>6} {attempt:>7} "
        "{color_status}+:{status:<8}{color_off} +:{ranks:>5h} {t_run!D:<19} {runtime!F:>8h} "
        "{returncode:>4h} +:{exception.type:<14h} ?:{params}",
    },
    "used": {
        "description": "processor time, the share of the cores that it kept busy, peak memory",
        "format": "+:{id:>12} +:{group:<8} {color_status}+:{status:<8}{color_off} {ncores:>6h} "
        "{runtime!F:>8h} {cpu_seconds!F:>11h} {efficiency:>10.0%} {max_rss:>9.1f} ?:{params}",
    },
}

_STYLES = {
    "success": "good", "failed": "bad", "timeout": "bad", "canceled": "warn", "running": "action",
    "interrupted": "warn",
}  # fmt: skip


#: Fields that the column of the status has.
_IN_STATUS = ("state", "outcome")

#: A column that exists only if a format names it.
_NESTED = re.compile(r"\{((params|memo)\.([^{}:!]+))")

#: The name of one in brackets, without the characters that end it in a format.
_BRACKETED = re.compile(r"""\{(?:job\.)?(params|memo)\[(["'])([^{}:!]+?)\2\]""")


def jobs_table(fmt: str) -> Table:
    """Return the table of jobs, for a format."""
    more = {field: name.upper() for field, _, name in _NESTED.findall(fmt)}
    return Table(
        "jobs",
        {**_HEADINGS, **more},
        _FORMATS,
        ("params.NAME", "memo.NAME"),
        yields=("waits", "memo", "params", "group"),
        drops=(
            "nnodes",
            "memo",
            "ncores",
            "index",
            "rule",
            "attempt",
            "t_run",
            "ranks",
            "exception.type",
            "cpu_seconds",
            "max_rss",
            "efficiency",
        ),
    )


def nested_fields(fmt: str) -> list[str]:
    """Return the parameters and keys of memos that a format names.

    >>> nested_fields("{id} {params.t:>4} {memo.loss}")
    ['params.t', 'memo.loss']
    >>> nested_fields("{memo.k_cat/K_M:>8h} {memo.E [eV]!D}")
    ['memo.k_cat/K_M', 'memo.E [eV]']
    """
    return [field for field, _, _ in _NESTED.findall(fmt)]


def dotted_format(fmt: str) -> str:
    """Return a format in which names are spelled with a dot that are in brackets, as in filters.

    >>> dotted_format('{id} {memo["p-value"]:>8} {job.params["t max"]}')
    '{id} {memo.p-value:>8} {params.t max}'
    """
    return _BRACKETED.sub(r"{\1.\3", fmt)


def sorted_format(fields: Iterable[str]) -> str:
    """Return the default format, with the columns by which jobs are sorted.

    Args:
        fields: as in `--sort`. Parameters have a column already.

    >>> fmt = sorted_format(["group", "memo.loss", "t_end"])
    >>> "+:{memo.loss:>8h} {t_end!D:<19} ?+:{params" in fmt
    True
    """
    text = _FORMATS["default"]["format"]
    more = []
    for field in fields:
        if f"{{{field}" in text or field in _IN_STATUS or field.startswith(f"{PARAMS}."):
            continue
        if field in COLUMNS and COLUMNS[field].column.is_time:
            more.append(f"{{{field}!D:<19}}")
        elif field in COLUMNS or _NESTED.fullmatch(f"{{{field}"):
            more.append(f"+:{{{field}:>8h}}")
    return text.replace("?+:{params", " ".join((*more, "?+:{params")))


def job_row(job: Mapping[str, Any], table: Table, label: Callable[[int], str]) -> dict[str, Any]:
    """Return a row of the table; `label` returns the text of a job id. Guests see fewer fields."""
    status = job["outcome"] or job["state"]
    row = {
        **{field.name: _cell(field, job) for field in COLUMNS.values()},
        "id": shown(job["id"], job, label),
        "status": status,
        "color_status": colour(_STYLES.get(status, "")),
        "color_off": colour_off(),
    }
    for name in table.headings.keys() - row.keys():
        # A spelling is restored, so that a format for numbers has the number.
        kind, _, key = name.partition(".")
        value = job.get(kind, {}).get(key)
        row[name] = _known(as_spelling(value) if kind == PARAMS else value)
    return row


def _cell(field: Field, job: Mapping[str, Any]) -> Any:
    """Return the value of a field for a format.

    >>> _cell(COLUMNS["memo"], {"memo": {"steps": 10, "loss": 0.5}})
    'loss=0.5 steps=10'
    """
    owner, _, key = field.name.rpartition(".")
    value = (job.get(owner, {}) if owner else job).get(key)
    if field.column.is_time:
        return value or 0.0
    if field.name == MEMO:
        # In one order for all jobs: in the record it is that in which they published, or were read.
        value = dict(sorted((value or {}).items()))
    return words_of(value or {}) if field.type is dict else _known(value)


def _known(value: Any) -> Any:
    return "" if value is None else as_text(value) if isinstance(value, bool) else value
