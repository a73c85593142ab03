"""Checks `inputs` of a job group: the files that its jobs have in their working directories."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.texts import placeholders
from flux_ensemble.texts import shown


def check_inputs(entry: Mapping[str, Any], problems: Problems, at: Path) -> None:
    """Check the inputs of a group, as far as parameters are not needed for it.

    Args:
        entry: the valid part of the entry.
        problems: collects the problems.
        at: the path of the entry.

    >>> problems = Problems()
    >>> check_inputs({"inputs": ["a.cif", "b/a.cif"], "workdir": "runs/{x}"}, problems, ())
    >>> problems.sentences()
    "inputs[1]: 'a.cif' would be there twice in the working directory, as inputs[0], too"
    """
    if not entry.get("inputs"):
        return
    at = (*at, "inputs")
    workdir = entry.get("workdir")
    if workdir is None:
        if not problems.blames((*at[:-1], "workdir")):
            problems.add(
                at,
                "the files are linked into the working directory of a job, so its group needs "
                "'workdir', such as 'runs/{x}'",
            )
        return
    if "{{" in workdir:
        problems.add(
            (*at[:-1], "workdir"),
            "a directory with 'inputs' is made before the job has an id: use a parameter or "
            f"'{{index}}' in place of Flux's template in {shown(workdir)}",
        )
    written = {
        os.path.normpath(os.path.join(workdir, entry[key])): key
        for key in ("output", "error")
        if key in entry
    }
    names: dict[str, int] = {}
    for index, path in enumerate(entry["inputs"]):
        if path is None:
            continue  # it has another problem
        name = path.rstrip("/").rpartition("/")[2]
        files = (os.path.normpath(os.path.join(workdir, name)), os.path.normpath(path))
        key = next((written[file] for file in files if file in written), None)
        if name in ("", ".", ".."):
            problems.add((*at, index), f"expected the path of a file, not {shown(path)}")
        elif name in names:
            problems.add(
                (*at, index),
                f"{shown(name)} would be there twice in the working directory, as "
                f"inputs[{names[name]}], too",
            )
        elif key is not None:
            problems.add((*at, index), f"the job would write its {key!r} there")
        names.setdefault(name, index)


def missing_inputs(spec: Spec, value: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Find inputs that are missing, of jobs that are submitted at the start.

    A later job may have its inputs from an earlier one. What depends on parameters is left to each
    job.

    Args:
        spec: the checked document.
        value: its values.

    >>> from flux_ensemble.document.lint import Warnings
    >>> from flux_ensemble.document.loading import load_text
    >>> found = Warnings()
    >>> spec = load_text(
    ...     "{jobs: [{name: a, command: x, workdir: w, inputs: [/nowhere/b]}],"
    ...     " rules: [{trigger: start, action: {name: submit, label: a}}]}",
    ...     name="demo",
    ...     warnings=found,
    ... )
    >>> found.warnings
    ["document:1: jobs[0].inputs[0]: '/nowhere/b' does not exist, so these jobs would fail"]
    """
    first = {
        action.label
        for rule in spec.rules
        if rule.trigger == "start"
        for action in rule.actions
        if action.name == "submit"
    }
    for index, entry in enumerate(value.get("jobs") or ()):
        for place, path in enumerate(entry.get("inputs") or ()):
            if entry["name"] in first and not placeholders(path) and not os.path.exists(path):
                message = f"{shown(path)} does not exist, so these jobs would fail"
                if set("*?[").intersection(path):
                    message += " (no patterns: name each file, or their directory)"
                yield ("jobs", index, "inputs", place), message
