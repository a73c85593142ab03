"""A cluster in memory with the shipped roles, for all tests of the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ensembles import Bench, install
from memory_api import MemoryApi, memory_api


@pytest.fixture
def api() -> Iterator[MemoryApi]:
    with memory_api() as api:
        install(api)
        yield api


@pytest.fixture
def bench(api: MemoryApi) -> Iterator[Bench]:
    bench = Bench(api, api.account_token("flux-ensemble", "flux-ensemble-operator"))
    yield bench
    bench.close()
