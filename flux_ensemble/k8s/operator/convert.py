"""Conversion of an Ensemble of ensemble-operator into one of ours; pure.

The predecessor's is `ensemble.flux-framework.org/v1alpha1`, of which there were two designs. In the
first one, a member has `jobs` and an `algorithm` of the operator; in the second one, a document of
ensemble-python. Names of members are derived from their position.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from flux_ensemble.document.functions import SourceError, defined_names
from flux_ensemble.k8s.operator import names
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed

PREDECESSOR = "ensemble.flux-framework.org/v1alpha1"

#: Keys of the predecessor's `sidecar` with our keys; None: there is no counterpart.
_SIDECAR = {
    "image": None,
    "imagePullPolicy": "imagePullPolicy",
    "pullAlways": "imagePullPolicy",
    "port": "port",
    "workers": None,
}

_POLICY = {"Always", "IfNotPresent", "Never"}

#: Keys of a member, of both designs.
_MEMBER = {
    "minicluster", "ensemble", "branch", "jobs", "algorithm", "sidecar", "sidecarPullAlways",
}  # fmt: skip

#: The only algorithm that the first design has had, and is taken where a member names none.
_ALGORITHM = "workload-demand"

#: Options of it with a word as a value -> our argument, the default, and our words for its words.
_CHOICES = {
    "order": (
        "order",
        "random",
        {"random": "random", "ascending": "ascending", "descending": "descending", "": "given"},
    ),
    "scaleUpStrategy": (
        "scale-up",
        "nextJob",
        {"nextJob": "next-job", "smallestJob": "smallest-job", "largestJob": "largest-job"},
    ),
    "scaleDownStrategy": ("scale-down", "excessNodes", {"excessNodes": "excess-nodes"}),
}

#: Seconds between two checks, and checks of a queue that does not get shorter before it is scaled.
_CHECK_SECONDS, _SCALE_CHECKS = 10, 5


class NotConvertible(Exception):
    """The input is no Ensemble of the predecessor; the text is one sentence."""


def convert(ensemble: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Convert an Ensemble.

    Args:
        ensemble: the predecessor's, as in its file.

    Returns:
        Our Ensemble, and notes about parts that have no counterpart.

    Raises:
        NotConvertible: it is not an Ensemble of the predecessor, or has no members.
    """
    if not isinstance(ensemble, Mapping) or ensemble.get("apiVersion") != PREDECESSOR:
        version = ensemble.get("apiVersion") if isinstance(ensemble, Mapping) else ensemble
        raise NotConvertible(f"apiVersion: expected {PREDECESSOR!r}, not {version!r}")
    spec = ensemble.get("spec") or {}
    members = spec.get("members")
    if not isinstance(members, list) or not members:
        raise NotConvertible("spec.members: expected a list of at least one member")
    notes: list[str] = []
    result: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": copy.deepcopy(dict(ensemble.get("metadata") or {})),
        "spec": {},
    }
    service = _service(_sidecar(spec, members), notes)
    if service:
        result["spec"]["service"] = service
    result["spec"]["members"] = [
        _member(member, f"member-{number}", spec, notes) for number, member in enumerate(members)
    ]
    return result, list(dict.fromkeys(notes))


def _sidecar(spec: Mapping[str, Any], members: list[Any]) -> Mapping[str, Any]:
    """Return the service of an Ensemble; in the first design, each member has one."""
    found: dict[str, Any] = {}
    for owner in (spec, *members):
        if not isinstance(owner, Mapping):
            continue
        if owner.get("sidecarPullAlways"):
            found.setdefault("pullAlways", True)
        sidecar = owner.get("sidecar") or {}
        if not isinstance(sidecar, Mapping):
            raise NotConvertible(f"sidecar: expected a mapping, not {sidecar!r}")
        found = {**sidecar, **found}
    return found


def _service(sidecar: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    service: dict[str, Any] = {}
    for key, value in sidecar.items():
        if key not in _SIDECAR:
            notes.append(f"spec.sidecar.{key} is not known, and left out")
        elif key == "port":
            if not str(value).isdigit():
                raise NotConvertible(f"spec.sidecar.port: expected a number, not {value!r}")
            service["port"] = int(value)
        elif key == "imagePullPolicy" and value in _POLICY:
            service["imagePullPolicy"] = value
        elif key == "pullAlways" and value is True:
            service.setdefault("imagePullPolicy", "Always")
        elif key == "image":
            notes.append(
                f"spec.sidecar.image {value!r} has the predecessor's service: ours is the one of "
                "the operator, or spec.service.image"
            )
        elif key == "workers":
            notes.append("spec.sidecar.workers has no counterpart: the service needs no number")
    return service


def _member(
    member: Mapping[str, Any], name: str, spec: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    place = f"spec.members[{name}]"
    cluster = member.get("minicluster") if isinstance(member, Mapping) else None
    if not isinstance(cluster, Mapping) or not isinstance(cluster.get("spec"), Mapping):
        raise NotConvertible(f"{place}.minicluster: expected a MiniCluster with a spec")
    converted = copy.deepcopy(dict(cluster["spec"]))
    size = converted.setdefault("size", 1)
    converted["maxSize"] = converted.get("maxSize") or size
    if member.get("ensemble"):
        document = _with_functions(member["ensemble"], place, notes)
    elif member.get("jobs"):
        document = _Demand(member, place, spec, notes).document(converted)
    else:
        raise NotConvertible(
            f"{place}: expected a document ('ensemble') or 'jobs'; what a container runs is no job "
            "of an ensemble: write it as one"
        )
    for container in converted.get("containers") or ():
        for key in ("command", "commands"):
            if container.pop(key, None):
                notes.append(f"{place}: {key} of its container was overwritten, and is left out")
    if member.get("branch"):
        notes.append(
            f"{place}.branch {member['branch']!r} of ensemble-python has no counterpart: "
            "spec.install.requirement says what is installed"
        )
    notes += (f"{place}.{key} is not known, and left out" for key in member if key not in _MEMBER)
    return {"name": name, "ensemble": document, "minicluster": {"spec": converted}}


def _with_functions(document: str, place: str, notes: list[str]) -> str:
    """Return a document with an empty function for each that its rules call and it does not have.

    ensemble-python looks for a function when its rule fires, and goes on without it.
    """
    try:
        content = yaml.safe_load(document)
        missing = sorted(set(_called(content)) - defined_names(content.get("custom") or ""))
    except (yaml.YAMLError, SourceError, AttributeError, TypeError):
        return document  # What is wrong with it is said when it is rendered.
    if not missing or content.get("custom"):
        return document
    source = "".join(
        f"  def {name}(**kwargs):\n      pass  # Write here what it is to do.\n" for name in missing
    )
    notes.append(
        f"{place}.ensemble: rules call {listed(missing)}, which the document does not have: it "
        "does nothing until you write it, under 'custom'"
    )
    return f"{document.rstrip()}\n\ncustom: |\n{source}"


def _called(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of functions that rules call."""
    for rule in content.get("rules") or ():
        for action in rule.get("actions") or [rule.get("action") or {}]:
            label = action.get("label")
            if action.get("name") == "custom" and isinstance(label, str) and label.isidentifier():
                yield label


class _Demand:
    """The jobs and the algorithm of a member of the first design, as a document.

    Args:
        member, place, spec: the member, how it is called, and the spec of its Ensemble.
        notes: takes notes about what has no counterpart.
    """

    def __init__(
        self, member: Mapping[str, Any], place: str, spec: Mapping[str, Any], notes: list[str]
    ) -> None:
        self._jobs = member["jobs"]
        self._place = place
        self._notes = notes
        algorithm = member.get("algorithm") or spec.get("algorithm") or {}
        if not isinstance(algorithm, Mapping):
            raise NotConvertible(f"{place}.algorithm: expected a mapping, not {algorithm!r}")
        name = algorithm.get("name", _ALGORITHM)
        if name != _ALGORITHM:
            raise NotConvertible(
                f"{place}.algorithm.name: no algorithm named {name!r} "
                f"({hint(str(name), [_ALGORITHM])}ensemble-operator has only had {_ALGORITHM!r})"
            )
        options = algorithm.get("options") or {}
        if not isinstance(options, Mapping):
            raise NotConvertible(f"{place}.algorithm.options: expected a mapping, not {options!r}")
        self._options = dict(options)
        self._seconds = self._whole("spec.checkSeconds", spec.get("checkSeconds", _CHECK_SECONDS))

    def document(self, cluster: Mapping[str, Any]) -> str:
        """Return the document.

        Args:
            cluster: the spec of the member's MiniCluster.
        """
        use: dict[str, Any] = {"algorithm": _ALGORITHM}
        for option in _CHOICES:
            argument, word = self._choice(option)
            use[argument] = word
        use["patience"] = f"{self._checks() * self._seconds}s"
        content: dict[str, Any] = {"logging": {"heartbeat": f"{self._seconds}s"}}
        if self._ends_never():
            content["finish"] = "never"
        content["scaling"] = {
            "min-nodes": cluster.get("minSize") or 1,
            "max-nodes": cluster["maxSize"],
        }
        if not isinstance(self._jobs, list):
            raise NotConvertible(f"{self._place}.jobs: expected a list")
        jobs = [self._job(job, f"jobs[{at}]") for at, job in enumerate(self._jobs)]
        content["jobs"] = [job for job in jobs if job.get("count") != 0]
        content["use"] = [use]
        for option in self._options:
            self._note(f"algorithm.options.{option} is not known, and left out")
        text: str = yaml.safe_dump(content, sort_keys=False)
        return text

    def _note(self, text: str) -> None:
        self._notes.append(f"{self._place}.{text}")

    def _whole(self, place: str, value: Any) -> int:
        if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
            raise NotConvertible(f"{place}: expected a number > 0, not {value!r}")
        return int(value)

    def _choice(self, option: str) -> tuple[str, str]:
        argument, default, words = _CHOICES[option]
        given = str(self._options.pop(option, default))
        if given not in words:
            # So did the predecessor: other orders were that of the list.
            word = "given" if option == "order" else words[default]
            self._note(f"algorithm.options.{option} {given!r} has no counterpart: it is {word!r}")
            return argument, word
        return argument, words[given]

    def _checks(self) -> int:
        """Return how many checks a queue has to stay as long before it is scaled."""
        misspelled = self._options.pop("scaleUpChecks", None)
        given = self._options.pop("scaleChecks", None)
        if misspelled is not None:
            self._note(
                "algorithm.options.scaleUpChecks was never read by ensemble-operator: it is taken "
                "for scaleChecks"
            )
        if given is None:
            given = _SCALE_CHECKS if misspelled is None else misspelled
        return self._whole(f"{self._place}.algorithm.options.scaleChecks", given)

    def _ends_never(self) -> bool:
        if self._options.pop("terminateChecks", None) is not None:
            self._note(
                "algorithm.options.terminateChecks has no counterpart: the ensemble ends with its "
                "last job, without checks"
            )
        never = self._options.pop("disableTermination", "no")
        if never not in ("yes", "no", True, False):
            raise NotConvertible(
                f"{self._place}.algorithm.options.disableTermination: expected yes or no, not "
                f"{never!r}"
            )
        return never in ("yes", True)

    def _job(self, job: Any, at: str) -> dict[str, Any]:
        if not isinstance(job, Mapping) or not job.get("name") or not job.get("command"):
            raise NotConvertible(f"{self._place}.{at}: expected a job with a name and a command")
        found = {key: job[key] for key in ("name", "command")}
        found.update({key: job[key] for key in ("count", "nodes", "tasks") if key in job})
        found.update({key: job[key] for key in ("workdir", "duration") if job.get(key)})
        for key in ("count", "nodes", "tasks"):
            if key in found and (key, found[key]) != ("count", 0):
                found[key] = self._whole(f"{self._place}.{at}.{key}", found[key])
        nodes = found.get("nodes", 1)
        if found.get("count") == 0:
            self._note(f"{at} has no jobs, and is left out")
        elif found.get("tasks", 1) < nodes:
            found.pop("tasks", None)
            self._note(
                f"{at} had as many tasks as a node has CPUs: it has one for each of its {nodes} "
                "nodes; for others write 'tasks'"
            )
        self._notes += (
            f"{self._place}.{at}.{key} is not known, and left out"
            for key in job
            if key not in ("name", "command", "count", "nodes", "tasks", "workdir", "duration")
        )
        return found
