"""Homes without Flux that are killed, their workers, and a site under them that is broken.

    rounds ──► Run: a home, killed and resumed ──► workers of a site ──► tasks: `effects`
      └──────► kinds of a site: what is done to it

A round is one kill or cut. lost: tasks that never ended. twice: tasks that ran while an earlier
attempt did, began once more than interrupted attempts in the record allow, or began again on the
same worker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from effects import Effects

#: Tasks of an ensemble, how long each takes, and the seconds that all may take after the last kill.
TASKS, SECONDS, PATIENCE = 240, 0.4, 240.0

DOCUMENT = """name: {name}
limits: {{losses: 1000}}
members:
  - {member}
jobs:
  - {{name: sim, command: "sh {program} {{s}}", params: {{s: {{range: [0, {tasks}]}}}}}}
rules:
  - {{trigger: start, action: {{name: submit, label: sim}}}}
  - trigger: member-lost
    action: {{name: grow, label: pool, repetitions: unlimited}}
"""


class Trouble(Exception):
    """What is tested does not start or end; the text says what."""


def until(true: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until something holds.

    Raises:
        Trouble: it does not.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Trouble(f"{what}: not after {seconds:g} seconds")
        time.sleep(0.05)


def ip(words: str) -> bool:
    """Run ip(8); return whether it could do that."""
    if shutil.which("ip") is None:
        return False
    return subprocess.run(["ip", *words.split()], capture_output=True).returncode == 0


def enters(namespace: str) -> list[str]:
    """The words that run something in a network namespace."""
    # `ip netns exec` would mount another /sys, without control groups.
    return ["nsenter", f"--net=/run/netns/{namespace}"]


@dataclass(frozen=True)
class Site:
    """What the homes of all ensembles have in common.

    Args:
        directory: for their files.
        environment: of each.
        member: the pool "pool" of a document, as YAML.
        within: words before those of a home.
    """

    directory: Path
    environment: Mapping[str, str]
    member: str
    within: tuple[str, ...] = ()


class Run:
    """An ensemble whose home is killed, and goes on.

    Args:
        name: of the ensemble.
        site: where it runs.
        tasks: their number.
        seconds: that one takes.
        patch: a program that its homes run first.
        environment: further variables of its homes.
    """

    def __init__(
        self,
        name: str,
        site: Site,
        tasks: int = TASKS,
        seconds: float = SECONDS,
        patch: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.site, self.tasks, self.patch = name, site, tasks, patch
        self.directory = site.directory / name
        self.directory.mkdir()
        self.effects = Effects(self.directory)
        program = self.effects.prepare(seconds)
        self.document = self.directory / "document.yaml"
        self.document.write_text(
            DOCUMENT.format(name=name, member=site.member, program=program, tasks=tasks)
        )
        self.environment = {
            **site.environment,
            "XDG_STATE_HOME": str(site.directory / "runs"),
            **(environment or {}),
        }
        self.environment.pop("FLUX_URI", None)
        self.home: subprocess.Popen[bytes]
        self.go_on()

    def go_on(self) -> None:
        """Start the home, or the next one after a kill."""
        program = f"{self.patch}\nfrom flux_ensemble.cli.main import main; main()"
        words = [sys.executable, "-c", program, "run", "--resume", str(self.document)]
        with (self.directory / "home.log").open("ab") as log:
            self.home = subprocess.Popen(
                [*self.site.within, *words],
                cwd=self.directory,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the home."""
        self.home.kill()
        self.home.wait()

    @property
    def log(self) -> str:
        """The end of what its homes have printed."""
        return (self.directory / "home.log").read_text()[-2000:]

    @property
    def over(self) -> bool:
        """True if its home has ended."""
        return self.home.poll() is not None

    def has(self, tasks: int) -> bool:
        """True if so many tasks have ended, or the home has."""
        return len(self.effects.done) >= tasks or self.over

    def ask(self, command: str, *options: str) -> Any:
        """What a command says of the ensemble."""
        words = [sys.executable, "-m", "flux_ensemble", command, self.name, *options, "--json"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise Trouble(f"{command} of {self.name}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    @property
    def lost(self) -> int:
        """How many tasks have not ended."""
        return len({str(one) for one in range(self.tasks)} - self.effects.done)

    def twice(self) -> dict[str, str]:
        """The tasks that ran twice though nothing interrupted them, and how."""
        rows = self.ask("jobs", "--interrupted", "--outcome", "interrupted")["jobs"]
        return self.effects.twice(Counter(str(row["params"]["s"]) for row in rows))

    def verify(self) -> tuple[int, int, list[str]]:
        """Return how many tasks were lost, how many ran twice, and what else is wrong."""
        status = self.ask("status")["ensembles"][0]
        counts, problems = status["groups"]["sim"], []
        expected = "completed", self.tasks, self.tasks
        if (status["state"], counts["success"], counts["finished"]) != expected:
            problems.append(f"{self.name} is {status['state']}: {dict(counts)}")
        twice = self.twice()
        problems += [f"task {task} of {self.name}: {how}" for task, how in twice.items()]
        return self.lost, len(twice), problems


#: What can be done to a run, by name; each takes a moment, and leaves the run going on.
Kinds = Mapping[str, Callable[[], None]]


def pairs(run: Run, others: Kinds, dice: random.Random) -> Kinds:
    """Kills of the home: alone, and while other things are done."""

    def home() -> None:
        run.kill()
        time.sleep(dice.uniform(0.0, 2.0))
        run.go_on()

    def both(other: Callable[[], None]) -> None:
        run.kill()
        other()
        run.go_on()

    return {
        "home": home,
        **{f"home and {name}": partial(both, other) for name, other in others.items()},
    }


@dataclass
class Found:
    """What came of ensembles.

    Attributes:
        ensembles: their number.
        made: what was done, and how often.
        lost, twice: tasks.
        problems: what is wrong, for people.
    """

    ensembles: int = 0
    made: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Add what came of others."""
        self.ensembles += other.ensembles
        self.made += other.made
        self.lost += other.lost
        self.twice += other.twice
        self.problems += other.problems

    def __str__(self) -> str:
        done = ", ".join(f"{kind} {number}" for kind, number in self.made.items())
        said = f"{self.made.total()} rounds: {done}: {self.lost} lost, {self.twice} twice"
        return "\n    ".join([said, *self.problems])


def ensemble(run: Run, does: Kinds, dice: random.Random, wanted: int, end: float) -> Found:
    """Do something to a run time and again, and verify it at its end.

    Args:
        run: is begun.
        does: what can be done to it.
        dice: chooses.
        wanted: rounds at most.
        end: when nothing more is done, by the monotonic clock.
    """
    made: Counter[str] = Counter()
    try:
        until(lambda: run.effects.done, PATIENCE, "the first task")
        while (
            not run.has(int(run.tasks * 0.8)) and made.total() < wanted and time.monotonic() < end
        ):
            kind = dice.choice(list(does))
            enough = len(run.effects.done) + 5
            does[kind]()
            made[kind] += 1
            if dice.random() < 0.7:
                # Else the next one meets what this one has left.
                until(partial(run.has, enough), PATIENCE, f"more tasks after {kind}")
            time.sleep(dice.uniform(0.0, 2.0))
        until(lambda: run.over, PATIENCE, f"the end of {run.name}")
        lost, twice, problems = run.verify()
        return Found(1, made, lost, twice, problems)
    except Trouble as trouble:
        problem = f"{trouble}\n{run.log}"
        return Found(1, made, run.lost, len(run.effects.overlap), [problem])
    finally:
        run.kill()


def rounds(
    begin: Callable[[str], tuple[Run, Kinds]], dice: random.Random, wanted: int, end: float
) -> Iterator[Found]:
    """Run ensembles until there have been so many rounds, or the time is up.

    Args:
        begin: begins an ensemble of a name, and says what can be done to it.
        dice: choose.
        wanted: rounds.
        end: when the time is up, by the monotonic clock.
    """
    number = 0
    while wanted > 0 and time.monotonic() < end:
        run, does = begin(f"sweep-{number}")
        number += 1
        found = ensemble(run, does, dice, wanted, end)
        wanted -= max(1, found.made.total())
        yield found


def options_of(text: str) -> argparse.Namespace:
    """The options of a program that does rounds; at SIGTERM it ends as at Ctrl-C."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parser.parse_args()
    options.end = time.monotonic() + options.minutes * 60
    return options


def report(
    name: str, begin: Callable[[str], tuple[Run, Kinds]], options: argparse.Namespace
) -> bool:
    """Do the rounds of the command line, and print what comes of them; whether all is right."""
    found = Found()
    dice = random.Random(options.seed)
    for one in rounds(begin, dice, options.rounds, options.end):
        found.add(one)
        print(f"  {one}", flush=True)
    good = not (found.lost or found.twice or found.problems)
    print(
        f"{name}: {found.made.total()} rounds, {found.ensembles} ensembles of {TASKS} tasks: "
        f"{found.lost} lost, {found.twice} twice  {'ok' if good else 'FAILED'}"
    )
    return good


def signal_some(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes that may be gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
