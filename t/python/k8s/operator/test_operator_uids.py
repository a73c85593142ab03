"""State belongs to an object, not to a name: what is made anew, deleted, evicted, or of a namesake.

The API collects garbage late here, as a cluster does, and its Jobs have pods (`memory_jobs`).
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import pytest
from ensembles import DOCUMENT, Bench, condition, ensemble, member, write_status
from memory_api import Failure, MemoryApi

from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.check import check
from flux_ensemble.k8s.operator.cluster import ClusterFailure

pytest_plugins = ["operator_cluster"]

OTHER = member(containers=[{"image": "other"}])


def completed(bench: Bench, **spec: Any) -> dict[str, Any]:
    """An Ensemble that has completed; its MiniCluster."""
    bench.put(ensemble(**spec))
    bench.look()
    first = bench.minicluster()
    assert first is not None
    bench.end(exit_code=0, state="completed")
    assert bench.look()["phase"] == "Completed"
    bench.look()
    return first


def begins_anew(bench: Bench, api: MemoryApi, first: dict[str, Any]) -> None:
    """Looks until another MiniCluster is there, and runs it to its end."""
    for _ in range(4):
        bench.look()
        leave(bench)
        api.collect()
    live = bench.minicluster()
    assert live is not None, "it is not made again"
    assert live["metadata"]["uid"] != first["metadata"]["uid"]
    status = bench.look()
    assert status["phase"] == "Pending"
    assert condition(status, "Completed")[0] == "False"
    assert "completionTime" not in status
    bench.pod()
    assert bench.look()["phase"] == "Running"
    bench.end(exit_code=1, state="failed", reason="this time")
    status = bench.look()
    assert (status["phase"], status["members"][0]["reason"]) == ("Failed", "this time")
    assert status["members"][0]["uid"] == live["metadata"]["uid"]


def leave(bench: Bench) -> None:
    """A kubelet ends the pods that are being deleted."""
    for pod in bench.admin.list("v1", "Pod", "default"):
        if pod["metadata"].get("deletionTimestamp"):
            bench.gone(pod)


# -- what is made anew ---------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_a_change_of_the_document_after_the_end_begins_it_anew(
    bench: Bench, api: MemoryApi, late: bool
) -> None:
    api.collects = not late
    first = completed(bench, onChange="Recreate")
    bench.put(ensemble("sweep", OTHER, onChange="Recreate"))
    begins_anew(bench, api, first)
    live = bench.minicluster()
    assert live is not None
    assert live["spec"]["containers"][0]["image"] == "other"


def test_restarted_at_after_the_end_begins_it_anew(bench: Bench, api: MemoryApi) -> None:
    api.collects = False
    first = completed(bench, onChange="Recreate")
    found = bench.ensemble()
    assert found is not None
    found["metadata"]["annotations"] = {names.RESTART: "2026-01-02"}
    bench.admin.replace(found)
    begins_anew(bench, api, first)


def test_an_ensemble_that_has_completed_is_suspended_and_resumed_and_begins_anew(
    bench: Bench, api: MemoryApi
) -> None:
    api.collects = False
    first = completed(bench)
    bench.put(ensemble(suspend=True))
    for _ in range(3):
        status = bench.look()
        api.collect()
    assert status["phase"] == "Suspended"
    assert status["members"][0]["state"] == "Pending"
    assert bench.minicluster() is None
    bench.put(ensemble(suspend=False))
    begins_anew(bench, api, first)


def test_an_operator_that_is_killed_after_the_deletion_begins_it_anew_too(
    bench: Bench, api: MemoryApi
) -> None:
    """All that it had not written is that status which was true before."""
    for changed in (
        ensemble("sweep", OTHER, onChange="Recreate"),
        ensemble("sweep", OTHER, onChange="Recreate", suspend=True),
    ):
        first = completed(bench, onChange="Recreate")
        before = (bench.ensemble() or {})["status"]
        bench.put(changed)
        bench.look()
        bench.remove(names.MINICLUSTER, "MiniCluster", "sweep-solve")
        if not changed["spec"].get("suspend"):
            bench.put_status(before)
        bench.put(ensemble("sweep", OTHER, onChange="Recreate"))
        begins_anew(bench, api, first)
        bench.remove(names.API_VERSION, names.KIND, "sweep")


def test_a_minicluster_that_somebody_deleted_after_the_end_is_made_again_by_a_change_only(
    bench: Bench, api: MemoryApi
) -> None:
    first = completed(bench, onChange="Recreate")
    bench.remove(names.MINICLUSTER, "MiniCluster", "sweep-solve")
    assert bench.look()["phase"] == "Completed"
    assert bench.minicluster() is None
    bench.put(ensemble("sweep", OTHER, onChange="Recreate"))
    begins_anew(bench, api, first)


def test_a_change_after_the_end_that_is_not_to_recreate_is_refused_with_or_without_a_minicluster(
    bench: Bench,
) -> None:
    completed(bench)
    bench.put(ensemble("sweep", OTHER))
    status = bench.look()
    assert condition(status, "Accepted")[:2] == ("False", "ChangeRefused")
    bench.remove(names.MINICLUSTER, "MiniCluster", "sweep-solve")
    status = bench.look()
    assert condition(status, "Accepted")[:2] == ("False", "ChangeRefused")
    assert (status["phase"], bench.minicluster()) == ("Completed", None)


def test_what_is_being_made_again_waits_until_the_pods_of_the_one_before_have_left(
    bench: Bench, api: MemoryApi
) -> None:
    api.collects = False
    bench.put(ensemble(onChange="Recreate"))
    bench.look()
    bench.pod()
    bench.look()
    bench.put(ensemble("sweep", OTHER, onChange="Recreate"))
    bench.look()
    for _ in range(2):
        status = bench.look()
        assert bench.minicluster() is None
        assert "of the one before" in status["members"][0]["reason"]
        assert bench.reconciler.reconcile("default", "sweep") is not None
        api.collect()
    leave(bench)
    bench.look()
    assert bench.minicluster() is not None


@pytest.mark.parametrize("way", ["recreated", "of a namesake"])
def test_what_the_pods_of_the_one_before_ran_is_gone_before_the_next_one_is_made(
    bench: Bench, api: MemoryApi, way: str
) -> None:
    """The Flux Operator would take that ConfigMap, with the document and the volume of before."""
    api.collects = False
    bench.put(ensemble(onChange="Recreate"))
    bench.look()
    bench.pod()
    if way == "recreated":
        bench.put(ensemble("sweep", OTHER, onChange="Recreate"))
        bench.look()
    else:
        bench.remove(names.API_VERSION, names.KIND, "sweep")
        api.collect()
        bench.put(ensemble("sweep", OTHER))
    entrypoint = bench.admin.get("v1", "ConfigMap", "default", "sweep-solve-entrypoint")
    assert entrypoint is not None
    # The Job and its pods are collected first.
    bench.remove("batch/v1", "Job", "sweep-solve")
    for _ in range(3):
        api.collect(but="sweep-solve-entrypoint")
        leave(bench)
    (one,) = bench.look()["members"]
    assert bench.minicluster() is None
    said = "the ConfigMap 'sweep-solve-entrypoint' of the one before has still to go"
    assert one["reason"] == said
    api.collect()
    bench.look()
    assert bench.minicluster() is not None


def test_a_configmap_of_others_that_pods_would_run_is_a_problem(bench: Bench) -> None:
    metadata = {"name": "sweep-solve-entrypoint", "namespace": "default"}
    bench.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    bench.put(ensemble())
    assert "'sweep-solve-entrypoint' is there already" in condition(bench.look(), "Accepted")[2]
    assert bench.minicluster() is None


# -- namesakes -----------------------------------------------------------------------------


@pytest.mark.parametrize("collected", [0, 1, 2])
def test_an_ensemble_has_nothing_of_one_that_had_its_name(
    bench: Bench, api: MemoryApi, collected: int
) -> None:
    """How much of the garbage is collected when it is looked at: nothing, some, or all."""
    api.collects = False
    first = completed(bench)
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    for _ in range(collected):
        api.collect()
    bench.put(ensemble(ttlSecondsAfterFinished=0))
    for _ in range(5):
        status = bench.look()
        assert status["phase"] in ("Pending", "Rejected")
        assert (
            "uid" not in status["members"][0]
            or status["members"][0]["uid"] != (first["metadata"]["uid"])
        )
        api.collect()
    begins_anew_or_runs(bench)


def begins_anew_or_runs(bench: Bench) -> None:
    bench.look()
    bench.pod()
    assert bench.look()["phase"] == "Running"


def test_a_job_and_pods_of_an_older_minicluster_are_not_those_of_this_one(
    bench: Bench, api: MemoryApi
) -> None:
    """As long as they are there, the Flux Operator takes the Job for its own."""
    bench.put(ensemble())
    bench.look()
    bench.pod()
    before = bench.minicluster()
    assert before is not None
    api.collects = False
    bench.end(exit_code=0, state="completed")
    bench.remove(names.MINICLUSTER, "MiniCluster", "sweep-solve")
    keys = ("apiVersion", "kind", "spec")
    metadata = {
        key: before["metadata"][key]
        for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
    }
    bench.admin.create({**{key: before[key] for key in keys}, "metadata": metadata})
    (one,) = bench.look()["members"]
    assert (one["state"], one["size"]) == ("Pending", 0)


def test_warnings_of_an_older_job_are_not_those_of_this_one(bench: Bench, api: MemoryApi) -> None:
    api.most_pods = 0
    bench.put(ensemble())
    bench.look()
    bench.flux()
    assert "exceeded quota" in bench.look()["members"][0]["reason"]
    api.most_pods = None
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    bench.put(ensemble())
    bench.look()
    assert "exceeded quota" not in bench.look()["members"][0]["reason"]


def test_pods_of_an_older_service_say_nothing_of_this_one(bench: Bench) -> None:
    labels = names.labels("sweep", "service")
    metadata = {"name": "sweep-grpc-old", "namespace": "default", "labels": labels}
    old = bench.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    waits = {"reason": "ErrImagePull", "message": "an image of long ago"}
    state = {"name": "grpc", "state": {"waiting": waits}}
    write_status(bench.admin, old, {"containerStatuses": [state]})
    bench.put(ensemble())
    bench.look()
    assert "an image of long ago" not in condition(bench.look(), "ServiceReady")[2]


# -- pods that are lost --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["evicted", "deleted", "eviction"])
def test_a_pod_of_rank_0_that_is_lost_ends_nothing_while_its_job_goes_on(
    bench: Bench, api: MemoryApi, way: str
) -> None:
    bench.put(ensemble(ttlSecondsAfterFinished=0))
    bench.look()
    bench.pod()
    assert bench.look()["phase"] == "Running"
    # The Job controller takes its time.
    api.replaces = False
    lost = bench.lose(way)
    (one,) = bench.look()["members"]
    assert one["state"] == "Pending"
    assert "the pod of rank 0 was lost" in one["reason"]
    api.replaces = True
    bench.flux()
    assert bench.live_pod()["metadata"]["uid"] != lost["metadata"]["uid"]
    status = bench.look()
    assert status["phase"] == "Pending"
    assert condition(status, "Failed")[0] == "False"
    bench.pod()
    assert bench.look()["phase"] == "Running"
    bench.end(exit_code=0, state="completed")
    bench.moment += datetime.timedelta(seconds=1)
    bench.reconciler.reconcile("default", "sweep")
    bench.reconciler.reconcile("default", "sweep")
    assert bench.ensemble() is None


def test_a_job_whose_pods_are_lost_too_often_has_failed_and_says_so(bench: Bench) -> None:
    bench.put(ensemble("sweep", member(backoffLimit=2)))
    bench.look()
    for _ in range(3):
        bench.pod()
        assert bench.look()["phase"] == "Running"
        bench.evict()
    status = bench.look()
    assert status["phase"] == "Failed"
    assert "BackoffLimitExceeded" in status["members"][0]["reason"]


def test_an_end_is_known_while_workers_still_leave_and_stays_when_the_pod_is_evicted_afterwards(
    bench: Bench,
) -> None:
    bench.put(ensemble("sweep", member(size=2)))
    bench.look()
    bench.pod(1)
    bench.end(exit_code=3, state="canceled", reason="by root")
    status = bench.look()
    assert (status["phase"], status["members"][0]["reason"]) == ("Canceled", "by root")
    bench.evict(1)
    assert bench.look()["phase"] == "Canceled"


def test_an_end_whose_pod_is_gone_before_anybody_read_it_is_said_to_be_unknown(
    bench: Bench,
) -> None:
    bench.put(ensemble())
    bench.look()
    bench.end(exit_code=0, state="completed")
    for pod in bench.admin.list("v1", "Pod", "default"):
        bench.gone(pod)
    (one,) = bench.look()["members"]
    assert one["state"] == "Failed"
    assert "the pod of rank 0 is gone" in one["reason"]


# -- what outlives a pod --------------------------------------------------------------------


def stateful(**container: Any) -> dict[str, Any]:
    return {**member(containers=[{"image": "app", **container}]), "state": {"claim": "disk"}}


def directory(live: dict[str, Any]) -> str:
    """Where a MiniCluster has its statedir."""
    (container,) = live["spec"]["containers"]
    lines = container["commands"]["brokerPre"]
    found = re.search(r"-Sstatedir=(/var/lib/flux-ensemble/sweep-solve/[0-9a-f]{12})\"", lines)
    assert found is not None, lines
    assert names.RUN_TOKEN not in json.dumps(live)
    return found[1]


def test_a_member_with_a_volume_has_its_statedir_there_and_goes_on_with_it(bench: Bench) -> None:
    own = {"brokerPre": "echo mine", "post": "echo last"}
    bench.put(ensemble("sweep", stateful(commands=own, volumes={"mine": {"path": "/x"}})))
    bench.look()
    live = bench.minicluster()
    assert live is not None
    (container,) = live["spec"]["containers"]
    assert container["volumes"]["flux-ensemble-state"]["claimName"] == "disk"
    assert container["volumes"]["mine"] == {"path": "/x"}
    assert container["commands"]["brokerPre"].startswith("echo mine\n")
    assert container["commands"]["post"].startswith("echo last\n")
    assert "--resume" in container["command"].split()
    directory(live)
    bench.put(ensemble())
    assert condition(bench.look(), "Accepted")[1] == "ChangeRefused"


def test_one_minicluster_has_one_directory_and_one_that_is_made_anew_another(
    bench: Bench, api: MemoryApi
) -> None:
    bench.put(ensemble("sweep", stateful(), onChange="Recreate"))
    bench.look()
    first = bench.minicluster()
    assert first is not None
    before = len(api.writes)
    bench.look()
    assert not [one for one in api.writes[before:] if "miniclusters" in one]
    # What somebody changes is mended, and has the directory of before.
    bench.admin.replace({**first, "spec": {**first["spec"], "tasks": 7, "backoffLimit": 1}})
    bench.look()
    mended = bench.minicluster()
    assert mended is not None
    assert (mended["spec"]["backoffLimit"], directory(mended)) == (6, directory(first))
    for suspend in (True, False):
        bench.put(ensemble("sweep", stateful(), onChange="Recreate", suspend=suspend))
        bench.look()
        bench.look()
    again = bench.minicluster()
    assert again is not None
    assert directory(again) != directory(first)


def test_a_volume_of_the_user_cannot_have_the_name_of_ours() -> None:
    one = stateful(volumes={"flux-ensemble-state": {"path": "/x"}})
    (problem,) = check(ensemble("sweep", one), {"solve": DOCUMENT})
    assert "this name is taken" in problem


def with_volume(storage: str = "1Gi") -> dict[str, Any]:
    """A member whose volume is made of a template."""
    spec = {"resources": {"requests": {"storage": storage}}}
    return {**member(), "state": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}}


def volume(bench: Bench) -> dict[str, Any] | None:
    return bench.admin.get("v1", "PersistentVolumeClaim", "default", "sweep-solve-state")


def volume_made(bench: Bench) -> dict[str, Any]:
    """Has a volume made, which members mount, and looks at it again and again."""
    bench.put(ensemble("sweep", with_volume(), onChange="Recreate"))
    bench.look()
    made, live = volume(bench), bench.minicluster()
    assert made is not None
    assert live is not None
    assert names.owned_by(bench.ensemble() or {}, made)
    assert made["metadata"]["labels"]["a"] == "b"
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]
    assert made["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    (container,) = live["spec"]["containers"]
    assert container["volumes"]["flux-ensemble-state"]["claimName"] == "sweep-solve-state"
    assert "--resume" in container["command"].split()
    bench.look()
    again = volume(bench)
    assert again is not None
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    return made


def test_a_volume_is_made_of_a_template_and_goes_with_the_ensemble(bench: Bench) -> None:
    volume_made(bench)
    bench.end(exit_code=0, state="completed")
    bench.look()
    bench.look()
    assert volume(bench) is not None
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    assert volume(bench) is None


def test_another_template_is_another_volume_for_a_member_that_begins_anew(
    bench: Bench, api: MemoryApi
) -> None:
    first = volume_made(bench)
    # One that runs keeps what it has.
    bench.put(ensemble("sweep", with_volume("2Gi")))
    assert condition(bench.look(), "Accepted")[1] == "ChangeRefused"
    bench.put(ensemble())
    assert condition(bench.look(), "Accepted")[1] == "ChangeRefused"
    assert (volume(bench) or {})["metadata"]["uid"] == first["metadata"]["uid"]
    api.collects = False
    bench.put(ensemble("sweep", with_volume("2Gi"), onChange="Recreate"))
    for _ in range(5):
        bench.look()
        api.collect()
    other = volume(bench)
    assert other is not None
    assert other["metadata"]["uid"] != first["metadata"]["uid"]
    assert other["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    assert bench.minicluster() is not None


def test_a_volume_that_is_not_wanted_any_more_goes_after_what_mounts_it(
    bench: Bench, api: MemoryApi
) -> None:
    volume_made(bench)
    bench.put(ensemble("sweep", member(), onChange="Recreate"))
    before = len(api.writes)
    for _ in range(4):
        bench.look()
    written = [one for one in api.writes[before:] if one.startswith("DELETE")]
    assert [one.split()[1] for one in written] == ["miniclusters", "persistentvolumeclaims"]
    assert bench.minicluster() is not None
    assert volume(bench) is None


def test_a_volume_that_somebody_deleted_is_made_again_for_the_pods_to_come(bench: Bench) -> None:
    first = volume_made(bench)
    bench.remove("v1", "PersistentVolumeClaim", "sweep-solve-state")
    bench.look()
    again = volume(bench)
    assert again is not None
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_claim_of_others_that_has_the_name_is_left_alone_and_told(bench: Bench) -> None:
    metadata = {"name": "sweep-solve-state", "namespace": "default"}
    bench.admin.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})
    bench.put(ensemble("sweep", with_volume()))
    assert "'sweep-solve-state' is there already" in condition(bench.look(), "Accepted")[2]
    assert bench.minicluster() is None


# -- what cannot be read -------------------------------------------------------------------


def test_what_could_not_be_listed_is_as_it_was(bench: Bench, api: MemoryApi) -> None:
    bench.put(ensemble())
    bench.look()
    bench.pod()
    before = bench.look()["members"]

    def refuse(method: str, plural: str, name: str) -> None:
        if (method, plural) == ("GET", "miniclusters"):
            raise Failure(503, "ServiceUnavailable", "later")

    api.refuse = refuse
    with pytest.raises(ClusterFailure, match="later"):
        bench.look()
    after = (bench.ensemble() or {})["status"]
    assert after["members"] == before
