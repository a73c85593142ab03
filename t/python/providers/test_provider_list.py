"""The list of providers: each is a folder, which says of each key of a pool whether it has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_slurm_provider import Timers

import flux_ensemble.queues.providers as folders
from flux_ensemble.document.keys.members import MEMBER_KEYS
from flux_ensemble.document.keys.provider import pool_providers
from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.provider_list import PROVIDERS
from flux_ensemble.queues.nested.provider import UnavailableError
from flux_ensemble.queues.providers.site_providers import SiteProviders


def _read(**entry: Any) -> None:
    members = [{"name": "pool", **entry}]
    jobs = [{"name": "a", "command": "x"}]
    load_text(json.dumps({"members": members, "jobs": jobs}), name="demo")


def test_each_folder_is_in_the_list() -> None:
    (root,) = folders.__path__
    assert sorted(PROVIDERS) == sorted(each.parent.name for each in Path(root).glob("*/keys.py"))


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_speaks_of_keys_that_there_are(name: str) -> None:
    provider = pool_providers()[name]
    keys = {key.name for key in MEMBER_KEYS}
    said = (*provider.refuses, *provider.needs, *provider.ignores)
    assert {key.partition(":")[0] for key in said} <= keys
    assert {key.name for key in provider.keys} == set(provider.elsewhere) <= keys


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_reads_options_or_refuses_them(name: str) -> None:
    provider = pool_providers()[name]
    reads = provider.read_options is not None
    assert reads + ("options" in provider.refuses) + ("options" in provider.ignores) == 1
    assert (provider.read_options is None) == (provider.command == "")


@pytest.mark.parametrize("name", PROVIDERS)
def test_keys_that_a_provider_does_not_have_are_refused(name: str) -> None:
    examples = {key.name: key.examples[0] for key in MEMBER_KEYS}
    for refused, sentence in pool_providers()[name].refuses.items():
        key, _, value = refused.partition(": ")
        with pytest.raises(DocumentError) as raised:
            _read(**{"from": name, key: value or examples[key]})
        assert (f"members[0].{key}", sentence) in [
            (problem.path, problem.message) for problem in raised.value.problems
        ]


def test_a_provider_is_made_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    providers = SiteProviders(Timers(), lambda line: None, {}, tmp_path)
    assert providers["slurm"] is providers["slurm"]
    assert list(providers) == ["slurm"]
    # As where the package of the extra is not installed.
    monkeypatch.setitem(sys.modules, "flux_ensemble.k8s.jobsets", None)
    with pytest.raises(UnavailableError, match=r"members in Kubernetes need .*k8s"):
        providers["jobset"]
    providers.close()


def test_members_on_this_machine_are_workers_and_options_of_a_site_do_not_matter() -> None:
    options = {"partition": "batch", "account": "abc"}
    _read(**{"from": "local", "runs": "tasks", "options": options})
    with pytest.raises(DocumentError) as raised:
        _read(**{"from": "local", "options": options, "template": "workers.yaml"})
    assert [(problem.path, problem.message) for problem in raised.value.problems] == [
        (
            "members[0].template",
            "'template' is a JobSet, for members 'from: jobset'; leave out one, or give the other",
        ),
        (
            "members[0].runs",
            "members on this machine are workers, which need no Flux: write 'runs: tasks'",
        ),
    ]
