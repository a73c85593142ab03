"""Churn of Ensembles on a control plane: each job once, each status true, nothing left.

    python t/fault/kubernetes.py [--minutes M] [--ensembles N] [--seed S] [--memory]

Ensembles with volumes run under real brokers (`standin`), on a real API server with its controllers
where they are on PATH (`apiserver`), else on one in memory. Meanwhile others write to what belongs
to them and delete it; pods are evicted by the API, by their nodes, and deleted; the operator, the
gRPC services, the API server and the controllers are killed; Ensembles are changed so that they
begin anew, suspended and resumed, and deleted and created again under their names.

Each job leaves a line with the uid of the MiniCluster that it ran in. Whenever a status says that
an Ensemble has completed, each job must have succeeded once, by its counts and by these lines; only
where a pod was lost may a job have left two, for it was not known to have ended. None may be said
to have failed. When the time is up all of them have to complete, and after their deletion nothing
may be left. Prints what was done how often; exits 1 where something was not right, and a long run
(from ten minutes on) where something was never done. At SIGTERM all ends with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "python"
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "k8s" / "operator")]

import yaml  # noqa: E402
from apiserver import ApiServer, api_server, binaries, controller_manager  # noqa: E402
from ends import unwind_at_signals  # noqa: E402
from ensembles import (  # noqa: E402
    CRDS,
    KUBERNETES,
    condition,
    ensemble,
    evict_pod,
    objects,
    write_status,
)
from memory_api import memory_api  # noqa: E402
from patience import PATIENCE  # noqa: E402
from standin import RUN_VARIABLE, Standin, standin  # noqa: E402
from test_operator_app import operator  # noqa: E402

from flux_ensemble.k8s.operator import names  # noqa: E402
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster  # noqa: E402

JOBS = 12

#: How long all of them may take to complete when nobody disturbs them, in seconds: a Job waits
#: before it makes another pod, twice as long each time.
CALM = 900.0

#: How many pods of one MiniCluster are taken away.
LOSSES = 2

#: The template of a volume.
VOLUME = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}

#: How often one that has not completed is begun anew, of the times that it could be: most are left
#: to complete, with all else that is done to them.
UNTIMELY = 0.2

#: A run of so many minutes does everything at least once.
LONG = 10.0

TOKEN = "flux-ensemble-flux-ensemble-operator"
ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"
LEASE = "coordination.k8s.io/v1", "Lease", "flux-ensemble", "flux-ensemble-operator"

_ENSEMBLE = names.API_VERSION, names.KIND
_POD = "v1", "Pod"

#: What others write to, and delete.
OWNED = (
    (names.MINICLUSTER, "MiniCluster"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)


class Churn:
    """Disturbs Ensembles, and looks whether what their statuses say is true.

    Args:
        api: the API server, real or in memory.
        running: what runs their pods.
        directory: for the lines of jobs and the logs of the operator.
        chance: the choices.
        count: how many Ensembles there are.
    """

    def __init__(
        self, api: Any, running: Standin, directory: Path, chance: random.Random, count: int
    ) -> None:
        self.api = api
        self.cluster = KubernetesCluster(api.client())
        self.running = running
        self.directory = directory
        self.chance = chance
        self.names = [f"churn-{number}" for number in range(count)]
        self.ways = self._ways()
        self.done: Counter[str] = Counter({what: 0 for _, what, _ in self.ways})
        self.wrong: list[str] = []
        self._losses: Counter[str] = Counter()
        self._tags = 0
        self._operators = 0
        self._completed: set[str] = set()
        # How many jobs have left a second line, by MiniCluster.
        self.twice: Counter[str] = Counter()
        self._operator: contextlib.ExitStack = contextlib.ExitStack()

    # -- Ensembles ---------------------------------------------------------------------

    def manifest(self, name: str) -> dict[str, Any]:
        """An Ensemble with a text that no other one has had."""
        self._tags += 1
        line = f"echo ${RUN_VARIABLE} {{n}} >>{self.lines}"
        group = {
            "name": f"tag-{self._tags}",
            "command": f"sh -c 'sleep 0.2; {line}'",
            "params": {"n": {"range": [0, JOBS]}},
        }
        submit = {"name": "submit", "label": group["name"]}
        document = {"jobs": [group], "rules": [{"trigger": "start", "action": submit}]}
        spec = {"size": 2, "backoffLimit": 1000, "containers": [{"image": "app"}]}
        one = {
            "name": "solve",
            "ensemble": yaml.safe_dump(document),
            "state": self.chance.choice([{"claim": "disk"}, {"template": VOLUME}]),
            "minicluster": {"spec": spec},
        }
        return ensemble(name, one, install={"skip": True}, onChange="Recreate")

    @property
    def lines(self) -> Path:
        """What the jobs have left."""
        return self.directory / "lines"

    def get(self, name: str) -> dict[str, Any] | None:
        return self.cluster.get(*_ENSEMBLE, "default", name)

    def check(self, name: str) -> bool:
        """Whether an Ensemble has completed; what its status says is compared with what ran."""
        live = self.get(name)
        status = (live or {}).get("status") or {}
        if live is None or not status:
            return False
        metadata = live["metadata"]
        if status["observedGeneration"] != metadata["generation"] or live["spec"].get("suspend"):
            return False
        phase = status["phase"]
        if phase in ("Failed", "Canceled"):
            self._say_wrong(f"{name} is {phase}: {status['members']}")
        if phase != "Completed":
            return False
        (one,) = status["members"]
        run, jobs = one["uid"], one.get("jobs") or {}
        text = self.lines.read_text() if self.lines.exists() else ""
        ran = Counter(line.split()[1] for line in text.splitlines() if line.startswith(run))
        if jobs.get("success") != JOBS or jobs.get("failed") or len(ran) != JOBS:
            self._say_wrong(f"{name} is completed with {jobs}, and lines {ran} of {run}")
        self.twice[run] = ran.total() - len(ran)
        if self.twice[run] and run not in self._losses:
            self._say_wrong(f"{name} has lost no pod, and jobs of {run} ran twice: {ran}")
        for kind, holds in (("Completed", "True"), ("Ready", "True"), ("Failed", "False")):
            if condition(status, kind)[0] != holds:
                self._say_wrong(f"{name} is completed, and {kind} is not {holds}")
        self._completed.add(run)
        return True

    def _say_wrong(self, sentence: str) -> None:
        if sentence not in self.wrong:
            print(f"WRONG: {sentence}", flush=True)
            self.wrong.append(sentence)

    # -- what is done to them ----------------------------------------------------------

    def _ways(self) -> list[tuple[int, str, Callable[[str], bool]]]:
        """What can be done to one of them, and how often beside the others."""
        ways: list[tuple[int, str, Callable[[str], bool]]] = [
            (30, "foreign write", self._write),
            (6, "foreign deletion", self._remove),
            (4, "evicted by API", lambda name: self._lose(name, "API")),
            (4, "evicted by status", lambda name: self._lose(name, "status")),
            (2, "pod deleted", lambda name: self._lose(name, "deletion")),
            (2, "service killed", self._kill_service),
            (1, "operator killed", self._kill_operator),
            (5, "document changed", self._change),
            (5, "restarted by annotation", self._restart),
            (4, "suspended", lambda name: self._suspend(name, True)),
            (8, "resumed", lambda name: self._suspend(name, False)),
            (5, "deleted and created", self._again),
        ]
        if isinstance(self.api, ApiServer):
            ways += [
                (1, "API server killed", self._kill_api),
                (1, "controllers killed", self._kill_controllers),
            ]
        return ways

    def step(self) -> None:
        """Do one thing to one of them."""
        name = self.chance.choice(self.names)
        weights = [weight for weight, _, _ in self.ways]
        _, what, way = self.chance.choices(self.ways, weights)[0]
        try:
            if way(name):
                self.done[what] += 1
        except ClusterFailure as failure:
            # Somebody else has written, or deleted it, at the same time.
            if failure.code not in (404, 409, 422):
                raise

    def _owned(self, name: str) -> list[dict[str, Any]]:
        kind = self.chance.choice(OWNED)
        return self.cluster.list(*kind, "default", labels=names.selector(name))

    def _write(self, name: str) -> bool:
        found = self._owned(name)
        if not found:
            return False
        one = self.chance.choice(found)
        annotations = one["metadata"].setdefault("annotations", {})
        annotations["foreign"] = str(self.chance.random())
        if one["kind"] == "MiniCluster" and self.chance.random() < 0.5:
            one["spec"]["tasks"] = self.chance.randrange(1, 9)
        if one["kind"] == "ConfigMap" and self.chance.random() < 0.5:
            one["data"]["foreign"] = "text"
        if one["kind"] == "Deployment" and self.chance.random() < 0.5:
            one["spec"]["template"]["metadata"].setdefault("annotations", {})["foreign"] = "x"
        self.cluster.replace(one)
        return True

    def _remove(self, name: str) -> bool:
        found = [one for one in self._owned(name) if one["kind"] != "MiniCluster"]
        if found:
            self.cluster.delete(self.chance.choice(found))
        return bool(found)

    def _lose(self, name: str, way: str) -> bool:
        pods = [
            pod
            for pod in self.cluster.list(*_POD, "default", labels=f"job-name={name}-solve")
            if (pod.get("status") or {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]
        if not pods:
            return False
        pod = self.chance.choice(pods)
        job = self.cluster.get("batch/v1", "Job", "default", f"{name}-solve")
        if job is None or not names.owned_by(job, pod):
            return False
        owner = job["metadata"]["ownerReferences"][0]["uid"]
        if self._losses[owner] >= LOSSES:
            return False
        self._losses[owner] += 1
        if way == "API":
            evict_pod(self.cluster, pod)
        elif way == "status":
            evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low."}
            write_status(self.cluster, pod, {**pod["status"], **evicted})
        else:
            self.cluster.delete(pod)
        return True

    def _kill_service(self, name: str) -> bool:
        child = self.running.services.get(f"{name}-grpc")
        if child is not None:
            child.kill()
        return child is not None

    def _begins_anew(self, live: dict[str, Any] | None) -> bool:
        """Whether one may begin anew now."""
        if live is None:
            return False
        done = (live.get("status") or {}).get("phase") == "Completed"
        return done or self.chance.random() < UNTIMELY

    def _change(self, name: str) -> bool:
        live = self.get(name)
        if live is None or not self._begins_anew(live):
            return False
        self.cluster.replace({**live, "spec": self.manifest(name)["spec"]})
        return True

    def _restart(self, name: str) -> bool:
        live = self.get(name)
        if live is None or not self._begins_anew(live):
            return False
        annotations = live["metadata"].setdefault("annotations", {})
        annotations[names.RESTART] = str(self.chance.random())
        self.cluster.replace(live)
        return True

    def _suspend(self, name: str, suspend: bool) -> bool:
        live = self.get(name)
        if live is None or bool(live["spec"].get("suspend")) == suspend:
            return False
        if suspend and not self._begins_anew(live):
            return False
        live["spec"]["suspend"] = suspend
        self.cluster.replace(live)
        return True

    def _again(self, name: str) -> bool:
        live = self.get(name)
        if live is not None:
            if not self._begins_anew(live):
                return False
            self.cluster.delete(live)
        self.cluster.create(self.manifest(name))
        return True

    # -- the control plane -------------------------------------------------------------

    def start_operator(self) -> None:
        """Start an operator, which need not wait for the Lease of the one before."""
        lease = self.cluster.get(*LEASE)
        if lease is not None:
            spec = {**lease["spec"], "leaseDurationSeconds": 1}
            self.cluster.replace({**lease, "spec": spec})
        self._operators += 1
        self._operator = contextlib.ExitStack()
        # With a short Lease it would end while the API server is away.
        self._child = self._operator.enter_context(
            operator(self.api, self.directory, f"operator-{self._operators}", "--lease-seconds=300")
        )

    def stop_operator(self) -> None:
        """Kill the operator."""
        self._operator.close()

    def _kill_operator(self, name: str) -> bool:
        self.stop_operator()
        self.start_operator()
        return True

    def keep(self) -> None:
        """What a kubelet does with an operator, or controllers, that have ended by themselves."""
        if self._child.poll() is not None:
            self.done["operator ended"] += 1
            self._kill_operator("")
        if isinstance(self.api, ApiServer) and self.api.keep_controllers():
            self.done["controllers ended"] += 1

    def _kill_api(self, name: str) -> bool:
        self.api.stop_apiserver()
        time.sleep(1)
        self.api.start()
        return True

    def _kill_controllers(self, name: str) -> bool:
        self.api.stop_controllers()
        self.api.start_controllers()
        return True

    # -- the end -----------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until all have completed."""
        for name in self.names:
            live = self.get(name)
            if live is None:
                self.cluster.create(self.manifest(name))
            elif live["spec"].get("suspend"):
                live["spec"]["suspend"] = False
                self.cluster.replace(live)
        deadline = time.monotonic() + CALM
        while not all(self.check(name) for name in self.names):
            self.keep()
            if time.monotonic() > deadline:
                for name in self.names:
                    self._say_wrong(f"it does not complete: {(self.get(name) or {}).get('status')}")
                return
            time.sleep(1)

    def clear(self) -> None:
        """Delete all, and wait until nothing is left."""
        for name in self.names:
            live = self.get(name)
            if live is not None:
                self.cluster.delete(live)
        deadline = time.monotonic() + PATIENCE
        while left := self._left():
            self.keep()
            if time.monotonic() > deadline:
                self._say_wrong(f"left: {left}")
                return
            time.sleep(1)

    def _left(self) -> list[str]:
        left = [
            f"{kind[1]} {one['metadata']['name']}"
            for kind in (_ENSEMBLE, *OWNED, ("batch/v1", "Job"), _POD)
            for one in self.cluster.list(*kind, "default")
            if one["metadata"]["name"].startswith("churn-")
        ]
        return [*left, *self.running.brokers, *self.running.services]

    @property
    def completed(self) -> int:
        """How many MiniClusters were seen to have completed."""
        return len(self._completed)


@contextlib.contextmanager
def control_plane(directory: Path, *, memory: bool) -> Iterator[Any]:
    """An API server with what the operator needs."""
    if memory or binaries() is None or controller_manager() is None:
        with memory_api() as api:
            api.account_token("flux-ensemble", "flux-ensemble-operator")
            _install(KubernetesCluster(api.client()))
            yield api
        return
    with api_server(directory, {TOKEN: ACCOUNT}) as server:
        _install(KubernetesCluster(server.client()))
        yield server


def _install(cluster: KubernetesCluster) -> None:
    from lightkube.codecs import from_dict

    for one in objects(KUBERNETES / "install.yaml", CRDS[1]):
        cluster.client.create(from_dict(one))
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            for kind in (_ENSEMBLE, (names.MINICLUSTER, "MiniCluster")):
                cluster.list(*kind, "default")
        except ClusterFailure:
            assert time.monotonic() < deadline, "the CRDs are not established"
            time.sleep(0.2)
        else:
            return


def main() -> int:
    """Churn, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--ensembles", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--memory", action="store_true", help="the API server in memory")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    unwind_at_signals()
    with tempfile.TemporaryDirectory(prefix="churn") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        api = stack.enter_context(control_plane(directory, memory=options.memory))
        running = stack.enter_context(standin(api))
        chance = random.Random(options.seed)
        churn = Churn(api, running, directory, chance, options.ensembles)
        churn.start_operator()
        stack.callback(churn.stop_operator)
        for one in churn.names:
            churn.cluster.create(churn.manifest(one))
        t_begin = time.monotonic()
        while time.monotonic() - t_begin < 60 * options.minutes and not churn.wrong:
            churn.step()
            churn.keep()
            for one in churn.names:
                churn.check(one)
            time.sleep(chance.uniform(0.2, 2))
        churn.settle()
        churn.clear()
        never = [what for what, count in churn.done.items() if not count]
        if never and options.minutes >= LONG and not churn.wrong:
            churn.wrong.append(f"never done: {', '.join(never)}")
        if running.errors:
            churn.wrong.append(f"the stand-in: {running.errors[:3]}")
        if churn.wrong:
            print(running.logs()[-4000:])
            controllers = directory.rglob("kube-controller-manager.log")
            logs = [*directory.glob("operator*.log"), *controllers]
            print("\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in logs))
        result = {
            "api": type(api).__name__,
            "minutes": round((time.monotonic() - t_begin) / 60, 1),
            "completed": churn.completed,
            "jobs": JOBS * churn.completed,
            "jobs_with_two_lines": churn.twice.total(),
            "done": dict(churn.done),
            "wrong": churn.wrong,
        }
    print(json.dumps(result, indent=1))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
