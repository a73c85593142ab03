"""Jobspecs made from halves are the jobspecs that `document.jobspec.build` makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flux_ensemble.document import jobspec
from flux_ensemble.document.loading import load_mapping
from flux_ensemble.queues.flux.submission import KEPT, TagTemplates

SPEC = load_mapping(
    {
        "name": "test",
        "jobs": [
            {"name": "a", "command": "run {x}", "params": {"x": {"range": [0, 40]}}, "count": 2},
            {"name": "a", "command": "true"},
            {"name": "b", "command": "other"},
        ],
        "rules": [],
    }
)
ENVIRONMENT = {"A": 'quotes " and {braces}', "PATH": "/bin"}


@pytest.mark.parametrize("group", ["a", "b"])
def test_every_job_gets_its_own_jobspec_and_tag(group: str) -> None:
    templates = TagTemplates(environment=ENVIRONMENT, cwd="/w")
    submission = SPEC.groups[group].submission()
    for index in range(len(submission)):
        one, params = submission[index]
        tag = {"name": "test", "index": index, "rule": 'r"1'}
        built = jobspec.build(one, params, environment=ENVIRONMENT, cwd="/w", tag=tag)
        assert json.loads(templates.jobspec(one, params, tag)) == built


def test_jobs_of_different_groups_are_not_mixed_up() -> None:
    templates = TagTemplates(environment={}, cwd="/w")
    commands = [
        json.loads(templates.jobspec(one, params, {}))["tasks"][0]["command"]
        for group in ("b", "a", "b")
        for one, params in [SPEC.groups[group].submission()[0]]
    ]
    assert commands == [["other"], ["run", "0"], ["other"]]


def test_the_jobspec_is_built_once_for_jobs_that_differ_in_their_tag_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Any] = []
    build = jobspec.build

    def watched(*args: Any, **given: Any) -> dict[str, Any]:
        built.append(args)
        return build(*args, **given)

    monkeypatch.setattr(jobspec, "build", watched)
    templates = TagTemplates(environment={}, cwd="/w")
    submission = SPEC.groups["a"].submission()
    for index, (one, params) in enumerate(submission):
        templates.jobspec(one, params, {"index": index})
    assert len(submission) == 81
    assert len(built) == 41 > KEPT
