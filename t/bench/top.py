"""The live view `top`: until it is seen, while nothing happens, and when a key is pressed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import plots
from benchmark import Benchmark, Numbers, Row, middle

from flux_ensemble import Action, Ensemble, Job, Rule

JOBS = 100_000

#: How often it is started, and a key is pressed; seconds that it is left alone.
TIMES, PRESSES, IDLE = 7, 20, 10.0

#: Seconds after which something that is to be seen is given up.
SEEN = 120.0

_COMMAND = Path(sys.executable).parent / "flux-ensemble"


def _make(root: Path, count: int) -> None:
    """The files of a run: its four jobs in the place of so many, of which one in ten failed."""
    script = "test {t} -ne 1"
    md = Job(name="md", command=["sh", "-c", script], params={"t": [1, 2, 3, 4]})
    start = Rule(id="begin", trigger="start", action=Action(name="submit", label="md"))
    Ensemble(name="study", jobs=[md], rules=[start]).run("local", state_dir=root, cores=4)
    file = root / "study" / "jobs"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    bad = next(job for job in found if job["outcome"] == "failed")
    good = next(job for job in found if job["outcome"] == "success")
    with file.open("w") as stream:
        for number in range(1, count + 1):
            job = bad if number % 10 == 0 else good
            stream.write(json.dumps({**job, "id": number, "index": number - 1}) + "\n")
    status = root / "study" / "status.json"
    whole = json.loads(status.read_text())
    ended = {"success": count - count // 10, "failed": count // 10}
    counts = dict.fromkeys(("submitted", "finished", "attempts"), count)
    whole["status"]["groups"]["md"].update(**counts, **ended)
    whole["status"]["jobs"]["total"] = count
    status.write_text(json.dumps(whole))


class _Terminal:
    """The command in a terminal of 80 by 24."""

    def __init__(self, *words: str) -> None:
        import pyte

        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.begin = time.monotonic()
        self.child = pexpect.spawn(
            str(_COMMAND), list(words), dimensions=(24, 80), env=environment, timeout=SEEN
        )

    def until(self, seen: Callable[[str], bool]) -> float:
        """Wait until something is seen; returns when it was."""
        deadline = time.monotonic() + SEEN
        while time.monotonic() < deadline:
            self.read(0.01)
            if seen("\n".join(self._screen.display)):
                return time.monotonic()
        raise AssertionError("\n".join(self._screen.display))

    def read(self, seconds: float) -> bytes:
        """What it writes in so many seconds at most."""
        try:
            data: bytes = self.child.read_nonblocking(1 << 16, timeout=seconds)
        except pexpect.TIMEOUT:
            return b""
        # pyte takes Textual's question for a keyboard protocol for the end of a text.
        self._stream.feed(data.replace(b"\x1b[>", b"\x1b["))
        return data

    def processor(self) -> float:
        """Seconds of processor time that it has taken."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _shown(root: Path, count: int) -> Iterator[tuple[_Terminal, float]]:
    """The view once all of it is seen, and when that was."""
    terminal = _Terminal("top", "study", "--state-dir", str(root))
    try:
        done = f"{count:,}/{count:,}"
        yield terminal, terminal.until(lambda text: done in text and "Leave" in text)
        terminal.child.send("q")
        terminal.child.expect(pexpect.EOF)
    finally:
        terminal.child.close(force=True)


def measure(smoke: bool) -> Numbers:
    """Start it again and again; in the last one, look at what it takes, and press keys."""
    count, times, presses, idle = (300, 1, 2, 0.5) if smoke else (JOBS, TIMES, PRESSES, IDLE)
    found: Numbers = {"jobs": count, "seen": [], "processor": [], "keys": []}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "states")
        _make(root, count)
        for _ in range(times):
            with _shown(root, count) as (terminal, seen):
                found["seen"].append(seen - terminal.begin)
                found["processor"].append(terminal.processor())
        with _shown(root, count) as (terminal, _):
            # The failures are counted behind the first picture.
            terminal.until(lambda text: "exit 1" in text)
            begin, before = time.monotonic(), terminal.processor()
            while time.monotonic() < begin + idle:
                terminal.read(0.1)
            found["idle"] = (terminal.processor() - before) / (time.monotonic() - begin)
            terminal.child.send("\r")
            terminal.until(lambda text: "Jobs of md" in text)
            for _ in range(presses):
                pressed = time.monotonic()
                terminal.child.send("\x1b[B")
                while not terminal.read(1.0):
                    pass
                found["keys"].append(time.monotonic() - pressed)
            terminal.child.send("\x1b")
            terminal.until(lambda text: "Jobs of md" not in text)
    return found


def rows(numbers: Numbers) -> list[Row]:
    """What a user waits for, and what it costs to leave it open."""
    what = f"`top` of {numbers['jobs']:,} jobs"
    processor = f"{middle(numbers['processor']):.2f} s of processor time"
    return [
        Row(f"{what}: until it is seen", middle(numbers["seen"]), "<=", 1, "s", processor),
        Row(f"{what}: of a core while nothing happens", 100 * numbers["idle"], "<=", 5, "%"),
        Row(f"{what}: a key is answered", 1000 * middle(numbers["keys"]), "<=", 100, "ms"),
    ]


def plot(figure: Any, numbers: Numbers) -> None:
    """Until it is seen, and keys."""
    left, right = figure.subplots(1, 2)
    plots.bars(left, {"seen": numbers["seen"]}, [plots.OURS])
    left.set_xlabel("seconds until it is seen")
    plots.goal(left, x=1)
    keys = [1000 * one for one in numbers["keys"]]
    plots.bars(right, {"a key": keys}, [plots.OURS])
    right.set_xlabel("ms until a key is answered")
    plots.goal(right, x=100)
    for axes in (left, right):
        plots.legend(axes)


BENCHMARK = Benchmark(
    "top",
    "The live view",
    """`flux-ensemble top` in a terminal of 80 by 24, on the files of a local run of 100,000 jobs of
    which one in ten failed: from the start of the command until groups, bars and keys are on the
    screen; its processor time in ten seconds in which nothing happens; and, in the list of a
    group's jobs, from a press of the arrow key to what it draws.""",
    measure,
    rows,
    plot,
    height=1.8,
)
