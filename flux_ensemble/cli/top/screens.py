"""Screens over the live view: jobs, text such as the output of a job, questions, and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from flux_ensemble.cli.display.plain_tables import fsd
from flux_ensemble.cli.top.rows import Rows
from flux_ensemble.job_ids import shown
from flux_ensemble.metrics.signals import name_of
from flux_ensemble.scalars import as_text
from flux_ensemble.words import Line, Span

_STYLES = {"success": "good", "failed": "bad", "timeout": "bad", "canceled": "warn",
           "interrupted": "warn", "running": "action"}  # fmt: skip

KEYS = """\
Tab, Shift-Tab        go to the next list, or the one before
arrows, Page keys     move in a list (or j, k, Space, g, G)
Enter                 ensemble: look at it; group, member, failure: its jobs;
                      search: its best trials, and the importances;
                      rule: why it fires or does not; job: its output
o                     the output of the last job of a failure
p, r                  pause the ensemble, let it go on
s                     submit a group once more
c                     cancel the ensemble and its jobs
Escape                back
q, Ctrl-C             leave; ensembles go on"""


class Pager(Screen[None]):
    """A list that fills the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "leave", "Back"),
    ]

    def __init__(self, rows: Rows, items: Sequence[Any]) -> None:
        super().__init__()
        self._rows = rows
        self._items = items

    def compose(self) -> ComposeResult:
        yield self._rows
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._rows.show(self._items)
        self._rows.focus()

    def action_leave(self) -> None:
        self.dismiss()


class TextScreen(Pager):
    """Text, a page at a time."""

    def __init__(self, title: str, text: str, *, end: bool = False, ascii_only: bool) -> None:
        rows = Rows(
            title,
            lambda lines, width: [(Span(line),) for line in lines],
            end=end,
            ascii_only=ascii_only,
        )
        super().__init__(rows, text.expandtabs().splitlines())


class JobsScreen(Pager):
    """A list of jobs; the output of each can be opened."""

    class Wanted(Message):
        """A request to open the output of a job."""

        def __init__(self, job: Mapping[str, Any]) -> None:
            super().__init__()
            self.job = job

    def __init__(
        self,
        title: str,
        jobs: Sequence[Mapping[str, Any]],
        label: Callable[[int], str],
        *,
        ascii_only: bool,
    ) -> None:
        def draw(seen: Sequence[Mapping[str, Any]], width: int) -> list[Line]:
            return [job_line(job, label) for job in seen]

        rows = Rows(
            title, draw, key=lambda job: (job.get("member"), job["id"]), ascii_only=ascii_only
        )
        super().__init__(rows, jobs)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        event.stop()
        self.app.post_message(self.Wanted(event.item))


def job_line(job: Mapping[str, Any], label: Callable[[int], str]) -> Line:
    """Return a job as one line: id, group, state or outcome, duration, and parameters."""
    status = job["outcome"] or job["state"]
    runtime = "" if job.get("runtime") is None else fsd(job["runtime"])
    code, signal = job.get("returncode"), job.get("signal")
    ended = f"exit {code}" if code else ""
    if signal is not None:
        ended = name_of(signal)
    params = " ".join(f"{name}={as_text(value)}" for name, value in job.get("params", {}).items())
    note = (job.get("exception") or {}).get("note") or ""
    return (
        Span(f"{shown(job['id'], job, label):>12}  "),
        Span(f"{job['group']}  ", "name"),
        Span(f"{status:<8}", _STYLES.get(status, "")),
        Span(f" {runtime:>8}  "),
        Span(f"{ended}  " if ended else "", "bad"),
        Span(f"{params}  " if params else ""),
        Span(note, "detail"),
    )


class Question(ModalScreen[bool]):
    """A dialog that asks before an action that cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q,enter", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(f"{self._question}\n\ny: yes   n: no"))

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class Prompt(ModalScreen[str | None]):
    """A dialog that asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, question: str, value: str) -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Text(self._question))
            yield Input(self._value, compact=True, select_on_focus=False)
            yield Static(Text("Enter: do it   Escape: do not"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)
