"""The Kubernetes back end on a real API server, with the rights that the deployment gives it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apiserver
import httpx2
import pytest
from lightkube import Client
from lightkube.codecs import load_all_yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.rbac_authorization_v1 import RoleBinding
from lightkube.types import PatchType
from patience import PATIENCE

from flux_ensemble.k8s.grpc.backend import (
    Contended,
    Grant,
    Refused,
    Size,
    Unavailable,
    UnknownCluster,
)
from flux_ensemble.k8s.minicluster import Kubernetes, MiniCluster

pytestmark = apiserver.MARKS

HELPERS = Path(__file__).parents[2] / "helpers"
DEPLOYMENT = Path(__file__).parents[4] / "etc" / "kubernetes" / "grpc.yaml"

#: A change that only somebody else may make.
RAISED = {"spec": {"maxSize": 9}}


def soon() -> float:
    return time.monotonic() + PATIENCE


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Client]]:
    """A function that makes a client of a user: the administrator, or the service."""
    directory = tmp_path_factory.mktemp("apiserver")
    with apiserver.api_server(directory, {"service": "service"}) as server:
        prepare(server.client())
        yield server.client


def prepare(admin: Client) -> None:
    """Creates the resource, and gives the user `service` the role of the deployment."""
    for one in load_all_yaml((HELPERS / "minicluster_crd.yaml").read_text()):
        admin.create(one)
    admin.wait(
        CustomResourceDefinition,
        "miniclusters.flux-framework.org",
        for_conditions=["Established"],
    )
    deployment: list[Any] = list(load_all_yaml(DEPLOYMENT.read_text()))
    role = next(one for one in deployment if one.kind == "Role")
    admin.create(role)
    admin.create(
        RoleBinding(
            metadata=ObjectMeta(name="service"),
            roleRef=RoleRef(
                apiGroup="rbac.authorization.k8s.io", kind="Role", name=role.metadata.name
            ),
            subjects=[Subject(kind="User", name="service")],
        )
    )


@pytest.fixture
def admin(clients: Callable[[str], Client]) -> Client:
    return clients("admin")


@pytest.fixture
def backend(clients: Callable[[str], Client]) -> Kubernetes:
    return Kubernetes(clients("service"))


def create(admin: Client, name: str, **spec: int) -> str:
    metadata = ObjectMeta(name=name, namespace="default")
    admin.create(MiniCluster(metadata=metadata, spec=spec))
    return f"default/{name}"


def spec_of(admin: Client, cluster: str) -> dict[str, Any]:
    found = admin.get(MiniCluster, cluster.partition("/")[2])
    spec: dict[str, Any] = found["spec"]
    return spec


def test_a_size_is_changed_within_the_bounds(admin: Client, backend: Kubernetes) -> None:
    cluster = create(admin, "bounds", size=2, minSize=1, maxSize=4)
    assert backend.scale(cluster, deadline=soon(), by=1) == Grant(2, 3)
    assert backend.scale(cluster, deadline=soon(), by=9) == Grant(3, 4)
    assert backend.size(cluster, soon()) == Size(4, 1, 4)
    with pytest.raises(Refused, match="its maximum is 4"):
        backend.scale(cluster, deadline=soon(), by=1)
    assert backend.scale(cluster, deadline=soon(), to=1) == Grant(4, 1)
    assert spec_of(admin, cluster).items() >= {"size": 1, "minSize": 1, "maxSize": 4}.items()


def test_no_change_is_lost_when_several_are_made_at_once(
    admin: Client, clients: Callable[[str], Client]
) -> None:
    cluster = create(admin, "contended", size=1, minSize=1, maxSize=100)

    def grow(_: int) -> int:
        backend, granted = Kubernetes(clients("service")), 0
        while granted < 5:
            try:
                backend.scale(cluster, deadline=soon(), by=1)
            except Contended:
                continue
            granted += 1
        return granted

    with ThreadPoolExecutor(4) as pool:
        granted = sum(pool.map(grow, range(4)))
    assert spec_of(admin, cluster)["size"] == 1 + granted


def test_an_old_version_is_refused_by_the_api_server(admin: Client, backend: Kubernetes) -> None:
    cluster = create(admin, "old", size=1, minSize=1, maxSize=5)
    version = backend._read(cluster, soon())["metadata"]["resourceVersion"]
    admin.patch(MiniCluster, "old", RAISED, patch_type=PatchType.MERGE)
    assert not backend._write(cluster, version, 3, soon())
    assert spec_of(admin, cluster)["size"] == 1


def test_the_role_allows_nothing_else(
    admin: Client, backend: Kubernetes, clients: Callable[[str], Client]
) -> None:
    cluster = create(admin, "guarded", size=1, minSize=1, maxSize=2)
    service = clients("service")
    for forbidden in (
        lambda: list(service.list(MiniCluster)),
        lambda: service.delete(MiniCluster, "guarded"),
        lambda: service.patch(MiniCluster, "guarded", RAISED, patch_type=PatchType.MERGE),
    ):
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            forbidden()
        assert caught.value.response.status_code == 403
    with pytest.raises(Unavailable, match="does not let this service"):
        backend.size("kube-system/other", soon())
    assert spec_of(admin, cluster)["maxSize"] == 2


def test_a_minicluster_that_is_not_there_is_named(backend: Kubernetes) -> None:
    with pytest.raises(UnknownCluster, match="there is no MiniCluster 'default/nobody'"):
        backend.size("default/nobody", soon())
