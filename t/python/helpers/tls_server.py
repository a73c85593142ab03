"""Fixtures: a server with mutual TLS and the authority of its certificates, for a file of tests.

A file that needs them names this as a plugin: `pytest_plugins = ["tls_server"]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from rpc_servers import serving

from flux_ensemble.k8s.grpc.backend import DryRun


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[str]:
    """A server with TLS and the members alpha and beta."""
    with serving(DryRun(), ("alpha", "beta"), tls=authority.issue("server")) as target:
        yield target
