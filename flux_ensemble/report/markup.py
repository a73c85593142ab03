"""HTML in which every text is escaped, since it is made of elements, not of others' text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from flux_ensemble.report.texts import MAX_LINE, shown

#: Elements without an end tag.
_VOID = frozenset({"br", "hr", "meta", "link", "input", "col", "wbr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


#: Possible contents of an element.
Child = str | int | None | Iterable[Any]


def h(name: str, /, *children: Child, **attributes: str | bool | int | None) -> Markup:
    """Return an element.

    Args:
        name: its name; `h2.quiet` is a heading with a class.
        children: texts, which are escaped; elements; or several of either.
        attributes: `class_` is `class`, and `_` is `-`. True is an attribute without a value; None
            and False leave it out.

    >>> h("p.note", "1 < 2", h("b", "x"), id="a&b", hidden=True)
    '<p class="note" id="a&amp;b" hidden>1 &lt; 2<b>x</b></p>'
    """
    tag, _, kind = name.partition(".")
    if kind:
        attributes = {"class": kind.replace(".", " "), **attributes}
    opened = [tag]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            opened.append(key)
        elif value is not None and value is not False:
            opened.append(f'{key}="{html.escape(shown(str(value)))}"')
    begin = f"<{' '.join(opened)}>"
    return Markup(begin if tag in _VOID else f"{begin}{join(children)}</{tag}>")


def join(children: Child) -> Markup:
    """Concatenate texts, which are escaped, and elements."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, int):
        return Markup(f"{children:,}")
    if isinstance(children, str):
        return Markup(html.escape(shown(children)))
    return Markup("".join(map(join, children)))


def pre(lines: Iterable[str], **attributes: str | int) -> Markup:
    """Return a `pre` element with lines of text."""
    text = "\n".join(html.escape(shown(line, MAX_LINE)) for line in lines)
    # A browser drops the first newline.
    return Markup(f"{h('pre', **attributes)[: -len('</pre>')]}\n{text}</pre>")


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    numeric: Iterable[int] = (),
    **attributes: str | int | bool | None,
) -> Markup:
    """Return a table whose first column names the rows.

    Args:
        caption: of the table.
        headings: of the columns.
        rows: the cells.
        numeric: the columns that are aligned to the right.
    """
    right = set(numeric)

    def kind(position: int) -> str | None:
        return "number" if position in right else None

    head = [
        h("th", text, scope="col", class_=kind(position)) for position, text in enumerate(headings)
    ]
    body = []
    for first, *rest in rows:
        cells = [h("td", cell, class_=kind(number)) for number, cell in enumerate(rest, start=1)]
        body.append(h("tr", h("th", first, scope="row"), cells))
    return h(
        "div.wide",
        h(
            "table",
            h("caption", h("span", caption)),
            h("thead", h("tr", head)),
            h("tbody", body),
            **attributes,
        ),
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def meter(share: float, kind: str) -> Markup:
    """Return a bar that is filled by a share from 0 to 1; `kind` is the class of the filling."""
    return h(
        "svg.meter",
        h("rect", width=f"{100 * share:.1f}", height="8", class_=kind),
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
