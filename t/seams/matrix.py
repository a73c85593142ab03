"""The matrix of seams: each feature in each situation, and why some cells make no sense.

    python t/seams/matrix.py                       run all cells, each alone
    python t/seams/matrix.py --list                print the table
    python t/seams/matrix.py search killed         run one cell
    python t/seams/matrix.py search+best killed+again --at 3
                                                   several features and situations in one run

A cell runs a small ensemble, has the situation happen to it, and judges what came of it. `make
chaos` runs all of them; `make check` runs each situation once, on a document that has all features.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "seams"

from seams.features import FEATURES, Feature
from seams.local import SITUATIONS, SIZE, Situation, play
from seams.onflux import ON_FLUX, play_on_flux

#: After how many jobs something happens, where nothing is said.
AT = (2, 4, 6)


@dataclass(frozen=True)
class Known:
    """Something that is known to be wrong, and is being mended.

    Args:
        feature, situation: where; "*" is everywhere.
        pattern: of the problems that it makes; empty where it makes any.
        reason: what it is.
        breaks: nothing else can be judged beside it.
        always: it shows wherever it is.
    """

    feature: str
    situation: str
    pattern: str
    reason: str
    breaks: bool = False
    always: bool = True

    def covers(self, features: Sequence[Feature], situations: Sequence[Situation]) -> bool:
        """Whether it is to be seen in such a run."""
        return (self.feature == "*" or self.feature in [one.name for one in features]) and (
            self.situation == "*" or self.situation in [one.name for one in situations]
        )


#: What is wrong for now. A run that does not show what it has to is wrong, too, so that what has
#: been mended is taken out here.
KNOWN: tuple[Known, ...] = ()


@dataclass(frozen=True)
class Cell:
    """A cell of the matrix.

    Args:
        feature, situation: its row and its column.
        reason: why it makes no sense; empty where it does.
    """

    feature: Feature
    situation: Situation
    reason: str

    def __str__(self) -> str:
        return f"{self.feature.name} x {self.situation.name}"


def cells() -> Iterator[Cell]:
    """All cells."""
    for feature in FEATURES.values():
        for situation in (*SITUATIONS.values(), *ON_FLUX.values()):
            local = situation.name in SITUATIONS
            reason = (feature.alone if local else "") or situation.without.get(feature.name, "")
            yield Cell(feature, situation, reason)


def together(situation: Situation) -> list[Feature]:
    """The features that are in one document for a situation."""
    apart = {one.feature for one in KNOWN if one.breaks}
    return [cell.feature for cell in cells()
            if cell.situation is situation and not cell.reason
            and cell.feature.name not in apart]  # fmt: skip


def expected(
    problems: Sequence[str],
    features: Sequence[Feature],
    situations: Sequence[Situation],
    known: Sequence[Known] | None = None,
) -> list[str]:
    """The problems of a run without those that are known, and with those that are so no more."""
    covering = [
        one for one in (KNOWN if known is None else known) if one.covers(features, situations)
    ]
    # Beside what spoils everything nothing else can be told.
    covering = [one for one in covering if one.breaks or not one.pattern] or covering
    unknown = [problem for problem in problems
               if not any(re.search(one.pattern, problem) for one in covering)]  # fmt: skip
    return unknown + [
        f"this is wrong no more, and stands in KNOWN: {one.reason} ({one.pattern})"
        for one in covering
        if one.always and not any(re.search(one.pattern, problem) for problem in problems)
    ]


def run(
    features: Sequence[Feature],
    situations: Sequence[Situation],
    at: Sequence[int] = AT,
    *,
    cold: bool = False,
    must_meet: bool = True,
    size: tuple[int, int] = SIZE,
) -> tuple[list[str], Path]:
    """Run a document in a directory of its own, which is kept if anything is wrong.

    Returns:
        What is wrong and not known, and the directory.
    """
    directory = Path(tempfile.mkdtemp(prefix="seams-"))
    if any(situation.name in ON_FLUX for situation in situations):
        (situation,) = situations
        problems = play_on_flux(directory, features, situation, at[0])
    else:
        problems = play(
            directory, features, situations, at, cold=cold, must_meet=must_meet, size=size
        )
    problems = expected(problems, features, situations)
    if not problems:
        shutil.rmtree(directory, ignore_errors=True)
    return problems, directory


def _table() -> None:
    width = max(map(len, FEATURES))
    for cell in cells():
        print(f"{cell.feature.name:{width}} {cell.situation.name:16} {cell.reason or 'runs'}")


def rows_on_flux(name: str) -> list[str]:
    """The features of documents on Flux: those with members need an instance of several nodes."""
    sensible = together(ON_FLUX[name])
    rows = ("+".join(feature.name for feature in sensible if bool(feature.alone) is alone)
            for alone in (False, True))  # fmt: skip
    return [row for row in rows if row]


def main() -> int:
    """Run cells; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("features", nargs="?", help="NAME, or NAME+NAME (default: each)")
    parser.add_argument("situations", nargs="?", help="NAME, or NAME+NAME (default: each)")
    parser.add_argument("--at", default=",".join(map(str, AT)),
                        help="after how many jobs something happens, in order")  # fmt: skip
    parser.add_argument("--size", default="x".join(map(str, SIZE)),
                        help="nodes of the queue, and cores of each")  # fmt: skip
    parser.add_argument("--loose", action="store_true",
                        help="it may have ended before something could happen")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the table, and run nothing")
    parser.add_argument("--cold", action="store_true", help="each command is a Python of its own")
    options = parser.parse_args()
    if options.list:
        _table()
        return 0
    at = [int(number) for number in options.at.split(",")]
    nodes, cores = map(int, options.size.split("x"))
    rows = [options.features] if options.features else list(FEATURES)
    columns = [options.situations] if options.situations else list(SITUATIONS | ON_FLUX)
    if shutil.which("flux") is None:
        columns = [name for name in columns if name not in ON_FLUX]
        print("skipped, as flux is not on PATH:", *ON_FLUX)
    failed = ran = 0
    for column in columns:
        if missing := [reason for name in column.split("+")
                       if (reason := (SITUATIONS | ON_FLUX)[name].missing())]:  # fmt: skip
            print(f"{column}: skipped: {missing[0]}", flush=True)
            continue
        # An instance takes longer than a run in it: there all features are in one document.
        on_flux = column in ON_FLUX and not options.features
        for cell in cells() if on_flux else ():
            if cell.reason and cell.situation.name == column:
                print(f"{cell.feature.name} x {column}: {cell.reason}", flush=True)
        for row in rows_on_flux(column) if on_flux else rows:
            features = [FEATURES[name] for name in row.split("+")]
            situations = [(SITUATIONS | ON_FLUX)[name] for name in column.split("+")]
            reasons = [
                cell.reason
                for cell in cells()
                if cell.reason and cell.feature in features and cell.situation in situations
            ]
            if reasons:
                print(f"{row} x {column}: {reasons[0]}", flush=True)
                continue
            begun = time.monotonic()
            problems, directory = run(
                features, situations, at, cold=options.cold, must_meet=not options.loose,
                size=(nodes, cores))  # fmt: skip
            ran += 1
            failed += bool(problems)
            print(f"{row} x {column}: {'ok' if not problems else f'WRONG, see {directory}'} "
                  f"({time.monotonic() - begun:.1f} s)", flush=True)  # fmt: skip
            for problem in problems:
                print(f"    {problem}", flush=True)
    print(f"{ran} cells, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
