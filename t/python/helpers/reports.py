"""Reports for tests: of simulations, and of what nobody would wish for."""

from __future__ import annotations

import json
import shlex
import zlib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flux_ensemble.document.loading import load_mapping
from flux_ensemble.queues.simulation.simulation import Simulation, resolve
from flux_ensemble.queues.virtual.cluster import VirtualCluster
from flux_ensemble.report.page import page
from flux_ensemble.report.recording_source import RecordingTap
from flux_ensemble.report.source import Source
from flux_ensemble.results.report import describe

#: Seconds of a job, of a sweep in which some fail and all publish what they found.
SWEEP: dict[str, Any] = {
    "name": "study",
    "seed": 7,
    "jobs": [
        {
            "name": "sim",
            "command": "sim {t} {p}",
            "count": 5,
            "params": {"t": {"linspace": [280, 340, 7]}, "p": ["low", "high"]},
            "duration": "90s",
        },
        {"name": "analyse", "command": "analyse"},
    ],
    "metrics": [{"best": {"name": "top", "of": "sim-fom", "mode": "max"}}],
    "rules": [
        {"id": "begin", "trigger": "start", "action": {"name": "submit", "label": "sim"}},
        {
            "id": "look",
            "trigger": "job-success",
            "group": "sim",
            "action": {
                "name": "submit",
                "label": "analyse",
                "repetitions": "unlimited",
                "backoff": 9,
            },
        },
    ],
    "simulate": {
        "sim": {
            "duration": {"lognormal": {"median": 40, "sigma": 0.5}},
            "failure-rate": 0.1,
            "memo": {"fom": {"normal": {"mean": 1, "sigma": 0.3}}},
        },
        "analyse": {"duration": 5},
    },
}


def many(jobs: int) -> dict[str, Any]:
    """A sweep of so many jobs."""
    (sim, analyse), simulate = SWEEP["jobs"], SWEEP["simulate"]
    return {
        **SWEEP,
        "jobs": [{**sim, "count": max(1, jobs // 14)}, analyse],
        "rules": SWEEP["rules"][:1],
        "limits": {"jobs": jobs, "active-jobs": min(jobs, 20_000)},
        "simulate": simulate,
    }


def simulated(document: Mapping[str, Any], nodes: int = 4, cores: int = 2) -> Source:
    """What a simulation of a document leaves."""
    spec = load_mapping(document)
    keepers: list[RecordingTap] = []
    simulation = Simulation(
        spec,
        VirtualCluster(nodes, cores),
        resolve(spec, spec.simulate),
        tap=lambda event, commands: keepers[0](event, commands),
    )
    keepers.append(RecordingTap(simulation.engine, document))
    prediction = simulation.run()
    return keepers[0].source(prediction.makespan, "simulation", (nodes, cores))


def html(*sources: Source, environment: bool = False) -> str:
    """The report of some ensembles."""
    return page([describe(one, environment=environment) for one in sources], 1_790_000_000.0)


def write(path: Path, *sources: Source) -> Path:
    """A file with the report of some ensembles."""
    path.write_text(html(*sources), encoding="utf-8")
    return path


#: What nobody may get into a page.
EVIL = (
    '</script><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\x1b[31m\u202e\'&'
)


def job(number: int, **fields: Any) -> dict[str, Any]:
    """A job as `ensemble.jobs` has it."""
    made = {
        "id": number, "name": "sim", "state": "inactive", "group": "sim", "rule": "begin",
        "firing": 0, "index": number, "attempt": 0, "params": {}, "nnodes": 1, "ranks": "0",
        "t_submit": 10.0, "t_alloc": 11.0, "t_run": 12.0, "t_end": 13.0 + number,
        "runtime": 1.0 + number, "outcome": "success", "returncode": 0, "signal": None,
        "exception": {"type": None, "note": None}, "memo": {}, "memo_left_out": 0,
        "output": None, "error": None,
    }  # fmt: skip
    return {**made, **fields}


def source(jobs: Sequence[Mapping[str, Any]], **fields: Any) -> Source:
    """An ensemble of some jobs, which has ended."""
    groups = {
        one["group"]: {
            **dict.fromkeys(("waiting", "pending", "running", "timeout", "canceled", "gave-up"), 0),
            **dict.fromkeys(("interrupted", "submitted", "finished", "attempts"), 0),
            "success": 0, "failed": 0,
        }
        for one in jobs
    }  # fmt: skip
    for one in jobs:
        groups[one["group"]]["submitted"] += 1
        groups[one["group"]]["attempts"] += 1
        groups[one["group"]][one["outcome"]] += 1
        groups[one["group"]]["finished"] += one["outcome"] != "interrupted"
    status = {
        "name": "made", "state": "completed", "reason": "", "t_start": 10.0, "t_end": 100.0,
        "finish": "idle", "groups": groups, "rules": [], "errors": [], "retries": 0,
        "jobs": {"waiting": 0, "active": 0, "total": len(jobs)},
    }  # fmt: skip
    given = {
        "kind": "Flux",
        "status": {**status, **fields.pop("status", {})},
        "metrics": {"count": {}},
        "jobs": jobs,
        "entries": [],
        "label": str,
        "now": 200.0,
        "command": lambda *words: shlex.join(("flux", "ensemble", *words)),
    }
    return Source(**{**given, **fields})


def columns(text: str) -> dict[str, dict[str, list[Any]]]:
    """The values of what `report.columns.pack` has made, by table and column."""
    from array import array

    data = zlib.decompress(b64decode(text), 31)
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    codes = {"u8": "B", "u16": "H", "u32": "I", "f32": "f", "f64": "d", "i64": "q"}
    found: dict[str, dict[str, list[Any]]] = {}
    for name, table in header["tables"].items():
        rows = table["rows"]
        for key, about in table["columns"].items():
            width = array(codes[about["type"]]).itemsize
            start = 4 + size + about["offset"]
            planes = data[start : start + rows * width]
            whole = bytes(planes[p * rows + row] for row in range(rows) for p in range(width))
            numbers: list[Any] = array(codes[about["type"]], whole).tolist()
            bits = 8 * width
            for row in range(1, rows) if about.get("delta") else ():
                numbers[row] = (numbers[row] + numbers[row - 1]) % 2**bits
            if about["type"] == "i64":
                numbers = [one - 2**64 if one >= 2**63 else one for one in numbers]
            if "values" in about:
                numbers = [about["values"][one] for one in numbers]
            if "step" in about:
                numbers = [None if one == 0xFFFFFFFF else one * about["step"] for one in numbers]
            found.setdefault(name, {})[key] = numbers
    return found
