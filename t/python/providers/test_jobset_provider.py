"""Members in a simulated Kubernetes that loses answers: each starts once, and none is forgotten."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest
import yaml
from test_slurm_provider import Timers

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.queues.nested.provider import JobName
from flux_ensemble.queues.nested.shape import CORES, SECONDS, MemberTag, Program, Shape, Size
from flux_ensemble.queues.providers.jobset.job import (
    TAG,
    WORKER_LABEL,
    describe,
    ended,
    job_set_name,
    waits,
)
from flux_ensemble.queues.providers.jobset.provider import JobSetProvider, Trouble
from flux_ensemble.queues.providers.jobset.template import cores_of, gpus_of
from flux_ensemble.service.worker import resources

HOME = "12.5"

TEMPLATE = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {labels: {team: a}}
spec:
  replicatedJobs:
    - name: worker
      template:
        spec:
          template:
            metadata: {labels: {app: model}}
            spec:
              volumes: [{name: data, emptyDir: {}}]
              containers:
                - name: worker
                  image: example.org/model
                  command: [/opt/venv/bin/python3]
                  env: [{name: X, value: "1"}]
                  volumeMounts: [{name: data, mountPath: /data}]
                  resources: {limits: {cpu: 2500m, nvidia.com/gpu: 2}}
"""


def shape(ordinal: int, **keys: Any) -> Shape:
    tag = MemberTag("A study", 1, f"cloud.{ordinal}", ordinal, 1)
    given: dict[str, Any] = {
        "program": Program.WORKER,
        "credentials": "{}",
        "template": yaml.safe_load(TEMPLATE),
        **keys,
    }
    return Shape(tag, HOME, given.pop("size", Size()), {}, "/work", **given)


# -- what is asked for -------------------------------------------------------------------------


def test_a_jobset_has_one_pod_that_starts_once_and_is_the_worker() -> None:
    template = yaml.safe_load(TEMPLATE)
    made = describe(shape(3, template=template, size=Size(duration=7200.0)), "research")
    assert template == yaml.safe_load(TEMPLATE), "the template of the pool is changed"
    jobset, secret = made["jobset"], made["secret"]
    assert jobset["metadata"]["name"] == secret["metadata"]["name"]
    assert jobset["metadata"]["namespace"] == secret["metadata"]["namespace"] == "research"
    assert jobset["metadata"]["labels"]["team"] == "a"
    assert jobset["metadata"]["annotations"] == {TAG: '["12.5","A study",1,3]'}
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (replicated["replicas"], job["parallelism"], job["completions"]) == (1, 1, 1)
    assert job["backoffLimit"] == 0
    labels = job["template"]["metadata"]["labels"]
    assert labels["app"] == "model"
    assert labels[WORKER_LABEL] == jobset["metadata"]["name"]
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["activeDeadlineSeconds"] == 7260
    assert [one["name"] for one in pod["volumes"]] == ["data", "flux-ensemble"]
    (worker,) = pod["containers"]
    assert worker["command"] == ["/opt/venv/bin/python3"]
    assert worker["args"][:3] == ["-P", "-m", "flux_ensemble.service.worker"]
    env = {one["name"]: one.get("value") for one in worker["env"]}
    assert env["X"] == "1"
    assert (env[CORES], env[SECONDS], env["CUDA_VISIBLE_DEVICES"]) == ("2", "7200", "0,1")


def test_a_container_without_a_number_of_cpus_asks_its_cluster() -> None:
    template = yaml.safe_load(
        TEMPLATE.replace("resources: {limits: {cpu: 2500m, nvidia.com/gpu: 2}}", "")
    )
    made = describe(shape(0, template=template), "default")["jobset"]
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert env[CORES]["valueFrom"] == {"resourceFieldRef": {"resource": "limits.cpu"}}
    assert SECONDS not in env
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert "activeDeadlineSeconds" not in pod


def test_names_differ_by_run_and_member_and_fit_for_pods() -> None:
    tags = [
        MemberTag(name, run, "x", ordinal, 1)
        for name in ("a", "A_b", "7", "+", "x" * 200)
        for run in (1, 2)
        for ordinal in (0, 99_999)
    ]
    names = [job_set_name(tag, HOME) for tag in tags]
    assert len(set(names)) == len(tags)
    for name in names:
        assert name[0].isalpha()
        assert name.replace("-", "").isalnum()
        assert name.isascii()
        assert len(f"{name}-{'r' * 16}-0-0-abcde") <= 63


@pytest.mark.parametrize("keys", [{"program": Program.INSTANCE}, {"credentials": ""}])
def test_only_workers_with_a_home_are_started(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="members in Kubernetes are workers"):
        describe(shape(0, **keys), "default")


@pytest.mark.parametrize(
    ("resources", "cores", "gpus"),
    [
        ({}, None, 0),
        ({"limits": {"cpu": "4"}, "requests": {"cpu": 1}}, 4, 0),
        ({"requests": {"cpu": 2.5}}, 2, 0),
        ({"limits": {"amd.com/gpu": "1", "memory": "1Gi"}}, None, 1),
    ],
)
def test_cores_and_gpus_are_those_of_the_container(
    resources: dict[str, Any], cores: int | None, gpus: int
) -> None:
    assert cores_of({"resources": resources}) == cores
    assert gpus_of({"resources": resources}) == gpus


def test_a_worker_that_has_less_than_it_sees_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 5, 6, 7})
    facts, binding = resources({CORES: "2", SECONDS: "60"})
    assert (facts.cores, binding.take(1, 1, 0)) == (2, ([], []))
    assert facts.t_expires is not None
    facts, binding = resources({CORES: "8"})
    assert (facts.cores, facts.t_expires, binding.take(1, 1, 0)) == (4, None, ([4], []))


# -- documents ---------------------------------------------------------------------------------

DOCUMENT = """
name: study
members: [{name: cloud, from: jobset, runs: tasks, template: workers.yaml}]
jobs: [{name: a, command: echo}]
rules: [{trigger: start, action: {name: submit, label: a}}]
"""


def problems(text: str, template: str = TEMPLATE) -> str:
    try:
        load_text(text, files={"workers.yaml": template})
    except DocumentError as error:
        return str(error)
    return ""


def test_a_document_with_a_template_has_no_problems() -> None:
    assert problems(DOCUMENT) == ""
    spec = load_text(DOCUMENT, files={"workers.yaml": TEMPLATE})
    (pool,) = spec.members
    assert pool.calls_home
    assert pool.template == yaml.safe_load(TEMPLATE)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("runs: tasks, ", "", "members[0].runs: members in Kubernetes are workers, which need no"),
        (", template: workers.yaml", "", "members[0]: the key 'template' is missing: it names a"),
        (
            "runs: tasks,",
            "runs: tasks, options: {a: b},",
            "members[0].options: 'options' is not of",
        ),
        ("runs: tasks,", "runs: tasks, nodes: 2,", "members[0].nodes: a member with 'runs: tasks'"),
        ("runs: tasks,", "runs: tasks, service: child,", "members[0].service: 'service' is not of"),
        ("from: jobset, ", "", "members[0].template: 'template' is a JobSet, for members 'from:"),
        ("workers.yaml", "none.yaml", "members[0].template: cannot read 'none.yaml': No such file"),
    ],
)
def test_problems_of_keys_have_places_and_remedies(old: str, new: str, said: str) -> None:
    assert said in problems(DOCUMENT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: JobSet", "kind: Job", "expected a JobSet (apiVersion: jobset.x-k8s.io/v1alpha2"),
        ("{labels: {team: a}}", "{name: x}", "metadata.name: each member has a name of its own"),
        ("{labels: {team: a}}", "[x]", "metadata: expected a mapping, not"),
        ("    - name: worker\n", "    - name: a\n    - name: worker\n", "expected one entry, bec"),
        ("    - name: worker\n", "    - name: worker\n      replicas: 2\n", "replicas: expected 1"),
        ("- name: worker\n", f"- name: {'w' * 20}\n", "expected a name of at most 16 characters"),
        ("            metadata", "            spec: 1\n            metadata", "spec"),
        ("            spec:\n", "            spec:\n              restartPolicy: A\n", "Never"),
        ("spec:\n  rep", "spec:\n  failurePolicy: {maxRestarts: 3}\n  rep", "expected 0, not 3: a"),
        ("image: example.org/model", "tty: true", "the worker has no 'image'"),
        ("[/opt/venv/bin/python3]", "python3", "expected a 'command' that runs Python"),
        ("command: [", "args: [-v]\n                  command: [", "'args' are given by"),
        ("name: data, empty", "name: flux-ensemble, empty", "the name 'flux-ensemble' is taken"),
        ("resources: {", "resources: [x]\n                  other: {", "resources: expected a map"),
        ("- name: worker\n                  image", "- name: a\n                - name: b\n"
         "                  image", "expected one container, or one that is called 'worker'"),
        ("kind: JobSet", "kind: {", "workers.yaml:"),
    ],
)  # fmt: skip
def test_problems_of_templates_have_places_and_remedies(old: str, new: str, said: str) -> None:
    assert old in TEMPLATE
    found = problems(DOCUMENT, TEMPLATE.replace(old, new, 1))
    assert "members[0].template: " in found
    assert "workers.yaml" in found
    assert said in found


# -- what is read ------------------------------------------------------------------------------


def pod(**status: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"labels": {}}, "status": status}


def jobset(*conditions: str, **metadata: Any) -> dict[str, Any]:
    listed = [{"type": kind, "status": "True", "message": "so it is"} for kind in conditions]
    return {
        "kind": "JobSet",
        "metadata": {"uid": "u", **metadata},
        "spec": {},
        "status": {"conditions": listed},
    }


def test_why_a_member_waits_is_what_kubernetes_says() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    table = [
        ([], "waits: its JobSet has no pod yet"),
        ([pod(phase="Pending")], "waits for its pod"),
        (
            [pod(phase="Pending", conditions=[{**unscheduled, "message": "0/3 nodes"}])],
            "waits in Kubernetes: Unschedulable: 0/3 nodes",
        ),
        (
            [pod(phase="Pending", containerStatuses=[pulling])],
            "waits for its pod: ImagePullBackOff: no such image",
        ),
        (
            [pod(phase="Pending", containerStatuses=[creating])],
            "waits for its pod: ContainerCreating",
        ),
        ([pod(phase="Running")], None),
    ]
    for pods, said in table:
        assert waits(jobset(), pods, []) == said


def test_why_a_member_waits_for_a_queue_is_what_kueue_says() -> None:
    held = jobset(labels={"kueue.x-k8s.io/queue-name": "research"})
    held["spec"]["suspend"] = True
    assert waits(held, [], []) == "waits in Kueue: queue research"
    workload = {
        "metadata": {"ownerReferences": [{"uid": "u"}]},
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "cpu"}
            ]
        },
    }
    assert waits(held, [], [workload]) == "waits in Kueue: Pending: cpu"
    del held["metadata"]["labels"]
    assert waits(held, [], []) == "waits: its JobSet is suspended"


def test_why_a_member_has_ended_is_what_its_pod_says() -> None:
    killed = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    assert ended(jobset(), [pod(phase="Running")]) is None
    assert ended(jobset("Completed"), []) == "its worker has ended"
    assert ended(jobset("Failed"), []) == "its JobSet has failed: so it is"
    assert ended(jobset("Failed"), [pod(phase="Failed", containerStatuses=[killed])]) == (
        "its JobSet has failed: its pod ended with exit code 137 (OOMKilled)"
    )
    assert ended(jobset("Failed"), [pod(phase="Failed", reason="Evicted", message="disk")]) == (
        "its JobSet has failed: Evicted: disk"
    )
    assert ended(jobset(deletionTimestamp="now"), []) == "its JobSet was deleted"


# -- a cluster that loses answers ---------------------------------------------------------------


class Kubernetes:
    """A cluster, which outlasts homes.

    Attributes:
        jobsets, secrets, pods: by their names.
        made: how often a JobSet of a name was made.
        refusal: of each object.
        silent: pods stay, since their nodes do not answer.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.jobsets: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: Counter[str] = Counter()
        self.uids = count(1)
        self.refusal: Trouble | None = None
        self.silent = False

    def create(self, one: dict[str, Any]) -> Any:
        if self.refusal is not None:
            return self.refusal
        name = one["metadata"]["name"]
        there = self.jobsets if one["kind"] == "JobSet" else self.secrets
        if name in there:
            return Trouble("it exists", 409)
        made = copy.deepcopy(one)
        made["metadata"]["uid"] = str(next(self.uids))
        there[name] = made
        if there is self.jobsets:
            self.made[name] += 1
        return made

    def delete(self, name: str) -> None:
        if self.jobsets.pop(name, None) is not None:
            self.secrets.pop(name, None)

    def step(self) -> None:
        """What controllers and kubelets do meanwhile: some of it."""
        for name in self.jobsets:
            if name not in self.pods and name in self.secrets and self.random.random() < 0.5:
                labels = {WORKER_LABEL: name}
                self.pods[name] = {
                    "kind": "Pod",
                    "metadata": {"name": name, "labels": labels},
                    "status": {"phase": "Running"},
                }
        for name in list(self.pods):
            gone = name not in self.jobsets and not self.silent
            if gone and self.random.random() < 0.3:
                del self.pods[name]


class Connection:
    """A `Cluster` of one home; with a probability, an answer is lost or late.

    Attributes:
        cut: nothing comes back any more: the home has died.
    """

    namespace = "default"

    def __init__(self, loop: Timers, kubernetes: Kubernetes, faults: float) -> None:
        self.loop, self.kubernetes, self.faults = loop, kubernetes, faults
        self.cut = False
        self._changed: Callable[[], None] = lambda: None
        self._seen: dict[str, list[dict[str, Any]]] | None = None
        self._tick()

    def _tick(self) -> None:
        if not self.cut:
            self.kubernetes.step()
            self._seen = {
                "JobSet": copy.deepcopy(list(self.kubernetes.jobsets.values())),
                "Pod": copy.deepcopy(list(self.kubernetes.pods.values())),
            }
            self._changed()
            self.loop.timer(0.5, self._tick)

    def _ask(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        random = self.kubernetes.random
        how = random.choice(("lost", "unsent", "late"))
        after = random.uniform(0.01, 0.4)
        if random.random() >= self.faults:
            self.loop.timer(after, lambda: self._tell(done, work()))
            return
        if how != "unsent":
            # It is done, at once or after it was given up, and nobody knows.
            self.loop.timer(after if how == "lost" else random.uniform(1.0, 5.0), work)
        self.loop.timer(after, lambda: self._tell(done, Trouble("no answer")))

    def _tell(self, done: Callable[[Any], None], answer: Any) -> None:
        if not self.cut:
            done(copy.deepcopy(answer))

    def create(self, one: Any, done: Callable[[Any], None]) -> None:
        self._ask(lambda: self.kubernetes.create(one), done)

    def get(self, kind: str, namespace: str, name: str, done: Callable[[Any], None]) -> None:
        there = self.kubernetes.jobsets if kind == "JobSet" else self.kubernetes.secrets
        self._ask(lambda: there.get(name), done)

    def list_live(
        self, namespace: str, label: str, value: str, done: Callable[[Any], None]
    ) -> None:
        pods = self.kubernetes.pods
        self._ask(lambda: [one for name, one in pods.items() if name == value], done)

    def delete(self, one: Any, done: Callable[[Any], None]) -> None:
        self._ask(lambda: self.kubernetes.delete(one["metadata"]["name"]), done)

    def watch(
        self, namespace: str, label: str, value: str, queues: bool, changed: Callable[[], None]
    ) -> None:
        self._changed = changed

    def seen(self, kind: str) -> list[dict[str, Any]] | None:
        return None if self._seen is None else self._seen.get(kind, [])

    def close(self) -> None:
        self.cut = True


class Member:
    """What a provider tells of a member."""

    def __init__(self, ordinal: int) -> None:
        self.tag = MemberTag("A study", 1, f"cloud.{ordinal}", ordinal, 1)
        self.job: JobName | None = None
        self.unwanted = self.asked_to_end = False
        self.told: list[str] = []

    def waits(self, error: Exception) -> None:
        pass

    def submitted(self, job: JobName) -> None:
        self.job = job

    def refused(self, reason: str) -> None:
        self.told.append(f"refused: {reason}")

    def began(self) -> None:
        self.told.append("began")

    def reached(self, uri: str) -> None:
        raise NotImplementedError

    def broke(self, reason: str, outage: bool = False) -> None:
        self.told.append(reason)

    def expires(self, t_expires: float | None) -> None:
        raise NotImplementedError

    def over(self) -> None:
        self.told.append("over")

    def give_up(self, reason: str) -> None:
        self.told.append(f"given up: {reason}")


class Home:
    """A home: what it has written down outlasts it."""

    def __init__(
        self, kubernetes: Kubernetes, written: dict[int, str], faults: float = 0.0
    ) -> None:
        self.loop = Timers()
        self.connection = Connection(self.loop, kubernetes, faults)
        self.log: list[str] = []
        self.provider = JobSetProvider(self.loop, self.log.append, self.connection)
        self.written = written

    def start(self, ordinal: int) -> Member:
        member = Member(ordinal)
        if ordinal in self.written:
            self.provider.find(member, HOME, self.written[ordinal])
        else:
            job = self.provider.describe(shape(ordinal))
            self.provider.start(member, job, lambda job, then: self._write(ordinal, job, then))
        return member

    def _write(self, ordinal: int, job: str, then: Callable[[], None]) -> None:
        # A commit takes a while, and the home may die before.
        def commit() -> None:
            if not self.connection.cut:
                self.written[ordinal] = job
                then()

        self.loop.timer(self.connection.kubernetes.random.uniform(0.0, 0.5), commit)


@pytest.mark.parametrize("seed", range(40))
def test_each_member_starts_once_whatever_is_lost_and_however_often_the_home_dies(
    seed: int,
) -> None:
    random = Random(seed)
    kubernetes = Kubernetes(random)
    written: dict[int, str] = {}
    for _ in range(random.randint(1, 5)):
        home = Home(kubernetes, written, faults=0.4)
        members = [home.start(ordinal) for ordinal in range(4)]
        home.loop.run(random.uniform(0.05, 3.0))
        home.provider.close()
    home = Home(kubernetes, written, faults=0.2)
    members = [home.start(ordinal) for ordinal in range(4)]
    home.loop.run(100.0)
    assert [member.told for member in members] == [["began"]] * 4
    assert set(kubernetes.made.values()) == {1}
    assert len(kubernetes.made) == 4
    assert kubernetes.secrets.keys() == kubernetes.jobsets.keys() == kubernetes.pods.keys()
    for member in members:
        assert member.job is not None
        home.provider.end(member.job, "", lambda error: None)
    home.loop.run(101.0)
    for member in members:
        # A request to end is repeated, as `MemberJob` does.
        if member.job is not None and "over" not in member.told:
            home.connection.faults = 0.0
            home.provider.end(member.job, "", lambda error: None)
    home.loop.run(200.0)
    assert [member.told[-1] for member in members] == ["over"] * 4
    assert not kubernetes.jobsets
    assert not kubernetes.pods


def started(kubernetes: Kubernetes, ordinal: int = 0) -> tuple[Home, Member, str]:
    home = Home(kubernetes, {})
    member = home.start(ordinal)
    home.loop.run(10.0)
    assert member.told == ["began"]
    return home, member, str(member.job).rpartition("/")[2]


def test_a_member_whose_jobset_is_deleted_is_over_when_its_pod_is_gone() -> None:
    kubernetes = Kubernetes(Random(1))
    home, member, name = started(kubernetes)
    # Its node is silent: nobody knows whether it runs.
    kubernetes.silent = True
    kubernetes.delete(name)
    home.loop.run(60.0)
    assert member.told == ["began"]
    kubernetes.silent = False
    home.loop.run(90.0)
    assert member.told == ["began", "its JobSet is not there any more", "over"]


def test_a_jobset_of_the_same_name_that_was_made_again_is_another_one() -> None:
    kubernetes = Kubernetes(Random(1))
    home, member, name = started(kubernetes)
    kubernetes.jobsets[name]["metadata"]["uid"] = "other"
    kubernetes.pods.clear()
    kubernetes.secrets.clear()
    home.loop.run(20.0)
    assert member.told[-2:] == ["its JobSet is not there any more", "over"]
    assert name in kubernetes.jobsets


def test_a_name_that_somebody_else_has_is_refused() -> None:
    kubernetes = Kubernetes(Random(1))
    made = describe(shape(0), "default")["jobset"]
    made["metadata"]["annotations"] = {}
    kubernetes.create(made)
    home = Home(kubernetes, {})
    member = home.start(0)
    home.loop.run(5.0)
    name = made["metadata"]["name"]
    assert member.told == [
        f"refused: Kubernetes refuses its JobSet: the name {name} is that of a JobSet which is no "
        "member of this run"
    ]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble("jobsets is forbidden", 403), "jobsets is forbidden"),
        (Trouble("the server could not find it", 404), "the cluster has no JobSets: install"),
        (Trouble('namespaces "x" not found', 404), 'namespaces "x" not found'),
        (Trouble("it is invalid", 422), "it is invalid"),
    ],
)
def test_what_is_wrong_for_good_is_refused(trouble: Trouble, said: str) -> None:
    kubernetes = Kubernetes(Random(1))
    kubernetes.refusal = trouble
    home = Home(kubernetes, {})
    member = home.start(0)
    home.loop.run(5.0)
    (told,) = member.told
    assert told.startswith(f"refused: Kubernetes refuses its JobSet: {said}")


@pytest.mark.parametrize(
    "trouble",
    [
        Trouble("the API server does not answer"),
        Trouble("forbidden: exceeded quota: a", 403),
        Trouble("slow down", 429),
        Trouble("failed calling webhook", 500),
    ],
)
def test_what_may_change_is_asked_again_and_logged_once(trouble: Trouble) -> None:
    kubernetes = Kubernetes(Random(1))
    kubernetes.refusal = trouble
    home = Home(kubernetes, {})
    member = home.start(0)
    home.loop.run(10.0)
    assert member.told == []
    kubernetes.refusal = None
    home.loop.run(20.0)
    assert member.told == ["began"]
    assert home.log == [
        f"cannot start a member in Kubernetes: {trouble.text}",
        "the API server of Kubernetes answers again",
    ]


def test_a_member_that_is_not_wanted_any_more_is_not_started() -> None:
    kubernetes = Kubernetes(Random(1))
    kubernetes.refusal = Trouble("the API server does not answer")
    home = Home(kubernetes, {})
    member = home.start(0)
    home.loop.run(3.0)
    member.unwanted = True
    kubernetes.refusal = None
    home.loop.run(10.0)
    assert member.told == ["given up: it is not needed any more"]
    assert not kubernetes.jobsets


def test_a_member_that_is_not_wanted_any_more_and_was_made_by_an_earlier_home_is_told_of() -> None:
    kubernetes = Kubernetes(Random(1))
    kubernetes.create(describe(shape(0), "default")["jobset"])
    home, member = Home(kubernetes, {}), Member(0)
    member.unwanted = True
    job = home.provider.describe(shape(0))
    home.provider.start(member, job, lambda name, then: None)
    home.loop.run(5.0)
    # Whoever follows it ends it now.
    assert member.job == f"default/{job['jobset']['metadata']['name']}"
    assert member.told == []


def test_a_member_that_ended_while_no_home_was_there_is_over() -> None:
    kubernetes = Kubernetes(Random(1))
    written: dict[int, str] = {0: f"default/{job_set_name(shape(0).tag, HOME)}"}
    home = Home(kubernetes, written)
    member = home.start(0)
    home.loop.run(10.0)
    assert member.told == ["its JobSet is not there any more", "over"]
