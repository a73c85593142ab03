"""Packages with algorithms, for tests: some do what they should, and some do not."""

from __future__ import annotations

from pathlib import Path

_MODULE = """
import os
import random
import time

from flux_ensemble.algorithms import Algorithm, ArgumentError

GROUP = {"group": {"type": "string", "format": "group", "title": "a group", "description": "It."}}


def _again(arguments, document):
    print("no answer")
    if arguments["group"] == "other":
        raise ArgumentError("group", "expected a better group")
    action = {"name": "submit", "label": arguments["group"]}
    name = arguments["id"]
    return {"rules": [{"id": f"{name}-start", "trigger": "start", "action": action}]}


def _raises(arguments, document):
    return document["nothing"]


def made(what):
    return Algorithm("Makes it.", GROUP, (), lambda arguments, document: what)


def does(what):
    return Algorithm("Does it.", GROUP, (), lambda arguments, document: what())


again = Algorithm("Submits a group.", GROUP, ("group",), _again)
raises = Algorithm("Fails.", GROUP, (), _raises)
slow = does(lambda: time.sleep(3600))
leaves = does(lambda: os._exit(7))
varies = does(lambda: {"jobs": [{"name": f"varies-{random.random()}"}]})
nothing = made(None)
unplain = made({"jobs": [print]})
unknown = made({"schedule": []})
shapeless = made({"rules": "many"})
group = Algorithm(
    "Makes a group.",
    {},
    (),
    lambda arguments, _: {"jobs": [{"name": f"{arguments['id']}-jobs", "command": "x"}] * 2},
)
unnamed = made({"rules": [{"id": "start", "trigger": "start"}]})
unprefixed = made({"custom": "def steer(): ..."})
broken = made({"custom": "def broken("})
absent = made({"groups": {"none": {}}})
unbounded = Algorithm("No schema.", {"group": {"type": "word"}}, (), lambda *_: {})
function = _again
"""

#: The algorithms of the package, but for one whose module is not there.
NAMES = (
    "again", "group", "raises", "slow", "leaves", "varies", "nothing", "unplain", "unknown",
    "shapeless", "unnamed", "unprefixed", "broken", "absent", "unbounded", "function",
)  # fmt: skip


def write_package(directory: Path, package: str = "lab-tools") -> None:
    """Put a package into a directory, as if it were installed there."""
    module = package.replace("-", "_")
    (directory / f"{module}.py").write_text(_MODULE)
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = [f"lab-{name} = {module}:{name}" for name in NAMES]
    points.append("lab-gone = no_such_module:algorithm")
    (info / "entry_points.txt").write_text("\n".join(["[flux_ensemble.algorithms]", *points, ""]))
