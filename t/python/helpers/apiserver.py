"""A real API server with its etcd, for tests marked `apiserver`.

The binaries are those that KUBE_APISERVER and ETCD name, or else those on PATH. Objects stay while
it is restarted. With kube-controller-manager (KUBE_CONTROLLER_MANAGER, or on PATH) garbage is
collected and Jobs have pods; tests that need that have `CONTROLLERS` as a mark. Nothing runs pods:
see `standin`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from ends import Tied
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import Cluster, User
from patience import PATIENCE
from ports import free_ports

#: No answer of an API server takes nearly as long, in seconds.
REQUEST_PATIENCE = 60.0


def binaries() -> tuple[str, str] | None:
    """kube-apiserver and etcd; None if one of them is not there."""
    found = [
        os.environ.get(variable) or shutil.which(name)
        for variable, name in (("KUBE_APISERVER", "kube-apiserver"), ("ETCD", "etcd"))
    ]
    apiserver, etcd = found
    return None if apiserver is None or etcd is None else (apiserver, etcd)


def controller_manager() -> str | None:
    """kube-controller-manager; None if it is not there."""
    name = "kube-controller-manager"
    return os.environ.get("KUBE_CONTROLLER_MANAGER") or shutil.which(name)


#: The mark of tests that need garbage to be collected, or Jobs to have pods.
CONTROLLERS = pytest.mark.skipif(
    controller_manager() is None,
    reason="kube-controller-manager is not on PATH, nor named by KUBE_CONTROLLER_MANAGER",
)


#: The mark of a module whose tests need it.
MARKS = [
    pytest.mark.apiserver,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        binaries() is None,
        reason="kube-apiserver and etcd are not on PATH, nor named by KUBE_APISERVER and ETCD",
    ),
]


class ApiServer:
    """The server; tokens are "admin", and the names of users that are given.

    Args:
        directory: for its files and logs.
        users: name by token, besides the administrator; the names of ServiceAccounts are
            `system:serviceaccount:NAMESPACE:NAME`.
        audit: notes each request, for `requests_of`.
        address: at which it listens.
    """

    def __init__(
        self,
        directory: Path,
        users: dict[str, str],
        *,
        audit: bool = False,
        address: str = "127.0.0.1",
    ) -> None:
        self._directory = directory
        self._audit = directory / "audit.log" if audit else None
        self._children: dict[str, Tied] = {}
        self._clients: list[Client] = []
        self._key = directory / "accounts.key"
        self._key.write_bytes(
            rsa.generate_private_key(65537, 2048).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        lines = ['admin,admin,0,"system:masters"']
        lines += [f"{token},{name},{token}" for token, name in users.items()]
        (directory / "tokens.csv").write_text("\n".join(lines) + "\n")
        self._ports = free_ports(4)
        self._address = address
        self.url = f"https://{address}:{self._ports[2]}"

    def start(self) -> None:
        """Start what does not run, and wait until the API server answers."""
        found = binaries()
        assert found is not None
        apiserver, etcd = found
        client, peers = (f"http://127.0.0.1:{port}" for port in self._ports[:2])
        if "etcd" not in self._children:
            self._run(
                "etcd",
                etcd,
                f"--data-dir={self._directory}/etcd",
                "--unsafe-no-fsync",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
            )
        self._run(
            "kube-apiserver",
            apiserver,
            f"--etcd-servers={client}",
            f"--cert-dir={self._directory}/certificates",
            f"--bind-address={self._address}",
            f"--secure-port={self._ports[2]}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--disable-admission-plugins=ServiceAccount",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._directory}/tokens.csv",
            *self._audited(),
        )
        self._wait()
        if "kube-controller-manager" not in self._children and controller_manager() is not None:
            self.start_controllers()

    def _audited(self) -> list[str]:
        """The options by which each request is noted when it has been answered."""
        if self._audit is None:
            return []
        policy = self._directory / "audit.json"
        stages = ["RequestReceived", "ResponseStarted", "Panic"]
        content = {"omitStages": stages, "rules": [{"level": "Metadata"}]}
        kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        policy.write_text(json.dumps({**kind, **content}))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self._audit}"]

    def requests_of(self, user: str) -> list[tuple[str, str]]:
        """The requests of a user that have been answered: verbs, and paths."""
        assert self._audit is not None
        if not self._audit.exists():
            return []
        found = []
        mark = f'"username":"{user}"'
        for line in self._audit.read_text().splitlines():
            if mark in line and line.endswith("}"):
                event = json.loads(line)
                found.append((event["verb"], event["requestURI"]))
        return found

    def start_controllers(self) -> None:
        """Start the garbage collector, the Job controller, and what lets claims go."""
        program = controller_manager()
        assert program is not None
        config = self._directory / "controllers.config"
        config.write_text(self.kubeconfig("admin"))
        self._run(
            "kube-controller-manager",
            program,
            f"--kubeconfig={config}",
            "--controllers=garbage-collector-controller,job-controller,"
            "persistentvolumeclaim-protection-controller",
            "--leader-elect=false",
            f"--cert-dir={self._directory}/certificates",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[3]}",
        )

    def keep_controllers(self) -> bool:
        """Start the controllers again if they have ended, as a kubelet does; whether they had.

        They end where the API server is away while they start.
        """
        child = self._children.get("kube-controller-manager")
        if child is None or child.process.poll() is None:
            return False
        self.start_controllers()
        return True

    def stop_controllers(self) -> None:
        """Kill the controllers."""
        self._kill("kube-controller-manager")

    def stop_apiserver(self) -> None:
        """Kill the API server; etcd goes on."""
        self._kill("kube-apiserver")

    def close(self) -> None:
        """End all."""
        for client in self._clients:
            client.close()
        for name in list(self._children):
            self._kill(name)

    def client(self, token: str = "admin", namespace: str = "default") -> Client:
        """A client with a token; it is closed in the end."""
        config = KubeConfig.from_one(
            cluster=Cluster(server=self.url, insecure=True),
            user=User(token=token),
            namespace=namespace,
        )
        timeout = httpx2.Timeout(REQUEST_PATIENCE)
        client = Client(config=config, timeout=timeout, field_manager="test")
        self._clients.append(client)
        return client

    def kubeconfig(self, token: str, namespace: str = "default") -> str:
        """A configuration with a token, as text."""
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": context}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": token}}],
            }
        )

    def account_token(self, namespace: str, name: str) -> str:
        """A token of a ServiceAccount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = httpx2.post(
            self.url + path, json=body, headers={"Authorization": "Bearer admin"}, verify=False
        )
        answer.raise_for_status()
        token: str = answer.json()["status"]["token"]
        return token

    def _run(self, name: str, *arguments: str) -> None:
        self._children[name] = Tied(arguments, self._directory / f"{name}.log")

    def _kill(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.kill(PATIENCE)

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            log = self._directory / "kube-apiserver.log"
            for name in ("etcd", "kube-apiserver"):
                child = self._children[name].process
                assert child.poll() is None, f"{name} has ended: {log.read_text()[-2000:]}"
            try:
                headers = {"Authorization": "Bearer admin"}
                answer: Any = httpx2.get(f"{self.url}/readyz", headers=headers, verify=False)
                if answer.status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            said = log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"the API server is not ready: {said}"
            time.sleep(0.2)


@contextmanager
def api_server(
    directory: Path, users: dict[str, str], *, audit: bool = False, address: str = "127.0.0.1"
) -> Iterator[ApiServer]:
    """An API server that runs."""
    server = ApiServer(directory, users, audit=audit, address=address)
    try:
        server.start()
        yield server
    finally:
        server.close()
