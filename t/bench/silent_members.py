"""What members in Slurm that have nothing to say cost a home without Flux."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import plots
from benchmark import Benchmark, Numbers, Row
from slurm_pool import lacks, started_slurm

MEMBERS = (10, 100, 1000)

#: Seconds in which they are silent, and how often the list of Slurm is asked for.
SECONDS, LISTS = 30.0, 20

#: Commands in the place of Slurm's: a job runs as soon as it was submitted, and nothing starts.
COMMANDS = {
    "sbatch": """
for word; do
	case $word in --comment=*) comment=${word#--comment=};; esac
done
cat >$$.new && mv $$.new $$.script && echo "$$|RUNNING|N/A|None|$comment" >>jobs && echo $$
""",
    "squeue": "cat jobs",
    "scontrol": "",
    "scancel": 'for job; do :; done; grep -v "^$job|" jobs >left; mv left jobs',
}


def _processor(pid: int) -> float:
    """Seconds of processor time of a process, and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measure_home(members: int, seconds: float) -> float:
    """Return how much of a core, in percent, a home with so many silent members takes."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        jobs, binaries = directory / "slurm", directory / "bin"
        jobs.mkdir()
        binaries.mkdir()
        (jobs / "jobs").touch()
        for name, text in COMMANDS.items():
            (binaries / name).write_text(f"#!/bin/sh\ncd {jobs}\n{text}\n")
            (binaries / name).chmod(0o755)
        pool = {"name": "hpc", "from": "slurm", "runs": "tasks", "count": members}
        document = {"name": "silent", "members": [pool], "finish": "never"}
        document |= {"jobs": [{"name": "t", "command": "true"}], "rules": []}
        (directory / "silent.yaml").write_text(json.dumps(document))
        environment = {
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "XDG_STATE_HOME": folder,
        }
        environment.pop("FLUX_URI", None)
        words = [sys.executable, "-m", "flux_ensemble", "run", "-q", "silent.yaml"]
        with (directory / "home.log").open("w") as log:
            home = subprocess.Popen(words, cwd=directory, env=environment, stdout=log, stderr=log)
        script = Path(__file__).with_name("silent_workers.py")
        workers = subprocess.Popen(
            [sys.executable, script, jobs, str(members)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert workers.stdout is not None
            assert workers.stdout.readline() == "up\n", (directory / "home.log").read_text()
            # What they had to say is said.
            time.sleep(min(10.0, seconds))
            begin, spent = time.monotonic(), _processor(home.pid)
            time.sleep(seconds)
            return 100 * (_processor(home.pid) - spent) / (time.monotonic() - begin)
        finally:
            for process in (workers, home):
                process.kill()
                process.wait()


def measure_list(jobs: int, lists: int) -> float:
    """Return the seconds of processor time of one `squeue` with so many jobs."""
    with started_slurm(1) as slurm:
        words = ["sbatch", "--hold", f"--array=1-{jobs}", "--wrap=true"]
        subprocess.run(words, env=slurm.environment, check=True, stdout=sys.stderr.fileno())
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(lists):
            listed = slurm.listed("%i|%T|%e|%r|%k", "--array", "--states=all", "--me")
            assert len(listed) == jobs
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return spent / lists


def measure(smoke: bool) -> Numbers:
    """The homes, and Slurm's list."""
    counts = (2, 5) if smoke else MEMBERS
    seconds, lists = (1.0, 1) if smoke else (SECONDS, LISTS)
    homes = [[count, measure_home(count, seconds)] for count in counts]
    return {"homes": homes, "list": measure_list(counts[-1], lists)}


def rows(numbers: Numbers) -> list[Row]:
    """What the most take, with Slurm's command."""
    count, home = numbers["homes"][-1]
    few, less = numbers["homes"][0]
    squeue = 100 * numbers["list"]
    return [
        Row(
            f"{count:,} silent members in Slurm: home without Flux, and its `squeue`: of a core",
            home + squeue, "<=", 5, "%",
            f"{home:.2f} + {squeue:.2f}%; {few} members: {less:.2f}%",
        )
    ]  # fmt: skip


def plot(figure: Any, numbers: Numbers) -> None:
    """By the number of members."""
    axes = figure.subplots()
    counts, shares = zip(*numbers["homes"], strict=True)
    axes.plot(counts, shares, "o-", color=plots.OURS, label="the home")
    plots.goal(axes, y=5)
    axes.set_xlabel("silent members")
    axes.set_ylabel("percent of a core")
    axes.set_ylim(bottom=0)
    plots.legend(axes)


BENCHMARK = Benchmark(
    "silent-members",
    "Members that have nothing to say",
    """A home without Flux (`flux-ensemble run`) whose members run nothing. Commands in the place of
    Slurm's keep what they are asked for, and one process plays the workers, by the classes by which
    real ones call, over TLS. Processor time is that of the home and of the commands that it runs,
    while all are connected; what a real `squeue` takes with as many jobs, once a second, is
    measured on a Slurm, and added.""",
    measure,
    rows,
    plot,
    lacks=lacks,
)
