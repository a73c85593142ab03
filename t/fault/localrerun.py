"""Kills while jobs run again: `rerun` of an ensemble that has ended, on Flux and without.

Half of the points need a file. Without it they run and fail, all attempts of their retries; with it
they run again and succeed. So a round has two reruns, in which all of those points run again once,
and the record grows from one to the next. A request that was cut off is sent once more: what it
chose is not over any more, if it was taken, so nothing runs again twice.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from localrun import ENDS, LocalRun, end, local_run
from scenario import FINAL, TICK, Context
from workloads import Expected, Workload

from flux_ensemble.queues.local.client import LocalClient

#: Points, and how many of them, the first ones, need the file.
_POINTS, _NEEDY = 24, 12

#: The choices of the two reruns of a round. Neither chooses a job again that it has chosen.
SUCCEEDED = {"filter": f'job.params.x < {_NEEDY} and job.outcome == "success"'}
FAILED = {"failed": True}

#: Rounds before another ensemble begins, so that its record does not grow without end.
ROUNDS = 4

#: Seconds within which a rerun that is killed no more has to end.
SECONDS = 120.0


def workload(directory: Path) -> Workload:
    script = f"echo {{x}} >>{directory}/began; sleep 0.1; test {{x}} -ge {_NEEDY} || test -e table"
    case = {
        "name": "case", "command": ["sh", "-c", script], "params": {"x": {"range": [0, _POINTS]}},
        "retries": 1,
    }  # fmt: skip
    rule = {"trigger": "start", "action": {"name": "submit", "label": "case"}}
    document = {
        "name": "reruns", "limits": {"losses": 10_000}, "jobs": [case], "rules": [rule],
    }  # fmt: skip
    return Workload(document, Expected({}))


def problems(
    rows: Iterable[Mapping[str, Any]],
    begun: Mapping[int, int],
    status: Mapping[str, Any],
    rounds: int,
    *,
    all_seen: bool,
) -> Iterator[str]:
    """Yield what is wrong after some rounds.

    Args:
        rows: of all attempts.
        begun: by point, how often a job of it has begun, as they have put down.
        status: of the ensemble.
        rounds: so many, whose last rerun has ended.
        all_seen: whatever is in the record has begun.
    """
    of_points: dict[int, list[Mapping[str, Any]]] = {x: [] for x in range(_POINTS)}
    for row in rows:
        of_points[row["params"]["x"]].append(row)
    for x, attempts in of_points.items():
        outcomes = Counter(row["outcome"] for row in attempts)
        interrupted = outcomes.pop("interrupted", 0)
        wanted = {"success": rounds, "failed": 2 * rounds} if x < _NEEDY else {"success": 1}
        if outcomes != wanted:
            yield f"point {x}: {dict(outcomes)} in place of {wanted}"
        last = [row["outcome"] for row in attempts if "replaced" not in row]
        if last != ["success"]:
            yield f"point {x}: the attempts that are not replaced are {last}"
        if begun[x] > len(attempts) or (all_seen and begun[x] != len(attempts)):
            yield f"point {x}: {begun[x]} have begun, and the record has {len(attempts)}"
        if all_seen and interrupted:
            yield f"point {x}: {interrupted} were interrupted"
    counts = status["groups"]["case"]
    found = [counts[name] for name in ("finished", "success", "failed")]
    found += [status["failed"], status["jobs"]["total"]]
    # Those that ran again by `retries` were asked for once more each.
    if found != [_POINTS, _POINTS, 0, 0, _POINTS + rounds * _NEEDY]:
        yield f"status: finished, success, failed, failed jobs and total are {found}"


def began(directory: Path) -> Counter[int]:
    with contextlib.suppress(FileNotFoundError):
        return Counter(map(int, (directory / "began").read_text().split()))
    return Counter()


def note(context: Context, found: Iterable[str]) -> None:
    """Put down what is wrong: jobs that ran again too often, or not."""
    for problem in found:
        context.row.problems.append(problem)
        context.row.missing += problem.startswith("point")


def local_rerun(context: Context) -> None:
    """Ends of a local run while jobs run again, at random; rerun --resume goes on."""
    context.row.reached.update({"begun again": 0, "rounds": 0})
    while context.row.kills < context.kills and not context.row.problems:
        with local_run(context, workload) as run:
            _locally(context, run)


def _locally(context: Context, run: LocalRun) -> None:
    table = run.directory / "table"
    run.start(resume=False).wait(timeout=SECONDS)
    client = LocalClient(run.directory / "state")
    for rounds in range(1, ROUNDS + 1):
        if rounds > 1:
            table.unlink()
            _rerun_locally(context, run, ["--filter", SUCCEEDED["filter"]])
        table.touch()
        _rerun_locally(context, run, ["--failed"])
        rows = list(client.jobs(run.workload.name, interrupted=True))
        status = client.status(run.workload.name)["ensembles"][0]
        # A job that was sent, and killed before its process has begun, is in the record.
        note(context, problems(rows, began(run.directory), status, rounds, all_seen=False))
        context.row.reached["rounds"] += 1
        if context.row.problems or context.row.kills >= context.kills:
            break
    context.row.jobs += len(rows)


def _rerun_locally(context: Context, run: LocalRun, asked: list[str]) -> None:
    """Have jobs run again while the run is ended, until none is left to choose."""
    random, row = context.random, context.row
    begun = False
    while True:
        resume = run.state() not in FINAL
        before = run.size
        process, said = _begin(run, ["--resume"] if resume else asked)
        if row.kills < context.kills and random.random() < 0.8:
            if random.random() < 0.8:
                while run.size == before and process.poll() is None:
                    time.sleep(TICK)
            time.sleep(random.uniform(0, 0.5))
        if row.kills < context.kills and process.poll() is None:
            end(context, process, random.choice(ENDS) if random.random() < 0.5 else ENDS[0])
            row.kills += 1
            # What was killed before it put down which jobs run again has ended as before.
            row.reached["begun again"] += begun and run.state() in FINAL
            begun = True
            continue
        try:
            code = process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            row.problems.append("the rerun does not end")
            return
        words = said.read_text()
        if code != 0:
            row.problems.append(f"the rerun exits with {code}: {words[-500:]}")
            return
        if "nothing runs again" in words:
            return


def _begin(run: LocalRun, words: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
    """Begin a rerun; the file has what it prints."""
    said = run.directory / "rerun.log"
    command = [
        str(Path(sys.executable).with_name("flux-ensemble")),
        "rerun", "--state-dir", str(run.directory / "state"), *words, run.workload.name,
    ]  # fmt: skip
    with said.open("w") as log:
        process = subprocess.Popen(
            command, cwd=run.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    return process, said
