"""A page in Chromium without a screen, for tests: at some width, light or dark, with or without
scripts; with what it asked of the network, and what it said on the console."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def require_chromium() -> tuple[str, str]:
    """The paths of Chromium and its driver.

    Where they are missing the test is skipped, but in CI it fails.
    """
    chromium = next(filter(None, map(shutil.which, _NAMES)), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "chromium and chromedriver are not on PATH"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return chromium, driver


class Page:
    """A page that a browser shows."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns that runs in the page, such as "return 1"."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, expression: str) -> Any:
        """Wait until an expression of JavaScript is true; return its value."""
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, 60, poll_frequency=0.02)
        return wait.until(lambda _: self.run(f"return {expression}"))

    def count(self, selector: str) -> int:
        """How many elements there are of a selector of CSS."""
        found: int = self.run("return document.querySelectorAll(arguments[0]).length", selector)
        return found

    def text(self, selector: str = "body") -> str:
        """What is read of the first element of a selector."""
        found: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return found

    def click(self, selector: str) -> None:
        """Click on the first element of a selector."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def print(self) -> bytes:
        """The page as it is printed, on A4: a PDF."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        return b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", size)["data"])

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def processor(self) -> float:
        """Seconds of processor time that the page's thread has taken since it was opened."""
        found = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        values = {one["name"]: one["value"] for one in found}
        seconds: float = values["TaskDuration"]
        return seconds

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        messages = (json.loads(one["message"]) for one in self.driver.get_log("performance"))
        return [
            one["message"]["params"]["request"]["url"]
            for one in messages
            if one["message"]["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [f"{one['level']}: {one['message']}" for one in self.driver.get_log("browser")]


class Browser:
    """A browser, for some pages one after the other."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def before(self, script: str) -> str:
        """Run a script in each page before those of the page; what `after` takes it back by."""
        answer = self._driver.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": script}
        )
        identifier: str = answer["identifier"]
        return identifier

    def after(self, identifier: str) -> None:
        """Take back what `before` has added."""
        given = {"identifier": identifier}
        self._driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", given)

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        dark: bool = False,
        still: bool = False,
        scripts: bool = True,
        query: str = "",
        ready: str = "document.documentElement.dataset.ready",
    ) -> Page:
        """Show a file.

        Args:
            width: of the page, in pixels.
            dark, still: what its reader prefers: dark colours, no motion.
            scripts: JavaScript is on.
            query: what follows the question mark of the address.
            ready: the expression of JavaScript that is true when the page is.
        """
        driver = self._driver
        driver.get("about:blank")
        page = Page(driver)
        page.requests()
        page.complaints()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        off = {"value": not scripts}
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", off)
        driver.execute_cdp_cmd("Performance.disable", {})
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.get(f"{path.as_uri()}?{query}" if query else path.as_uri())
        if scripts:
            page.wait(ready)
        return page


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser."""
    chromium, driver = require_chromium()
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-background-networking",
        "--js-flags=--expose-gc",
        "--enable-precise-memory-info",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(found)
    finally:
        found.quit()
