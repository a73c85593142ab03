"""Makes the pictures of the README and the gallery: the live view and reports, as they look.

    .venv/bin/python docs/images/look.py

Runs the first tutorial's sweep on the local queue, photographs `top` in the middle of it, and the
report after its end; then a search, and two simulations of documents of the guide. It needs
Chromium and chromedriver, which draw all of it, and takes two minutes.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "t" / "python" / "helpers"))

from browser import Browser, browsing  # noqa: E402
from pages import read_page, write_files  # noqa: E402

from flux_ensemble.cli.top.app import TopApp  # noqa: E402
from flux_ensemble.cli.top.poller import Poller  # noqa: E402
from flux_ensemble.cli.top.source import open_source  # noqa: E402

DOCS = ROOT / "docs"
COMMAND = Path(sys.executable).with_name("flux-ensemble")

#: Columns and lines of the terminal; of the page, pixels that are shown of it.
TERMINAL = (104, 20)
WIDTH, HEIGHT = 1120, 1000

PAGE = '<html xmlns="http://www.w3.org/1999/xhtml"><body style="margin: 0">{}</body></html>'

#: The sweep looks closer where the ball flies farthest, and has the angle that fails.
ANGLES = ("[15, 30, 45, 60, 75]", "[15, 30, 45, 60, 75, 90]")

#: Jobs that have ended when the live view is photographed.
ENDED = 11


async def photograph_top(states: Path) -> str:
    """The live view as SVG, when enough jobs have ended."""
    poller = Poller(partial(open_source, "throw", "local", states), 0.1)
    app = TopApp(poller, str, ascii_only=False)
    try:
        async with app.run_test(size=TERMINAL) as pilot:
            while app.picture.whole is None or app.picture.whole.finished < ENDED:
                await pilot.pause(0.1)
            while not app.picture.failures:
                await pilot.pause(0.1)
            await pilot.pause(0.3)
            return app.export_screenshot(title="flux ensemble top")
    finally:
        poller.stop()


def png(browser: Browser, file: Path, width: int, height: int) -> bytes:
    """The upper part of a page, or of a drawing."""
    page = browser.open(file, width=width, scripts=file.suffix == ".html")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = page.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(shot["data"])


def part(browser: Browser, file: Path, selector: str, *, dark: bool = False) -> bytes:
    """A section of a report, as wide as the page."""
    page = browser.open(file, width=WIDTH, dark=dark)
    place = "const {top, height} = document.querySelector(arguments[0]).getBoundingClientRect();"
    top, height = page.run(f"{place} return [top + scrollY, height]", selector)
    clip = {"x": 0, "y": top, "width": WIDTH, "height": min(height, HEIGHT), "scale": 1}
    shot = page.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(shot["data"])


def sweep(here: Path, browser: Browser) -> None:
    """Run the sweep of the tutorial: top.png, report.png, and parts of the report."""
    page = read_page((DOCS / "tutorials" / "sweep.md").read_text(encoding="utf-8"))
    (here / "throw.py").write_text(page.files["throw.py"])
    (here / "throw.yaml").write_text(page.files["closer.yaml"].replace(*ANGLES))
    states = here / "states" / "flux-ensemble"
    with subprocess.Popen(
        run("throw.yaml"), cwd=here, env=environment(here), stdout=subprocess.DEVNULL
    ) as process:
        while not (states / "throw" / "status.json").exists() and process.poll() is None:
            pass
        drawn = asyncio.run(photograph_top(states))
    (here / "top.xhtml").write_text(PAGE.format(drawn), encoding="utf-8")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    assert box is not None
    height = round(WIDTH * float(box[2]) / float(box[1]))
    (HERE / "top.png").write_bytes(png(browser, here / "top.xhtml", WIDTH, height))
    report(here, "throw")
    (HERE / "report.png").write_bytes(png(browser, here / "throw.html", WIDTH, HEIGHT))
    for name in ("failures", "sweep"):
        (HERE / f"{name}.png").write_bytes(part(browser, here / "throw.html", f"#e0-{name}"))
    dark = part(browser, here / "throw.html", "#e0-time", dark=True)
    (HERE / "time-dark.png").write_bytes(dark)


def search(here: Path, browser: Browser) -> None:
    """Run the search of the guide on tuning."""
    write_files(read_page((DOCS / "howto" / "tune.md").read_text(encoding="utf-8")), here)
    subprocess.run(
        run("tune.yaml"), cwd=here, env=environment(here), stdout=subprocess.DEVNULL, check=True
    )
    report(here, "tune")
    (HERE / "search.png").write_bytes(part(browser, here / "tune.html", "#e0-searches"))


def simulations(here: Path, browser: Browser) -> None:
    """Simulate the members of the page on simulation, and the guide on drift."""
    text = (DOCS / "simulate.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (here / "plan.yaml").write_text(next(block for block in blocks if "members:" in block))
    write_files(read_page((DOCS / "howto" / "retrain.md").read_text(encoding="utf-8")), here)
    for name, cores in (("plan", "4"), ("retrain", "2")):
        simulate = [str(COMMAND), "simulate", "--nodes", "4", "--cores", cores, f"{name}.yaml"]
        subprocess.run(
            [*simulate, "--report", f"{name}.html"], cwd=here, stdout=subprocess.DEVNULL, check=True
        )
        (HERE / f"{name}.png").write_bytes(part(browser, here / f"{name}.html", "#e0-time"))


def environment(here: Path) -> dict[str, str]:
    """The environment of a user who has the command on the path, and keeps states here."""
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_STATE_HOME": str(here / "states")}


def run(document: str) -> list[str]:
    """The command that runs a document on the local queue."""
    return ["flux-ensemble", "run", "--queue", "local", "--nodes", "4", "--cores", "2", document]


def report(here: Path, name: str) -> None:
    """Write the report of a run."""
    words = ["flux-ensemble", "report", "--queue", "local", name]
    subprocess.run(words, cwd=here, env=environment(here), check=True)


def main() -> None:
    """Write the pictures."""
    with browsing() as browser:
        for make in (sweep, search, simulations):
            with tempfile.TemporaryDirectory() as directory:
                make(Path(directory), browser)


if __name__ == "__main__":
    main()
