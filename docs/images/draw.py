"""Draws the pictures of this folder with schemdraw: `how.svg`, for README.md and docs/index.md.

.venv/bin/python docs/images/draw.py
"""

from __future__ import annotations

from pathlib import Path

import schemdraw
from schemdraw import elements, flow

#: Colours of the boxes that read well on light and dark pages; the text is black.
PAPER, BLUE, GREEN, RED, WHITE = "#fff4d6", "#dbeafe", "#dcfce7", "#fee2e2", "#ffffff"


def how() -> bytes:
    """How it works, as SVG."""
    schemdraw.use("svg")
    with schemdraw.Drawing(show=False, fontsize=13, unit=1, transparent=False) as drawing:
        drawing.config(bgcolor=WHITE, margin=0.2)
        document = flow.Box(w=3.2, h=2.6).fill(PAPER)
        document.label("ensemble.yaml", "top", ofst=-0.6).label("job groups\nand rules")
        load = flow.Arrow().right(1.7).at(document.E).label("load", "top")
        service = flow.Box(w=4.9, h=4).anchor("W").at(load.end).fill(BLUE)
        service.label("the ensemble service", "top", ofst=-0.6)
        service.label("counts, statistics,\nrules: which of them fire?\na log of what and why")
        commands = flow.Arrow().right(3.4).at((service.E.x, service.E.y + 1.2))
        commands.label("commands", "top").label(
            "submit, cancel,\nupdate, grow", "bottom", fontsize=11
        )
        queue = flow.Box(w=3.2, h=4).anchor("W").at((commands.end.x, service.E.y)).fill(GREEN)
        queue.label("a queue", "top", ofst=-0.6).label("Flux,\nthis machine,\nor simulated")
        events = flow.Arrow().left(3.4).at((queue.W.x, queue.W.y - 1.2))
        events.label("events", "bottom").label(
            "started, ended,\npublished loss=0.7", "top", fontsize=11
        )
        both = flow.Arrow(double=True).right(1.2).at(queue.E)
        jobs = flow.Box(w=2.2, h=2.6).anchor("W").at(both.end).fill(RED)
        jobs.label("jobs", "top", ofst=-0.6).label("any\nprogram")
        ask = flow.Arrow(double=True).down(1.4).at(service.S)
        words = elements.Label().at((service.S.x + 0.2, service.S.y - 0.75))
        words.label("status, why, failures;\nsubmit, pause, cancel", halign="left", fontsize=11)
        you = flow.Box(w=6.2, h=1.1).anchor("N").at(ask.end).fill(WHITE)
        you.label("you: flux ensemble, Python, RPC")
        return drawing.get_imagedata("svg")


PICTURES = {"how.svg": how}


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        Path(__file__).with_name(name).write_bytes(picture())
