"""Breaks the service in every way that is known, on real Flux, and counts what is lost.

    python t/fault/chaos.py [--kills N] [--seed S] [--long] [--json FILE] [SCENARIO ...]

Prints a line for each scenario: jobs, kills of the service, duplicates (jobs whose tag an
earlier job has), missing jobs, violations that the service itself noticed, seconds. Exits 1
if anything is wrong; the negative control is wrong if it shows no duplicates. SIGTERM to this
process alone ends it early: what was begun is verified, and the table is printed as far as it
got. All that is random comes from the seed, which is printed. `make chaos` runs all of it at
length, t/t32*.t each scenario for a short time.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module

from scenario import Context, Row, stopping

from flux_ensemble.bindings import require_flux

#: By name: the module and the function, the share of the kills that it makes, and the fewest.
SCENARIOS = {
    "undisturbed": ("kills", "undisturbed", 0.0, 0),
    "kill-200": ("kills", "kill_200", 0.01, 1),
    "kill-2000": ("kills", "kill_2000", 0.005, 1),
    "search": ("searches", "search", 0.01, 1),
    "search-kinds": ("search_crashes", "search_kinds", 0.01, 2),
    "kill-points": ("kills", "kill_points", 0.01, 9),
    "record": ("kills", "record", 0.003, 1),
    "kill-module": ("kills", "kill_module", 0.005, 1),
    "kill-kept": ("kills", "kill_kept", 0.01, 1),
    "kill-slow-ingest": ("kills", "kill_slow_ingest", 0.003, 1),
    "negative-control": ("kills", "negative_control", 0.0, 6),
    "stopped": ("kills", "stopped", 0.0, 0),
    "service-and-job-manager": ("pairs", "service_and_job_manager", 0.01, 3),
    "service-and-ingest": ("pairs", "service_and_ingest", 0.01, 2),
    "service-and-keeper": ("pairs", "service_and_keeper", 0.004, 1),
    "second-service": ("matrix", "second_service", 0.0, 0),
    "module-reload": ("matrix", "module_reload", 0.0, 0),
    "ingest-reload": ("matrix", "ingest_reload", 0.0, 0),
    "queue-disabled": ("matrix", "queue_disabled", 0.003, 1),
    "ids-again": ("matrix", "ids_again", 0.0, 0),
    "job-manager-reload": ("matrix", "job_manager_reload", 0.0, 0),
    "purge": ("matrix", "purge", 0.0, 0),
    "user-code": ("matrix", "user_code", 0.0, 0),
    "engine-raises": ("matrix", "engine_raises", 0.0, 0),
    "restart": ("restarts", "clean_restart", 0.0, 0),
    "dump-restore": ("restarts", "dump_restore", 0.0, 0),
    "broker-crash": ("restarts", "broker_crash", 0.0, 0),
    "broker-crash-strict": ("restarts", "broker_crash_strict", 0.0, 0),
    "interrupted": ("restarts", "interrupted", 0.0, 0),
    "members-restart": ("restarts", "members_restart", 0.0, 0),
    "members": ("members", "members", 0.0, 1),
    "member-kill": ("members", "member_kill", 0.0, 8),
    "member-stopped": ("members", "member_stopped", 0.0, 3),
    "member-walltime": ("members", "member_walltime", 0.0, 6),
    "member-cancel": ("members", "member_cancel", 0.0, 6),
    "all-members": ("members", "all_members", 0.0, 4),
    "service-and-member": ("members", "service_and_member", 0.01, 6),
    "member-search": ("members", "member_search", 0.01, 1),
    "member-search-kinds": ("search_crashes", "member_search_kinds", 0.0, 1),
    "orphans": ("members", "orphans", 0.0, 1),
    "member-placed": ("members", "member_placed", 0.0, 1),
    "member-no-fence": ("members", "member_no_fence", 0.0, 1),
    "member-not-awaited": ("members", "member_not_awaited", 0.0, 1),
    "black-hole": ("moves", "black_hole", 0.0, 4),
    "member-moved": ("moves", "member_moved", 0.0, 1),
    "member-moved-unread": ("moves", "member_moved_unread", 0.0, 1),
    "way-lost": ("ways", "way_lost", 0.0, 3),
    "child-services": ("ways", "child_services", 0.01, 3),
    "tasks": ("tasks", "tasks", 0.02, 6),
    "local": ("localrun", "local", 0.03, 1),
    "local-search": ("localsearch", "local_search", 0.01, 1),
    "local-interrupted": ("localsearch", "local_interrupted", 0.03, 5),
    "local-search-kinds": ("search_kinds", "local_search_kinds", 0.02, 5),
    "rerun": ("reruns", "rerun", 0.01, 3),
    "local-rerun": ("localrerun", "local_rerun", 0.01, 3),
    "rounds": ("rounds", "rounds", 0.9, 1),
}

#: Those that need no Flux, whose kills are none of the service.
LOCAL = ("local", "local-search", "local-interrupted", "local-search-kinds", "local-rerun")

COLUMNS = ("scenario", "jobs", "kills", "duplicates", "missing", "violations", "seconds")


def find(name: str) -> Callable[[Context], None]:
    """The function of a scenario; most need Flux."""
    module, function, *_ = SCENARIOS[name]
    if name not in LOCAL:
        require_flux()
    found: Callable[[Context], None] = getattr(import_module(module), function)
    return found


def run(name: str, options: argparse.Namespace) -> Row:
    """Run a scenario."""
    share, least = SCENARIOS[name][2:]
    row = Row(name)
    # Of the name too, so that a scenario does the same alone as among others.
    dice = random.Random(f"{options.seed} {name}")
    # Several scenarios are given: the kills are theirs together.
    alone = len(options.scenarios) == 1
    mine = options.kills if alone else max(least, round(options.kills * share))
    started = time.monotonic()
    try:
        find(name)(Context(row, dice, mine, options.long))
    except Exception as error:
        row.problems.append(f"{type(error).__name__}: {error}")
    row.seconds = round(time.monotonic() - started, 1)
    return row


def show(row: Row) -> None:
    """Print a line of the table, and what is wrong."""
    values = [getattr(row, column) for column in COLUMNS]
    print("{:24} {:>6} {:>5} {:>10} {:>7} {:>10} {:>7}".format(*values), end="")
    print("  ok" if row.ok else "  FAILED", flush=True)
    if row.reached:
        print("    points met: " + ", ".join(f"{key} {n}" for key, n in row.reached.items()))
    for problem in row.problems:
        print(f"    {problem}", flush=True)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--kills", type=int, default=8, help="kills of the service (8)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--long", action="store_true", help="large bursts, long stops")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    options = parser.parse_args()
    if options.list:
        for name in SCENARIOS:
            print(f"{name:24} {(find(name).__doc__ or '').splitlines()[0]}")
        return 0
    options.scenarios = options.scenarios or list(SCENARIOS)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {unknown[0]!r} (scenarios: {', '.join(SCENARIOS)})")
    print(f"seed {options.seed}")
    print("{:24} {:>6} {:>5} {:>10} {:>7} {:>10} {:>7}".format(*COLUMNS), flush=True)
    rows = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    for name in options.scenarios:
        if stopping.is_set():
            break
        rows.append(run(name, options))
        show(rows[-1])
    total = Row("total")
    for row in rows:
        total.jobs += row.jobs
        total.seconds += row.seconds
        # Of the service on Flux, as it is meant to be.
        if not row.control:
            total.kills += row.kills if row.scenario not in LOCAL else 0
            total.duplicates += row.duplicates
            total.missing += row.missing
            total.violations += row.violations
    total.seconds = round(total.seconds, 1)
    total.problems = [f"{row.scenario} FAILED" for row in rows if not row.ok]
    show(total)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            table = [{**asdict(row), "ok": row.ok} for row in rows]
            json.dump({"seed": options.seed, "scenarios": table, "total": asdict(total)}, file)
    return 1 if total.problems else 0


if __name__ == "__main__":
    sys.exit(main())
