"""Kills homes without Flux, their workers, and a real Slurm under them, and counts side effects.

    python t/fault/slurm.py [--rounds N] [--minutes M] [--seed S]

Needs slurmctld, slurmd and munged; without them it says so and does nothing. Ensembles follow each
other until there have been so many rounds (see `homes`), or the time is up, on workers on two
nodes. The first node is in a network namespace of its own if there can be one, and its link is set
down; else a worker is stopped.

The control submits members as if the claim were not there, neither held nor looked for: a home that
is killed between `sbatch` and its answer starts a member twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from homes import (
    PATIENCE,
    Kinds,
    Run,
    Site,
    Trouble,
    enters,
    ip,
    options_of,
    pairs,
    report,
    signal_some,
    until,
)

LIB = Path(__file__).parents[1] / "lib"

#: The link to the first node: its network is a private one for tests (RFC 2544).
NET, HOME, NODE = "fluxens", "198.18.77.1", "198.18.77.2"

#: The pool of an ensemble.
POOL = (
    "{name: pool, from: slurm, runs: tasks, exclusive: false, cores: 4, duration: 30m, "
    "count: {min: 2, max: 3}}"
)

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
        self.there = shutil.which("nsenter") is not None and all(map(ip, words))
        if not self.there:
            self.close()

    def cut(self, seconds: float) -> None:
        """Set the link down for some seconds."""
        ip(f"link set {NET}-h down")
        time.sleep(seconds)
        ip(f"link set {NET}-h up")

    def close(self) -> None:
        """Remove it."""
        # What still runs there keeps the link.
        ip(f"link del {NET}-h")
        ip(f"netns del {NET}")


class Slurm:
    """A Slurm on this machine, as t/lib/slurm.sh starts it.

    Args:
        network: of its first node; None for that of the machine.
        nodes: their number.
    """

    def __init__(self, network: Network | None = None, nodes: int = 2) -> None:
        apart = network is not None and network.there
        self._within = enters(NET) if apart else []
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

    def resume(self) -> None:
        """Use nodes again that a killed controller has drained, since it forgot their jobs."""
        words = ["scontrol", "update", "NodeName=ALL", "State=RESUME"]
        subprocess.run(words, env=self.environment, capture_output=True)

    def kill(self, name: str, seconds: float) -> None:
        """Kill a daemon, and start it again after some seconds."""
        self.resume()
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


# -- rounds ----------------------------------------------------------------------------------------


def workers_in(directory: Path) -> list[int]:
    """The processes of workers that run in a directory."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            here = (process / "cwd").resolve() == directory
            if here and b"flux_ensemble.service.worker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def kinds(run: Run, slurm: Slurm, network: Network, dice: random.Random) -> Kinds:
    """What can be done to a run."""
    workers = partial(workers_in, run.directory)

    def some() -> list[int]:
        return [dice.choice(found)] if (found := workers()) else []

    def stopped() -> None:
        pids = some()
        signal_some(pids, signal.SIGSTOP)
        time.sleep(dice.uniform(2.0, 20.0))
        signal_some(pids, signal.SIGCONT)

    def worker() -> None:
        signal_some(some(), signal.SIGKILL)

    def controller() -> None:
        slurm.kill("controller", dice.uniform(0.0, 3.0))

    def node() -> None:
        slurm.kill(dice.choice(("n1", "n2")), dice.uniform(0.0, 3.0))

    others: dict[str, Callable[[], None]] = {
        "worker": worker,
        "slurmctld": controller,
        "slurmd": node,
    }
    found = {
        **others,
        **pairs(run, others, dice),
        "stopped": stopped,
        "all workers": lambda: signal_some(workers(), signal.SIGKILL),
    }
    if network.there:
        found["cut"] = lambda: network.cut(dice.uniform(5.0, 40.0))
        cut = {"cut": lambda: network.cut(dice.uniform(2.0, 20.0))}
        found |= pairs(run, cut, dice)
    return found


def twice(slurm: Slurm, site: Site, name: str, patch: str) -> tuple[int, int]:
    """Kill a home between `sbatch` and its answer.

    Return how many members started twice, and how many tasks ran twice.
    """
    late = slurm.directory / f"late-{name}"
    late.mkdir()
    sbatch = late / "sbatch"
    sbatch.write_text(LATE.format(directory=late, sbatch=slurm.directory / "bin" / "sbatch"))
    sbatch.chmod(0o755)
    path = {"PATH": f"{late}:{slurm.environment['PATH']}"}
    run = Run(name, site, 40, patch=patch, environment=path)
    try:
        until((late / "submitted").exists, 30.0, "a submission")
        run.kill()
        time.sleep(3.0)
        run.go_on()
        until(lambda: run.over, PATIENCE, f"the end of {name}")
        rows = slurm.listed("%M|%k", "--states=all", f"--name={name}:pool.0,{name}:pool.1")
        ran = Counter(
            comment for t, _, comment in (row.partition("|") for row in rows) if t != "0:00"
        )
        return sum(number > 1 for number in ran.values()), len(run.twice())
    except Trouble as trouble:
        raise Trouble(f"{trouble}\n{run.log}") from None
    finally:
        run.kill()


def main() -> int:
    """Run what the command line says."""
    options = options_of(__doc__ or "")
    os.environ["PATH"] += ":/usr/sbin"
    missing = [one for one in ("slurmctld", "slurmd", "munged") if shutil.which(one) is None]
    if missing:
        print(f"slurm: nothing is done, without {', '.join(missing)}")
        return 0
    dice = random.Random(options.seed)
    with ExitStack() as stack:
        network = Network()
        stack.callback(network.close)
        slurm = Slurm(network)
        stack.callback(slurm.close)
        site = Site(slurm.directory, slurm.environment, POOL)
        how = "the link of n1 is cut" if network.there else "no network namespace: workers stop"
        print(f"slurm: seed {options.seed}; {how}", flush=True)
        held = twice(slurm, site, "claimed", "")
        free = twice(slurm, site, "unclaimed", UNCLAIMED)
        print(
            f"control: members started twice, and tasks that ran twice: {free} without the claim, "
            f"{held} with it",
            flush=True,
        )

        def begin(name: str) -> tuple[Run, Kinds]:
            slurm.resume()
            run = Run(name, site)
            return run, kinds(run, slurm, network, dice)

        good = report("slurm", begin, options)
    return 0 if good and free[0] > 0 and not any(held) else 1


if __name__ == "__main__":
    sys.exit(main())
