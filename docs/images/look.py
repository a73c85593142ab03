"""Makes top.png and report.png: the live view and the report of the first tutorial, as they look.

    .venv/bin/python docs/images/look.py

Runs the tutorial's sweep on the local queue, photographs `top` in the middle of it, and the report
after its end. It needs Chromium and chromedriver, which draw both, and takes a minute.
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
from pages import read_page  # noqa: E402

from flux_ensemble.cli.top.app import TopApp  # noqa: E402
from flux_ensemble.cli.top.poller import Poller  # noqa: E402
from flux_ensemble.cli.top.source import open_source  # noqa: E402

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


def main() -> None:
    """Run the sweep, and write the pictures."""
    page = read_page((ROOT / "docs" / "tutorials" / "sweep.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as directory, browsing() as browser:
        here = Path(directory)
        (here / "throw.py").write_text(page.files["throw.py"])
        (here / "throw.yaml").write_text(page.files["closer.yaml"].replace(*ANGLES))
        states = here / "states"
        local = ["--queue", "local", "--state-dir", str(states)]
        run = [COMMAND, "run", *local, "--nodes", "4", "--cores", "2", "throw.yaml"]
        states.mkdir()
        # The jobs publish with the command, too.
        path = f"{COMMAND.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        with subprocess.Popen(run, cwd=here, env=environment, stdout=subprocess.DEVNULL) as process:
            while not (states / "throw" / "status.json").exists() and process.poll() is None:
                pass
            drawn = asyncio.run(photograph_top(states))
        (here / "top.xhtml").write_text(PAGE.format(drawn), encoding="utf-8")
        subprocess.run([COMMAND, "report", *local, "throw"], cwd=here, check=True)
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
        assert box is not None
        height = round(WIDTH * float(box[2]) / float(box[1]))
        (HERE / "top.png").write_bytes(png(browser, here / "top.xhtml", WIDTH, height))
        (HERE / "report.png").write_bytes(png(browser, here / "throw.html", WIDTH, HEIGHT))


if __name__ == "__main__":
    main()
