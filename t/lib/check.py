"""Runs every test and closes with one line of counts; `make check` calls this.

With arguments it runs those sharness tests alone: `check.py t1001-run.t`.

There are unit tests and tests that start Flux instances, both under pytest, and the sharness tests
(t/*.t), of which prove runs some at a time, those that take longest first. All three go on beside
each other, since many tests wait; without Flux nearly all are unit tests, and there are four more
of these at a time than there are cores. Short commands of the sharness tests, what Flux itself has
in Python, and the scenarios of t/fault with their services are forks of one process that has
imported what they need (warm_server.py). The counts come from what the runners leave behind:
pytest's JUnit files, and the output of each sharness test that `run-test` keeps in t/test-results.

Ctrl-C or SIGTERM ends all that it has started, also what has left its process group: every process
whose environment has its mark.

RETRIES=N in the environment gives what fails N more tries; a test that passes then counts as
passed, and is named in the end, since it has a defect all the same.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
RESULTS = TESTS / "test-results"

#: Unit tests that run at a time: nearly alone, or beside those with Flux.
WORKERS = (os.cpu_count() or 1) + 4
BESIDE_FLUX = os.cpu_count() or 1

#: Tests in Python that start Flux instances, and sharness tests that run at a time.
WITH_FLUX = 2
SIDE_BY_SIDE = 3

#: The sharness tests that take longest, in that order: they begin first, so that none goes on
#: alone at the end.
LONGEST = (
    *("t1027-", "t3202-", "t7010-", "t7005-", "t1026-", "t3104-", "t3103-", "t3109-", "t3100-"),
    "t3101-",
    *("t1018-", "t2002-", "t7000-", "t3301-", "t1009-", "t2000-", "t1001-", "t4100-", "t1014-"),
    *(
        "t3200-",
        "t6001-",
        "t3205-",
        "t7003-",
        "t7006-",
        "t3303-",
        "t1006-",
        "t4000-",
        "t3306-",
        "t3302-",
    ),
    *("t41", "t70", "t32", "t31", "t100"),
)

#: What sharness sets of what Python reads as it begins.
SHARNESS = {"LANG": "C", "LC_ALL": "C", "TZ": "UTC"}

#: Said where commands are started anew, since that takes a long time.
COLD = "commands of the tests are no forks, which takes far longer: warm_server.py {}"

RETRIES = int(os.environ.get("RETRIES", "0"))

#: The variable by which the processes of a run are known: its value is the id of this process.
MARK = "FLUX_ENSEMBLE_CHECK"

#: Seconds that processes have to end by themselves after an interruption, and between two looks.
GRACE, LOOK = 10.0, 0.1

#: One TAP result: "ok 3 - name", "not ok 3 - name", "ok 3 # skip name (reason)".
TAP_LINE = re.compile(r"^(not ok|ok)\b(?: \d+)?(?: # skip (.*)| - (.*))?$", re.MULTILINE)


class Counts:
    """How many tests passed, and the names of others.

    Those that passed only when tried again are among the passed, and `flaky` has their names.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.flaky: list[str] = []
        self.failed: list[str] = []
        self.skipped: list[str] = []

    def add(self, other: Counts) -> None:
        """Add what another part of the run has counted."""
        self.passed += other.passed
        self.flaky += other.flaky
        self.failed += other.failed
        self.skipped += other.skipped

    def close(self) -> int:
        """Print the names and the closing line; return the exit code."""
        for name in self.skipped:
            print(f"skipped: {name}")
        for name in self.flaky:
            print(f"flaky, it failed before it passed: {name}")
        for name in self.failed:
            print(f"failed: {name}")
        print(
            f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped",
            flush=True,
        )
        return 1 if self.failed else 0


class Interrupted(BaseException):
    """A signal has arrived; `ended` is set once no part may begin anything more."""

    ended = Event()

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(command: Sequence[str], **options: Any) -> int:
    """Run a command and return its status; raise `Interrupted` if this run is being ended."""
    status = 0 if Interrupted.ended.is_set() else subprocess.run(command, **options).returncode
    if Interrupted.ended.is_set():
        raise Interrupted(signal.SIGTERM)
    return status


def marked() -> set[int]:
    """Return the processes that this one has started, and theirs, whatever group they are in."""
    mark, own = f"{MARK}={os.getpid()}".encode(), os.getpid()
    found = set()
    for directory in Path("/proc").glob("[0-9]*"):
        # It may have ended meanwhile, or belong to another user. What has ended has no environment.
        with contextlib.suppress(OSError):
            if mark in (directory / "environ").read_bytes().split(b"\0"):
                found.add(int(directory.name))
    return found - {own}


def end_all() -> None:
    """End what was started: by SIGTERM, and what is left after a while by SIGKILL."""
    Interrupted.ended.set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        give_up = time.monotonic() + GRACE
        sent: set[int] = set()
        while (left := marked()) and time.monotonic() < give_up:
            # What ends an instance may begin processes for it.
            for pid in left - sent if number == signal.SIGKILL or not sent else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= left
            time.sleep(LOOK)


def _interrupt(number: int, _frame: object) -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise Interrupted(number)


def run_pytest(
    counts: Counts, name: str, *options: str, environment: Mapping[str, str] = os.environ
) -> None:
    """Run tests of t/python and add their results to `counts`.

    Args:
        counts: what is added to.
        name: of the report.
        options: for pytest: which tests, and how.
        environment: of pytest.
    """
    report = RESULTS / f"{name}.xml"
    again = [f"--reruns={RETRIES}", "-rR"] if RETRIES else []
    command = [sys.executable, "-m", "pytest", "-q", *again, *options, f"--junitxml={report}"]
    status = run(command, cwd=TESTS.parent, env=environment)
    if not report.exists():
        counts.failed.append(f"pytest ended with status {status} and left no report")
        return
    failed_before = len(counts.failed)
    # A test that was tried again is there once for each time, and only the last one may say why.
    cases: dict[str, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = ": ".join(filter(None, (case.get("classname"), case.get("name"))))
        cases.setdefault(name, []).append(case)
    for name, tries in cases.items():
        skip = tries[-1].find("skipped")
        if any(case.find(kind) is not None for case in tries for kind in ("failure", "error")):
            counts.failed.append(name)
        elif skip is not None:
            counts.skipped.append(f"{name} ({skip.get('message')})")
        else:
            counts.passed += 1
            counts.flaky += [name] if len(tries) > 1 else []
    if status != 0 and len(counts.failed) == failed_before:
        counts.failed.append(f"pytest ended with status {status}")


@contextlib.contextmanager
def warm_commands(settings: Mapping[str, str] = SHARNESS) -> Iterator[dict[str, str]]:
    """Have a process from which short commands of tests are forked.

    Args:
        settings: variables that Python reads as it begins, as these commands have them.

    Yields:
        The variables that tell the tests of it; none if it does not begin.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        with subprocess.Popen(
            [sys.executable, TESTS / "lib" / "warm_server.py", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings},
            text=True,
        ) as server:
            assert server.stdout is not None
            ready = server.stdout.readline() == "ready\n"
            if not ready:
                print(COLD.format("does not begin"), file=sys.stderr)
            yield {"WARM_COMMANDS": path} if ready else {}
            if ready and server.poll() is not None:
                print(COLD.format("has ended before the tests"), file=sys.stderr)
            assert server.stdin is not None
            server.stdin.close()


def run_sharness(counts: Counts, names: Sequence[str] = ()) -> None:
    """Run sharness tests under prove and add their results to `counts`.

    Args:
        counts: what is added to.
        names: of their files; all of t/*.t where there are none.
    """
    if shutil.which("prove") is None:
        counts.failed.append("t/*.t: prove is not on PATH; it comes with Perl")
        return
    files = sorted(
        names or (path.name for path in TESTS.glob("*.t")),
        key=lambda name: (list(map(name.startswith, LONGEST)), name),
        reverse=True,
    )
    with warm_commands() as variables:
        results = prove(files, variables)
        for _ in range(RETRIES):
            failed = [file for file, result in results.items() if result.failed]
            for file, again in (prove(failed, variables) if failed else {}).items():
                again.flaky = [] if again.failed else results[file].failed
                results[file] = again
    for result in results.values():
        counts.add(result)


def prove(files: list[str], variables: dict[str, str]) -> dict[str, Counts]:
    """Run sharness tests side by side, and print the output of each that fails.

    Args:
        files: their names, in the order in which they begin.
        variables: of the environment, besides what it has.

    Returns:
        The results of each file.
    """
    environment = os.environ | {
        "SHARNESS_BUILD_DIRECTORY": str(Path(sys.executable).parent),
        "TEST_RESULTS": str(RESULTS),
    }
    command = ["prove", f"--jobs={SIDE_BY_SIDE}", "--timer", "--exec=lib/run-test", *files]
    run(command, cwd=TESTS, env=environment | variables)
    results = {}
    for file in files:
        log = RESULTS / f"{file}.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        results[file] = counts = Counts()
        for verdict, skipped, name in TAP_LINE.findall(text):
            if verdict == "not ok":
                counts.failed.append(f"{file}: {name}")
            elif skipped:
                counts.skipped.append(f"{file}: {skipped}")
            else:
                counts.passed += 1
        if not re.search(r"^1\.\.\d+", text, re.MULTILINE):
            counts.failed.append(f"{file}: it ended before its last test")
        if counts.failed:
            print(f"---- {file} ----\n{text}---- end of {file} ----", flush=True)
    return results


def run_unit_tests(counts: Counts) -> None:
    """Run the tests of t/python that need no Flux."""
    workers = BESIDE_FLUX if shutil.which("flux") else WORKERS
    run_pytest(counts, "unit", "-m", "not flux", f"--numprocesses={workers}", "--dist=worksteal")


def run_pytest_with_flux(counts: Counts) -> None:
    """Run the tests of t/python that start Flux instances; elsewhere they are skipped by name."""
    # No other file is read for them.
    files = [
        str(path)
        for path in sorted((TESTS / "python").rglob("test_*.py"))
        if "mark.flux" in path.read_text()
    ]
    workers = [f"--numprocesses={WITH_FLUX}", "--dist=worksteal"] if shutil.which("flux") else []
    # The commands of Flux's own are forks, with which it begins and ends an instance, and the
    # service in the broker. Our commands are not.
    with warm_commands({}) as variables:
        environment = os.environ | variables
        if variables:
            environment |= {
                "FLUX_EXEC_PATH_PREPEND": str(TESTS / "lib" / "warm_flux"),
                "SHARNESS_BUILD_DIRECTORY": str(Path(sys.executable).parent),
            }
        run_pytest(counts, "flux", "-m", "flux", *workers, *files, environment=environment)


def main() -> int:
    """Run all three kinds of tests beside each other, or the sharness tests that are named."""
    os.environ[MARK] = str(os.getpid())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return run_all(sys.argv[1:])
    except Interrupted as interrupted:
        print("interrupted: all that was started has been ended", file=sys.stderr)
        return 128 + interrupted.number


def run_all(names: Sequence[str]) -> int:
    """Run the tests, as `main`; return the exit code."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    # A service, or a worker of pytest, that finds no bytecode compiles all of the package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(TESTS.parent / "flux_ensemble", quiet=1)
    parts: list[Callable[[Counts], None]] = [run_unit_tests, run_sharness, run_pytest_with_flux]
    if names:
        parts = [lambda counts: run_sharness(counts, names)]
    counts = [Counts() for _ in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        try:
            for done in [pool.submit(part, its) for part, its in zip(parts, counts, strict=True)]:
                done.result()
        except Interrupted:
            end_all()
            raise
    total = Counts()
    for one in counts:
        total.add(one)
    return total.close()


if __name__ == "__main__":
    sys.exit(main())
