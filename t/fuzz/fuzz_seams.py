"""Features of documents and situations of runs, put together at random, run and judged.

    python t/fuzz/fuzz_seams.py --seconds 600 --seed 7

Each input is a document of three features (t/seams), with which two things happen, at moments and
on a queue that are drawn. What is wrong is tried with less, as long as it stays wrong; then the
document is printed, with the command that runs it again. What t/seams/matrix.py has as known is
none.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import fuzzing

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "t"))

from seams import matrix  # noqa: E402
from seams.features import FEATURES, build  # noqa: E402
from seams.local import NAME, SITUATIONS  # noqa: E402

#: Nodes of queues, and cores of each: room for all, for a few, for one.
SIZES = ((4, 32), (4, 32), (2, 2), (1, 1))

#: Inputs that are tried with less.
_SHRINKS = 12


@dataclass(frozen=True)
class Input:
    """An input.

    Args:
        features: names of those of its document.
        situations: names of what happens.
        at: after how many jobs.
        size: nodes and cores of the queue.
    """

    features: tuple[str, ...]
    situations: tuple[str, ...]
    at: tuple[int, ...]
    size: tuple[int, int]

    @property
    def command(self) -> str:
        """What runs it again."""
        return (
            f"python t/seams/matrix.py {'+'.join(self.features)} {'+'.join(self.situations)}"
            f" --at {','.join(map(str, self.at))} --size {self.size[0]}x{self.size[1]} --loose"
        )

    def smaller(self) -> list[Input]:
        """The same with one thing less."""
        less = [replace(self, features=tuple(one for one in self.features if one != gone))
                for gone in self.features if len(self.features) > 1]  # fmt: skip
        return less + [
            replace(self, situations=tuple(one for one in self.situations if one != gone))
            for gone in self.situations
            if len(self.situations) > 1
        ]


def draw(random: Random) -> Input:
    """Draw an input; cells that make no sense are left out."""
    here = [name for name, situation in SITUATIONS.items() if not situation.missing()]
    situations = random.sample(here, 2)
    apart = {one.feature for one in matrix.KNOWN if one.breaks}
    sensible = [
        name
        for name, feature in FEATURES.items()
        if name not in apart
        and not any(cell.reason for cell in matrix.cells()
                    if cell.feature is feature and cell.situation.name in situations)
    ]  # fmt: skip
    features = tuple(random.sample(sensible, 3))
    room = max(FEATURES[name].at_once for name in features)
    return Input(
        features,
        tuple(situations),
        tuple(sorted(random.randrange(12) for _ in situations)),
        random.choice([(nodes, cores) for nodes, cores in SIZES if nodes * cores >= room]),
    )


def wrong(given: Input) -> list[str]:
    """What is wrong with an input; nothing where all is well."""
    problems, directory = matrix.run(
        [FEATURES[name] for name in given.features],
        [SITUATIONS[name] for name in given.situations],
        given.at,
        must_meet=False,
        size=given.size,
    )
    return [*problems, f"its files are in {directory}"] if problems else []


def shrink(given: Input, problems: list[str]) -> tuple[Input, list[str]]:
    """Try with less, as long as anything is wrong."""
    for _ in range(_SHRINKS):
        for less in given.smaller():
            if found := wrong(less):
                given, problems = less, found
                break
        else:
            break
    return given, problems


def main() -> int:
    """Try inputs; 1 if anything is wrong."""
    options = fuzzing.arguments(__doc__)
    budget = fuzzing.Budget(options)
    findings = 0
    for number in budget:
        given = draw(Random(f"{options.seed}:{number}"))
        problems = wrong(given)
        if not problems:
            continue
        findings += 1
        print(f"---- input {number} of --seed {options.seed}: {given.command}", *problems, sep="\n")
        least, found = shrink(given, problems)
        if least != given:
            print(f"---- with less: {least.command}", *found, sep="\n")
        document, _ = build([FEATURES[name] for name in least.features], NAME)
        print(json.dumps(document, indent=1), flush=True)
        if findings >= options.findings:
            break
    return budget.close("seams", findings)


if __name__ == "__main__":
    sys.exit(main())
