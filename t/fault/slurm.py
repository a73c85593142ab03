"""Kills homes without Flux, their workers, and a real Slurm under them, and counts side effects.

    python t/fault/slurm.py [--rounds N] [--minutes M] [--seed S]

Needs slurmctld, slurmd and munged; without them it says so and does nothing. A round is one kill or
cut. Ensembles follow each other until there have been so many rounds, or the time is up: each has
tasks that write down that they run, on workers on two nodes. The first node is in a network
namespace of its own if there can be one, and its link is set down; else a worker is stopped.

lost: tasks that never ended. twice: tasks that ran while an earlier attempt did, and attempts that
no lost member explains. The control submits members as if the claim were not there, neither held
nor looked for: a home that is killed between `sbatch` and its answer starts a member twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

LIB = Path(__file__).parents[1] / "lib"

#: Tasks of an ensemble, and the seconds that it may take after its last kill.
TASKS, PATIENCE = 240, 240.0

#: The link to the first node: its network is a private one for tests (RFC 2544).
NET, HOME, NODE = "fluxens", "198.18.77.1", "198.18.77.2"

#: A task: a second one at the same time finds the lock taken.
TASK = """#!/bin/sh
exec 9>"lock.$1"
flock -n 9 || echo "$1" >>overlap
echo "$1" >>began
sleep 0.4
echo "$1" >>done
"""

DOCUMENT = """name: {name}
limits: {{losses: 1000}}
members:
  - name: hpc
    from: slurm
    runs: tasks
    exclusive: false
    cores: 4
    duration: 30m
    count: {{min: 2, max: 3}}
jobs:
  - {{name: sim, command: "sh task.sh {{s}}", params: {{s: {{range: [0, {tasks}]}}}}}}
rules:
  - {{trigger: start, action: {{name: submit, label: sim}}}}
  - trigger: member-lost
    action: {{name: grow, label: hpc, repetitions: unlimited}}
"""

#: A home that submits its members without the claim.
UNCLAIMED = """
from flux_ensemble.queues.providers.slurm import provider
def unclaimed(self, following, jobs, update=provider.SlurmProvider._update):
    words = following.job and following.job["arguments"]
    if words and "--hold" in words:
        words.remove("--hold")
    update(self, following, {} if following.id is None else jobs)
provider.SlurmProvider._update = unclaimed
"""

#: An `sbatch` whose first answer is two seconds late.
LATE = """#!/bin/sh
cd {directory}
mkdir late 2>/dev/null || exec {sbatch} "$@"
{sbatch} "$@" >answer
>submitted
sleep 2
cat answer
"""


class Trouble(Exception):
    """What is tested does not start or end; the text says what."""


def until(true: Callable[[], Any], seconds: float, what: str) -> None:
    """Wait until something holds.

    Raises:
        Trouble: it does not.
    """
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Trouble(f"{what}: not after {seconds:g} seconds")
        time.sleep(0.05)


def lines(path: Path) -> list[str]:
    """The lines of a file; none if there is no file."""
    return path.read_text().split() if path.exists() else []


# -- Slurm and its network -----------------------------------------------------------------------


class Network:
    """The network of the first node; where there can be none, `there` is False."""

    def __init__(self) -> None:
        words = (
            f"netns add {NET}",
            f"link add {NET}-h type veth peer name {NET}-n netns {NET}",
            f"addr add {HOME}/30 dev {NET}-h",
            f"link set {NET}-h up",
            f"-n {NET} addr add {NODE}/30 dev {NET}-n",
            f"-n {NET} link set {NET}-n up",
            f"-n {NET} link set lo up",
            f"-n {NET} route add default via {HOME}",
        )
        self.there = None not in map(shutil.which, ("ip", "nsenter")) and all(map(self._ip, words))
        if not self.there:
            self.close()

    def _ip(self, words: str) -> bool:
        return subprocess.run(["ip", *words.split()], capture_output=True).returncode == 0

    def cut(self, seconds: float) -> None:
        """Set the link down for some seconds."""
        self._ip(f"link set {NET}-h down")
        time.sleep(seconds)
        self._ip(f"link set {NET}-h up")

    def close(self) -> None:
        """Remove it."""
        if shutil.which("ip") is not None:
            # What still runs there keeps the link.
            self._ip(f"link del {NET}-h")
            self._ip(f"netns del {NET}")


class Slurm:
    """A Slurm on this machine, as t/lib/slurm.sh starts it.

    Args:
        network: of its first node; None for that of the machine.
        nodes: their number.
    """

    def __init__(self, network: Network | None = None, nodes: int = 2) -> None:
        apart = network is not None and network.there
        # `ip netns exec` would mount another /sys, without control groups.
        self._within = ["nsenter", f"--net=/run/netns/{NET}"] if apart else []
        script = f"""
        wait_until() {{ for _ in $(seq 300); do "$@" && return; sleep 0.1; done; return 1; }}
        . {LIB}/slurm.sh
        start_slurm >"$slurm/start.log" 2>&1 || {{ slurm_trouble; exit 1; }}
        echo "$slurm"
        """
        environment = {**os.environ, "slurm_nodes": str(nodes)}
        if apart:
            environment |= {"slurm_home": HOME, "slurm_n1": NODE}
            environment["slurm_within"] = " ".join(self._within)
        # Its daemons keep what they get as their output.
        with tempfile.TemporaryFile("w+") as output:
            code = subprocess.run(["sh", "-c", script], env=environment, stdout=output).returncode
            output.seek(0)
            said = output.read().strip()
        if code:
            raise Trouble(said)
        self.directory = Path(said)
        path = f"{self.directory}/bin:{os.environ['PATH']}:/usr/sbin"
        self.environment = {
            **os.environ,
            "PATH": path,
            "SLURM_CONF": f"{self.directory}/slurm.conf",
        }

    def _pid(self, name: str) -> int:
        return int((self.directory / f"{name}.pid").read_text())

    def kill(self, name: str, seconds: float) -> None:
        """Kill a daemon, and start it again after some seconds."""
        pid = self._pid(name)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists(), 10.0, f"the end of {name}")
        time.sleep(seconds)
        words = ["slurmctld"] if name == "controller" else ["slurmd", "-N", name]
        within = self._within if name == "n1" else []
        subprocess.run([*within, *words], env=self.environment, check=True)

    def listed(self, columns: str, *options: str) -> list[str]:
        """The lines of squeue; none while the controller does not answer."""
        words = ["squeue", "-h", "-o", columns, *options]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return done.stdout.splitlines()

    def close(self) -> None:
        """End it, with all that is still in its queue."""
        subprocess.run(["scancel", "--me"], env=self.environment, capture_output=True)
        for path in (*self.directory.glob("*.pid"), self.directory / "munge" / "pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        time.sleep(1.0)
        shutil.rmtree(self.directory, ignore_errors=True)


# -- an ensemble -----------------------------------------------------------------------------------


class Run:
    """An ensemble whose home is killed, and goes on.

    Args:
        name: of the ensemble.
        slurm: that it runs on.
        tasks: their number.
        patch: a program that its homes run first.
        path: directories before those of PATH.
    """

    def __init__(
        self, name: str, slurm: Slurm, tasks: int = TASKS, patch: str = "", path: str = ""
    ) -> None:
        self.name, self.patch = name, patch
        self.directory = slurm.directory / name
        self.directory.mkdir()
        (self.directory / "task.sh").write_text(TASK)
        self.document = self.directory / "document.yaml"
        self.document.write_text(DOCUMENT.format(name=name, tasks=tasks))
        self.environment = {**slurm.environment, "XDG_STATE_HOME": str(slurm.directory / "runs")}
        self.environment["PATH"] = path + self.environment["PATH"]
        self.environment.pop("FLUX_URI", None)
        self.home: subprocess.Popen[bytes]
        self.go_on()

    def go_on(self) -> None:
        """Start the home, or the next one after a kill."""
        program = f"{self.patch}\nfrom flux_ensemble.cli.main import main; main()"
        words = [sys.executable, "-c", program, "run", "--resume", str(self.document)]
        with (self.directory / "home.log").open("ab") as log:
            self.home = subprocess.Popen(
                words, cwd=self.directory, env=self.environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """Kill the home."""
        self.home.kill()
        self.home.wait()

    def workers(self) -> list[int]:
        """The processes of its workers."""
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                here = (process / "cwd").resolve() == self.directory
                if here and b"flux_ensemble.service.worker" in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
        return found

    @property
    def log(self) -> str:
        """The end of what its homes have printed."""
        return (self.directory / "home.log").read_text()[-2000:]

    @property
    def done(self) -> int:
        """How many tasks have ended."""
        return len(set(lines(self.directory / "done")))

    def has(self, tasks: int) -> bool:
        """True if so many tasks have ended, or the home has."""
        return self.done >= tasks or self.home.poll() is not None

    def status(self) -> Mapping[str, Any]:
        """The status of the ensemble."""
        words = [sys.executable, "-m", "flux_ensemble", "status", self.name, "--json"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        status: Mapping[str, Any] = json.loads(done.stdout)["ensembles"][0]
        return status

    def verify(self) -> tuple[int, int, list[str]]:
        """Return how many tasks were lost, how many ran twice, and what else is wrong."""
        wanted = {str(one) for one in range(TASKS)}
        began, overlap = lines(self.directory / "began"), lines(self.directory / "overlap")
        lost = len(wanted - set(lines(self.directory / "done")))
        status = self.status()
        counts, problems = status["groups"]["sim"], []
        if (status["state"], counts["success"], counts["finished"]) != ("completed", TASKS, TASKS):
            problems.append(f"{self.name} is {status['state']}: {dict(counts)}")
        more = len(began) - len(set(began))
        unexplained = max(0, more - counts.get("interrupted", 0))
        return lost, len(set(overlap)) + unexplained, problems


# -- rounds ----------------------------------------------------------------------------------------


def kinds(run: Run, slurm: Slurm, network: Network, dice: random.Random) -> Mapping[str, Any]:
    """What can be done to a run, by name; each takes a moment, and leaves the run going on."""

    def home() -> None:
        run.kill()
        time.sleep(dice.uniform(0.0, 2.0))
        run.go_on()

    def worker() -> None:
        if found := run.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(found), signal.SIGKILL)

    def stopped() -> None:
        if found := run.workers():
            pid = dice.choice(found)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(dice.uniform(2.0, 20.0))
                os.kill(pid, signal.SIGCONT)

    def all_workers() -> None:
        for pid in run.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def home_and(other: Callable[[], None]) -> Callable[[], None]:
        def both() -> None:
            run.kill()
            other()
            run.go_on()

        return both

    def controller() -> None:
        slurm.kill("controller", dice.uniform(0.0, 3.0))

    def node() -> None:
        slurm.kill(dice.choice(("n1", "n2")), dice.uniform(0.0, 3.0))

    found = {
        "home": home,
        "worker": worker,
        "stopped": stopped,
        "all workers": all_workers,
        "slurmctld": controller,
        "slurmd": node,
        "home and worker": home_and(worker),
        "home and slurmctld": home_and(controller),
        "home and slurmd": home_and(node),
    }
    if network.there:
        found["cut"] = lambda: network.cut(dice.uniform(5.0, 40.0))
        found["home and cut"] = home_and(lambda: network.cut(dice.uniform(2.0, 20.0)))
    return found


#: What was done to an ensemble, its tasks that were lost, those that ran twice, and what is wrong.
Found = tuple[Counter[str], int, int, list[str]]


def ensemble(
    run: Run, does: Mapping[str, Callable[[], None]], dice: random.Random, wanted: int, end: float
) -> Found:
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
        until(lambda: run.done, PATIENCE, "the first task")
        while run.done < TASKS * 0.8 and made.total() < wanted and time.monotonic() < end:
            kind = dice.choice(list(does))
            enough = run.done + 5
            does[kind]()
            made[kind] += 1
            if dice.random() < 0.7:
                # Else the next one meets what this one has left.
                until(partial(run.has, enough), PATIENCE, f"more tasks after {kind}")
            time.sleep(dice.uniform(0.0, 2.0))
        until(lambda: run.home.poll() is not None, PATIENCE, f"the end of {run.name}")
        return made, *run.verify()
    except Trouble as trouble:
        overlap = len(set(lines(run.directory / "overlap")))
        return made, TASKS - run.done, overlap, [f"{trouble}\n{run.log}"]
    finally:
        run.kill()


def rounds(
    slurm: Slurm, network: Network, dice: random.Random, wanted: int, end: float
) -> Iterator[Found]:
    """Run ensembles until there have been so many rounds, or the time is up."""
    number = 0
    while wanted > 0 and time.monotonic() < end:
        run = Run(f"sweep-{number}", slurm)
        number += 1
        found = ensemble(run, kinds(run, slurm, network, dice), dice, wanted, end)
        wanted -= max(1, found[0].total())
        yield found


def twice(slurm: Slurm, name: str, patch: str) -> int:
    """Kill a home between `sbatch` and its answer; return how many members started twice."""
    late = slurm.directory / f"late-{name}"
    late.mkdir()
    sbatch = late / "sbatch"
    sbatch.write_text(LATE.format(directory=late, sbatch=slurm.directory / "bin" / "sbatch"))
    sbatch.chmod(0o755)
    run = Run(name, slurm, 40, patch, f"{late}:")
    try:
        until((late / "submitted").exists, 30.0, "a submission")
        run.kill()
        time.sleep(3.0)
        run.go_on()
        until(lambda: run.home.poll() is not None, PATIENCE, f"the end of {name}")
        rows = slurm.listed("%M|%k", "--states=all", f"--name={name}:hpc.0,{name}:hpc.1")
        ran = Counter(
            comment for t, _, comment in (row.partition("|") for row in rows) if t != "0:00"
        )
        return sum(number > 1 for number in ran.values())
    except Trouble as trouble:
        raise Trouble(f"{trouble}\n{run.log}") from None
    finally:
        run.kill()


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin"
    missing = [one for one in ("slurmctld", "slurmd", "munged") if shutil.which(one) is None]
    if missing:
        print(f"slurm: nothing is done, without {', '.join(missing)}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    dice, end = random.Random(options.seed), time.monotonic() + options.minutes * 60
    with ExitStack() as stack:
        network = Network()
        stack.callback(network.close)
        slurm = Slurm(network)
        stack.callback(slurm.close)
        how = "the link of n1 is cut" if network.there else "no network namespace: workers stop"
        print(f"slurm: seed {options.seed}; {how}", flush=True)
        held, free = twice(slurm, "claimed", ""), twice(slurm, "unclaimed", UNCLAIMED)
        print(
            f"control: members started twice: {free} without the claim, {held} with it", flush=True
        )
        all_made: Counter[str] = Counter()
        lost = double = ensembles = 0
        problems: list[str] = []
        for here, one_lost, one_double, wrong in rounds(slurm, network, dice, options.rounds, end):
            ensembles += 1
            all_made += here
            lost, double = lost + one_lost, double + one_double
            problems += wrong
            done = ", ".join(f"{kind} {number}" for kind, number in here.items())
            print(
                f"  {here.total()} rounds: {done}: {one_lost} lost, {one_double} twice", flush=True
            )
            for problem in wrong:
                print(f"    {problem}", flush=True)
    good = not (lost or double or problems or held) and free > 0
    print(
        f"slurm: {all_made.total()} rounds, {ensembles} ensembles of {TASKS} tasks: {lost} lost, "
        f"{double} twice  {'ok' if good else 'FAILED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
