"""The display of an ensemble in a notebook: a small table, which is updated while one waits.

All text is escaped: names, reasons and errors come from users and their jobs, so they may contain
markup. A thread requests the status once a second and replaces the display of the cell. Outside of
notebooks nothing is displayed: `flux ensemble top` and `watch` are for terminals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from html import escape
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from flux_ensemble.client import EnsembleError
from flux_ensemble.client.troubles import joined
from flux_ensemble.engine.lifecycle import FINAL_STATES
from flux_ensemble.texts import printable, shortened
from flux_ensemble.words import known_jobs, shown_state, trials_to_come

if TYPE_CHECKING:
    from flux_ensemble.client.responses import EnsembleStatus

#: Seconds between two requests for the status.
INTERVAL = 1.0

#: What the display of a cell says that has not waited for the end.
LEFT = "The ensemble goes on; this display is not updated any more."

#: Most rows of a table, and most characters of a text.
MOST_ROWS, MOST_TEXT = 50, 200

#: Okabe and Ito's colours, which colour-blind people can distinguish, by outcome; each also has a
#: word.
_COLOURS = {"success": "#009E73", "failed": "#D55E00", "timeout": "#D55E00", "canceled": "#999999"}

#: Notebooks align cells at the right, which is for numbers.
_LEFT = ' style="text-align:left"'

_COLUMNS = ("waiting", "pending", "running", "success", "failed", "canceled", "timeout")


def status_html(status: EnsembleStatus) -> str:
    """Return HTML for a started ensemble: its state, and a row for each group.

    >>> "<b>" in status_html({"name": "<b>", "state": "running", "groups": {}})
    False
    """
    reason = ", ".join(filter(None, (status.get("reason"), joined(status))))
    head = (
        f"<strong>{_text(status['name'])}</strong>: {_text(shown_state(status))}"
        + f" <span>({_text(reason)})</span>" * bool(reason)
    )
    groups: Mapping[str, Any] = status.get("groups", {})
    left = trials_to_come(status)
    rows = [
        (
            _text(name),
            _bar(counts, left.get(name, 0)),
            *(_number(counts[key]) for key in _COLUMNS),
        )
        for name, counts in list(groups.items())[:MOST_ROWS]
    ]
    errors = "".join(f"<pre>{_text(error)}</pre>" for error in status.get("errors", ())[:5])
    return _framed(head, ("group", "finished", *_COLUMNS), rows, len(groups), errors, texts=2)


def document_html(document: Mapping[str, Any]) -> str:
    """Return HTML for an ensemble that has not been started: its job groups and rules.

    >>> html = document_html({"name": "demo", "jobs": [{"name": "a", "command": "<script>"}]})
    >>> "<script>" in html, "&lt;script&gt;" in html
    (False, True)
    """
    jobs, rules = _mappings(document.get("jobs")), _mappings(document.get("rules"))
    head = (
        f"<strong>{_text(document.get('name'))}</strong>: not started, "
        f"{len(jobs)} job groups, {len(rules)} rules"
    )
    rows = [(_text(job.get("name")), _text(_command(job)), "") for job in jobs[:MOST_ROWS]]
    rows += [
        (_text(rule.get("id", f"rule {index}")), _text(rule.get("trigger")), _text(_actions(rule)))
        for index, rule in enumerate(rules[:MOST_ROWS])
    ]
    return _framed(head, ("name", "command or trigger", "action"), rows, len(jobs) + len(rules))


def _framed(
    head: str,
    headings: Iterable[str],
    rows: Sequence[Iterable[str]],
    total: int,
    foot: str = "",
    texts: int | None = None,
) -> str:
    """Return a table with what is above and below it; its first `texts` columns are no numbers."""

    def joined(kind: str, cells: Iterable[str]) -> str:
        return "".join(
            f"<{kind}{_LEFT if texts is None or number < texts else ''}>{cell}</{kind[:2]}>"
            for number, cell in enumerate(cells)
        )

    table = ""
    if rows:
        cells = joined('th scope="col"', headings)
        body = "".join(f"<tr>{joined('td', row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    if total > len(rows):
        foot = f"<p>and {total - len(rows)} more</p>" + foot
    return f'<div class="flux-ensemble"><p>{head}</p>{table}{foot}</div>'


def _bar(counts: Mapping[str, int], to_come: int) -> str:
    """Return a bar of the finished jobs, with a part for each outcome, and their number."""
    finished = counts["finished"]
    total = known_jobs(counts) + to_come
    if not total:
        return "0"
    parts = "".join(
        f'<div style="width:{100 * counts[outcome] / total:.1f}%;background:{colour}"></div>'
        for outcome, colour in _COLOURS.items()
        if counts[outcome]
    )
    return (
        f'<div role="img" aria-label="{finished} of {total} finished" '
        'style="display:inline-flex;width:8em;height:0.7em;border:1px solid currentColor">'
        f"{parts}</div> {finished:,}/{total:,}"
    )


def _number(number: int) -> str:
    return f"{number:,}" if number else "-"


def _text(value: Any) -> str:
    return escape(shortened(printable("" if value is None else str(value)), MOST_TEXT))


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, Mapping)]


def _command(job: Mapping[str, Any]) -> str:
    command = job.get("command", job.get("jobspec", ""))
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def _actions(rule: Mapping[str, Any]) -> str:
    actions = _mappings(rule.get("actions")) or _mappings([rule.get("action")])
    words = (f"{one.get('name', '')} {one.get('label', '')}".strip() for one in actions)
    return ", ".join(words)


class _Left:
    """An ensemble that goes on after its cell was left, for the display of that cell."""

    def __init__(self, ensemble: Any) -> None:
        self._ensemble = ensemble

    def __repr__(self) -> str:
        return repr(self._ensemble)

    def _repr_html_(self) -> str:
        return f"{self._ensemble._repr_html_()}<p>{LEFT}</p>"


@contextmanager
def showing(ensemble: Any) -> Iterator[Callable[[], None]]:
    """Yield a function that displays an ensemble in the running cell.

    From then on the display is updated, for the last time when the block is left, however early.
    If the ensemble goes on, as after an interrupt of `wait`, a sentence says that the display does
    not. Outside of a notebook nothing is displayed.
    """
    display = _display()
    if display is None:
        yield lambda: None
        return
    over = Event()

    def refresh() -> None:
        while not over.wait(INTERVAL):
            with suppress(EnsembleError):
                display.update(ensemble)

    thread = Thread(target=refresh, daemon=True)

    def show() -> None:
        thread.start()
        display.display(ensemble)

    try:
        yield show
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
        with suppress(EnsembleError):
            ended = ensemble.status()["state"] in FINAL_STATES
            display.update(ensemble if ended else _Left(ensemble))


def _display() -> Any:
    """Return a display of IPython that can be updated; None outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython in a terminal cannot display HTML.
    if shell is None or not getattr(shell, "kernel", None):
        return None
    return ipython.display.DisplayHandle()  # type: ignore[union-attr]
