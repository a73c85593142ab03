"""The Kubernetes back end on a real API server, with the rights that the deployment gives it.

KUBE_APISERVER and ETCD name the two binaries; nothing else of a cluster is needed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from lightkube import Client
from lightkube.codecs import load_all_yaml
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import RoleRef, Subject
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.rbac_authorization_v1 import RoleBinding
from lightkube.types import PatchType

from flux_ensemble.gateway.backend import Contended, Grant, Refused, Size, UnknownMember
from flux_ensemble.gateway.backends.kubernetes import Kubernetes, MiniCluster

BINARIES = [os.environ.get(name) for name in ("KUBE_APISERVER", "ETCD")]

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.skipif(
        not all(BINARIES), reason="KUBE_APISERVER and ETCD do not name the binaries"
    ),
]

HELPERS = Path(__file__).parents[1] / "helpers"
DEPLOYMENT = Path(__file__).parents[3] / "etc" / "kubernetes" / "grpc.yaml"

#: Users by token: the administrator, and one with the rights of the service.
TOKENS = 'admin-token,admin,0,"system:masters"\nservice-token,service,1\n'

#: A change that only somebody else may make.
RAISED = {"spec": {"maxSize": 9}}

#: Starting an API server takes a few seconds; nothing takes nearly as long as this.
PATIENCE = 90


def soon() -> float:
    return time.monotonic() + 60


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def process(name: str, directory: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Runs a program; gives a function that raises if it has ended, with what it wrote."""
    log = directory / f"{name}.log"
    with log.open("w") as output:
        child = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)

    def check() -> str:
        text = log.read_text()[-2000:]
        assert child.poll() is None, f"{name} has ended: {text}"
        return text

    try:
        yield check
    finally:
        child.kill()
        child.wait(PATIENCE)


def wait_until_ready(url: str, check: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    headers = {"Authorization": "Bearer admin-token"}
    while True:
        said = check()
        try:
            if httpx2.get(f"{url}/readyz", headers=headers, verify=False).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < deadline, f"the API server is not ready: {said}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Client]]:
    """A function that makes a client for a token of `TOKENS`."""
    directory = tmp_path_factory.mktemp("apiserver")
    key = directory / "accounts.key"
    key.write_bytes(
        rsa.generate_private_key(65537, 2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    (directory / "tokens.csv").write_text(TOKENS)
    clients_port, peers_port, port = free_ports(3)
    etcd, peers = f"http://127.0.0.1:{clients_port}", f"http://127.0.0.1:{peers_port}"
    apiserver_binary, etcd_binary = map(str, BINARIES)
    with (
        process(
            "etcd",
            directory,
            etcd_binary,
            f"--data-dir={directory}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ),
        process(
            "kube-apiserver",
            directory,
            apiserver_binary,
            f"--etcd-servers={etcd}",
            f"--cert-dir={directory}/certificates",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
            "--authorization-mode=RBAC",
            f"--token-auth-file={directory}/tokens.csv",
        ) as check,
    ):
        url = f"https://127.0.0.1:{port}"
        wait_until_ready(url, check)

        def client(token: str) -> Client:
            cluster = Cluster(server=url, insecure=True)
            config = KubeConfig.from_one(
                cluster=cluster, user=User(token=token), namespace="default"
            )
            return Client(config=config)

        prepare(client("admin-token"))
        yield client


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
            roleRef=RoleRef("rbac.authorization.k8s.io", "Role", role.metadata.name),
            subjects=[Subject(kind="User", name="service")],
        )
    )


@pytest.fixture
def admin(clients: Callable[[str], Client]) -> Client:
    return clients("admin-token")


@pytest.fixture
def backend(clients: Callable[[str], Client]) -> Kubernetes:
    return Kubernetes(clients("service-token"))


def create(admin: Client, name: str, **spec: int) -> str:
    metadata = ObjectMeta(name=name, namespace="default")
    admin.create(MiniCluster(metadata=metadata, spec=spec))
    return f"default/{name}"


def spec_of(admin: Client, member: str) -> dict[str, Any]:
    found = admin.get(MiniCluster, member.partition("/")[2])
    spec: dict[str, Any] = found["spec"]
    return spec


def test_a_size_is_changed_within_the_bounds(admin: Client, backend: Kubernetes) -> None:
    member = create(admin, "bounds", size=2, minSize=1, maxSize=4)
    assert backend.scale(member, deadline=soon(), by=1) == Grant(2, 3)
    assert backend.scale(member, deadline=soon(), by=9) == Grant(3, 4)
    assert backend.size(member, soon()) == Size(4, 1, 4)
    with pytest.raises(Refused, match="its maximum is 4"):
        backend.scale(member, deadline=soon(), by=1)
    assert backend.scale(member, deadline=soon(), to=1) == Grant(4, 1)
    assert spec_of(admin, member) == {"size": 1, "minSize": 1, "maxSize": 4}


def test_no_change_is_lost_when_several_are_made_at_once(
    admin: Client, clients: Callable[[str], Client]
) -> None:
    member = create(admin, "contended", size=1, minSize=1, maxSize=100)

    def grow(_: int) -> int:
        backend, granted = Kubernetes(clients("service-token")), 0
        while granted < 5:
            try:
                backend.scale(member, deadline=soon(), by=1)
            except Contended:
                continue
            granted += 1
        return granted

    with ThreadPoolExecutor(4) as pool:
        granted = sum(pool.map(grow, range(4)))
    assert spec_of(admin, member)["size"] == 1 + granted


def test_an_old_version_is_refused_by_the_api_server(admin: Client, backend: Kubernetes) -> None:
    member = create(admin, "old", size=1, minSize=1, maxSize=5)
    _, version = backend._read(member)
    admin.patch(MiniCluster, "old", RAISED, patch_type=PatchType.MERGE)
    assert not backend._write(member, version, 3)
    assert spec_of(admin, member)["size"] == 1


def test_the_role_allows_nothing_else(
    admin: Client, backend: Kubernetes, clients: Callable[[str], Client]
) -> None:
    member = create(admin, "guarded", size=1, minSize=1, maxSize=2)
    service = clients("service-token")
    for forbidden in (
        lambda: list(service.list(MiniCluster)),
        lambda: service.delete(MiniCluster, "guarded"),
        lambda: service.patch(MiniCluster, "guarded", RAISED, patch_type=PatchType.MERGE),
    ):
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            forbidden()
        assert caught.value.response.status_code == 403
    with pytest.raises(Refused, match="does not let this service"):
        backend.size("kube-system/other", soon())
    assert spec_of(admin, member)["maxSize"] == 2


def test_a_minicluster_that_is_not_there_is_named(backend: Kubernetes) -> None:
    with pytest.raises(UnknownMember, match="there is no MiniCluster 'default/nobody'"):
        backend.size("default/nobody", soon())
