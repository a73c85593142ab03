"""The reconciler on an API in memory, with no more rights than the shipped roles give it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any, cast

import pytest
from ensembles import DOCUMENT, Bench, condition, ensemble, member, write_status
from memory_api import Failure, MemoryApi
from memory_jobs import INDEX
from play import Play, Scale, Started, document, on_start

from flux_ensemble import certificates
from flux_ensemble.cli.display import troubles
from flux_ensemble.cli.session.results import Summary
from flux_ensemble.client.responses import EnsembleStatus
from flux_ensemble.client.troubles import sentence
from flux_ensemble.k8s.operator import names
from flux_ensemble.k8s.operator.check import check
from flux_ensemble.k8s.operator.cluster import ClusterFailure
from flux_ensemble.k8s.operator.members import Observed, kind_of
from flux_ensemble.k8s.operator.queue import LAST
from flux_ensemble.k8s.operator.reconcile import Reconciler
from flux_ensemble.k8s.operator.render import Settings

pytest_plugins = ["operator_cluster"]

PARTS = (
    ("v1", "ServiceAccount", "sweep-grpc"),
    ("rbac.authorization.k8s.io/v1", "Role", "sweep-grpc"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "sweep-grpc"),
    ("v1", "Service", "sweep-grpc"),
    ("networking.k8s.io/v1", "NetworkPolicy", "sweep-grpc"),
    ("policy/v1", "PodDisruptionBudget", "sweep-grpc"),
    ("apps/v1", "Deployment", "sweep-grpc"),
    ("v1", "ConfigMap", "sweep-grpc"),
    ("v1", "ConfigMap", "sweep-solve-document"),
    ("v1", "Secret", "sweep-authority"),
    ("v1", "Secret", "sweep-grpc-tls"),
    ("v1", "Secret", "sweep-solve-tls"),
    (names.MINICLUSTER, "MiniCluster", "sweep-solve"),
)


def there(bench: Bench) -> list[tuple[str, str, str]]:
    return [
        part for part in PARTS if bench.admin.get(part[0], part[1], "default", part[2]) is not None
    ]


def test_an_ensemble_becomes_all_that_it_consists_of(bench: Bench) -> None:
    bench.put(ensemble())
    status = bench.look()
    assert there(bench) == list(PARTS)
    uid = (bench.ensemble() or {})["metadata"]["uid"]
    for api_version, kind, name in PARTS:
        found = bench.admin.get(api_version, kind, "default", name)
        assert found is not None
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["blockOwnerDeletion"]) == (uid, False)
    assert condition(status, "Accepted")[0] == "True"
    assert condition(status, "Ready")[:2] == ("False", "Progressing")
    assert (status["phase"], status["observedGeneration"]) == ("Pending", 1)
    assert bench.events() == ["Accepted", "MemberCreated"]


def test_a_second_look_writes_nothing_nor_does_an_operator_that_starts_anew(
    bench: Bench, api: MemoryApi
) -> None:
    bench.put(ensemble())
    bench.look()
    bench.look()
    before = len(api.writes)
    bench.look()
    again = Bench(api, "flux-ensemble-flux-ensemble-operator")
    again.moment = bench.moment + datetime.timedelta(minutes=5)
    again.look()
    again.close()
    assert api.writes[before:] == []


def test_the_size_is_that_of_the_service_and_each_change_is_told(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    live = bench.minicluster()
    assert live is not None
    bench.admin.resize(live, 3)
    bench.pod(0)
    bench.pod(1)
    status = bench.look()
    assert (bench.minicluster() or {})["spec"]["size"] == 3
    (one,) = status["members"]
    assert (one["size"], one["wanted"], one["min"], one["max"]) == (2, 3, 1, 3)
    assert (one["state"], status["phase"], status["size"]) == ("Running", "Running", 2)
    assert "Resized" in bench.events()


def test_what_somebody_changes_or_deletes_is_mended_but_for_the_size(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    live = bench.minicluster()
    assert live is not None
    live["spec"] |= {"size": 2, "tasks": 7, "backoffLimit": 1}
    live["metadata"]["labels"] = {names.ENSEMBLE_LABEL: "sweep", names.MANAGED_LABEL: names.MANAGER}
    bench.admin.replace(live)
    deployment = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert deployment is not None
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"
    bench.admin.replace(deployment)
    bench.remove("v1", "Secret", "sweep-solve-tls")
    bench.remove("v1", "Service", "sweep-grpc")
    bench.look()
    assert there(bench) == list(PARTS)
    live = bench.minicluster()
    assert live is not None
    assert (live["spec"]["size"], live["spec"]["backoffLimit"]) == (2, 6)
    assert live["metadata"]["labels"][names.MEMBER_LABEL] == "solve"
    deployment = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert deployment is not None
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "image:1"


def test_a_member_that_is_taken_out_goes_with_all_that_it_has(bench: Bench) -> None:
    bench.put(ensemble("sweep", member("solve"), member("other")))
    bench.look()
    bench.put(ensemble("sweep", member("other")))
    bench.look()
    assert not any(name.startswith("sweep-solve") for _, _, name in there(bench))
    assert bench.minicluster("sweep-other") is not None
    role = bench.admin.get("rbac.authorization.k8s.io/v1", "Role", "default", "sweep-grpc")
    assert (role or {})["rules"][0]["resourceNames"] == ["sweep-other"]


def test_the_deletion_of_an_ensemble_leaves_nothing(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    assert there(bench) == []
    assert bench.reconciler.reconcile("default", "sweep") is None


def test_a_document_with_errors_changes_nothing_and_all_of_them_are_told(bench: Bench) -> None:
    bad = "jobs: [{name: a, command: a, count: five}]\nrules:\n  - {trigger: nevr}\n"
    bench.put(ensemble("sweep", member(document=bad)))
    status = bench.look()
    assert there(bench) == []
    holds, reason, message = condition(status, "Accepted")
    assert (holds, reason, status["phase"]) == ("False", "Invalid", "Rejected")
    first, second = message.splitlines()[:2]
    assert first.startswith("members[solve].ensemble: line 1: jobs[0].count: expected an integer")
    assert "line 3" in second
    assert bench.events() == ["Invalid"]
    # One that runs goes on as it is.
    bench.put(ensemble())
    bench.look()
    bench.put(ensemble("sweep", member(document=bad)))
    status = bench.look()
    assert condition(status, "Accepted")[0] == "False"
    assert there(bench) == list(PARTS)


def test_a_typo_in_what_is_passed_on_is_told_and_nothing_is_made(bench: Bench) -> None:
    bench.put(ensemble("sweep", member(deadlineSecond=5)))
    status = bench.look()
    assert 'unknown field "spec.deadlineSecond"' in condition(status, "Accepted")[2]
    assert there(bench) == []


def test_what_members_begin_with_is_made_first_and_what_they_do_without_last(
    bench: Bench,
) -> None:
    bench.put(ensemble())
    assert bench.reconciler.reconcile("default", "sweep") == LAST
    assert [name for _, _, name in there(bench)] == [
        "sweep-solve-document",
        "sweep-authority",
        "sweep-solve-tls",
        "sweep-solve",
    ]
    assert "status" not in (bench.ensemble() or {})
    assert bench.reconciler.reconcile("default", "sweep") != LAST
    assert there(bench) == list(PARTS)


def test_an_operator_that_was_killed_before_it_made_the_service_makes_it_and_tells_of_all(
    bench: Bench,
) -> None:
    bench.put(ensemble())
    bench.reconciler.reconcile("default", "sweep")
    uid = (bench.minicluster() or {})["metadata"]["uid"]
    other = Reconciler(bench.reconciler._cluster, Settings("image:1"), bench.metrics)
    assert other.reconcile("default", "sweep") != LAST
    assert there(bench) == list(PARTS)
    assert (bench.minicluster() or {})["metadata"]["uid"] == uid
    assert bench.events() == ["Accepted", "MemberCreated"]


def test_one_whose_member_has_to_wait_says_so_at_once(bench: Bench) -> None:
    theirs = {"name": names.entrypoint("sweep-solve"), "namespace": "default"}
    bench.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs})
    bench.put(ensemble())
    assert bench.reconciler.reconcile("default", "sweep") != LAST
    assert condition((bench.ensemble() or {})["status"], "Accepted")[0] == "False"
    assert bench.minicluster() is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"containers": [{"image": "a"}, {"image": "b"}]}, "expected one container with 'runFlux"),
        ({"containers": [{"image": "a", "command": "sh"}]}, "the container with runFlux runs"),
        ({"containers": [{"image": "a", "batch": True}]}, "not a batch script"),
        ({"interactive": True}, "an interactive MiniCluster runs no ensemble"),
        ({"backoffLimit": 0}, "the Flux Operator takes 0 for 100"),
        ({"pod": {"labels": {"flux-ensemble.dev/x": "y"}}}, "are the operator's"),
        (
            {"containers": [{"image": "a", "volumes": {"flux-ensemble-tls": {"path": "/x"}}}]},
            "this name is taken",
        ),
    ],
)
def test_what_would_be_overwritten_is_refused(changes: dict[str, Any], sentence: str) -> None:
    (problem,) = check(ensemble("sweep", member(**changes)), {"solve": DOCUMENT})
    assert sentence in problem


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [part for part in PARTS if part[1] in ("MiniCluster", "ConfigMap", "Secret", "Deployment")],
)
def test_an_object_of_somebody_else_is_never_touched(
    bench: Bench, api_version: str, kind: str, name: str
) -> None:
    labels = {names.ENSEMBLE_LABEL: "sweep", names.MANAGED_LABEL: names.MANAGER}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    theirs = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}}
    made = bench.admin.create(theirs)
    bench.put(ensemble())
    status = bench.look()
    assert condition(status, "Accepted")[0] == "False"
    assert f"{kind} '{name}' is there already" in condition(status, "Accepted")[2]
    assert bench.admin.get(api_version, kind, "default", name) == made
    bench.remove(names.API_VERSION, names.KIND, "sweep")
    assert bench.admin.get(api_version, kind, "default", name) == made


def test_a_size_beyond_its_bounds_is_undone_and_told(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    for size, bounded in ((9, 3), (0, 1)):
        live = bench.minicluster()
        assert live is not None
        bench.admin.resize(live, size)
        bench.look()
        assert (bench.minicluster() or {})["spec"]["size"] == bounded
    assert bench.events().count("SizeOutOfBounds") == 2


def of_a_grow(answer: str) -> EnsembleStatus:
    """The status of an ensemble that has ended, and whose member has answered a grow so."""
    grow = {"id": "more", "trigger": "start", "action": {"name": "grow", "value": 9}}
    play = Play(document(rules=[grow, {**grow, "id": "again"}, on_start()]), start=False)
    play.member(2, high=4)
    play.post(Started(play.t))
    (scale,) = play.of(Scale)
    if answer != "met":
        play.timer(f"scale:{scale.id}")
    if answer != "late":
        play.done(scale, nodes=4, by=2)
    for job in (1, 2):
        play.run(job)
    return cast(EnsembleStatus, {**play.status(), "t_start": 1.5, "t_end": 2.5})


@pytest.mark.parametrize(
    ("answer", "phase", "trouble"),
    [
        (
            "late",
            "Failed",
            "rule 'more' failed (the instance did not answer within 600 seconds)",
        ),
        ("late, but met", "Completed", ""),
        ("met", "Completed", ""),
    ],
)
def test_how_run_ends_is_how_its_ensemble_in_kubernetes_ends(
    bench: Bench, tmp_path: Path, answer: str, phase: str, trouble: str
) -> None:
    # The second rule is denied at once, since a request is outstanding: that is no failure.
    of_run = of_a_grow(answer)
    code = troubles.exit_code("completed", of_run, troubles.DEFAULT_KINDS)
    summary = Summary(tmp_path / "summary")
    summary.take(of_run)
    summary.write(code)
    bench.put(ensemble())
    bench.look()
    left = json.loads((tmp_path / "summary").read_text())
    del left["name"]
    bench.end(**left)
    status = bench.look()
    assert (code, status["phase"]) == (int(phase == "Failed"), phase)
    assert (status["members"][0]["state"], phase in bench.events()) == (phase, True)
    assert status["members"][0].get("trouble", "") == sentence(of_run) == trouble
    for name in ("Completed", "Ready"):
        assert condition(status, name)[0] == str(phase == "Completed")
    assert condition(status, "Failed")[0] == str(phase == "Failed")


@pytest.mark.parametrize(
    ("summary", "state", "phase"),
    [
        ({"exit_code": 0, "state": "completed", "reason": "idle"}, "Completed", "Completed"),
        ({"exit_code": 1, "state": "failed", "reason": "too many"}, "Failed", "Failed"),
        ({"exit_code": 3, "state": "canceled", "reason": "by root"}, "Canceled", "Canceled"),
        ({"exit_code": 2, "error": "no such file"}, "Failed", "Failed"),
        ({"exit_code": 1, "state": "completed", "reason": "jobs failed"}, "Failed", "Failed"),
        (
            {"exit_code": 1, "state": "completed", "reason": "idle", "trouble": "rule 'a' failed"},
            "Failed",
            "Failed",
        ),
        (
            {"exit_code": 0, "state": "completed", "reason": "idle", "trouble": "6 jobs failed"},
            "Completed",
            "Completed",
        ),
        ({"other": 1}, "Failed", "Failed"),
    ],
)
def test_the_end_of_a_member_is_what_it_has_left(
    bench: Bench, summary: dict[str, Any], state: str, phase: str
) -> None:
    bench.put(ensemble())
    bench.look()
    bench.end(**summary)
    status = bench.look()
    (one,) = status["members"]
    assert (one["state"], status["phase"]) == (state, phase)
    assert one["reason"] in (
        *summary.values(),
        "rank 0 ended without a word on the ensemble: see its log",
    )
    good = phase == "Completed"
    # What `run` says at its end is in all that tells of the end.
    trouble = summary.get("trouble", "")
    assert one.get("trouble", "") == trouble
    for name in ("Ready", "Completed" if good else "Failed"):
        assert trouble in condition(status, name)[2]
    told = bench.admin.list("v1", "Event", "default")
    for told_reason in (f"Member{state}", phase):
        (event,) = (event for event in told if event["reason"] == told_reason)
        assert trouble in event["message"]
        assert event["type"] == ("Warning" if trouble or not good else "Normal")
    assert condition(status, "Completed")[0] == str(good)
    assert condition(status, "Failed")[0] == str(not good)
    assert condition(status, "Ready")[0] == str(good)
    # The service is not needed any more, and the end stays even when the pods are gone.
    bench.look()
    deployment = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert (deployment or {})["spec"]["replicas"] == 0
    for pod in bench.admin.list("v1", "Pod", "default"):
        bench.admin.delete(pod)
    bench.remove(names.MINICLUSTER, "MiniCluster", "sweep-solve")
    assert bench.look()["phase"] == phase
    assert bench.minicluster() is None
    assert bench.events()[-1] == phase


@pytest.mark.parametrize(
    ("phase", "state", "reason"),
    [
        ("Succeeded", "Ending", "rank 0 has ended, and its Job has yet to say so"),
        ("Failed", "Pending", "the pod of rank 0 was lost (it has ended)"),
    ],
)
def test_a_pod_of_rank_0_that_has_succeeded_is_not_lost_while_its_job_is_late(
    phase: str, state: str, reason: str
) -> None:
    cluster = {"metadata": {"uid": "1"}, "spec": {"size": 1}}
    job: dict[str, Any] = {"metadata": {"name": "sweep-solve"}, "spec": {}, "status": {}}
    pod = {"metadata": {"labels": {INDEX: "0"}}, "status": {"phase": phase}}
    found = kind_of(member()).status(member(), Observed(cluster, job, [pod]))
    assert found["state"] == state
    assert reason in found["reason"]


def test_an_ensemble_is_deleted_some_time_after_its_end(bench: Bench) -> None:
    bench.put(ensemble(ttlSecondsAfterFinished=60))
    bench.look()
    bench.end(exit_code=0, state="completed")
    bench.look()
    assert bench.reconciler.reconcile("default", "sweep") == 60
    bench.moment += datetime.timedelta(seconds=61)
    bench.reconciler.reconcile("default", "sweep")
    assert bench.ensemble() is None
    assert there(bench) == []


def test_what_keeps_pods_from_running_is_in_the_status(bench: Bench, api: MemoryApi) -> None:
    api.most_pods = 1
    bench.put(ensemble("sweep", member(size=2)))
    bench.look()
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "app"'}
    bench.pod(phase="Pending", state={"waiting": waiting})
    status = bench.look()
    reason = status["members"][0]["reason"]
    assert 'ImagePullBackOff: Back-off pulling image "app"' in reason
    assert "exceeded quota" in reason
    assert reason in condition(status, "Ready")[2]
    assert "MemberWaits" in bench.events()
    # Pods are watched: until something changes there is nothing to look at but certificates.
    after = bench.reconciler.reconcile("default", "sweep")
    assert after is not None
    assert after > 1000


def test_a_change_of_a_member_that_runs_is_refused_or_begins_it_anew(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    first = (bench.minicluster() or {})["metadata"]["uid"]
    other = member(containers=[{"image": "other"}])
    bench.put(ensemble("sweep", other))
    status = bench.look()
    assert condition(status, "Accepted")[:2] == ("False", "ChangeRefused")
    assert (bench.minicluster() or {})["metadata"]["uid"] == first
    bench.put(ensemble("sweep", other, onChange="Recreate"))
    bench.look()
    bench.look()
    live = bench.minicluster()
    assert live is not None
    assert live["metadata"]["uid"] != first
    assert live["spec"]["containers"][0]["image"] == "other"
    # A new size to begin with, or least size, is no change of what runs.
    bench.put(ensemble("sweep", member(containers=[{"image": "other"}], size=2, minSize=2)))
    status = bench.look()
    assert condition(status, "Accepted")[0] == "True"
    live = bench.minicluster()
    assert live is not None
    assert live["spec"]["minSize"] == 2


def test_a_suspended_ensemble_has_no_miniclusters(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    bench.put(ensemble(suspend=True))
    assert bench.look()["phase"] == "Suspended"
    assert bench.minicluster() is None
    bench.put(ensemble(suspend=False))
    bench.look()
    assert bench.minicluster() is not None


def test_a_document_can_be_in_a_config_map(bench: Bench) -> None:
    one = member()
    text = one.pop("ensemble")
    bench.put(ensemble("sweep", {**one, "ensembleFrom": {"name": "docs", "key": "a"}}))
    assert "there is no ConfigMap 'docs'" in condition(bench.look(), "Accepted")[2]
    metadata = {"name": "docs", "namespace": "default"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    bench.admin.create({**config, "data": {"b": text}})
    assert "has no key 'a' (keys: b)" in condition(bench.look(), "Accepted")[2]
    bench.admin.replace({**config, "data": {"a": text}})
    assert condition(bench.look(), "Accepted")[0] == "True"
    first = bench.minicluster() or {}
    volumes = first["spec"]["containers"][0]["volumes"]
    assert volumes["flux-ensemble-document"]["items"] == {"a": "ensemble.yaml"}
    # Nobody watches ConfigMaps; another text is a change of the member.
    after = bench.reconciler.reconcile("default", "sweep")
    assert after is not None
    assert after <= 60
    bench.admin.replace({**config, "data": {"a": f"{text}# more\n"}})
    assert condition(bench.look(), "Accepted")[:2] == ("False", "ChangeRefused")
    assert (bench.minicluster() or {})["metadata"]["uid"] == first["metadata"]["uid"]
    found = bench.ensemble()
    assert found is not None
    found["spec"]["onChange"] = "Recreate"
    bench.put(found)
    bench.look()
    bench.look()
    assert (bench.minicluster() or {})["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_namespace_that_is_being_deleted_is_told_and_tried_again(
    bench: Bench, api: MemoryApi
) -> None:
    def refuse(method: str, plural: str, name: str) -> None:
        if method == "POST" and plural not in ("ensembles", "events"):
            raise Failure(403, "Forbidden", "namespace default is being terminated")

    bench.put(ensemble())
    api.refuse = refuse
    with pytest.raises(ClusterFailure, match="being terminated"):
        bench.look()
    found = bench.ensemble()
    assert found is not None
    assert condition(found["status"], "Ready")[1] == "ClusterFailure"
    assert "being terminated" in condition(found["status"], "Ready")[2]
    assert "ClusterFailure" in bench.events()
    api.refuse = lambda *_: None
    bench.look()
    assert there(bench) == list(PARTS)


def test_a_failure_before_an_ensemble_was_checked_says_nothing_of_its_documents(
    bench: Bench, api: MemoryApi
) -> None:
    def refuse(method: str, plural: str, name: str) -> None:
        if method == "GET" and plural == "deployments":
            raise Failure(403, "Forbidden", "deployments is forbidden")

    def conditions() -> dict[str, str]:
        with pytest.raises(ClusterFailure, match="deployments is forbidden"):
            bench.look()
        found = bench.ensemble()
        assert found is not None
        return {one["type"]: one["status"] for one in found["status"]["conditions"]}

    bench.put(ensemble("sweep", member(document="jobs: 1")))
    api.refuse = refuse
    assert "Accepted" not in conditions()
    assert bench.events() == ["ClusterFailure"]
    api.refuse = lambda *_: None
    assert condition(bench.look(), "Accepted")[:2] == ("False", "Invalid")
    # What is known of it stays.
    api.refuse = refuse
    assert conditions()["Accepted"] == "False"


def test_without_the_flux_operator_it_says_so(bench: Bench, api: MemoryApi) -> None:
    bench.put(ensemble())
    del api._kinds[names.MINICLUSTER]
    with pytest.raises(ClusterFailure):
        bench.look()
    found = bench.ensemble()
    assert found is not None
    assert "the Flux Operator" in condition(found["status"], "Ready")[2]


def test_certificates_are_made_anew_in_time_and_the_old_authority_stays_trusted(
    bench: Bench,
) -> None:
    def secret(name: str) -> dict[str, bytes]:
        found = bench.admin.get("v1", "Secret", "default", name)
        assert found is not None
        return certificates.decoded(found["data"])

    bench.put(ensemble())
    bench.look()
    first = secret("sweep-solve-tls"), secret("sweep-grpc-tls"), secret("sweep-authority")
    after = bench.reconciler.reconcile("default", "sweep")
    assert after is not None
    assert after < datetime.timedelta(days=61).total_seconds()
    bench.moment += datetime.timedelta(days=61)
    bench.look()
    second = secret("sweep-solve-tls"), secret("sweep-grpc-tls"), secret("sweep-authority")
    assert second[0] != first[0]
    assert second[1] != first[1]
    assert second[2] == first[2]
    bench.moment += datetime.timedelta(days=700)
    bench.look()
    third = secret("sweep-solve-tls"), secret("sweep-authority")
    assert third[1]["tls.crt"] != first[2]["tls.crt"]
    assert third[0]["ca.crt"] == third[1]["tls.crt"] + first[2]["tls.crt"]


def test_an_authority_of_cert_manager_signs(bench: Bench) -> None:
    with_secret = ensemble(service={"tls": {"authoritySecret": "issuer"}})
    bench.put(with_secret)
    assert "there is no Secret 'issuer'" in condition(bench.look(), "Accepted")[2]
    authority = certificates.new_authority("issuer", bench.moment)
    metadata = {"name": "issuer", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "tls"}
    bench.admin.create({**secret, "data": certificates.encoded({"tls.crt": b"x", "tls.key": b"y"})})
    assert "has no certificate of an authority" in condition(bench.look(), "Accepted")[2]
    data = {key: value for key, value in authority.data().items() if key != "ca.crt"}
    bench.admin.replace({**secret, "data": certificates.encoded(data)})
    bench.look()
    found = bench.admin.get("v1", "Secret", "default", "sweep-solve-tls")
    signed = certificates.certificate_of(certificates.decoded((found or {})["data"]))
    signed.verify_directly_issued_by(authority.certificate)
    assert ("v1", "Secret", "sweep-authority") not in there(bench)


def test_readiness_of_the_service_is_that_of_its_deployment(bench: Bench, api: MemoryApi) -> None:
    api.most_pods = 1
    bench.put(ensemble())
    assert condition(bench.look(), "ServiceReady")[0] == "False"
    live = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert live is not None
    write_status(bench.admin, live, {"readyReplicas": 1})
    bench.pod(0)
    status = bench.look()
    assert condition(status, "ServiceReady")[0] == "True"
    assert condition(status, "Ready")[:2] == ("True", "Running")
    # One that runs, and has not all the pods that it is to have, is ready; why, is said.
    bench.admin.resize(bench.minicluster() or {}, 2)
    bench.flux()
    status = bench.look()
    said = "solve: FailedCreate: Error creating: pods is forbidden: exceeded quota"
    assert condition(status, "Ready") == ("True", "Running", said)
    assert "MemberWaits" in bench.events()


def test_what_keeps_pods_of_the_service_from_running_is_told(bench: Bench) -> None:
    bench.put(ensemble())
    bench.look()
    uid = (bench.ensemble() or {})["metadata"]["uid"]
    labels = {**names.labels("sweep", "service"), names.UID_LABEL: uid}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sweep-grpc-x", "namespace": "default", "labels": labels},
    }
    waits = {"reason": "ErrImagePull", "message": "no such image"}
    status = {"containerStatuses": [{"name": "grpc", "state": {"waiting": waits}}]}
    write_status(bench.admin, bench.admin.create(pod), status)
    live = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert live is not None
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    write_status(
        bench.admin, live, {"conditions": [{**quota, "message": "exceeded quota: pods=1"}]}
    )
    holds, reason, message = condition(bench.look(), "ServiceReady")
    assert (holds, reason) == ("False", "PodsWait")
    assert "ErrImagePull: no such image" in message
    assert "FailedCreate: exceeded quota: pods=1" in message
    assert "ServiceWaits" in bench.events()


def test_another_object_of_the_same_name_is_neither_deleted_nor_changed(bench: Bench) -> None:
    another_object(bench)


def another_object(bench: Bench) -> None:
    """One that is there by now is not touched on behalf of the one that was read."""
    bench.put(ensemble(ttlSecondsAfterFinished=60))
    bench.look()
    kind = names.MINICLUSTER, "MiniCluster", "default", "sweep-solve"
    before = bench.admin.get(*kind)
    assert before is not None
    bench.admin.delete(before)
    keys = ("apiVersion", "kind", "spec")
    metadata = {"name": "sweep-solve", "namespace": "default"}
    bench.admin.create({**{key: before[key] for key in keys}, "metadata": metadata})
    for write in (
        lambda: bench.admin.delete(before),
        lambda: bench.admin.apply({**before, "metadata": metadata}, before),
    ):
        with pytest.raises(ClusterFailure) as caught:
            write()
        assert caught.value.code == 409
    # Nor is an Ensemble that somebody has changed at the last moment.
    found = bench.ensemble()
    assert found is not None
    bench.put(ensemble(ttlSecondsAfterFinished=600))
    with pytest.raises(ClusterFailure) as caught:
        bench.admin.delete(found, unchanged=True)
    assert caught.value.code == 409
    assert bench.ensemble() is not None


def test_a_new_release_rolls_the_service_and_leaves_members_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(ensemble(onChange="Recreate"))
    bench.look()
    before = bench.minicluster()
    monkeypatch.setattr("flux_ensemble.k8s.operator.manifests.__version__", "9.9.9")
    monkeypatch.setattr(
        "flux_ensemble.k8s.operator.minicluster.REQUIREMENT", "flux-ensemble==9.9.9"
    )
    bench.look()
    assert bench.minicluster() == before
    deployment = bench.admin.get("apps/v1", "Deployment", "default", "sweep-grpc")
    assert (deployment or {})["metadata"]["annotations"][names.RELEASE] == "9.9.9"
