"""The live view in Textual: lists of ensembles, groups, searches, rules and so on, and keys."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.widgets import Footer, Static

from flux_ensemble.cli.display.job_names import submitted_text
from flux_ensemble.cli.display.progress import active_first
from flux_ensemble.cli.display.reasons import reasons
from flux_ensemble.cli.display.searches import detail_lines
from flux_ensemble.cli.display.views import as_text
from flux_ensemble.cli.top import lines
from flux_ensemble.cli.top.picture import Picture
from flux_ensemble.cli.top.poller import Poller
from flux_ensemble.cli.top.rows import STYLES, Rows
from flux_ensemble.cli.top.screens import KEYS, JobsScreen, Prompt, Question, TextScreen
from flux_ensemble.cli.top.source import Source
from flux_ensemble.client.news import PAGE
from flux_ensemble.job_ids import shown
from flux_ensemble.results.failures import FailureKind
from flux_ensemble.texts import hanging, one_line, printable

#: Width in columns from which there are two columns of lists.
WIDE = 150

#: Signals that end the view and restore the terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class PollerMessage(Message):
    """A message from the poller's thread that calls a function in the app."""

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()
        self.function = function


class TopApp(App[Exception | None]):
    """The live view.

    Args:
        poller: takes the pictures.
        label: returns the text of a job id.
        ascii_only: draw with ASCII only.
    """

    TITLE = "flux ensemble top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: $background; }
    #title { height: auto; max-height: 2; }
    #trouble { height: auto; max-height: 2; color: $warning; display: none; }
    #body { height: 1fr; layout: vertical; }
    #body.wide { layout: horizontal; }
    #body > Vertical { height: auto; width: 1fr; }
    #body.wide > Vertical { height: 1fr; }
    #body.wide #right { margin-left: 2; }
    Question, Prompt { align: center middle; background: $background 60%; }
    .dialog { width: 60; max-width: 90%; height: auto; padding: 1 2; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "Leave"),
        Binding("ctrl+c", "leave", show=False, priority=True, system=True),
        Binding("p", "ask('pause')", "Pause"),
        Binding("r", "ask('resume')", "Resume"),
        Binding("s", "submit", "Submit"),
        Binding("c", "cancel", "Cancel"),
        Binding("o", "output", "Output"),
        Binding("question_mark,h,f1", "keys", "Keys"),
        Binding("ctrl+z", "suspend_process", show=False),
    ]

    def __init__(self, poller: Poller, label: Callable[[int], str], *, ascii_only: bool) -> None:
        super().__init__()
        self._poller = poller
        self._label = label
        self._ascii = ascii_only
        self.picture = Picture(0.0)
        self._title_width = 0

    def follow(self) -> int:
        """Display pictures until the user leaves; return the exit code.

        Raises:
            Exception: the error that ended the pictures.
        """
        error = self.run()
        self._poller.stop()
        if isinstance(error, Exception):
            raise error
        return 0

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="trouble")
        with Container(id="body"):
            with Vertical(id="left"):
                yield self._rows("Ensembles", self._draw_ensembles, itemgetter("name"))
                yield self._rows("Groups", self._draw_groups, attrgetter("name"))
                yield self._rows("Searches", self._draw_searches, itemgetter("id"))
                yield self._rows("Members", self._draw_members, itemgetter("name"))
                yield self._rows("Rules", self._draw_rules, itemgetter("id"))
            with Vertical(id="right"):
                yield self._rows("Failures", self._draw_failures, attrgetter("group", "reason"))
                yield self._rows("Log", self._draw_log, id, end=True)
        yield Footer(show_command_palette=False)

    def _rows(
        self, heading: str, draw: Any, key: Callable[[Any], Any], *, end: bool = False
    ) -> Rows:
        return Rows(heading, draw, key=key, end=end, id=heading.lower(), ascii_only=self._ascii)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.action_leave)
        self._poller.show(
            lambda picture: self._tell(lambda: self._take(picture)),
            lambda error: self._tell(lambda: self.exit(error)),
        )
        self._list("groups").focus()

    def _tell(self, function: Callable[[], None]) -> None:
        self.post_message(PollerMessage(function))

    def on_poller_message(self, message: PollerMessage) -> None:
        # Not during the end: the screen outlives its widgets.
        if self.screen_stack and self.screen_stack[0].query("#title"):
            message.function()

    # -- what is shown ------------------------------------------------------------------

    def _take(self, picture: Picture) -> None:
        self.picture = picture
        body = self.screen_stack[0]
        title = as_text(lines.title(picture), STYLES, one_line)
        self._title_width = title.cell_len
        body.query_one("#title", Static).update(title)
        trouble = body.query_one("#trouble", Static)
        trouble.update(Text(hanging(picture.trouble)))
        trouble.display = bool(picture.trouble)
        many = len(picture.ensembles) > 1
        self._list("ensembles").show(picture.ensembles if many else ())
        groups = self._list("groups")
        groups.show(active_first(picture.groups, max(groups.size.height - 1, 3)))
        self._list("searches").show(picture.searches)
        self._list("members").show(picture.members)
        self._list("rules").show(picture.rules)
        self._list("failures").show(picture.failures)
        self._list("log").show(picture.log)
        self._lay_out()

    def _list(self, name: str) -> Rows:
        return self.screen_stack[0].query_one(f"#{name}", Rows)

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        """Give each list the lines that it needs, or a fair share if there are too few."""
        wide = self.size.width >= WIDE
        body = self.screen_stack[0].query_one("#body")
        body.set_class(wide, "wide")
        # The title has a second line if it is too long for one.
        above = 1 + (self._title_width > self.size.width) + bool(self.picture.trouble)
        room = self.size.height - above - 1
        columns = [("ensembles", "groups", "searches", "members", "rules"), ("failures", "log")]
        for names in columns if wide else [columns[0] + columns[1]]:
            found = [self._list(name) for name in names]
            for rows, height in zip(
                found, heights([len(rows.items) for rows in found], room), strict=True
            ):
                rows.display = bool(height)
                rows.styles.height = height

    def _draw_ensembles(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        picture = self.picture
        return lines.ensemble_lines(seen, picture.t, picture.name, width, self._ascii)

    def _draw_groups(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        return lines.group_lines(seen, width, self._ascii)

    def _draw_searches(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        status = self.picture.status or {}
        return lines.search_lines(seen, status, width, self._ascii)

    def _draw_members(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        return lines.member_lines(seen, self.picture.runs, self.picture.t, width, self._ascii)

    def _draw_rules(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        return lines.rule_lines(seen, self.picture.t, width, self._ascii)

    def _draw_failures(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        return lines.failure_lines(seen, width, self._ascii)

    def _draw_log(self, seen: Sequence[Any], width: int) -> list[lines.Line]:
        return [lines.log_line(entry, self.picture.t_log, self._label) for entry in seen]

    # -- what keys do -------------------------------------------------------------------

    def action_leave(self) -> None:
        self.exit(None)

    def action_keys(self) -> None:
        self._open(TextScreen("Keys", KEYS, ascii_only=self._ascii))

    def action_ask(self, op: str, *arguments: Any, **more: Any) -> None:
        """Send a request about the ensemble, and display its result."""
        name = self.picture.name
        if name is None:
            self._say("there is no ensemble to ask anything", "warning")
            return

        def done(answer: Any) -> None:
            if isinstance(answer, Exception):
                self._say(str(answer), "error")
            elif isinstance(answer, list):
                self._say(submitted_text(answer, self._label))
            else:
                self._say(f"{op}: {name} is {answer['state']}")
            self._poller.look_now()

        self._work(lambda source: source.ask(op, *arguments, **more), done)

    def action_cancel(self) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self.action_ask("cancel")

        if self.picture.name is not None:
            question = f"Cancel {self.picture.name!r} and all of its jobs?"
            self.push_screen(Question(question), answered)

    def action_submit(self) -> None:
        def answered(text: str | None) -> None:
            words = (text or "").split()
            if not words:
                return
            group, count = words[0], words[1] if len(words) == 2 else None
            if len(words) > 2 or not (count or "1").isdecimal():
                self._say(f"expected GROUP or GROUP COUNT, not {text!r}", "error")
            else:
                self.action_ask("submit", group, count=None if count is None else int(count))

        status = self.picture.status
        if status is not None:
            marked = self._list("groups").item
            known = list(status.get("groups", ()))
            value = marked.name if marked is not None else next(iter(known), "")
            names = ", ".join(known[:8]) + ", ..." * (len(known) > 8)
            self.push_screen(
                Prompt(f"Submit once more: GROUP [COUNT] (groups: {names})", value), answered
            )

    def action_output(self) -> None:
        failed: FailureKind | None = self._list("failures").item
        if failed is None:
            self._say("no job has failed: Enter on a group shows its jobs")
        else:
            self._open_output(failed.example)

    def on_jobs_screen_wanted(self, message: JobsScreen.Wanted) -> None:
        self._open_output(message.job)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        item = event.item
        match event.rows.id:
            case "ensembles":
                self._work(lambda source: source.choose(item["name"]), lambda _: None)
                self._poller.look_now()
            case "groups":
                self._open_jobs(f"Jobs of {item.name}", item.name, None)
            case "searches":
                text = "\n".join(detail_lines(item)).strip("\n")
                self._open(TextScreen(f"Search {item['id']}", text, ascii_only=self._ascii))
            case "members":
                member = item["name"]
                self._open_jobs(f"Jobs of {member}", None, f'job.member == "{member}"')
            case "failures":
                self._open_jobs(f"{item.group}: {item.reason}", item.group, item.expression)
            case "rules":
                why: Any = {"rules": [item], "t": self.picture.t}
                text = "\n".join(reasons(why))
                self._open(TextScreen(f"Rule {item['id']}", text, ascii_only=self._ascii))
            case "log":
                line = lines.log_line(item, None, self._label)
                text = f"{lines.clock(item['timestamp'])}\n{item['name']}\n\n"
                text += "\n".join(f"{key}: {value}" for key, value in item["context"].items())
                self._open(TextScreen(line[1].text, printable(text), ascii_only=self._ascii))

    def _open_jobs(self, title: str, group: str | None, expression: str | None) -> None:
        def done(answer: Any) -> None:
            if isinstance(answer, Exception):
                self._say(str(answer), "error")
                return
            jobs, more = answer
            words = f"{title}, the first {PAGE:,}:" if more else title
            self._open(JobsScreen(words, jobs, self._label, ascii_only=self._ascii))

        self._work(lambda source: source.jobs(group, expression), done)

    def _open_output(self, job: Any) -> None:
        def done(text: Any) -> None:
            if isinstance(text, Exception):
                self._say(str(text), "error")
                return
            title = f"Output of {shown(job['id'], job, self._label)}"
            self._open(TextScreen(title, printable(text), end=True, ascii_only=self._ascii))

        self._work(lambda source: source.output(job), done)

    def _open(self, screen: Any) -> None:
        """Open a screen over the lists; no pictures are taken while it hides them."""
        self._poller.hide()
        self.push_screen(screen, lambda _: self._uncovered())

    def _uncovered(self) -> None:
        if len(self.screen_stack) <= 2:
            self._poller.unhide()

    def _work(self, function: Callable[[Source], Any], then: Callable[[Any], None]) -> None:
        """Call a function in the poller's thread; `then` receives its result in the app."""
        self._poller.do(function, lambda result: self._tell(lambda: then(result)))

    def _say(self, text: str, severity: Any = "information") -> None:
        self.notify(printable(text), severity=severity, markup=False)


def heights(wanted: Sequence[int], room: int) -> list[int]:
    """Return the lines for each list: one for its heading and one for each item, if there is room.

    Args:
        wanted: number of items of each.
        room: lines.

    >>> heights([0, 2, 3], 20), heights([100, 2, 100], 20)
    ([0, 3, 17], [8, 3, 9])
    """
    shown = [index for index, items in enumerate(wanted) if items]
    lines = dict.fromkeys(range(len(wanted)), 0)
    left = room
    # Smallest lists first: the lines that they leave are for the others.
    for place, index in enumerate(sorted(shown, key=wanted.__getitem__)):
        share = left // (len(shown) - place)
        lines[index] = min(wanted[index] + 1, share)
        left -= lines[index]
    if shown:
        lines[shown[-1]] += left
    return list(lines.values())
