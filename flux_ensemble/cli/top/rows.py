"""A list in the terminal of which only the visible part is drawn, however long it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from flux_ensemble.cli.display.views import as_text
from flux_ensemble.texts import one_line
from flux_ensemble.words import Line

#: Styles of spans on Textual's dark background, with enough contrast also on the marked line.
STYLES = {
    "trigger": "#87afff",
    "action": "#5fd7ff",
    "detail": "#a8a8a8",
    "good": "#5fd787",
    "bad": "#ff8787",
    "warn": "#ffd75f",
    "name": "bold",
}
MARKED = "on #303a52"

#: Makes lines of some items, for so many columns.
Draw = Callable[[Sequence[Any], int], list[Line]]


class Rows(Widget, can_focus=True):
    """A heading, and a line for each item; one item is marked while the list has the focus.

    Args:
        heading: of the list.
        draw: makes lines of the visible items.
        key: identifies an item, so that the mark stays on it.
        end: begin at the end, and stay there when items are added.
        id: of the widget.
        ascii_only: draw with ASCII only.
    """

    DEFAULT_CSS = "Rows { height: 1fr; width: 1fr; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", "Page down", show=False),
        Binding("home,g", "jump(False)", "First", show=False),
        Binding("end,G", "jump(True)", "Last", show=False),
        Binding("enter", "open", "Open", key_display="Enter"),
    ]

    class Opened(Message):
        """A request of the user to open an item."""

        def __init__(self, rows: Rows, item: Any) -> None:
            super().__init__()
            self.rows = rows
            self.item = item

        @property
        def control(self) -> Rows:
            return self.rows

    def __init__(
        self,
        heading: str,
        draw: Draw,
        *,
        key: Callable[[Any], Hashable] = id,
        end: bool = False,
        id: str | None = None,
        ascii_only: bool = False,
    ) -> None:
        super().__init__(id=id)
        self.heading = heading
        self.items: Sequence[Any] = ()
        self.cursor = 0
        self._draw_items = draw
        self._key_of = key
        self._end = end
        #: The user has chosen an item.
        self._chosen = False
        self._top = 0
        self._rule = "-" if ascii_only else "─"

    @property
    def item(self) -> Any | None:
        """The marked item."""
        return self.items[self.cursor] if self.items else None

    def show(self, items: Sequence[Any]) -> None:
        """Display these items, with the mark on the one that the user chose, else on the first."""
        stays = self._end and self.cursor >= len(self.items) - 1
        before = None if self.item is None else self._key_of(self.item)
        self.items = items
        if stays:
            self.cursor = len(items) - 1
        elif self._chosen and (
            self.cursor >= len(items) or self._key_of(items[self.cursor]) != before
        ):
            keys = (index for index, item in enumerate(items) if self._key_of(item) == before)
            self.cursor = next(keys, self.cursor)
        self._mark(self.cursor)

    @property
    def _page(self) -> int:
        return max(self.size.height - 1, 1)

    def _mark(self, index: int) -> None:
        self.cursor = max(0, min(index, len(self.items) - 1))
        self._scroll()
        self.refresh()

    def _choose(self, index: int) -> None:
        self._chosen = True
        self._mark(index)

    def _scroll(self) -> None:
        """Make the mark visible, without wasting room."""
        page = self._page
        low, high = self.cursor - page + 1, self.cursor
        self._top = max(0, min(max(self._top, low), high, len(self.items) - page))

    def action_move(self, by: int) -> None:
        self._choose(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._top = max(0, self._top + by * self._page)
        self._choose(self.cursor + by * self._page)

    def action_jump(self, last: bool) -> None:
        self._choose(len(self.items) - 1 if last else 0)

    def action_open(self) -> None:
        if self.item is not None:
            self._chosen = True
            self.post_message(self.Opened(self, self.item))

    def on_click(self, event: events.Click) -> None:
        index = self._top + event.y - 1
        if event.y and index < len(self.items):
            self._choose(index)
            if event.chain > 1:
                self.action_open()

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)

    def on_resize(self) -> None:
        self._scroll()
        self.refresh()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render(self) -> Text:
        width = self.size.width
        seen = self.items[self._top : self._top + self._page]
        rows = [self._head(len(seen), width)]
        for index, line in enumerate(self._draw_items(seen, width)):
            text = as_text(line, STYLES, one_line)
            text.truncate(width, overflow="ellipsis" if self._rule != "-" else "crop", pad=True)
            if self.has_focus and self._top + index == self.cursor:
                text.stylize(MARKED)
            rows.append(text)
        return Text("\n", no_wrap=True).join(rows)

    def _head(self, seen: int, width: int) -> Text:
        words = f"{one_line(self.heading)} "
        if seen < len(self.items):
            words += f"{self._top + 1:,}-{self._top + seen:,} of {len(self.items):,} "
        elif self.items:
            words += f"({len(self.items):,}) "
        style = "bold reverse" if self.has_focus else "bold"
        head = Text(words, style=style)
        head.append(self._rule * max(0, width - len(words)), style="not bold not reverse dim")
        head.truncate(width)
        return head
