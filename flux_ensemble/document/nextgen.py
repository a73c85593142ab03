"""Converts JobSpec NextGen (https://compspec.github.io/jobspec) to canonical jobspecs V1.

The `jobspec` package reads the document: its schema, its named resources, and how it
flattens them. Each task becomes one job set, as the package's Flux back end makes one
`flux submit` of it: `node`, `core` and `gpu` of its resources are the nodes, the tasks
and the GPUs per task, and nodes without cores are exclusive. What needs a batch job or a
plugin there is refused. `requires` is for choosing a cluster, so it is ignored.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, NamedTuple

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.jobspec import (
    RESOURCE_TYPES,
    Task,
    read_environment,
    shape,
    size,
    unknown_type,
)
from flux_ensemble.document.json_schema import jsonschema
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.document.schema import explain, unknown_key
from flux_ensemble.document.texts import split_command
from flux_ensemble.scalars import MAX_INT
from flux_ensemble.texts import shortened, shown

#: Keys that are not supported -> what they ask for.
_REFUSED = {
    "group": "a reference to a group of tasks (a batch job)",
    "steps": "a task of steps",
    "depends_on": "a dependency between tasks",
    "local": "a task that is not a job",
}
_SUPPORTED = "(supported: tasks with a command, and their resources and attributes)"
#: First line of a command that is a script -> its interpreter.
_INTERPRETERS = {f"#!/bin/{name}": name for name in ("bash", "sh", "python")}


class _Attributes(NamedTuple):
    """Attributes; None where they are not set."""

    duration: float | None = None
    cwd: str | None = None
    environment: dict[str, str] | None = None


#: Resource type -> count (None if there are problems), and the attributes.
_Resource = tuple[dict[str, int] | None, _Attributes]

#: Of a task that names none.
_NONE: _Resource = ({}, _Attributes())


def convert(data: dict[str, Any], problems: Problems, at: Path) -> list[Task]:
    """The tasks of a NextGen jobspec.

    Args:
        data: the jobspec, plain data.
        problems: collects what is wrong or not supported.
        at: the path of the jobspec.

    >>> resources = {"half": {"type": "core", "count": 4}}
    >>> jobspec = {"version": 1, "resources": resources, "tasks": []}
    >>> jobspec["tasks"] = [{"command": ["app"], "resources": "half", "replicas": 3}]
    >>> [(task.command, task.replicas) for task in convert(jobspec, Problems(), ())]
    [(['app'], 3)]
    """
    from jobspec.core import Jobspec

    # The package validates too, but stops at the first error.
    explain(_validator(), data, problems, at, sentence=_sentence)
    if problems.blames(at):
        return []
    if data.get("groups"):
        problems.add((*at, "groups"), f"groups (batch jobs) are not supported {_SUPPORTED}")
    elif not data.get("tasks"):
        problems.add(at, "expected at least one task with a command")
    reader = _Reader(Jobspec(data, validate=False, name="ensemble"), problems, at)
    tasks = [reader.task(index, task) for index, task in enumerate(data.get("tasks") or ())]
    return [] if problems.blames(at) else [task for task in tasks if task is not None]


@cache
def _validator() -> Any:
    from jobspec.schema import jobspec_nextgen

    schema = copy.deepcopy(jobspec_nextgen)
    # The package's pattern of names takes exponential time; this one accepts the same.
    for section in ("requires", "resources"):
        patterns = schema["properties"][section]["patternProperties"]
        patterns["^[a-z|&0-9]+$"] = patterns.pop("^([a-z]|[|]|&|[0-9]+)+$")
    return jsonschema().Draft7Validator(schema)


def _sentence(error: Any) -> str:
    return shortened(error.message)


class _Reader:
    """Reads the tasks of one jobspec. What they share is read once."""

    def __init__(self, spec: Any, problems: Problems, at: Path) -> None:
        self._spec = spec
        self._problems = problems
        self._at = at
        self._common = self._attributes(spec.get("attributes"), (*at, "attributes"))
        self._resources: dict[str, _Resource] = {}

    def task(self, index: int, task: dict[str, Any]) -> Task | None:
        """Read a task; None if it has problems."""
        problems, at = self._problems, (*self._at, "tasks", index)
        refused = [key for key in _REFUSED if task.get(key)]
        for key in refused:
            problems.add((*at, key), f"{_REFUSED[key]} is not supported {_SUPPORTED}")
        if "command" not in task and not refused:
            problems.add(at, "the key 'command' is missing")
        replicas = task.get("replicas", 1)
        if replicas != int(replicas):
            problems.add((*at, "replicas"), f"expected an integer >= 1, not {replicas!r}")
        flat, resource = self._resource(task["resources"], at) if "resources" in task else _NONE
        own = self._attributes(task.get("attributes"), (*at, "attributes"))
        if flat is None or problems.blames(at):
            return None
        try:
            command = _command(task["command"])
        except ValueError as error:
            problems.add((*at, "command"), str(error))
            return None
        # As `flux submit -N` without `-n` does: a task a node, and the whole of it.
        nodes, cores = flat.get("node"), flat.get("core")
        count = max(cores or 1, nodes or 1)
        exclusive = nodes is not None and cores is None
        resources, tasks = shape(command, nodes, count, 1, flat.get("gpu", 0), exclusive)
        made = {"version": 1, "resources": resources, "tasks": tasks}
        # What comes later has precedence.
        owners = (self._common, resource, own)
        durations = [owner.duration for owner in owners if owner.duration is not None]
        directories = [owner.cwd for owner in owners if owner.cwd is not None]
        return Task(
            made,
            size(made),
            int(replicas),
            durations[-1] if durations else 0.0,
            directories[-1] if directories else None,
            tuple(owner.environment for owner in owners if owner.environment),
        )

    def _resource(self, name: str, at: Path) -> _Resource:
        """The resource that the task at `at` names."""
        from jobspec.core import Resources
        from jobspec.core.resources import parse_resource_subset

        if name in self._resources:
            return self._resources[name]
        try:
            resource = parse_resource_subset(self._spec.get("resources", {}), name)
        except ValueError as error:
            said = str(error).rstrip(".")
            self._problems.add((*at, "resources"), said[:1].lower() + said[1:])
            return None, _Attributes()
        where = (*self._at, "resources", name)
        flattened: _Resource = None, _Attributes()
        if _check_resource(resource, self._problems, where):
            attributes = self._attributes(resource.get("attributes"), (*where, "attributes"))
            flattened = Resources(resource).flatten_slot(), attributes
        self._resources[name] = flattened
        return flattened

    def _attributes(self, section: Any, at: Path) -> _Attributes:
        """Duration, cwd and environment of a jobspec, of a resource or of a task."""
        attributes = _Attributes()
        if not section:
            return attributes
        if not isinstance(section, dict):
            self._problems.add(at, f"expected a mapping, not {shown(section)}")
            return attributes
        for key, value in section.items():
            here = (*at, key)
            if key == "duration":
                try:
                    attributes = attributes._replace(duration=parse_duration(value))
                except ValueError as error:
                    self._problems.add(here, str(error))
            elif key == "cwd":
                attributes = attributes._replace(cwd=value)
                if not isinstance(value, str):
                    self._problems.add(here, f"expected text, not {shown(value)}")
            elif key == "environment":
                environment = read_environment(value, self._problems, here)
                attributes = attributes._replace(environment=environment)
            else:
                message = unknown_key(key, ("duration", "cwd", "environment"))
                self._problems.add(here, message)
        return attributes


def _command(command: str | list[str]) -> list[str]:
    """The words of a command, which may be a list, text, or a script with `#!`.

    Raises:
        ValueError: bad quotes, or no word.
    """
    if isinstance(command, str):
        script = command.strip()
        interpreter = _INTERPRETERS.get(script.split("\n", 1)[0].strip())
        if interpreter is not None:
            return [interpreter, "-c", script]
        command = split_command(command)
    if not command:
        raise ValueError("expected a command of at least one word")
    return command


def _check_resource(resource: Any, problems: Problems, at: Path) -> bool:
    """Check that the package can flatten a resource and all resources below it."""
    if not isinstance(resource, dict):
        problems.add(at, f"expected a mapping, not {shown(resource)}")
        return False
    kind = resource.get("type")
    if kind not in RESOURCE_TYPES:
        problems.add((*at, "type"), unknown_type(kind))
        return False
    counts = [key for key in ("count", "replicas") if key in resource]
    if not counts and kind != "slot":
        problems.add(at, "the key 'count' is missing")
        return False
    for key in counts:
        count = resource[key]
        if type(count) is not int or not 1 <= count <= MAX_INT:
            problems.add((*at, key), f"expected an integer >= 1, not {shown(count)}")
            return False
        if kind == "slot" and count != 1:
            problems.add((*at, key), "more than one slot is not supported")
            return False
    below = resource.get("with", [])
    if not isinstance(below, list):
        problems.add((*at, "with"), f"expected a list of resources, not {shown(below)}")
        return False
    return all(_check_resource(child, problems, (*at, "with", i)) for i, child in enumerate(below))
