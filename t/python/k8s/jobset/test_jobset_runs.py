"""Workers in JobSets of a real API server, with a home that is killed, and a cluster that fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import CONTROLLERS, MARKS, ApiServer, api_server
from ends import Tied
from jobset_cluster import JobSetCluster, install, post, rights_of, workers_template
from patience import PATIENCE

pytestmark = [*MARKS, CONTROLLERS]

#: The user that has the rights of the page, and one that has none.
HOME, STRANGER = "home", "stranger"

TEMPLATE = workers_template(2)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api"), {HOME: HOME, STRANGER: STRANGER}) as api:
        install(api)
        for path, one in rights_of(HOME):
            post(api, path, one)
        yield api


@pytest.fixture
def cluster(api: ApiServer) -> Iterator[JobSetCluster]:
    cluster = JobSetCluster(api)
    yield cluster
    for one in cluster.jobsets():
        cluster.cluster.delete(one)
    wait_until(lambda: not cluster.pods())
    cluster.close()
    assert not cluster.errors


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


class Run:
    """An ensemble over workers in JobSets, and its home.

    Args:
        path: of its directory.
        api: of the cluster.
        name: of the ensemble.
        tasks: how many there are.
        task: what one does besides a line in the file `ran`.
        count: of members.
        rules: further ones.
        user: with whose rights.
    """

    def __init__(
        self,
        path: Path,
        api: ApiServer,
        name: str,
        tasks: int,
        task: str = "sleep 0.1",
        count: str = "2",
        rules: str = "",
        user: str = HOME,
    ) -> None:
        self.path, self.name = path, name
        (path / "workers.yaml").write_text(TEMPLATE)
        (path / "config").write_text(api.kubeconfig(user))
        (path / f"{name}.yaml").write_text(
            f"""
            name: {name}
            members:
              - {{name: cloud, from: jobset, runs: tasks, count: {count}, template: workers.yaml}}
            jobs:
              - name: sim
                command: sh -c 'echo {{s}} $WHERE >>{path}/ran; {task}'
                params: {{s: {{range: [0, {tasks}]}}}}
            rules:
              - {{trigger: start, action: {{name: submit, label: sim}}}}
              {rules}
            """
        )
        self.environment = {**os.environ, "KUBECONFIG": str(path / "config")}
        self.homes = 0

    def command(self, *words: str) -> list[str]:
        command, *more = words
        state = ["--state-dir", str(self.path / "state")]
        return [sys.executable, "-m", "flux_ensemble", command, *state, *more]

    def begin(self, *options: str) -> Tied:
        """Start a home."""
        self.homes += 1
        words = self.command("run", *options, str(self.path / f"{self.name}.yaml"))
        env = [f"{key}={text}" for key, text in self.environment.items()]
        return Tied(["env", "-C", str(self.path), *env, *words], self.path / "out")

    def end(self, home: Tied, code: int = 0) -> str:
        """Wait for the end of a home; return what all have printed."""
        try:
            assert home.process.wait(PATIENCE) == code, self.said
        finally:
            home.kill(PATIENCE)
        return self.said

    @property
    def said(self) -> str:
        return (self.path / "out").read_text()

    @property
    def ran(self) -> list[str]:
        file = self.path / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def has_run(self, least: int) -> None:
        wait_until(lambda: len(self.ran) >= least)

    def once(self, tasks: int) -> None:
        """Each task ran once, where the pod has its environment."""
        assert Counter(self.ran) == Counter(f"{s} pod" for s in range(tasks))

    def status(self) -> dict[str, Any]:
        words = self.command("status", self.name, "--json")
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment)
        if done.returncode:
            return {}
        value: dict[str, Any] = json.loads(done.stdout)
        return value


def test_sixty_tasks_run_in_two_jobsets_once_each_and_nothing_is_left(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    # The second member is asked for when the first is taken.
    run = Run(tmp_path, api, "sweep", 60, "sleep 0.3")
    said = run.end(run.begin())
    run.once(60)
    assert said.count("is up: 1 node, 2 cores") == 2
    assert "sweep: completed" in said
    assert len(cluster.started) == 2
    wait_until(lambda: not cluster.jobsets() and not cluster.pods())
    secrets = cluster.cluster.list("v1", "Secret", "default")
    wait_until(lambda: not secrets or not cluster.cluster.list("v1", "Secret", "default"))


def test_a_home_that_is_killed_goes_on_with_the_same_jobsets(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    run = Run(tmp_path, api, "killed", 60, "sleep 0.3")
    home = run.begin()
    for least in (6, 16, 30):
        run.has_run(least)
        home.kill(PATIENCE)
        home = run.begin("--resume")
    run.end(home)
    run.once(60)
    assert len(cluster.started) == 2


def test_a_home_that_is_killed_at_once_starts_each_member_once(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    run = Run(tmp_path, api, "early", 20, count="3")
    home = run.begin()
    wait_until(lambda: cluster.jobsets())
    home.kill(PATIENCE)
    run.end(run.begin("--resume"))
    run.once(20)
    assert len(cluster.started) == len(set(cluster.started)) == 3


def test_the_api_server_is_restarted(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    run = Run(tmp_path, api, "restarted", 60, "sleep 0.3")
    home = run.begin()
    run.has_run(6)
    api.stop_apiserver()
    # The tasks do not need it.
    run.has_run(20)
    api.start()
    api.keep_controllers()
    said = run.end(home)
    run.once(60)
    assert "is lost" not in said
    wait_until(lambda: not cluster.jobsets())


def test_a_member_that_is_deleted_from_outside_is_lost_and_its_tasks_run_elsewhere(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    grow = "- {trigger: member-lost, action: {name: grow, label: cloud}}"
    run = Run(tmp_path, api, "lost", 40, "sleep 0.3", "{min: 2, max: 3}", grow)
    home = run.begin()
    run.has_run(6)
    victim = cluster.jobsets()[0]
    cluster.cluster.delete(victim)
    said = run.end(home)
    assert re.search(
        r"cloud\.\d is lost, with \d+ jobs: its JobSet (was deleted|is not there)", said
    )
    assert {line.split()[0] for line in run.ran} == {str(s) for s in range(40)}
    # What ran when its pod was killed ran again, and nothing else.
    assert sum(Counter(run.ran).values()) <= 42
    assert len(cluster.started) == 3


def test_a_worker_that_fails_is_lost_with_what_its_pod_says(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    stop = "- {trigger: member-lost, action: {name: terminate, cancel: true}}"
    run = Run(tmp_path, api, "bare", 2, rules=stop, count="1")
    template = TEMPLATE.replace("resources:", "command: [/bin/false]\n                  resources:")
    (tmp_path / "workers.yaml").write_text(template)
    said = run.end(run.begin())
    assert (
        "cloud.0 is lost, with 0 jobs: its JobSet has failed: its pod ended with exit code 1"
        in said
    )
    # It is kept for a while, with its pod and what that has printed.
    (kept,) = cluster.jobsets()
    assert kept["spec"]["ttlSecondsAfterFinished"] == 86400


def test_status_says_why_a_member_waits_and_ctrl_c_deletes_it(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    cluster.schedules = False
    run = Run(tmp_path, api, "waits", 2, count="1")
    home = run.begin()
    wait_until(lambda: "Unschedulable" in json.dumps(run.status()))
    place = json.dumps(run.status())
    assert "waits in Kubernetes: Unschedulable: 0/1 nodes are available" in place
    home.process.send_signal(signal.SIGINT)
    run.end(home, 130)
    wait_until(lambda: not cluster.jobsets())
    assert not cluster.started


def test_what_the_api_server_refuses_is_told_in_its_words(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    stop = "- {trigger: member-lost, action: {name: terminate, cancel: true}}"
    run = Run(tmp_path, api, "refused", 2, rules=stop, count="1", user=STRANGER)
    said = run.end(run.begin())
    assert (
        'Kubernetes refuses its JobSet: jobsets.jobset.x-k8s.io is forbidden: User "stranger"'
        in (said)
    )


def test_a_namespace_that_there_is_not_is_told_in_the_words_of_the_api_server(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    stop = "- {trigger: member-lost, action: {name: terminate, cancel: true}}"
    # Who may not know says that it is forbidden.
    run = Run(tmp_path, api, "homeless", 2, rules=stop, count="1", user="admin")
    template = TEMPLATE.replace("spec:", "metadata: {namespace: nowhere}\nspec:", 1)
    (tmp_path / "workers.yaml").write_text(template)
    said = run.end(run.begin())
    assert 'Kubernetes refuses its JobSet: namespaces "nowhere" not found' in said


def test_a_queue_that_starts_nothing_is_named_and_ctrl_c_deletes_what_waits_in_it(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    run = Run(tmp_path, api, "queued", 2, count="1")
    label = "metadata: {labels: {kueue.x-k8s.io/queue-name: nowhere}}\nspec:\n  suspend: true"
    (tmp_path / "workers.yaml").write_text(TEMPLATE.replace("spec:", label, 1))
    home = run.begin()
    wait_until(lambda: "waits in Kueue: queue nowhere" in json.dumps(run.status()))
    home.process.send_signal(signal.SIGINT)
    run.end(home, 130)
    wait_until(lambda: not cluster.jobsets())
    assert not cluster.started


def test_doctor_has_the_api_server_check_a_jobset(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    def doctor(user: str) -> tuple[int, str]:
        run = Run(tmp_path, api, "asked", 1, user=user)
        words = [sys.executable, "-m", "flux_ensemble", "doctor", "--json"]
        words += [str(tmp_path / "asked.yaml")]
        done = subprocess.run(words, env=run.environment, capture_output=True, text=True)
        (found,) = json.loads(done.stdout)["checks"]
        return done.returncode, found["found"]

    assert doctor(HOME) == (0, "cloud: namespace default takes its JobSets")
    code, found = doctor(STRANGER)
    assert code == 1
    assert "cloud: Kubernetes refuses its JobSet: jobsets.jobset.x-k8s.io is forbidden" in found
    assert not cluster.jobsets(), "nothing is made"


def test_there_is_no_cluster(api: ApiServer, tmp_path: Path) -> None:
    run = Run(tmp_path, api, "nowhere", 2)
    run.environment["KUBECONFIG"] = str(tmp_path / "none")
    said = run.end(run.begin(), 1)
    assert "there is no Kubernetes cluster to talk to" in said
    assert "Traceback" not in said


@pytest.fixture
def quota(api: ApiServer) -> Iterator[Callable[[int], None]]:
    """Limits how many JobSets there may be; the status is its controller's part."""
    path = "/api/v1/namespaces/default/resourcequotas"

    def ask(method: str, path: str, one: dict[str, Any] | None = None) -> None:
        kind = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        client = api.client()._client._client
        answer = client.request(method, path, json=one, headers=kind)
        assert answer.is_success, answer.text

    def limit(jobsets: int) -> None:
        hard = {"count/jobsets.jobset.x-k8s.io": str(jobsets)}
        used = {"count/jobsets.jobset.x-k8s.io": "0"}
        ask("PATCH", f"{path}/members", {"spec": {"hard": hard}})
        ask("PATCH", f"{path}/members/status", {"status": {"hard": hard, "used": used}})

    ask(
        "POST", path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "members"}}
    )
    yield limit
    ask("DELETE", f"{path}/members")


def test_a_quota_that_is_used_up_is_waited_for_and_that_is_no_failure(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path, quota: Callable[[int], None]
) -> None:
    quota(0)
    run = Run(tmp_path, api, "bounded", 4, count="1")
    home = run.begin()
    wait_until(lambda: "exceeded quota: members" in json.dumps(run.status()))
    assert not cluster.jobsets()
    quota(5)
    said = run.end(home)
    run.once(4)
    assert "is lost" not in said
    assert "cannot start a member in Kubernetes: " in said
    assert "exceeded quota: members" in said
