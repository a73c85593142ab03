"""A cluster in memory with the shipped roles, for all tests of the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ensembles import CRDS, KUBERNETES, Bench, objects
from memory_api import MemoryApi, memory_api


@pytest.fixture
def api() -> Iterator[MemoryApi]:
    with memory_api() as api:
        for one in objects(*CRDS, KUBERNETES / "install.yaml"):
            version, plural = one["apiVersion"], one["kind"].lower() + "s"
            group = "api" if "/" not in version else "apis"
            namespace = one["metadata"].get("namespace")
            where = f"/namespaces/{namespace}" if namespace else ""
            code, answer = api.answer(
                "POST", f"/{group}/{version}{where}/{plural}", "admin", one, "application/json"
            )
            # The CRD is in both.
            assert code in (201, 409), answer
        yield api


@pytest.fixture
def bench(api: MemoryApi) -> Iterator[Bench]:
    bench = Bench(api, api.account_token("flux-ensemble", "flux-ensemble-operator"))
    yield bench
    bench.close()
