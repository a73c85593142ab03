"""Sends hostile requests, jobs and memos to the service on a real broker.

    python t/fuzz/fuzz_requests.py --seconds 60 --seed 7
    python t/fuzz/fuzz_requests.py --replay /tmp/fuzz-requests-x/finding-1.jsonl

It starts Flux instances of its own. `hostile/` has what is sent, and what counts as a fault: a
traceback or an internal error, an answer that is late or does not come, memory that is not given
back, a death, an ensemble that is disturbed. What leads to a finding is played again on a new
instance and made shorter, and is written to a file as a JSON object a line, for `--replay`.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import fuzzing

from flux_ensemble.bindings import require_flux

require_flux()
sys.path.append(str(Path(__file__).resolve().parents[1] / "fault"))

from hostile.judge import Finding  # noqa: E402
from hostile.recipes import Recipes  # noqa: E402
from hostile.shorten import Round, played, shorten  # noqa: E402
from hostile.stage import Stage  # noqa: E402

#: Rounds of a scene, and seconds of a stage.
ROUNDS, SESSION = (10, 40), 600.0

#: Steps that are printed if there are no more, and characters of each.
MOST_STEPS, SHOWN = 5, 1500

#: Findings that look the same and are looked into: exact ones, and vague ones.
LOOKED_INTO = {False: 1, True: 3}

#: A recipe that has led to a finding is taken so much less often, so that others show too.
TIRED = 0.2


class Hunt:
    """Plays scenes until the budget is used up, and keeps what it finds.

    Args:
        seed: decides what is sent.
        most: stops after so many findings.
        budget: how long it goes on; an input is a request.
    """

    def __init__(self, seed: int, most: int, budget: fuzzing.Budget) -> None:
        self._seed = seed
        self._most = most
        self._budget = budget
        self._recipes = Recipes(random.Random())
        self._directory: Path | None = None
        self._looked: Counter[str] = Counter()
        self._scene = 0
        self.seen: Counter[str] = Counter()
        self.rss = 0

    @property
    def going_on(self) -> bool:
        """There is budget left, and findings are still wanted."""
        return self._budget.left and len(self.seen) < self._most

    def run(self) -> None:
        """Play one stage after the other."""
        while self.going_on:
            began = self._budget.elapsed
            with Stage() as stage:
                before: list[Round] = []
                while self.going_on and not stage.over and self._budget.elapsed < began + SESSION:
                    before = self._play_scene(stage, before)
                if not stage.over:
                    self._note(stage.end(), before)
                self.rss = max(self.rss, stage.rss)

    def _play_scene(self, stage: Stage, before: list[Round]) -> list[Round]:
        """Play a scene; returns its rounds. Those of the scene before may have to do with it."""
        self._scene += 1
        rng = random.Random(f"{self._seed}:{self._scene}")
        self._recipes.begin(rng)
        played: list[Round] = []
        findings: list[Finding] = []
        for _ in range(rng.randrange(*ROUNDS)):
            if not self._budget.left or stage.over:
                break
            requests = stage.requests
            played.append(self._recipes.round())
            findings = stage.play(played[-1])
            self._budget.inputs += stage.requests - requests
            self._note(findings, [*before, *played])
        if not stage.over:
            self._note(stage.end_scene(), [*before, *played])
        return played

    # -- findings -----------------------------------------------------------------------

    def _note(self, findings: Sequence[Finding], rounds: list[Round]) -> None:
        """Look into what was found, as far as it is new; tracebacks tell the most."""
        for finding in sorted(findings, key=lambda one: "traceback" not in one.kind):
            if len(self.seen) >= self._most:
                return
            if self._looked[finding.key] >= LOOKED_INTO[finding.vague]:
                continue
            at = f"after {self._budget.inputs} requests, {self._budget.elapsed:.0f} s"
            began = time.monotonic()
            shown, company = shorten(finding, rounds)
            self._budget.extend(time.monotonic() - began)
            self._looked.update({finding.key, *company})
            if finding.kind == "late answer" and not company:
                print(f"not seen again, so it may be the machine: {finding}", flush=True)
                continue
            blamed = shown if company else shown[-1:]
            recipes = sorted({step["by"] for steps in blamed for step in steps})
            for recipe in recipes:
                self._recipes.weights[recipe] *= TIRED
            key = f"{finding.key} ({', '.join(recipes)})" if finding.vague else finding.key
            self.seen[key] += 1
            if self.seen[key] == 1:
                self._report(finding, at, shown, company)

    def _report(
        self, finding: Finding, at: str, rounds: list[Round], company: Mapping[str, Finding]
    ) -> None:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="fuzz-requests-"))
        file = self._directory / f"finding-{len(self.seen)}.jsonl"
        steps = [{"round": number, **step} for number, one in enumerate(rounds) for step in one]
        file.write_text("".join(json.dumps(step) + "\n" for step in steps))
        print(f"finding {len(self.seen)} (seed {self._seed}, {at}): {finding}")
        for other in company.values():
            if other.key != finding.key:
                print(f"  with it: {other}")
        how = "shortened" if company else "not seen again"
        print(f"  {len(steps)} steps, {how}: --replay {file}")
        for step in steps if len(steps) <= MOST_STEPS else ():
            text = json.dumps(step)
            print(f"  {text if len(text) < SHOWN else text[:SHOWN] + ' ...'}")
        sys.stdout.flush()


def replay(file: Path) -> int:
    """Play the steps of a file again; the exit code."""
    rounds: dict[int, Round] = {}
    for line in file.read_text().splitlines():
        step = json.loads(line)
        rounds.setdefault(step["round"], []).append(step)
    with Stage() as stage:
        findings = played(stage, list(rounds.values()))
    for finding in findings:
        print(finding)
    print(f"replayed {sum(map(len, rounds.values()))} steps, {len(findings)} findings")
    return 1 if findings else 0


def main() -> int:
    """Hunt, or replay."""
    # What is started is ended too when somebody ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = fuzzing.arguments(
        __doc__, ("--replay", {"type": Path, "metavar": "FILE", "help": "send these steps again"})
    )
    if options.replay is not None:
        return replay(options.replay)
    print(f"seed {options.seed}", flush=True)
    budget = fuzzing.Budget(options)
    hunt = Hunt(options.seed, options.findings, budget)
    hunt.run()
    return budget.close("requests", len(hunt.seen), what="requests", rss=hunt.rss)


if __name__ == "__main__":
    sys.exit(main())
