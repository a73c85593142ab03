"""The operator on a real API server: its CRD, its roles, and an ensemble through restarts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apiserver
import pytest
import yaml
from ensembles import CRDS, KUBERNETES, Bench, condition, ensemble, member, remove_pod
from lightkube.codecs import from_dict, load_all_yaml
from lightkube.models.core_v1 import ResourceQuotaSpec, ResourceQuotaStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, ResourceQuota
from patience import PATIENCE
from standin import standin
from test_operator_app import expire, operator, until
from test_operator_apply import another_port, minicluster_mended, taken_out
from test_operator_end_to_end import example, gone, state, told, watch
from test_operator_install import in_team_a
from test_operator_reconcile import PARTS, another_object
from test_operator_reports import in_the_status
from test_operator_uids import volume, volume_made

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster
from flux_ensemble.k8s.operator.queue import LAST
from flux_ensemble.k8s.operator.reconcile import Reconciler
from flux_ensemble.k8s.operator.render import Settings
from flux_ensemble.k8s.operator.watches import Seen

pytestmark = apiserver.MARKS

ACCOUNT = "system:serviceaccount:flux-ensemble:flux-ensemble-operator"

#: How many jobs there are while everything is restarted.
JOBS = 60

#: Where an operator that is killed leaves its Lease, for the next one to wait for.
LEASE = "coordination.k8s.io/v1", "Lease", "flux-ensemble", "flux-ensemble-operator"

#: What `operator` runs with.
TOKEN = "flux-ensemble-flux-ensemble-operator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apiserver.ApiServer]:
    with apiserver.api_server(tmp_path_factory.mktemp("apiserver"), {TOKEN: ACCOUNT}) as server:
        admin = server.client()
        for one in load_all_yaml(
            "---\n".join(file.read_text() for file in (KUBERNETES / "install.yaml", CRDS[1]))
        ):
            admin.create(one)
        cluster = KubernetesCluster(admin)

        def served() -> bool:
            try:
                cluster.list(names.API_VERSION, names.KIND, "default")
                cluster.list(names.MINICLUSTER, "MiniCluster", "default")
            except ClusterFailure:
                return False
            return True

        until(served, "the CRDs are not established")
        yield server


@pytest.fixture
def bench(server: apiserver.ApiServer) -> Iterator[Bench]:
    bench = Bench(server, TOKEN)
    yield bench
    lease = bench.admin.get(*LEASE)
    if lease is not None:
        bench.admin.delete(lease)
    for one in bench.clients[0].list(ResourceQuota, namespace="default"):
        bench.clients[0].delete(ResourceQuota, one.metadata.name)
    for kind in ((names.API_VERSION, names.KIND), *_kinds()):
        for one in bench.admin.list(*kind, "default"):
            bench.remove(*kind, one["metadata"]["name"])
    # No kubelet ends them, and the next test's Ensemble would wait for them.
    for pod in bench.admin.list("v1", "Pod", "default"):
        remove_pod(bench.admin, pod)
    bench.close()


def _kinds() -> list[tuple[str, str]]:
    return [*dict.fromkeys(part[:2] for part in PARTS), ("batch/v1", "Job")]


def test_an_ensemble_becomes_all_that_it_consists_of_and_nothing_is_written_twice(
    bench: Bench,
) -> None:
    bench.put(ensemble())
    bench.look()
    bench.look()

    def versions() -> dict[str, str]:
        found = {}
        for api_version, kind, name in PARTS:
            one = bench.admin.get(api_version, kind, "default", name)
            assert one is not None, f"{kind} {name}"
            found[f"{kind}/{name}"] = one["metadata"]["resourceVersion"]
        found["Ensemble"] = (bench.ensemble() or {})["metadata"]["resourceVersion"]
        return found

    before = versions()
    status = bench.look()
    assert versions() == before
    assert condition(status, "Accepted")[0] == "True"
    # The size is the service's: neither a mend nor a new least size resets it.
    live = bench.minicluster()
    assert live is not None
    bench.admin.resize(live, 3)
    live = bench.minicluster()
    assert live is not None
    live["spec"]["tasks"] = 5
    bench.admin.replace(live)
    bench.look()
    bench.put(ensemble("sweep", member(size=2, minSize=2)))
    bench.look()
    live = bench.minicluster()
    assert live is not None
    assert (live["spec"]["size"], live["spec"]["minSize"]) == (3, 2)


@pytest.mark.parametrize("shown", [taken_out, minicluster_mended, another_port])
def test_what_is_not_said_any_more_goes(bench: Bench, shown: Callable[[Bench], None]) -> None:
    """As in memory; here it is the API server that knows whose a field is."""
    shown(bench)


def test_what_members_report_is_in_the_status(bench: Bench) -> None:
    in_the_status(bench)


@pytest.mark.parametrize("limits", [{"cpu": "1000m"}, {"cpu": 1}, {"memory": "1024Mi"}])
def test_a_quantity_in_another_form_is_no_change(bench: Bench, limits: dict[str, Any]) -> None:
    bench.put(ensemble(service={"resources": {"limits": limits}}))
    bench.look()
    before = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    for _ in range(3):
        bench.look()
    assert bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc") == before


def test_what_watches_tell_of_is_what_there_is(server: apiserver.ApiServer, bench: Bench) -> None:
    changed: list[tuple[str, str]] = []
    client = server.client(TOKEN)
    seen = Seen(client, {"*": client}, lambda *key: changed.append(key))
    seen.start(PATIENCE)

    def known() -> bool:
        return all(versions(seen, kind) == versions(bench.admin, kind) for kind in owned)

    def versions(cluster: KubernetesCluster, kind: tuple[str, str]) -> dict[str, str]:
        labels = f"{names.ENSEMBLE_LABEL}=sweep"
        found = cluster.list(*kind, "default", labels=labels)
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found}

    owned = list(dict.fromkeys(part[:2] for part in PARTS))
    try:
        bench.put(ensemble())
        bench.look()
        until(known, "what was made is not known")
        assert ("default", "sweep") in changed
        live = bench.minicluster()
        assert live is not None
        bench.admin.resize(live, 2)
        bench.remove("v1", "ConfigMap", "sweep-solve-document")
        until(known, "what has changed is not known")
    finally:
        seen.close()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (ensemble("a" * 52), "at most 56 characters together"),
        (ensemble("a.b"), "begins with a letter"),
        (ensemble("a", {**member(), "ensembleFrom": {"name": "x"}}), "exactly one of"),
        (ensemble("a", member(size=9)), "size is above maxSize"),
        (ensemble("a", member(size=1, minSize=2)), "minSize is above size"),
        (ensemble("a", member("grpc")), "'grpc' is the name of the service"),
        (ensemble("a", service={"port": 8080}), "port 8080 is that of the probes"),
        (ensemble("a", member(), member()), "Duplicate value"),
    ],
)
def test_the_api_server_refuses_what_the_rules_say(
    bench: Bench, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ClusterFailure, match=sentence) as caught:
        bench.admin.create(wrong)
    assert caught.value.code == 422


def test_the_greatest_size_cannot_be_changed(bench: Bench) -> None:
    bench.put(ensemble())
    with pytest.raises(ClusterFailure, match="maxSize cannot be changed") as caught:
        bench.put(ensemble("sweep", member(maxSize=5)))
    assert caught.value.code == 422


def test_a_typo_and_a_foreign_object_are_told(bench: Bench) -> None:
    bench.put(ensemble("sweep", member(deadlineSecond=5)))
    assert 'unknown field "spec.deadlineSecond"' in condition(bench.look(), "Accepted")[2]
    metadata = {"name": "sweep-solve", "namespace": "default"}
    spec = {"containers": [{"image": "a"}]}
    theirs = {"apiVersion": names.MINICLUSTER, "kind": "MiniCluster", "metadata": metadata}
    bench.admin.create({**theirs, "spec": spec})
    bench.put(ensemble())
    assert "is there already" in condition(bench.look(), "Accepted")[2]


def test_a_document_of_128_kib_is_taken(bench: Bench) -> None:
    document = yaml.safe_dump({"jobs": [{"name": "a", "command": "a"}]})
    document += "# " + "x" * (131072 - len(document) - 3) + "\n"
    bench.put(ensemble("sweep", member(document=document)))
    assert condition(bench.look(), "Accepted")[0] == "True"


@apiserver.CONTROLLERS
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_an_ensemble_completes_though_everything_is_restarted(
    server: apiserver.ApiServer, bench: Bench, tmp_path: Path
) -> None:
    """Nothing is lost and nothing is done twice while there is load."""
    gate = tmp_path / "gate"
    manifest = example(gate)
    (one,) = manifest["spec"]["members"]
    document = yaml.safe_load(one["ensemble"])
    ran = tmp_path / "ran"
    ran.touch()
    document["jobs"][0] |= {"count": JOBS, "command": f"sh -c 'echo >>{ran}'"}
    document["rules"][1]["when"] = JOBS
    one["ensemble"] = yaml.safe_dump(document)

    def restart() -> None:
        server.stop_apiserver()
        # There is a time without it, in which others ask.
        time.sleep(1)
        server.start()

    with standin(server) as running:
        with operator(server, tmp_path, "one") as first:
            bench.put(manifest)
            until(lambda: state(bench).get("phase") == "Running", "it does not run")
            running.kill_service("sweep-grpc")
            restart()
            first.kill()
            first.wait(PATIENCE)
            expire(bench)
        # With a Lease as short as that of the first it would end, for a kubelet to start it again.
        with operator(server, tmp_path, "two", "--lease-seconds=300"):
            watch(bench, running, gate, restart)
            status = state(bench)
            assert status["phase"] == "Completed", f"{status}\n{running.logs()}"
            (found,) = status["members"]
            counts = {"failed": 0, "canceled": 0, "timeout": 0, "interrupted": 0}
            assert found["jobs"] == {"success": JOBS + 2, **counts}
            assert ran.read_text() == "\n" * JOBS
            gone(bench, running)


@apiserver.CONTROLLERS
@pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not on PATH")
def test_a_quota_that_refuses_pods_is_told_and_growth_goes_on_when_it_is_raised(
    server: apiserver.ApiServer, bench: Bench, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    quota(bench, 2)

    def refused() -> bool:
        members = state(bench).get("members") or [{}]
        return "exceeded quota" in members[0].get("reason", "")

    with standin(server) as running, operator(server, tmp_path):
        bench.put(example(gate))
        until(refused, lambda: f"{state(bench)} {running.errors}")
        told(bench, "MemberWaits")
        quota(bench, 9)
        watch(bench, running, gate)
        assert state(bench)["phase"] == "Completed", state(bench)
        gone(bench, running)


def quota(bench: Bench, pods: int) -> None:
    """Limits the pods of the namespace; this is the controller's part, too."""
    client, hard = bench.clients[0], {"pods": str(pods)}
    metadata = ObjectMeta(name="pods", namespace="default")
    limit = ResourceQuota(metadata=metadata, spec=ResourceQuotaSpec(hard=hard))
    client.apply(limit, field_manager="test", force=True)
    used = {"pods": str(len(bench.admin.list("v1", "Pod", "default")))}
    status = ResourceQuotaStatus(hard=hard, used=used)
    client.apply(
        ResourceQuota.Status(metadata=metadata, status=status), field_manager="test", force=True
    )


def completes(bench: Bench, name: str = "sweep") -> str:
    """Runs an Ensemble to its end; the uid of its MiniCluster."""
    until(lambda: made(bench, name), lambda: f"{bench.ensemble(name)}")
    bench.end(f"{name}-solve", exit_code=0, state="completed")
    until(lambda: bench.look(name)["phase"] == "Completed", lambda: f"{bench.ensemble(name)}")
    uid: str = (bench.minicluster(f"{name}-solve") or {})["metadata"]["uid"]
    return uid


def made(bench: Bench, name: str = "sweep", before: str = "") -> bool:
    """Looks; whether there is a MiniCluster, other than the one before. Kubelets end pods."""
    try:
        bench.look(name)
    except ClusterFailure as failure:
        if failure.code not in (404, 409):
            raise
        return False  # something has changed meanwhile, and an operator looks again
    for pod in bench.admin.list("v1", "Pod", "default"):
        if pod["metadata"].get("deletionTimestamp"):
            bench.gone(pod)
    live = bench.minicluster(f"{name}-solve")
    return (
        live is not None
        and live["metadata"]["uid"] != before
        and not live["metadata"].get("deletionTimestamp")
    )


@apiserver.CONTROLLERS
def test_what_is_changed_restarted_or_resumed_after_its_end_begins_anew(bench: Bench) -> None:
    bench.put(ensemble(onChange="Recreate"))
    first = completes(bench)
    bench.put(ensemble("sweep", member(containers=[{"image": "other"}]), onChange="Recreate"))
    until(lambda: made(bench, before=first), "it is not made anew after a change")
    assert bench.look()["phase"] == "Pending"
    second = completes(bench)
    found = bench.ensemble()
    assert found is not None
    found["metadata"]["annotations"] = {names.RESTART: "2026-01-02"}
    bench.admin.replace(found)
    until(lambda: made(bench, before=second), "it is not made anew after a restart")
    third = completes(bench)
    found = bench.ensemble()
    assert found is not None
    bench.put({**found, "spec": {**found["spec"], "suspend": True}})
    until(lambda: not made(bench), "it is not suspended")
    bench.put({**found, "spec": {**found["spec"], "suspend": False}})
    until(lambda: made(bench, before=third), "it is not made anew when it is resumed")
    assert completes(bench) != third


@apiserver.CONTROLLERS
def test_ensembles_that_are_deleted_and_created_again_have_nothing_of_their_namesakes(
    bench: Bench,
) -> None:
    several = [f"sweep-{number}" for number in range(5)]
    first = {}
    for name in several:
        bench.put(ensemble(name))
        first[name] = completes(bench, name)
    for name in several:
        bench.remove(names.API_VERSION, names.KIND, name)
        bench.admin.create(ensemble(name, ttlSecondsAfterFinished=0))

    def all_made() -> bool:
        there = [made(bench, name, first[name]) for name in several]
        for name in several:
            found = (bench.ensemble(name) or {})["status"]
            assert found["phase"] == "Pending", found
        return all(there)

    until(all_made, "they are not made again")


@apiserver.CONTROLLERS
def test_a_volume_is_made_of_a_template_and_goes_with_the_ensemble(bench: Bench) -> None:
    volume_made(bench)
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    until(lambda: volume(bench) is None, "the volume stays")


@pytest.mark.parametrize("state", [{}, {"claim": "a", "template": {"spec": {"resources": {}}}}])
def test_the_state_is_a_claim_or_a_template(bench: Bench, state: dict[str, Any]) -> None:
    with pytest.raises(ClusterFailure, match="exactly one of claim and template"):
        bench.put(ensemble("sweep", {**member(), "state": state}))


@apiserver.CONTROLLERS
@pytest.mark.parametrize("way", ["evicted", "deleted", "eviction"])
def test_a_pod_that_is_lost_ends_nothing_while_its_job_makes_another(
    bench: Bench, way: str
) -> None:
    bench.put(ensemble(ttlSecondsAfterFinished=0))
    until(lambda: made(bench), "it is not made")
    bench.pod()
    assert bench.look()["phase"] == "Running"
    lost = bench.lose(way)

    def replaced() -> bool:
        assert bench.look()["phase"] in ("Pending", "Running")
        made(bench)
        pods = bench.admin.list("v1", "Pod", "default", labels="job-name=sweep-solve")
        return any(
            pod["metadata"]["uid"] != lost["metadata"]["uid"]
            and not pod["metadata"].get("deletionTimestamp")
            for pod in pods
        )

    until(replaced, "its Job makes no other pod")
    bench.pod()
    assert bench.look()["phase"] == "Running"


def test_a_namespace_that_is_being_deleted_is_told(bench: Bench) -> None:
    """Nobody ends the deletion here, so this is the last that is seen of it."""
    client = bench.clients[0]
    client.create(Namespace(metadata=ObjectMeta(name="doomed")))
    bench.admin.create(ensemble(namespace="doomed"))
    client.delete(Namespace, "doomed")
    with pytest.raises(ClusterFailure, match="is being terminated"):
        bench.reconciler.reconcile("doomed", "sweep")
    found = bench.admin.get(names.API_VERSION, names.KIND, "doomed", "sweep")
    assert found is not None
    assert condition(found["status"], "Ready")[:2] == ("False", "ClusterFailure")
    assert "is being terminated" in condition(found["status"], "Ready")[2]


def test_an_operator_that_is_installed_in_a_namespace_works_there_and_nowhere_else(
    bench: Bench, server: apiserver.ApiServer, tmp_path: Path
) -> None:
    client = bench.clients[0]
    client.create(Namespace(metadata=ObjectMeta(name="team-a")))
    for one in in_team_a(tmp_path, "namespaced", copied=False):
        if "namespace" in one["metadata"]:
            client.create(from_dict(one))
    own = server.client(server.account_token("team-a", "flux-ensemble-operator"))
    reconciler = Reconciler(KubernetesCluster(own), Settings("image:1"), bench.metrics)
    bench.admin.create(ensemble(namespace="team-a"))
    while reconciler.reconcile("team-a", "sweep") == LAST:
        pass
    found = bench.admin.get(names.API_VERSION, names.KIND, "team-a", "sweep")
    assert found is not None
    assert condition(found["status"], "Accepted")[0] == "True"
    assert bench.admin.get(names.MINICLUSTER, "MiniCluster", "team-a", "sweep-solve") is not None
    bench.put(ensemble())
    with pytest.raises(ClusterFailure, match="forbidden") as caught:
        reconciler.reconcile("default", "sweep")
    assert caught.value.code == 403


def test_another_object_of_the_same_name_is_not_touched(bench: Bench) -> None:
    another_object(bench)


def test_when_the_leader_is_killed_the_other_one_takes_over(
    server: apiserver.ApiServer, bench: Bench, tmp_path: Path
) -> None:
    with operator(server, tmp_path, "one") as one:
        bench.put(ensemble("first"))
        until(lambda: bench.minicluster("first-solve") is not None, "the first one")
        with operator(server, tmp_path, "two"):
            assert one.poll() is None, (tmp_path / "one.log").read_text()
            one.kill()
            one.wait(PATIENCE)
            expire(bench)
            bench.put(ensemble("second"))
            until(lambda: bench.minicluster("second-solve") is not None, "the second one")
