"""The page of a report: one HTML file that loads nothing, and runs only its own script.

Its policy (CSP) allows no request at all, and only those scripts and styles whose hashes it has.
The columns are in an element that browsers do not run as a script.
"""

from __future__ import annotations

import hashlib
import re
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.report.columns import pack
from flux_ensemble.report.markup import Markup, h
from flux_ensemble.report.sections import MOST_ROWS, Content, sections
from flux_ensemble.report.summary import cards, headline, label_of, noun
from flux_ensemble.report.texts import numbers
from flux_ensemble.words import shown_state

#: The beginning of each report file.
#: The name under which a report has its runs.
RUNS = "flux-ensemble-runs"

MARK = "<!doctype html>\n<!-- A report of flux-ensemble -->\n"

#: Scripts and styles, in order; those of uPlot include its licence.
SCRIPTS = (
    "uplot/uPlot.iife.min.js",
    "data.js",
    "texts.js",
    "canvas.js",
    "lanes.js",
    "timeline.js",
    "curves.js",
    "parallel.js",
    "slices.js",
    "tables.js",
    "main.js",
)
STYLES = ("uplot/uPlot.min.css", "page.css", "charts.css")

#: Most ensembles of a page.
MOST_ENSEMBLES = 20

_NO_SCRIPT = (
    "Charts, and the search of jobs, need JavaScript. Without it there are the tables, which say "
    "what they leave out."
)


def runs_of(statuses: Iterable[Mapping[str, Any]]) -> str:
    """Return the runs of a report: the same text for the same ones, however far they are."""
    return " ".join(f"{status['name']}@{status['t_start']}" for status in statuses)


def page(contents: Sequence[Content], t: float) -> str:
    """Return the page.

    Args:
        contents: of each ensemble.
        t: when it was made, in epoch seconds.
    """
    for content in contents:
        content.rows = max(5, MOST_ROWS // len(contents))
    script, style = _assets(SCRIPTS), _assets(STYLES)
    names = [content.run.source.status["name"] for content in contents]
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    articles = [_article(content, f"e{number}") for number, content in enumerate(contents)]
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(t))
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name=RUNS, content=runs_of(content.run.source.status for content in contents)),
        h("meta", http_equiv="Content-Security-Policy", content=policy),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="generator", content=f"flux-ensemble {__version__}"),
        h("meta", name="referrer", content="no-referrer"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{', '.join(names)}: report"),
        Markup(f"<style>{style}</style>"),
    )
    body = h(
        "body",
        h("a.skip", "To the content", href="#main"),
        h(
            "header.top",
            h("p.quiet", f"Report of flux-ensemble {__version__}, made {made}"),
            _menu(contents),
        ),
        h("main", h("noscript", h("p.note", _NO_SCRIPT)), articles, id="main"),
        h("p.note", id="trouble", role="status", hidden=True),
        Markup(f'<script type="application/octet-stream" id="data">{_data(contents)}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f"{MARK}{h('html', head, body, lang='en')}\n"


def _menu(contents: Sequence[Content]) -> Markup | None:
    """Return links to the ensembles, if there are several."""
    if len(contents) == 1:
        return None
    links = []
    for number, content in enumerate(contents):
        status = content.run.source.status
        state = _state(status)
        links.append(h("li", h("a", status["name"], href=f"#e{number}"), " ", state))
    return h("nav", h("ul.menu", links), aria_label="Ensembles")


def _state(status: Mapping[str, Any]) -> Markup:
    state = shown_state(status)
    return h("span", state, class_=f"state s-{state}")


def _article(content: Content, key: str) -> Markup:
    run = content.run
    status = run.source.status
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.begin))
    facts = [
        "in virtual time" if run.source.virtual else f"began {began}",
        f"ran on: {run.source.kind}",
    ]
    inside = list(sections(content, key))
    links = [h("li", h("a", title, href=f"#{key}-{name}")) for name, title in _titles(inside, key)]
    return h(
        "article.ensemble",
        h(
            "header.title",
            h("h1", status["name"], id=f"{key}-title"),
            h("p", _state(status),
              h("span.quiet", f" {status['reason']}" if status.get("reason") else "")),
            h("p.headline", headline(run, content.failures)),
            h("p.quiet", "; ".join(facts)),
        ),
        cards(run, content.failures, content.usage),
        h("nav.parts", h("ul", links), aria_label=f"Sections of {status['name']}"),
        inside,
        id=key,
        aria_labelledby=f"{key}-title",
        data_run=key,
    )  # fmt: skip


def _titles(inside: Sequence[Markup], key: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the titles of sections, from their own markup."""
    for section in inside:
        name = section.split(f'id="{key}-', 1)[1].split('"', 1)[0]
        yield name, section.split("</h3>", 1)[0].rsplit(">", 1)[1]


def _data(contents: Sequence[Content]) -> str:
    """Return the data that the script draws: the columns of all ensembles."""
    tables, about = {}, []
    for number, content in enumerate(contents):
        key = f"e{number}"
        for name, table in content.run.tables.items():
            tables[f"{key}.{name}"] = table
        if content.simulated is not None:
            simulated = content.simulated
            tables[f"{key}.simulated"] = simulated.jobs.course(simulated.begin)
        about.append({"key": key, **_about(content)})
    return pack(tables, about)


def _about(content: Content) -> dict[str, Any]:
    run, figure = content.run, content.figure
    return {
        "name": run.source.status["name"],
        "span": run.span,
        "begin": None if run.source.virtual else run.begin,
        "f58": run.source.kind == "Flux",
        "params": list(run.jobs.params),
        "memo": run.jobs.points.keys,
        "labels": {key: label_of(run, key) for key in run.jobs.points.keys},
        "logarithmic": list(content.logarithmic.items()),
        "slices": [one._asdict() for one in run.slices],
        "objectives": run.jobs.objectives,
        "figure": None if figure is None else asdict(figure),
        "simulatedSpan": None if content.simulated is None else content.simulated.span,
        "noun": noun(run),
        "summary": numbers(run.jobs.count, run.jobs.replaced, noun(run)),
    }


def _assets(names: Sequence[str]) -> str:
    """Return files of this package, concatenated."""
    root = files(__package__).joinpath("assets")
    parts = []
    for name in names:
        text = root.joinpath(*PurePath(name).parts).read_text(encoding="utf-8")
        if name.startswith("uplot/"):
            licence = root.joinpath("uplot", "LICENSE").read_text(encoding="utf-8")
            parts.append(f"/* uPlot, https://github.com/leeoniya/uPlot\n{licence}*/\n")
        parts.append(text)
    text = "\n".join(parts)
    # None of them may end the element that contains it.
    assert not re.search("</(script|style)", text, re.IGNORECASE)
    return text


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{b64encode(digest).decode()}"
