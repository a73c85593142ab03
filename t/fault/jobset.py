"""Kills homes without Flux, their workers in JobSets, and a real API server under them.

    python t/fault/jobset.py [--rounds N] [--minutes M] [--seed S]

Needs kube-apiserver, kube-controller-manager and etcd; without them it says so and does nothing.
The JobSet controller and the kubelets are stand-ins, which start real workers (`jobset_cluster`).
Side effects of tasks are counted: see `homes`. Where there can be network namespaces, the home is
in one, and the pods of every other node in another; the links between them, and to the API server,
are set down. Else a worker is stopped.

There are two controls. A home that gives its JobSets random names, in place of those made of the
run and the member, and is killed when one is made, starts a member twice; the two workers of that
are taken for one in turn, so tasks run twice, too. A home that takes a member to be over when its
JobSet is deleted, in place of looking for what may still run of it, has its tasks twice at a time
where the node of the pod is silent.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from homes import PATIENCE, Kinds, Run, Site, Trouble, enters, ip, options_of, pairs, report, until
from homes import signal_some as send

TESTS = Path(__file__).parents[1] / "python"
sys.path[:0] = [str(TESTS / "helpers")]

from apiserver import ApiServer, api_server, binaries, controller_manager  # noqa: E402
from jobset_cluster import JobSetCluster, install, post, rights_of, workers_template  # noqa: E402
from lightkube.types import CascadeType  # noqa: E402

#: The namespaces of the home and of a node, and the ends of the links, in a network for tests
#: (RFC 2544): from the API server to the home, and from the home to the node.
NET, NODE = "fluxens-home", "fluxens-pods"
API, HOME, HOMEWARD, POD = (f"198.18.78.{number}" for number in (1, 2, 5, 6))

#: The user that a home is.
USER = "home"

#: A variable with the name of the pod.
POD_NAME = "{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"

POOL = (
    "{{name: pool, from: jobset, runs: tasks, template: {template}, duration: 30m, "
    "count: {{min: 2, max: 3}}}}"
)

#: A home that is killed when its first JobSet and the Secret of that are made, once: without the
#: Secret no pod would start.
KILLED = """
import os, signal
from flux_ensemble.k8s.operator import cluster
def create(self, one, create=cluster.KubernetesCluster.create):
    made = create(self, one)
    if one["kind"] == "Secret" and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return made
cluster.KubernetesCluster.create = create
"""

#: A home whose JobSets have random names.
UNCLAIMED = """
import secrets
from flux_ensemble.queues.providers.jobset import job
job.job_set_name = lambda tag, home: f"a-{secrets.token_hex(6)}-{tag.ordinal}"
"""

#: A home that takes a member to be over when its JobSet is, or is about to be.
UNCONFIRMED = """
from flux_ensemble.queues.providers.jobset import provider
def found(self, following, answer, found=provider.JobSetProvider._found):
    trouble = isinstance(answer, provider.Trouble)
    goes_on = trouble or answer is not None and provider.jobs.ended(answer, ()) is None
    if goes_on or self._is_over(following):
        found(self, following, answer)
    else:
        self._over(following)
provider.JobSetProvider._found = found
"""


class Network:
    """The links of a home; where there can be none, `there` is False."""

    def __init__(self) -> None:
        links = (("a", None, API, NET, HOME), ("p", NET, HOMEWARD, NODE, POD))
        words = [f"netns add {name}" for name in (NET, NODE)]
        words += [f"-n {name} link set lo up" for name in (NET, NODE)]
        for link, near, near_address, far, far_address in links:
            here, there = self._ends(link)
            inside = "" if near is None else f"-n {near} "
            words += [
                f"link add {here} type veth peer name {there}",
                *([] if near is None else [f"link set {here} netns {near}"]),
                f"link set {there} netns {far}",
                f"{inside}addr add {near_address}/30 dev {here}",
                f"{inside}link set {here} up",
                f"-n {far} addr add {far_address}/30 dev {there}",
                f"-n {far} link set {there} up",
            ]
        # What a home takes for its address is that of its way out.
        words += [
            f"-n {NET} route add default via {API}",
            f"-n {NODE} route add {HOME}/32 via {HOMEWARD}",
        ]
        self.there = all(map(ip, words))
        if not self.there:
            self.close()

    @staticmethod
    def _ends(link: str) -> tuple[str, str]:
        return f"fluxens-{link}h", f"fluxens-{link}n"

    def cut(self, link: str, seconds: float) -> None:
        """Set a link down for some seconds: "a" to the API server, or "p" to the pods of a node."""
        inside = "" if link == "a" else f"-n {NET} "
        here, _ = self._ends(link)
        ip(f"{inside}link set {here} down")
        time.sleep(seconds)
        ip(f"{inside}link set {here} up")

    def close(self) -> None:
        """Remove them."""
        # What still runs there keeps the link.
        ip(f"link del {self._ends('a')[0]}")
        ip(f"-n {NET} link del {self._ends('p')[0]}")
        for name in (NET, NODE):
            ip(f"netns del {name}")


def kinds(
    run: Run, api: ApiServer, cluster: JobSetCluster, network: Network, dice: random.Random
) -> Kinds:
    """What can be done to a run."""

    def workers() -> list[int]:
        return [child.pid for child in cluster.workers.values() if child.poll() is None]

    def some() -> list[int]:
        return [dice.choice(found)] if (found := workers()) else []

    def stopped() -> None:
        pids = some()
        send(pids, signal.SIGSTOP)
        time.sleep(dice.uniform(2.0, 20.0))
        send(pids, signal.SIGCONT)

    def deletes(kind: str) -> Callable[[], None]:
        def delete() -> None:
            found = cluster.jobsets() if kind == "JobSet" else cluster.pods()
            if found:
                # As kubectl does it, or as homes do.
                cascade = dice.choice((CascadeType.BACKGROUND, CascadeType.FOREGROUND))
                cluster.cluster.delete(dice.choice(found), cascade=cascade)

        return delete

    def silent() -> None:
        cluster.silent = True
        deletes("JobSet")()
        send(some(), signal.SIGSTOP)
        time.sleep(dice.uniform(2.0, 15.0))
        cluster.silent = False

    def api_server_away() -> None:
        api.stop_apiserver()
        time.sleep(dice.uniform(0.0, 5.0))
        api.start()

    def controllers() -> None:
        cluster.controller = False
        api.stop_controllers()
        time.sleep(dice.uniform(0.0, 5.0))
        api.start_controllers()
        cluster.controller = True

    def kept(other: Callable[[], None]) -> None:
        other()
        # They end where the API server is away while they start.
        api.keep_controllers()

    others: dict[str, Callable[[], None]] = {
        "worker": lambda: send(some(), signal.SIGKILL),
        "JobSet": deletes("JobSet"),
        "API server": api_server_away,
        "controllers": controllers,
    }
    if network.there:
        others |= {
            "cut from pods": lambda: network.cut("p", dice.uniform(5.0, 60.0)),
            "cut from API server": lambda: network.cut("a", dice.uniform(5.0, 60.0)),
        }
    found = {
        **others,
        **pairs(run, others, dice),
        "pod": deletes("Pod"),
        "stopped": stopped,
        "silent node": silent,
        "all workers": lambda: send(workers(), signal.SIGKILL),
    }
    return {name: partial(kept, does) for name, does in found.items()}


def started_twice(site: Site, cluster: JobSetCluster, name: str, patch: str) -> tuple[int, int]:
    """Kill a home when a JobSet and its Secret are made.

    Return how many members started twice, and how many tasks ran twice.
    """
    run = Run(name, site, 40, patch=KILLED + patch)
    try:
        until(lambda: run.over, PATIENCE, f"the death of the home of {name}")
        # The pod of the first one is there when the next home asks.
        until(lambda: _started(cluster, name), PATIENCE, f"a worker of {name}")
        run.go_on()
        until(lambda: run.over, PATIENCE, f"the end of {name}")
        started = _started(cluster, name)
        return sum(number > 1 for number in started.values()), len(run.twice())
    except Trouble as trouble:
        raise Trouble(f"{trouble}\n{run.log}") from None
    finally:
        run.kill()


def _started(cluster: JobSetCluster, name: str) -> Counter[str]:
    """How often the members of an ensemble have started."""
    tags = (str(given["tag"]) for given in cluster.asked())
    return Counter(tag for tag in tags if f"'{name}'" in tag)


def ran_twice(site: Site, cluster: JobSetCluster, name: str, patch: str) -> int:
    """Delete the JobSets of silent nodes that run tasks; return how many tasks ran twice."""
    run = Run(name, site, 2, 20.0, patch=patch)
    try:
        until(lambda: len(run.effects.began) == 2, PATIENCE, f"the tasks of {name}")
        until(lambda: len(_started(cluster, name)) >= 2, PATIENCE, f"the members of {name}")
        pods = {worker for _, worker in run.effects.began}
        there = [pod for pod in cluster.pods() if pod["metadata"]["name"] in pods]
        cluster.silent = True
        send([cluster.workers[pod["metadata"]["uid"]].pid for pod in there], signal.SIGSTOP)
        owners = {pod["metadata"]["labels"]["flux-ensemble.dev/worker"] for pod in there}
        for jobset in cluster.jobsets():
            if jobset["metadata"]["name"] in owners:
                cluster.cluster.delete(jobset)
        # A member that follows has its tasks before these end, or not at all.
        end = time.monotonic() + 15.0
        while len(run.effects.began) < 4 and time.monotonic() < end:
            time.sleep(0.1)
        cluster.silent = False
        until(lambda: run.over, PATIENCE, f"the end of {name}")
        return len(run.twice())
    except Trouble as trouble:
        raise Trouble(f"{trouble}\n{run.log}") from None
    finally:
        cluster.silent = False
        run.kill()


def main() -> int:
    """Run what the command line says."""
    options = options_of(__doc__ or "")
    if binaries() is None or controller_manager() is None:
        print("jobset: nothing is done, without kube-apiserver, kube-controller-manager and etcd")
        return 0
    dice = random.Random(options.seed)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobset")))
        network = Network()
        stack.callback(network.close)
        address = API if network.there else "127.0.0.1"
        api = stack.enter_context(api_server(directory, {USER: USER}, address=address))
        install(api)
        for path, one in rights_of(USER):
            post(api, path, one)
        nodes = (enters(NODE), enters(NET)) if network.there else ((),)
        cluster = JobSetCluster(api, nodes=nodes)
        stack.callback(cluster.close)
        (directory / "workers.yaml").write_text(workers_template(4, POD_NAME))
        (directory / "config").write_text(api.kubeconfig(USER))
        site = Site(
            directory,
            {**os.environ, "KUBECONFIG": str(directory / "config")},
            POOL.format(template=directory / "workers.yaml"),
            tuple(enters(NET)) if network.there else (),
        )
        how = "links are cut" if network.there else "no network namespaces: workers stop"
        print(f"jobset: seed {options.seed}; {how}", flush=True)
        free = started_twice(site, cluster, "unclaimed", UNCLAIMED)
        held = started_twice(site, cluster, "claimed", "")
        print(
            f"control: members started twice, and tasks that ran twice: {free} without names, "
            f"{held} with them",
            flush=True,
        )
        loose = ran_twice(site, cluster, "unconfirmed", UNCONFIRMED)
        sure = ran_twice(site, cluster, "confirmed", "")
        print(f"control: tasks ran twice: {loose} without a look, {sure} with", flush=True)

        def begin(name: str) -> tuple[Run, Kinds]:
            run = Run(name, site)
            return run, kinds(run, api, cluster, network, dice)

        good = report("jobset", begin, options)
        for error in cluster.errors:
            print(f"  the stand-in: {error!r}")
    controls = free[0] > 0 and not any(held) and loose > 0 and not sure
    return 0 if good and controls and not cluster.errors else 1


if __name__ == "__main__":
    sys.exit(main())
