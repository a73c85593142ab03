"""Reads the file that a pool's `template` names: the JobSet that each of its members is made of.

Only what the members stand on is checked here: one pod that starts once, and the container in it
that is the worker. All else is the user's, and the API server checks it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flux_ensemble.document.problems import DocumentError, Path, Problems
from flux_ensemble.document.yaml_reader import read_yaml
from flux_ensemble.texts import shown

#: What the file has to be.
API_VERSION, KIND = "jobset.x-k8s.io/v1alpha2", "JobSet"

#: The container that is the worker, if a pod has several.
WORKER = "worker"

#: The volume with what the worker needs to call its home.
VOLUME = "flux-ensemble"

#: Longest name of the replicated job: that of the pod has those of the JobSet, too.
LONGEST_NAME = 16

_GPU = re.compile(r"[a-z0-9.-]+/gpu")
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")

_AGAIN = (
    "a worker that starts again has lost its tasks, so it is another member; leave it out, and let "
    "a rule with the trigger 'member-lost' grow the pool"
)


class TemplateError(ValueError):
    """The file is no template; the text says where and why."""


def read_template(name: str, text: str, problems: Problems, at: Path) -> dict[str, Any] | None:
    """Return the JobSet in a file; None with problems.

    Args:
        name: of the file, for messages.
        text: its content.
        problems: collects the problems.
        at: the path in the document of the file's name.

    >>> problems = Problems()
    >>> read_template("workers.yaml", "kind: Job", problems, ("members", 0, "template"))
    >>> problems.sentences()
    'members[0].template: workers.yaml: expected a JobSet (apiVersion: jobset.x-k8s.io/v1alpha2, ...
    """
    try:
        document, wrong = read_yaml(text, name)
        if wrong:
            raise wrong.error(name)
        return checked(document.value)
    except DocumentError as error:
        problems.add(at, str(error))
    except TemplateError as error:
        problems.add(at, f"{name}: {error}")
    return None


def checked(value: Any) -> dict[str, Any]:
    """Return a JobSet that members can be made of.

    Raises:
        TemplateError: it is none.

    >>> checked({"kind": "Job"})
    Traceback (most recent call last):
    flux_ensemble.queues.providers.jobset.template.TemplateError: expected a JobSet (apiVersion: ...
    """
    if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (
        API_VERSION,
        KIND,
    ):
        raise TemplateError(f"expected a JobSet (apiVersion: {API_VERSION}, kind: {KIND})")
    metadata = _mapping(value, "metadata")
    for key in ("name", "generateName"):
        if key in metadata:
            raise TemplateError(f"metadata.{key}: each member has a name of its own; leave it out")
    place = "spec.replicatedJobs"
    jobs = _mapping(value, "spec").get("replicatedJobs")
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        count = len(jobs) if isinstance(jobs, list) else 0
        raise TemplateError(
            f"{place}: expected one entry, because a member is one pod, not {count}; how many "
            "members there are is the 'count' of the pool"
        )
    limits = _mapping(_mapping(value, "spec", "spec"), "failurePolicy", "spec.failurePolicy")
    _only(limits, "maxRestarts", 0, "spec.failurePolicy", _AGAIN)
    _check_job(jobs[0], f"{place}[0]")
    worker_of(value)
    return value


def _check_job(job: Mapping[str, Any], place: str) -> None:
    """Check the replicated job."""
    name = job.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise TemplateError(
            f"{place}.name: expected a name of at most {LONGEST_NAME} characters, not {shown(name)}"
        )
    more = "a member is one pod; how many there are is the 'count' of the pool"
    _only(job, "replicas", 1, place, more)
    place = f"{place}.template.spec"
    spec = _mapping(_mapping(job, "template", f"{place}"), "spec", place)
    _only(spec, "parallelism", 1, place, more)
    _only(spec, "completions", 1, place, more)
    _only(spec, "backoffLimit", 0, place, _AGAIN)
    place = f"{place}.template.spec"
    pod = _mapping(_mapping(spec, "template", place), "spec", place)
    _only(pod, "restartPolicy", "Never", place, _AGAIN)
    volumes = pod.get("volumes") or []
    if any(isinstance(one, dict) and one.get("name") == VOLUME for one in volumes):
        raise TemplateError(f"{place}.volumes: the name {VOLUME!r} is taken; give another one")


def _mapping(value: Mapping[str, Any], key: str, place: str = "") -> dict[str, Any]:
    found = value.get(key) or {}
    if not isinstance(found, dict):
        raise TemplateError(f"{place or key}: expected a mapping, not {shown(found)}")
    return found


def _only(value: Mapping[str, Any], key: str, good: Any, place: str, why: str) -> None:
    if value.get(key, good) != good:
        raise TemplateError(f"{place}.{key}: expected {good}, not {shown(value[key])}: {why}")


def pod_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the pod in a JobSet: its `metadata` and `spec`.

    >>> job = {"template": {"spec": {"template": {"spec": {"containers": []}}}}}
    >>> pod_of({"spec": {"replicatedJobs": [job]}})
    {'spec': {'containers': []}}
    """
    template: dict[str, Any] = value["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def worker_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that is the worker.

    Raises:
        TemplateError: there is none, or it cannot be one.

    >>> pod = {"spec": {"containers": [{"name": "worker", "image": "a"}, {"name": "b"}]}}
    >>> job = {"template": {"spec": {"template": pod}}}
    >>> worker_of({"spec": {"replicatedJobs": [job]}})
    {'name': 'worker', 'image': 'a'}
    """
    place = "spec.replicatedJobs[0].template.spec.template.spec.containers"
    try:
        containers = [one for one in pod_of(value)["spec"]["containers"] if isinstance(one, dict)]
    except (LookupError, TypeError):
        containers = []
    named = [one for one in containers if one.get("name") == WORKER]
    if len(containers) != 1 and len(named) != 1:
        raise TemplateError(
            f"{place}: expected one container, or one that is called {WORKER!r}, and found "
            f"{len(containers)}"
        )
    container: dict[str, Any] = (named or containers)[0]
    if not isinstance(container.get("image"), str):
        raise TemplateError(
            f"{place}: the worker has no 'image'; name one with Python and flux-ensemble in it"
        )
    if container.get("args"):
        raise TemplateError(
            f"{place}: 'args' are given by flux-ensemble, and 'command' is what runs Python; leave "
            "out 'args'"
        )
    command = container.get("command", ["python3"])
    if not (isinstance(command, list) and command and all(isinstance(one, str) for one in command)):
        raise TemplateError(
            f"{place}: expected a 'command' that runs Python, such as [/opt/venv/bin/python3], not "
            f"{shown(command)}"
        )
    _amounts(container, place)
    return container


def _amounts(container: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Return the resources of a container, what it is limited to first."""
    resources = _mapping(container, "resources", f"{place}.resources")
    parts = (_mapping(resources, part, f"{place}.{part}") for part in ("limits", "requests"))
    return iter([pair for part in parts for pair in part.items()])


def cores_of(container: Mapping[str, Any]) -> int | None:
    """Return how many cores a container has at least; None if it does not say.

    >>> cores_of({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "3500m"}}})
    3
    >>> cores_of({"resources": {"requests": {"cpu": "100m"}}}), cores_of({})
    (1, None)
    """
    for name, amount in _amounts(container):
        match = _CPU.fullmatch(str(amount)) if name == "cpu" else None
        if match is not None:
            return max(1, math.floor(float(match[1]) / (1000 if match[2] else 1)))
    return None


def gpus_of(container: Mapping[str, Any]) -> int:
    """Return how many GPUs a container has.

    >>> gpus_of({"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 1}}}), gpus_of({})
    (2, 0)
    """
    for name, amount in _amounts(container):
        if _GPU.fullmatch(name) and str(amount).isdecimal():
            return int(amount)
    return 0
