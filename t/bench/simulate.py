"""The simulator at scale: `make bench`, or python t/bench/simulate.py [JOBS ...].

Simulates ensembles of 100 groups with 50 rules on 1024 nodes of 64 cores, and prints the
processor time and the memory that they take. Without arguments it runs ten thousand and a
million jobs, and exits 1 where a goal is missed.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

from flux_ensemble.members.cluster import Cluster
from flux_ensemble.members.simulation import Simulation
from flux_ensemble.spec.loading import load_mapping

SMALL, LARGE = 10_000, 1_000_000
GROUPS, RULES = 100, 50

#: The goals: for a million jobs, and for what one of them costs against one of ten thousand.
MOST_SECONDS, MOST_MEGABYTES, MOST_GROWTH = 60.0, 500.0, 1.3


def document(jobs: int) -> dict[str, Any]:
    """Half of the rules submit a group each at the start; of the others each looks at every
    success of a job of one of these, and at each tenth submits ten jobs of another group."""
    pairs = [(f"first-{number}", f"second-{number}") for number in range(RULES // 2)]
    others = [f"other-{number}" for number in range(GROUPS - RULES)]
    count = jobs // RULES
    return {
        "name": "bench",
        "jobs": [
            *({"name": first, "command": "true", "count": count} for first, _ in pairs),
            *({"name": second, "command": "true", "count": 10, "cores": 2} for _, second in pairs),
            *({"name": other, "command": "true"} for other in others),
        ],
        "rules": [
            *(
                {"trigger": "start", "action": {"name": "submit", "label": first}}
                for first, _ in pairs
            ),
            *(
                {
                    "trigger": "job-success",
                    "group": first,
                    "action": {
                        "name": "submit",
                        "label": second,
                        "repetitions": "unlimited",
                        "backoff": 9,
                    },
                }
                for first, second in pairs
            ),
        ],
        # A cap that both sizes reach, so that they spend their time in the same way.
        "limits": {"jobs": jobs, "active-jobs": 1000},
        "simulate": {
            name: {"duration": {"lognormal": {"median": 60, "sigma": 0.5}}}
            for pair in pairs
            for name in pair
        },
    }


def measure(jobs: int) -> tuple[float, float]:
    """Simulate so many jobs.

    Returns:
        Seconds of processor time, and the most megabytes that this process has had.
    """
    spec = load_mapping(document(jobs))
    begin = time.process_time()
    found = Simulation(spec, Cluster(1024, 64), spec.simulate).run()
    seconds = time.process_time() - begin
    assert found.status["jobs"]["total"] == jobs
    assert found.status["state"] == "completed"
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{jobs:9} jobs: {seconds:6.2f} s, {seconds / jobs * 1e6:5.1f} us a job, "
        f"{megabytes:.0f} MB, {found.makespan:.0f} s of virtual time",
        flush=True,
    )
    return seconds, megabytes


def main(arguments: list[str]) -> int:
    """Measure, and compare with the goals unless the user says how many jobs."""
    if arguments:
        for argument in arguments:
            measure(int(argument))
        return 0
    small, _ = min(measure(SMALL) for _ in range(3))
    large, megabytes = measure(LARGE)
    growth = (large / LARGE) / (small / SMALL)
    print(f"a job of {LARGE} costs {growth:.2f} times one of {SMALL}")
    met = large < MOST_SECONDS and megabytes < MOST_MEGABYTES and growth < MOST_GROWTH
    print("goals met" if met else "goals missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
