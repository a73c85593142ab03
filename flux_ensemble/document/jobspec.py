"""Canonical jobspecs V1 (RFC 25): building them from job sets, and checking those in documents.

`build` makes the jobspec of one job and gives the same resources and tasks as
`flux.job.JobspecV1.from_command`, without Flux.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from flux_ensemble import job_params
from flux_ensemble.document.bounds import MAX_BYTES
from flux_ensemble.document.job_sets import TAG_KEY, JobSet
from flux_ensemble.document.keys.forms import no_scalar
from flux_ensemble.document.keys.overrides import merged
from flux_ensemble.document.problems import DocumentError, Path, Problems
from flux_ensemble.document.schema import check_form
from flux_ensemble.document.texts import filled
from flux_ensemble.document.yaml_reader import Document, read_yaml
from flux_ensemble.scalars import MAX_INT, as_text
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: Values of `output` and `error` that mean the KVS, which is the default too.
NO_FILE = frozenset({"none", "kvs"})

#: An absolute path, or a Flux template that may expand to one: all but these names.
_ABSOLUTE = re.compile(
    r"/|\{\{(?!(?:id|jobid|name|nnodes|size|ntasks|taskid|task|node)(?:\.[a-z0-9._]+)?\}\})"
)

#: Resource types that Flux allocates. The counts of the first three are at least 1.
RESOURCE_TYPES = ("node", "slot", "core", "gpu")


class Task(NamedTuple):
    """A task of a jobspec. It becomes a job set.

    Attributes:
        jobspec: the jobspec of a job, canonical.
        size: the fields `nodes`, `tasks`, `cores` and `gpus` of the job set.
        replicas: multiplies the number of jobs.
        duration, cwd: of each job.
        environments: variables to add; later ones win. They are not merged because tasks
            share them, and merged copies could be very large.
    """

    jobspec: dict[str, Any]
    size: dict[str, Any]
    replicas: int = 1
    duration: float = 0.0
    cwd: str | None = None
    environments: tuple[dict[str, str], ...] = ()

    @property
    def command(self) -> list[str]:
        """The words of its command."""
        words: list[str] = self.jobspec["tasks"][0]["command"]
        return words


def build(
    jobset: JobSet,
    params: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    cwd: str,
    tag: Mapping[str, Any],
    prefix: str = "",
) -> dict[str, Any]:
    """The jobspec of one job.

    Args:
        jobset: the job set that the job belongs to.
        params: the job's parameters, whose values replace `{name}`.
        environment: the base environment; the job set adds to it.
        cwd: the base of a relative working directory.
        tag: identifies the job; goes to `attributes.user.ensemble`.
        prefix: of the job's name, which is the job set's.

    Returns:
        A canonical jobspec. It shares parts with the arguments and with other jobspecs of
        the job set, so do not modify it.

    >>> md = JobSet("md", 0, ("run", "{t}"), duration=60.0)
    >>> jobspec = build(md, {"t": 300}, environment={}, cwd="/scratch", tag={"index": 0})
    >>> jobspec["tasks"][0]["command"], jobspec["attributes"]["system"]["duration"]
    (['run', '300'], 60.0)
    """
    fill = jobset.filler(params)
    if jobset.jobspec is None:
        command = [fill(word) for word in jobset.command]
        resources, tasks = shape(
            command, jobset.nodes, jobset.tasks, jobset.cores, jobset.gpus, jobset.exclusive
        )
        attributes: dict[str, Any] = {}
    else:
        resources = jobset.jobspec["resources"]
        tasks = [
            {**task, "command": [fill(word) for word in task["command"]]}
            for task in jobset.jobspec["tasks"]
        ]
        attributes = jobset.jobspec.get("attributes", {})
    system = {"cwd": cwd, "environment": environment, **attributes.get("system", {})}
    # Of a job that loads an ensemble its own variable is in the environment of that ensemble.
    if params or job_params.VARIABLE in system["environment"]:
        text = job_params.text_of(params)
        system["environment"] = {**system["environment"], job_params.VARIABLE: text}
    system["duration"] = jobset.duration
    system["job"] = {**system.get("job", {}), "name": f"{prefix}{jobset.name}"}
    if jobset.workdir is not None:
        system["cwd"] = os.path.join(cwd, fill(jobset.workdir))
    if jobset.environment:
        added = {name: fill(value) for name, value in jobset.environment.items()}
        system["environment"] = {**system["environment"], **added}
    if jobset.queue is not None:
        system["queue"] = fill(jobset.queue)
    if jobset.bank is not None:
        system["bank"] = fill(jobset.bank)
    files = {
        stream: {"type": "file", "path": fill(path)}
        for stream, path in (("stdout", jobset.output), ("stderr", jobset.error))
        if path is not None and path not in NO_FILE
    }
    if files:
        system = merged(system, {"shell": {"options": {"output": files}}})
    attributes = {**attributes, "system": system}
    if jobset.attributes:
        attributes = merged(attributes, filled(jobset.attributes, fill))
    attributes["user"] = {**attributes.get("user", {}), TAG_KEY: dict(tag)}
    return {"version": 1, "resources": resources, "tasks": tasks, "attributes": attributes}


class Links(NamedTuple):
    """The files that a job is to have in its working directory.

    Attributes:
        paths: absolute paths of the files.
        directory: the working directory.
        outputs: the files to which the job writes its output.
    """

    paths: tuple[str, ...]
    directory: str
    outputs: frozenset[str]


def links_of(
    jobset: JobSet, params: Mapping[str, Any], cwd: str, jobspec: Mapping[str, Any]
) -> Links | None:
    """Return the files that a job is to have in its working directory; None without `inputs`.

    Args:
        jobset, params: of the job.
        cwd: the base of relative paths.
        jobspec: of the job, as `build` returns it.

    >>> md = JobSet("md", 0, ("run",), workdir="runs/{s}", inputs=("{s}.cif",), output="out")
    >>> jobspec = build(md, {"s": "a"}, environment={}, cwd="/work", tag={})
    >>> links_of(md, {"s": "a"}, "/work", jobspec)
    Links(paths=('/work/a.cif',), directory='/work/runs/a', outputs=frozenset({'/work/runs/a/out'}))
    """
    if not jobset.inputs:
        return None
    fill = jobset.filler(params)
    system = jobspec["attributes"]["system"]
    directory = os.path.normpath(os.path.join(cwd, system["cwd"]))
    output = system.get("shell", {}).get("options", {}).get("output", {})
    paths = [
        target["path"]
        for target in (output.values() if isinstance(output, dict) else ())
        if isinstance(target, dict) and isinstance(target.get("path"), str)
    ]
    return Links(
        tuple(os.path.join(cwd, fill(path)) for path in jobset.inputs),
        directory,
        frozenset(os.path.normpath(os.path.join(directory, path)) for path in paths),
    )


def failing(jobspec: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return the jobspec of a job that fails for a reason, and opens no file.

    The job shell finds no program with the reason as its name, and says so.

    Args:
        jobspec: a complete jobspec, as `build` returns it. It is not modified.
        reason: a sentence.

    >>> md = JobSet("md", 0, ("run",), output="md.out")
    >>> jobspec = failing(build(md, {}, environment={}, cwd="/work", tag={}), "no input")
    >>> jobspec["tasks"][0]["command"], jobspec["attributes"]["system"]["shell"]
    (['no input'], {'options': {}})
    """
    attributes = jobspec["attributes"]
    system = dict(attributes["system"])
    if isinstance(system.get("shell"), dict):
        options = system["shell"].get("options", {})
        kept = {key: value for key, value in options.items() if key != "output"}
        system["shell"] = {**system["shell"], "options": kept}
    return {
        **jobspec,
        "tasks": [{**task, "command": [reason]} for task in jobspec["tasks"]],
        "attributes": {**attributes, "system": system},
    }


def kept_off(jobspec: dict[str, Any], ranks: str) -> dict[str, Any]:
    """The jobspec with a constraint (RFC 31) that keeps its job off some ranks.

    Args:
        jobspec: a complete jobspec, as `build` returns it. It is not modified.
        ranks: an idset (RFC 22).

    >>> from pprint import pprint
    >>> jobspec = {"attributes": {"system": {"constraints": {"properties": ["fast"]}}}}
    >>> pprint(kept_off(jobspec, "1,3-4")["attributes"]["system"]["constraints"])
    {'and': [{'properties': ['fast']}, {'not': [{'ranks': ['1,3-4']}]}]}
    """
    attributes = jobspec["attributes"]
    system = attributes["system"]
    constraint: dict[str, Any] = {"not": [{"ranks": [ranks]}]}
    if system.get("constraints"):
        constraint = {"and": [system["constraints"], constraint]}
    return {
        **jobspec,
        "attributes": {**attributes, "system": {**system, "constraints": constraint}},
    }


def scheduled(jobspec: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a jobspec that a scheduler reads, with the constraints of its queue.

    >>> config = {"queues": {"debug": {"requires": ["debug"]}}}
    >>> system = {"queue": "debug", "duration": 60.0, "cwd": "/", "constraints": {"ranks": ["0-3"]}}
    >>> jobspec = {"resources": [], "tasks": [], "attributes": {"system": system}}
    >>> scheduled(jobspec, config)["attributes"]["system"]["constraints"]
    {'and': [{'ranks': ['0-3']}, {'properties': ['debug']}]}
    """
    system = jobspec["attributes"]["system"]
    defaults = config.get("policy", {}).get("jobspec", {}).get("defaults", {}).get("system", {})
    queue = config.get("queues", {}).get(system.get("queue", defaults.get("queue")), {})
    constraints = [system["constraints"]] if system.get("constraints") else []
    if queue.get("requires"):
        constraints.append({"properties": queue["requires"]})
    form: dict[str, Any] = {"duration": system.get("duration", 0.0)}
    if constraints:
        form["constraints"] = {"and": constraints}
    return {
        "version": 1,
        "resources": jobspec["resources"],
        "tasks": jobspec["tasks"],
        "attributes": {"system": form},
    }


def anchored(jobspec: dict[str, Any]) -> dict[str, Any]:
    """The jobspec with the paths of its output files made absolute.

    If the working directory is missing, Flux runs the job in /tmp and would write relative
    paths there.

    Args:
        jobspec: a complete jobspec, as `build` returns it. It is not modified.

    >>> md = JobSet("md", 0, ("run",), output="md.out")
    >>> jobspec = anchored(build(md, {}, environment={}, cwd="/scratch", tag={}))
    >>> jobspec["attributes"]["system"]["shell"]["options"]["output"]["stdout"]["path"]
    '/scratch/md.out'
    """
    attributes = jobspec["attributes"]
    system = attributes["system"]
    cwd = system["cwd"]
    output = system.get("shell", {}).get("options", {}).get("output", {})
    paths = {
        stream: {"path": os.path.join(cwd, target["path"])}
        for stream, target in (output.items() if isinstance(output, dict) else ())
        if isinstance(target, dict)
        and isinstance(target.get("path"), str)
        and not _ABSOLUTE.match(target["path"])
    }
    if not paths or not os.path.isabs(cwd):
        return jobspec
    system = merged(system, {"shell": {"options": {"output": paths}}})
    return {**jobspec, "attributes": {**attributes, "system": system}}


def shape(
    command: Sequence[str], nodes: int | None, tasks: int, cores: int, gpus: int, exclusive: bool
) -> tuple[list[Any], list[Any]]:
    """The `resources` and `tasks` of a jobspec, as Flux builds them.

    Args:
        command: the words of the command.
        nodes: how many nodes; None leaves it to the scheduler.
        tasks: how many tasks, at least as many as nodes.
        cores: cores per task.
        gpus: GPUs per task.
        exclusive: whether the nodes are allocated exclusively.

    >>> resources, tasks = shape(["hostname"], 2, 4, 1, 0, False)
    >>> resources[0]["type"], resources[0]["count"], tasks[0]["count"]
    ('node', 2, {'per_slot': 1})
    """
    per_task = [{"type": "core", "count": cores}]
    if gpus:
        per_task.append({"type": "gpu", "count": gpus})
    slots = tasks if nodes is None else -(-tasks // nodes)
    resource: dict[str, Any] = {"type": "slot", "count": slots, "with": per_task, "label": "task"}
    count = {"per_slot": 1}
    if nodes is not None:
        resource = {"type": "node", "count": nodes, "with": [resource]}
        if exclusive:
            resource["exclusive"] = True
        if tasks % nodes:
            count = {"total": tasks}
    return [resource], [{"command": list(command), "slot": "task", "count": count}]


def read_environment(
    value: Any,
    problems: Problems,
    at: Path,
    written: Callable[[Path], str | None] = lambda path: None,
) -> dict[str, str]:
    """Read environment variables. Values may be numbers and booleans.

    Args:
        value: the mapping.
        problems: collects the problems.
        at: the path of the mapping.
        written: returns the original text of a number or boolean in the document.

    >>> read_environment({"OMP_NUM_THREADS": 4, "DEBUG": True}, Problems(), ("environment",))
    {'OMP_NUM_THREADS': '4', 'DEBUG': 'true'}
    """
    if not isinstance(value, dict):
        problems.add(at, f"expected a mapping, not {shown(value)}")
        return {}
    environment = {}
    for name, setting in value.items():
        here = (*at, name)
        if not name or "=" in name:
            problems.add(here, f"expected the name of an environment variable, not {shown(name)}")
        elif not isinstance(setting, (str, int, float)):
            problems.add(here, no_scalar(setting))
        else:
            environment[name] = written(here) or as_text(setting)
    return environment


def _without_waiting(path: str, flags: int) -> int:
    """Open a file so that reading does not wait, as for what /proc has yet to say."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_file(
    name: str,
    directory: str | None,
    problems: Problems,
    at: Path,
    files: dict[str, str],
    what: str = "a jobspec",
    most: int = MAX_BYTES,
) -> str | None:
    """The text of a file; None if it cannot be read.

    Args:
        name: the file.
        directory: the base of its path; None where the file is on another machine: what it says
            is not known then, and no file of this machine is looked at.
        problems: collects the problems.
        at: the path in the document of the file's name.
        files: cache of texts by name; this one is added.
        what: what should be in it, for messages.
        most: how many of its bytes are read at most, and one more.

    >>> read_file("md.yaml", ".", Problems(), ("jobs", 0), {"md.yaml": "version: 1"})
    'version: 1'
    >>> problems = Problems()
    >>> read_file("none.yaml", "/nowhere", problems, ("jobs", 0), {})
    >>> problems.sentences()
    "jobs[0]: cannot read 'none.yaml': No such file or directory"
    """
    if name in files:
        return files[name]
    if directory is None:
        problems.leave(at)
        return None
    path = FilePath(directory, name)
    try:
        # Opening a pipe or a terminal would wait for whoever writes to it.
        if not stat.S_ISREG(path.stat().st_mode):
            problems.add(at, f"expected a file with {what}, and {name!r} is none")
            return None
        with open(path, "rb", buffering=0, opener=_without_waiting) as file:
            data = bytearray()
            while len(data) <= most:
                part = file.read(most + 1 - len(data))
                if part is None:
                    raise BlockingIOError(errno.EAGAIN, "it has no end that can be read")
                if not part:
                    break
                data += part
            files[name] = data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.add(at, f"cannot read {name!r}: {reason}")
        return None
    return files[name]


def parse_file(name: str, text: str, problems: Problems, at: Path) -> Document | None:
    """Parse a YAML or JSON file with a jobspec of any kind; None if it cannot be read.

    Args:
        name: the file's name, for messages.
        text: its content.
        problems: collects the problems.
        at: the path in the document of the file's name.

    >>> parse_file("md.yaml", "version: 1", Problems(), ()).value
    {'version': 1}
    """
    try:
        document, errors = read_yaml(text, name)
    except DocumentError as error:
        problems.add(at, str(error))
        return None
    for problem in errors.listed():
        problems.add(at, str(DocumentError([problem], name)))
    if not isinstance(document.value, dict):
        problems.add(at, f"expected a jobspec in {name!r}, not {shown(document.value)}")
        return None
    return document


def check_v1(value: Any, problems: Problems, at: Path) -> Task | None:
    """Check a canonical jobspec V1; None if it has problems.

    Args:
        value: the jobspec, plain data.
        problems: collects the problems.
        at: the path of the jobspec.

    >>> md = JobSet("md", 0, ("run",), nodes=2, tasks=4)
    >>> jobspec = build(md, {}, environment={}, cwd="/scratch", tag={})
    >>> check_v1(jobspec, Problems(), ("jobspec",)).size
    {'nodes': 2, 'tasks': 4, 'cores': 1, 'gpus': 0}
    """
    if check_form("jobspec", value, problems, at) is None or problems.blames(at):
        return None
    labels: list[str] = []
    _check_resources(value["resources"], labels, problems, (*at, "resources"))
    slot = value["tasks"][0]["slot"]
    if not problems.blames(at) and slot not in labels:
        problems.add(
            (*at, "tasks", 0, "slot"), f"no slot labeled {slot!r} (slots: {listed(labels)})"
        )
    if problems.blames(at):
        return None
    counts = size(value)
    for what, count in counts.items():
        if count > MAX_INT:
            problems.add(at, f"expected at most {MAX_INT} {what}, not {shown(count)}")
    system = value.get("attributes", {}).get("system", {})
    return Task(value, counts, duration=float(system.get("duration", 0)))


def unknown_type(kind: Any) -> str:
    """The message about a resource type that Flux does not allocate.

    >>> unknown_type("cores")
    "expected a type of resource, not 'cores' (did you mean 'core'? one of: node, slot, core, gpu)"
    """
    near = hint(str(kind), RESOURCE_TYPES)
    known = listed(RESOURCE_TYPES)
    return f"expected a type of resource, not {shown(kind)} ({near}one of: {known})"


def _check_resources(resources: Any, labels: list[str], problems: Problems, at: Path) -> None:
    for index, resource in enumerate(resources):
        here = (*at, index)
        if check_form("resource", resource, problems, here) is None or problems.blames(here):
            continue
        kind = resource["type"]
        if kind not in RESOURCE_TYPES:
            problems.add((*here, "type"), unknown_type(kind))
        if resource["count"] < 1 and kind != "gpu":
            problems.add(
                (*here, "count"), f"expected an integer >= 1, not {shown(resource['count'])}"
            )
        if kind == "slot":
            if "label" not in resource:
                problems.add(here, "the key 'label' is missing")
            labels.append(resource.get("label", ""))
        _check_resources(resource.get("with", ()), labels, problems, (*here, "with"))


def size(jobspec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `nodes`, `tasks`, `cores` and `gpus` of a job set with a checked jobspec.

    >>> resources, tasks = shape(["hostname"], 2, 4, 8, 0, False)
    >>> size({"resources": resources, "tasks": tasks})
    {'nodes': 2, 'tasks': 4, 'cores': 8, 'gpus': 0}
    """
    fields = {"nodes": 1, "tasks": 1, "cores": 1, "gpus": 0}
    slots = 1
    level = [(resource, 1) for resource in jobspec["resources"]]
    while level:
        resource, around = level.pop()
        kind, count = resource["type"], resource["count"]
        if kind in ("core", "gpu"):
            fields[f"{kind}s"] = count
        elif kind == "node":
            fields["nodes"] = around * count
        else:
            slots = around * count
        level += [(below, around * count) for below in resource.get("with", ())]
    count = jobspec["tasks"][0]["count"]
    fields["tasks"] = count.get("total", slots * count.get("per_slot", 1))
    return fields
