"""Whatever comes in, a `Spec` or a `DocumentError` comes out, and nothing else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document.actions import parse_action
from flux_ensemble.document.jobspec import build
from flux_ensemble.document.keys.document import DOCUMENT
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.keys.rules import ACTION, RULE
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Action, Rule, Spec
from flux_ensemble.document.rules import parse_rule

VALID: dict[str, Any] = {
    "name": "fuzz",
    "logging": {"debug": True, "heartbeat": "10s"},
    "jobs": [
        {
            "name": "sleep",
            "command": "sleep {x}",
            "count": 5,
            "duration": "1h",
            "environment": {"A": 1, "B": "{y}"},
            "params": {"x": [1, 2], "y": {"range": [0, 3]}},
            "sweep": "sample",
            "samples": 2,
            "attributes": {"system": {"dependencies": [{"scheme": "a", "value": "b"}]}},
            "retries": {
                "times": 2,
                "on": ["timeout", "job.returncode == 3"],
                "after": "1s",
                "factor": 2,
                "with": {"duration": "{job.duration * 2}", "nodes": 2},
            },
        },
        {
            "name": "v1",
            "jobspec": {
                "version": 1,
                "resources": [
                    {
                        "type": "node",
                        "count": 1,
                        "with": [
                            {
                                "type": "slot",
                                "count": 1,
                                "label": "task",
                                "with": [{"type": "core", "count": 1}],
                            }
                        ],
                    }
                ],
                "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
                "attributes": {"system": {"duration": 0}},
            },
        },
        {
            "name": "nextgen",
            "jobspec": {
                "version": 1,
                "resources": {
                    "one": {"type": "node", "count": 2, "with": [{"type": "core", "count": 4}]}
                },
                "tasks": [
                    {
                        "command": "echo hi",
                        "resources": "one",
                        "replicas": 2,
                        "attributes": {"environment": {"A": "b"}},
                    }
                ],
            },
        },
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "submit", "label": "sleep", "params": {"x": 3}}},
        {
            "trigger": "metric",
            "name": "mean.sleep-duration",
            "when": "> 5.5",
            "action": {"name": "update", "label": "sleep", "urgency": 3},
        },
        {
            "trigger": "job-memo",
            "id": "memo",
            "when": "fom > 3 and count.sleep.success >= 1",
            "action": {"name": "custom", "label": "f", "repetitions": "unlimited"},
        },
        {"trigger": "timer", "every": 3, "action": {"name": "disable", "label": "memo"}},
        {
            "trigger": ["job-fail", "job-gave-up"],
            "group": ["sleep", "v1"],
            "when": "job.params.x > 1 or job.outcome == 'timeout'",
            "actions": [
                {
                    "name": "submit",
                    "label": "sleep",
                    "params": {"x": ["{job.params.x + 1}", 3]},
                    "nodes": "{job.nnodes}",
                    "environment": {"A": "{{}} {job.id}"},
                    "attributes": {"system": {"cwd": "{job.id}"}, "user": {"a": "{job.memo.a}"}},
                },
                {"name": "cancel", "jobs": "trigger"},
                {"name": "terminate", "state": "failed", "reason": "{job.returncode} again"},
            ],
        },
    ],
    "custom": "def f(**kwargs): ...\n",
    "metrics": ["skew", {"name": "p90", "statistic": "quantile", "q": 0.9}],
    "limits": {"active-jobs": 3, "jobs": 100},
}

KEYS = sorted({"range", "system", "user", "times", "on", "factor", "with",
               *DOCUMENT["properties"], *JOB["properties"], *RULE["properties"],
               *ACTION["properties"]})  # fmt: skip

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["sleep", "inf", "-1", "{x}", "{job.id}", "> 3", "count.sleep.success", "1e999", *KEYS]
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
yaml_ish = st.lists(
    st.sampled_from(
        [
            "a",
            "jobs",
            "rules",
            "name",
            "0",
            "1.5",
            ":",
            ": ",
            "- ",
            "-",
            "\n",
            "\n  ",
            "\t",
            "{",
            "}",
            "[",
            "]",
            ",",
            "&x ",
            "*x",
            "<<: *x",
            "!!",
            "!!str ",
            "!a ",
            "|",
            ">",
            "'",
            '"',
            "#",
            "---\n",
            "...",
            "? ",
            "%",
            "@",
            "`",
            "\\",
            "\x00",
            "\u2028",
            "\ufeff",
            "\ud800",
            "~",
            "é",
            ".inf",
            "0o7",
            "2024-01-01",
        ]
    )
    | st.text(max_size=3),
    max_size=40,
).map("".join)


def load(text: str) -> Spec | None:
    """The document's spec, which then is one that works; None if it is refused."""
    try:
        spec = load_text(text, name="fuzz")
    except DocumentError as error:
        check(error)
        return None
    works(spec)
    return spec


def check(error: ValueError) -> None:
    """What is refused is refused in sentences."""
    assert str(error).strip()
    if isinstance(error, DocumentError):
        assert all(problem.message for problem in error.problems)


def works(spec: Spec) -> None:
    """Every job of a spec has a jobspec that JSON can carry."""
    for group in spec.groups.values():
        submission = group.submission()
        for index in {0, len(submission) - 1}:
            jobset, params = submission[index]
            jobspec = build(jobset, params, environment={"HOME": "/"}, cwd="/", tag={"name": "a"})
            json.dumps(jobspec, allow_nan=False).encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a value."""
    yield path
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


PLACES = [path for path in places(VALID) if path]


def changed(value: Any, changes: list[tuple[tuple[Any, ...], str, Any]]) -> Any:
    """A copy of a value with some of its parts replaced, removed or added to."""
    value = copy.deepcopy(value)
    for path, change, new in changes:
        holder: Any = value
        for step in path[:-1]:
            try:
                holder = holder[step]
            except (KeyError, IndexError, TypeError):
                break  # an earlier change took it away
        else:
            change_one(holder, path[-1], change, new)
    return value


def change_one(holder: Any, key: Any, change: str, given: Any) -> None:
    """Change what is at `key` of a mapping or list, if it is there."""
    if isinstance(holder, list) and isinstance(key, int):
        if change == "add":
            holder.insert(key, given)
        elif key < len(holder):
            holder[key] = given
    elif isinstance(holder, dict):
        if change == "remove":
            holder.pop(key, None)
        elif change == "rename" and key in holder:
            holder[str(given)[:10]] = holder.pop(key)
        elif change == "add":
            holder[KEYS[len(str(given)) % len(KEYS)]] = given
        else:
            holder[key] = given


changes = st.lists(
    st.tuples(
        st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "rename", "add"]), values
    ),
    min_size=1,
    max_size=3,
)


def test_the_document_that_is_changed_below_is_valid() -> None:
    assert load(yaml.safe_dump(VALID, sort_keys=False)) is not None


@given(st.text())
def test_any_text_is_a_document_or_refused(text: str) -> None:
    load(text)


@given(yaml_ish)
def test_any_yaml_is_a_document_or_refused(text: str) -> None:
    load(text)


@given(st.dictionaries(st.sampled_from(sorted(DOCUMENT["properties"])), values))
def test_any_mapping_is_a_document_or_refused(mapping: dict[str, Any]) -> None:
    try:
        works(load_mapping(mapping, name="fuzz"))
    except DocumentError as error:
        check(error)


@given(changes)
def test_a_valid_document_with_changes_is_a_document_or_refused(
    given: list[tuple[tuple[Any, ...], str, Any]],
) -> None:
    value = changed(VALID, given)
    try:
        works(load_mapping(value, name="fuzz"))
    except DocumentError as error:
        check(error)
    try:
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return
    load(text)


#: What learns, beside what `VALID` has.
LEARNS: dict[str, Any] = {
    "name": "learns",
    "seed": 7,
    "search": [
        {
            "id": "hpo",
            "group": "trial",
            "variables": {
                "lr": {"low": "1e-5", "high": 0.1, "log": True},
                "layers": {"low": 1, "high": 8, "integer": True},
                "opt": ["sgd", "adam"],
            },
            "minimize": "loss",
            "sampler": "tpe",
            "trials": 9,
            "on-failure": {"penalty": 100},
            "stop": {"policy": "asha", "step": "epoch", "eta": 3},
        },
        {
            "id": "own",
            "group": "measure",
            "variables": {"x": {"low": 0, "high": 1}},
            "minimize": ["loss"],
            "maximize": "gain",
            "generator": "learner:Learner",
            "arguments": {"model": "model.json"},
            "batch": 8,
            "trials": 40,
            "timeout": "1h",
            "on-failure": {"penalty": [1, 2]},
        },
    ],
    "jobs": [
        {"name": "trial", "command": "train {lr} {layers} {opt}", "predict": ["layers"],
         "order": "longest-first"},
        {"name": "measure", "command": "measure {x}", "duration": "1h"},
        {"name": "late", "command": "run", "duration": "1h"},
    ],
    "use": [
        {
            "algorithm": "stragglers", "group": "late", "factor": 2, "every": "5s", "ends": 5,
            "least": "1m", "quantile": 0.5, "copies": 2,
        },
        {
            "algorithm": "retry-with-more", "group": "late", "on": "timeout",
            "duration": {"factor": 2, "most": "4h"}, "memory": {"variable": "M", "first": 4},
        },
    ],
    "rules": [
        {"trigger": "start", "action": {"name": "search", "label": "hpo"}},
        {"trigger": "time-left", "below": "20m", "action": {"name": "close", "label": "hpo"}},
        {
            "trigger": "search-done",
            "name": "hpo",
            "action": {
                "name": "submit", "label": "measure", "params": {"x": "{search.hpo.best.lr}"},
            },
        },
        {
            "trigger": "drift",
            "name": "measure-error",
            "detector": {"adwin": {"delta": 0.002}},
            "action": {"name": "refresh", "label": "own"},
        },
        {
            "trigger": "anomaly",
            "name": "measure-error",
            "detector": {"quantile": {"q": 0.999, "warm-up": 200}},
            "action": {"name": "cancel", "jobs": "trigger"},
        },
    ],
    "simulate": {
        "trial": {"memo": {"loss": {"expression": "lr / n", "step": "n", "steps": 3}}},
    },
}  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, math.inf, math.nan, "", "x", "é b", "9" * 50, [], [None],
    [1, "a"], {}, {"x": 1},
]  # fmt: skip


def test_the_document_that_learns_is_valid() -> None:
    assert load_mapping(LEARNS).expansion is not None


@pytest.mark.parametrize(
    "path", [path for path in places(LEARNS) if path], ids=lambda path: ".".join(map(str, path))
)
def test_what_is_wrong_with_a_document_that_learns_is_said(path: tuple[Any, ...]) -> None:
    for change, new in (("remove", None), *(("replace", odd) for odd in ODD)):
        try:
            works(load_mapping(changed(LEARNS, [(path, change, new)])))
        except DocumentError as error:
            check(error)


@given(st.data())
def test_valid_text_with_changes_is_a_document_or_refused(data: st.DataObject) -> None:
    text = yaml.safe_dump(VALID, sort_keys=False)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.integers(0, 10))
        text = text[:at] + data.draw(yaml_ish) + text[until:]
    load(text)


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_mapping(VALID)


@given(
    st.dictionaries(st.sampled_from([*ACTION["properties"], "x"]), values)
    | values
    | st.fixed_dictionaries(
        {"name": st.sampled_from(["submit", "update", "custom", "enable", "grow"])},
        optional={"label": scalars, "params": values, "count": scalars, "duration": scalars},
    )
)
def test_whatever_a_function_returns_is_an_action_or_refused(spec: Spec, value: Any) -> None:
    try:
        action = parse_action(value, spec, ["rule-0", "memo"])
    except ValueError as error:
        check(error)
    else:
        assert isinstance(action, Action)


@given(
    st.fixed_dictionaries(
        {
            "trigger": st.sampled_from(["start", "metric", "job-finish", "timer", "job-memo"]),
            "action": st.just({"name": "terminate"}) | values,
        },
        optional={"name": scalars, "when": scalars, "id": scalars, "every": scalars},
    )
    | values
)
def test_whatever_a_function_returns_is_a_rule_or_refused(spec: Spec, value: Any) -> None:
    try:
        rule = parse_rule(value, spec, ["rule-0", "memo"], "custom-1")
    except ValueError as error:
        check(error)
    else:
        assert isinstance(rule, Rule)
