"""Ensembles over several instances: what the service takes, losses, walltimes, and the simulator.

The enclosing instance has a broker for each member, with the cores of this machine, so that its
members are as on nodes of their own; all of them share the processors.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import plots
from benchmark import Benchmark, Numbers, Row, middle, percentile

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.engine.events import Event, JobEvent
from flux_ensemble.engine.job_keys import ordinal_of
from flux_ensemble.queues.simulation.simulation import Simulation
from flux_ensemble.queues.virtual.cluster import VirtualCluster

if TYPE_CHECKING:
    from live import Stage

#: How many members there are, the jobs of each run, and rounds.
COUNTS, JOBS, ROUNDS = (1, 2, 4, 8), 1000, 2

#: Jobs of the runs on two members with services of their own.
ATTACHED = (500, 4500)

#: How often a member is lost. Seconds that members last, seconds before from which they drain, and
#: jobs of a second each, where their times are up.
LOSSES, WALLTIME, DRAIN, LONG = 6, 16, 5, 120

#: Seconds that jobs take, with how many do, where the same is simulated; and members.
MODEL, MODELED = {2: 60, 5: 30}, 4

#: Members, and jobs for each, of a small simulation and of a large one.
SIMULATED, EACH = (10, 1000), 200


def _document(name: str, members: Mapping[str, Any], jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """An ensemble that submits all its groups when the rules `go` are enabled, and then ends."""
    return {
        "name": name,
        "finish": "never",
        "members": [{"name": "pool", **members}],
        "jobs": jobs,
        "rules": [
            {
                "id": "go",
                "trigger": "start",
                "enabled": False,
                "actions": [{"name": "submit", "label": group["name"]} for group in jobs],
            },
            {"id": "end", "trigger": "idle", "action": {"name": "terminate"}},
        ],
    }


def _up(stage: Stage, name: str, members: int) -> list[dict[str, Any]]:
    """Wait until so many members of an ensemble are up; these."""

    def enough() -> list[dict[str, Any]]:
        pool = stage.status(name)["pools"]["pool"]["members"]
        found = [member for member in pool if member["state"] == "up"]
        return found if len(found) >= members else []

    up: list[dict[str, Any]] = stage.until(enough, f"not {members} members are up", 0.2)
    return up


def _go(stage: Stage, document: Mapping[str, Any], members: int) -> dict[str, float]:
    """Load an ensemble, wait for its members, have it begin; the processor time until then."""
    stage.load(document).get()
    _up(stage, document["name"], members)
    before = stage.processor()
    stage.rpc("ensemble.rules", name=document["name"], id="go", enabled=True)
    return before


def _jobs(stage: Stage, name: str) -> list[dict[str, Any]]:
    """The record of an ensemble."""
    import flux.constants

    flags = flux.constants.FLUX_RPC_STREAMING
    jobs: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        stream = stage.handle.rpc("ensemble.jobs", {"name": name, "after": after}, flags=flags)
        while "next" not in (some := stream.get()):
            jobs += some["jobs"]
            stream.reset()
        jobs += some["jobs"]
        after = some["next"]
    return jobs


# -- what the service takes -------------------------------------------------------------


def _share(stage: Stage, name: str, members: int, jobs: int) -> float:
    """Milliseconds of the service's processor time a job, from the first submission on."""
    from live import group

    document = _document(name, {"count": members}, [group("sim", count=jobs)])
    before = _go(stage, document, members)
    stage.entries(name)
    spent = stage.processor_since(before)["service"]
    counts = stage.status(name)["groups"]["sim"]
    assert counts["success"] == counts["attempts"] == jobs, counts
    stage.await_idle()
    return 1e3 * spent / jobs


def _attached(stage: Stage, jobs: int) -> list[float]:
    """What jobs on two members with services of their own take of the service of the ensemble.

    Returns:
        How many there were, the seconds of processor time, and how long it took.
    """
    from live import group

    document = _document(
        f"attached-{jobs}", {"count": 2, "service": "child"}, [group("sim", count=jobs)]
    )
    begin = time.monotonic()
    before = _go(stage, document, 2)
    stage.entries(document["name"])
    spent, seconds = stage.processor_since(before)["service"], time.monotonic() - begin
    assert stage.status(document["name"])["groups"]["sim"]["success"] == jobs
    stage.await_idle()
    return [jobs, spent, seconds]


# -- losses -----------------------------------------------------------------------------


def _lose(stage: Stage, losses: int, kill: bool) -> Numbers:
    """Seconds from the loss of members, and from their end, until each of their jobs is sent again.

    Args:
        stage: the instance.
        losses: how many members are lost, one after the other.
        kill: their brokers are killed; else their jobs are cancelled, which is quicker.
    """
    from live import group

    replace = {"name": "grow", "label": "pool", "repetitions": "unlimited"}
    # So few that one member has room for all.
    document = _document("lost", {"count": {"min": 2, "max": 2}}, [group("sim", 1000, count=4)])
    document["rules"].append({"trigger": "member-lost", "action": replace})
    _go(stage, document, 2)
    since_loss: list[float] = []
    since_end: list[float] = []
    for _ in range(losses):

        def busiest() -> str | None:
            up = _up(stage, "lost", 2)
            if sum(member["jobs"] for member in up) < 4:
                return None
            return str(max(up, key=lambda member: int(member["jobs"]))["name"])

        name = str(stage.until(busiest, "no member has the jobs", 0.2))
        seen = len(stage.entries("lost", follow=False))
        t_lost = time.time()
        _end(stage, f"lost:{name}", kill)

        def ended(seen: int = seen) -> list[dict[str, Any]]:
            entries = stage.entries("lost", follow=False)[seen:]
            return entries if any(one["name"] == "retry" for one in entries) else []

        entries = stage.until(ended, f"{name} has not ended", 0.2)
        (t_end,) = [one["timestamp"] for one in entries if one["name"] == "member-ended"]
        numbers = {one["context"]["retry"] for one in entries if one["name"] == "retry"}

        def again(numbers: set[int] = numbers) -> list[float]:
            jobs = [one for one in _jobs(stage, "lost") if one["rule"] == "retry"]
            times = [one["t_submit"] for one in jobs if one["firing"] in numbers]
            return times if len(times) == len(numbers) else []

        for t in stage.until(again, "jobs do not run again", 0.2):
            since_loss.append(t - t_lost)
            since_end.append(t - t_end)
    stage.rpc("ensemble.terminate", name="lost", cancel=True)
    stage.await_idle()
    return {"since_loss": since_loss, "since_end": since_end, "killed": kill}


def _end(stage: Stage, name: str, kill: bool) -> None:
    """End the member whose job has a name."""
    import flux
    import flux.uri

    constraint = {"name": [name]}
    found = stage.rpc("job-list.list", max_entries=0, attrs=["annotations"], constraint=constraint)[
        "jobs"
    ]
    (job,) = found
    if kill:
        local = flux.uri.JobURI(job["annotations"]["user"]["uri"]).local
        os.kill(int(flux.Flux(local).attr_get("broker.pid")), signal.SIGKILL)
    else:
        payload = {"id": job["id"], "type": "cancel", "severity": 0, "note": "lost"}
        stage.rpc("job-manager.raise", **payload)


# -- walltimes --------------------------------------------------------------------------


def _expire(stage: Stage, jobs: int) -> Numbers:
    """What became of jobs while members with a walltime replaced each other."""
    from live import group

    replace = {"name": "grow", "label": "pool", "repetitions": "unlimited"}
    pool = {"count": {"min": 2, "max": 2}, "duration": WALLTIME, "drain": DRAIN}
    document = _document("rolling", pool, [group("sim", 1, count=jobs)])
    document["rules"].append({"trigger": "member-draining", "action": replace})
    _go(stage, document, 2)
    entries = stage.entries("rolling")
    assert stage.status("rolling")["groups"]["sim"]["success"] == jobs
    attempts = _jobs(stage, "rolling")
    stage.await_idle()
    expires = {
        one["context"]["member"]: one["context"]["t_expires"]
        for one in entries
        if one["name"] == "member-up"
    }
    # That one which is to move starts before it is cancelled happens, too, and is not meant.
    hit = [one for one in attempts if one["outcome"] != "success" and one["t_run"] is not None]
    burnt = [one for one in hit if one["t_run"] >= expires[one["member"]] - 1]
    return {
        "drained": sum(one["name"] == "member-draining" for one in entries),
        "burnt": len(burnt),
        "hit": len(hit) - len(burnt),
        "moved": len(attempts) - jobs - len(hit),
    }


# -- the simulator ----------------------------------------------------------------------


def _compare(stage: Stage, model: Mapping[int, int], members: int) -> Numbers:
    """The same ensemble on Flux and simulated: seconds until its last end, and jobs by member."""
    from live import group

    groups = [group(f"takes-{many}", many, count=count) for many, count in model.items()]
    document = _document("model", {"count": members}, groups)
    _go(stage, document, members)
    entries = stage.entries("model")
    cores = {one["context"]["cores"] for one in entries if one["name"] == "member-up"}
    done = _jobs(stage, "model")
    (begin,) = [one["timestamp"] for one in entries if one["name"] == "fire"][:1]
    stage.await_idle()
    real = {
        "seconds": max(one["t_end"] for one in done) - begin,
        "jobs": Counter(one["member"] for one in done),
    }
    simulated = load_mapping(
        {
            **document,
            "rules": [{**document["rules"][0], "enabled": True}, document["rules"][1]],
            "members": [{"name": "pool", "count": members, "simulate": {"startup": 0}}],
            "simulate": {f"takes-{many}": {"duration": many} for many in model},
        }
    )
    counted: Counter[str] = Counter()

    def count(event: Event, commands: object) -> None:
        if isinstance(event, JobEvent) and event.name == "clean":
            counted[f"pool.{ordinal_of(event.job) - 1}"] += 1

    cluster = VirtualCluster(1, cores.pop())
    prediction = Simulation(simulated, cluster, simulated.simulate, tap=count).run()
    return {"real": real, "simulated": {"seconds": prediction.makespan, "jobs": counted}}


def simulate(members: int) -> float:
    """Microseconds of processor time a job to simulate so many members."""
    spec = load_mapping(
        {
            "name": "bench",
            "members": [{"name": "pool", "count": members, "nodes": 4}],
            "jobs": [{"name": "sim", "command": "true", "count": EACH * members}],
            "rules": [{"trigger": "start", "action": {"name": "submit", "label": "sim"}}],
            "limits": {"jobs": EACH * members, "active-jobs": EACH * members},
            "simulate": {"sim": {"duration": {"lognormal": {"median": 60, "sigma": 0.5}}}},
        }
    )
    begin = time.process_time()
    found = Simulation(spec, VirtualCluster(4, 8), spec.simulate).run()
    seconds = time.process_time() - begin
    assert found.status["groups"]["sim"]["success"] == EACH * members
    return 1e6 * seconds / (EACH * members)


# -- the whole --------------------------------------------------------------------------


def measure(smoke: bool) -> Numbers:
    """All of it, in one instance; what is only simulated comes last."""
    from live import live

    counts = COUNTS[:2] if smoke else COUNTS
    jobs, rounds = (30, 1) if smoke else (JOBS, ROUNDS)
    model, modeled = ({1: 6}, 2) if smoke else (MODEL, MODELED)
    with live(brokers=max(counts)) as stage:
        stage.load_service()
        shares = [
            [members, _share(stage, f"of-{members}-{number}", members, jobs)]
            for number in range(rounds)
            for members in (counts if number % 2 == 0 else counts[::-1])
        ]
        attached = [_attached(stage, many) for many in ((10, 30) if smoke else ATTACHED)]
        compared = _compare(stage, model, modeled)
        expired = _expire(stage, 4 if smoke else LONG)
        lost = _lose(stage, 1 if smoke else LOSSES, kill=not smoke)
    simulated = [[members, simulate(members)] for members in ((2, 5) if smoke else SIMULATED)]
    return {
        "jobs": jobs,
        "shares": shares,
        "attached": attached,
        "compared": compared,
        "expired": expired,
        "lost": lost,
        "simulated": simulated,
    }


def _by_members(pairs: Sequence[Sequence[float]]) -> dict[int, float]:
    """The median for each number of members."""
    found: dict[int, list[float]] = {}
    for members, value in pairs:
        found.setdefault(int(members), []).append(value)
    return {members: middle(values) for members, values in found.items()}


def rows(numbers: Numbers) -> list[Row]:
    """Shares, losses, walltimes, and the simulator."""
    shares, expired = _by_members(numbers["shares"]), numbers["expired"]
    few, many = min(shares), max(shares)
    killed = "a member is killed" if numbers["lost"]["killed"] else "a member is cancelled"
    since_loss, since_end = (numbers["lost"][key] for key in ("since_loss", "since_end"))
    real, simulated = (numbers["compared"][key] for key in ("real", "simulated"))
    members, jobs = len(simulated["jobs"]), sum(simulated["jobs"].values())
    apart = max(abs(real["jobs"].get(name, 0) - one) for name, one in simulated["jobs"].items())
    costs = _by_members(numbers["simulated"])
    small, large = min(costs), max(costs)
    (less, spent, _), (more, spent_more, seconds) = numbers["attached"]
    return [
        Row(
            f"processor time of the service a job: {many} members / {few}",
            shares[many] / shares[few], "<=", 1.1, "x",
            ", ".join(f"{count}: {spent:.2f} ms" for count, spent in sorted(shares.items())),
        ),
        Row(
            "processor time of the service a job: 2 members with services of their own",
            1e3 * (spent_more - spent) / (more - less), "<=", 0.02, "ms",
            f"{less:,} / {more:,} jobs: {spent:.2f} / {spent_more:.2f} s, at {more / seconds:.0f} "
            "jobs a second; each member has some reports, orders and commits a second, which cost "
            "as much for few jobs as for many",
        ),
        Row(
            f"{killed}: from the end of it to the resubmission of its jobs, p99",
            percentile(since_end, 99), "<=", 1, "s",
            f"{len(since_end)} jobs; from its loss {percentile(since_loss, 50):.1f} s (p50) and "
            f"{percentile(since_loss, 99):.1f} s (p99), until its nodes are clean",
        ),
        Row(
            f"jobs that waited and were burnt when {expired['drained']} members drained",
            expired["burnt"], "<=", 0, "",
            f"{expired['moved']} moved, and {expired['hit']} began before they could",
        ),
        Row(
            f"{jobs} jobs on {members} members: time that it took / that was simulated",
            real["seconds"] / simulated["seconds"], "<=", 1.15, "x",
            f"{real['seconds']:.1f} / {simulated['seconds']:.1f} s",
        ),
        Row(
            "the same: jobs that a member had more or fewer of than simulated",
            100 * apart * members / jobs, "<=", 15, "%",
            f"{_listed(real['jobs'])} / {_listed(simulated['jobs'])}",
        ),
        Row(
            f"simulation of {large:,} members: cost of a job against that of one of {small:,}",
            costs[large] / costs[small], "<=", 1.3, "x",
            f"{EACH} jobs for each member: {costs[large]:.0f} / {costs[small]:.0f} us of processor "
            "time a job",
        ),
    ]  # fmt: skip


def _listed(jobs: Mapping[str, int]) -> str:
    return ", ".join(str(jobs[name]) for name in sorted(jobs))


def plot(figure: Any, numbers: Numbers) -> None:
    """What the service takes by the number of members, and how soon jobs run again."""
    left, right = figure.subplots(1, 2)
    members, spent = zip(*numbers["shares"], strict=True)
    left.plot(members, spent, "o", color=plots.OURS)
    shares = _by_members(numbers["shares"])
    plots.goal(left, y=1.1 * shares[min(shares)], label="goal: 1.1x that of the fewest")
    left.set_xlabel("members")
    left.set_ylabel("ms of processor time a job")
    left.set_ylim(0, 1.6 * max(spent))
    plots.legend(left)
    plots.ecdf(right, numbers["lost"]["since_loss"], "from the loss", plots.OURS)
    right.set_xlabel("seconds until a job runs again")
    plots.legend(right)


BENCHMARK = Benchmark(
    "members",
    "Members",
    """The enclosing instance has a broker for each member, and all share the processors of one
    machine, so how many jobs a second several members run cannot be seen here. What can is the
    processor time that the service takes for each job: it is measured from the first submission
    to the end, when all members are up. Where these have services of their own it is what more jobs
    take, so that the constant part drops out. Members are killed one after the other while jobs run
    on them. These have no processes; with some that live on, it takes up to 25 seconds more until
    Flux says that the nodes are clean. Where members
    last for seconds and replace each other, a job is burnt if it was started only because the
    time was up. The jobs that are simulated, too, take 2 and 5 seconds.
    [How many jobs a second](performance.md#how-many-jobs-a-second-on-many-members)
    many members take follows from what is measured.""",
    measure,
    rows,
    plot,
)
