"""Requests are checked against the table, and refused with the key and what was expected."""

from __future__ import annotations

import errno
import json
import re
from typing import Any

import pytest

from flux_ensemble.client.topics import MOST_LAST, READING, TOPICS
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.service.requests.documents import check_context, read_document
from flux_ensemble.service.requests.protocol import parse

REQUIRED: dict[str, dict[str, Any]] = {
    "load": {"cwd": "/", "environment": {}},
    "submit": {"name": "a", "group": "g"},
    "rules": {"name": "a", "id": "r", "enabled": True},
    "action": {"name": "a", "action": {"name": "terminate"}},
    "scale": {"to": 2},
    "attach": {
        "name": "a",
        "run": 1,
        "member": "pool.0",
        "ordinal": 1,
        "epoch": 1,
        "version": "1",
    },
    "output": {"name": "a", "member": "pool.0", "id": 1},
    "report": {"contact": "1.1", "number": 1, "taken": 0, "items": []},
    "list": {},
    "status": {},
}


def refused(method: str, payload: Any) -> str:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    with pytest.raises(RequestError) as caught:
        parse(method, text)
    assert caught.value.errno == errno.EINVAL
    return str(caught.value)


@pytest.mark.parametrize("method", TOPICS)
def test_what_is_required_is_enough(method: str) -> None:
    payload = REQUIRED.get(method, {"name": "a"})
    assert parse(method, json.dumps(payload)) == payload


def test_guests_change_nothing_and_a_local_run_is_asked_by_its_name() -> None:
    assert {name for name, topic in TOPICS.items() if topic.guest} < READING
    asked = [topic for topic in TOPICS.values() if topic.local]
    assert len(asked) > 5
    assert all(topic.fields["name"].required for topic in asked)


@pytest.mark.parametrize("method", TOPICS)
def test_an_unknown_key_is_named_with_those_that_there_are(method: str) -> None:
    reason = refused(method, {**REQUIRED.get(method, {"name": "a"}), "colour": 1})
    assert reason.startswith(f"ensemble.{method}: unknown key 'colour' (keys: ")


@pytest.mark.parametrize("method", TOPICS)
def test_each_missing_key_is_named(method: str) -> None:
    payload = REQUIRED.get(method, {"name": "a"})
    for key in payload:
        left = {name: value for name, value in payload.items() if name != key}
        assert f"key {key!r} is missing" in refused(method, left)


@pytest.mark.parametrize("method", TOPICS)
def test_a_value_of_another_type_is_quoted_with_what_was_expected(method: str) -> None:
    payload = REQUIRED.get(method, {"name": "a"})
    for key in TOPICS[method].fields:
        reason = refused(method, {**payload, key: None})
        assert f"ensemble.{method}: {key}: expected " in reason
        assert reason.endswith("not null")


@pytest.mark.parametrize("payload", ["", "{", "[1, 2]", "7", '"text"'])
def test_a_payload_that_is_no_object_is_refused(payload: str) -> None:
    assert refused("list", payload).startswith("ensemble.list: ")


def test_no_payload_is_an_empty_object() -> None:
    assert parse("list", None) == {}


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "3"])
def test_a_count_is_a_whole_number_of_at_least_one(count: Any) -> None:
    reason = refused("submit", {"name": "a", "group": "g", "count": count})
    assert "count: expected a number of jobs, 1 or more" in reason


TEXT = "name: hello\njobs:\n- {name: a, command: 'true'}\n"


def load(**given: Any) -> dict[str, Any]:
    return {"text": TEXT, "cwd": "/w", "environment": {}, **given}


def unreadable(**given: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read_document({**load(), **given}, {}, elastic=False)
    assert caught.value.errno == errno.EINVAL
    return str(caught.value)


def test_a_document_is_read_relative_to_its_file() -> None:
    spec = read_document(load(file="sub/hello.yaml"), {}, elastic=False)
    assert (spec.name, spec.directory) == ("hello", "/w/sub")


def test_the_name_in_the_request_wins() -> None:
    assert read_document(load(name="other"), {}, elastic=False).name == "other"


def test_a_document_may_be_an_object() -> None:
    payload = {"spec": {"jobs": [{"name": "a", "command": "true"}]}, "name": "x"}
    spec = read_document({**payload, "cwd": "/w", "environment": {}}, {}, elastic=False)
    assert list(spec.groups) == ["a"]


def test_every_error_of_a_document_is_one_line() -> None:
    bad = "name: hello\njobs:\n- {name: a, command: 'true', count: -1, colour: red}\n"
    lines = unreadable(text=bad, file="hello.yaml").splitlines()
    assert len(lines) == 2
    assert all(line.startswith("hello.yaml:3: jobs[0]") for line in lines)


def test_a_document_is_given_as_text_or_as_an_object_and_not_both() -> None:
    assert "one of 'text' and 'spec'" in unreadable(spec={})
    with pytest.raises(RequestError, match="one of 'text' and 'spec'"):
        read_document({"cwd": "/w", "environment": {}}, {}, elastic=False)


def test_the_working_directory_is_absolute() -> None:
    assert "expected an absolute path, not 'w'" in unreadable(cwd="w")


def test_the_environment_holds_strings() -> None:
    assert "environment: N: expected a string, not 1" in unreadable(environment={"N": 1})


def test_what_the_member_cannot_do_is_refused() -> None:
    grows = TEXT + "rules:\n- {trigger: start, action: {name: grow}}\n"
    assert "grow" in unreadable(text=grows)
    assert read_document(load(text=grows), {}, elastic=True).rules


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"\\ud800"', "expected UTF-8 text, not a lone surrogate"),
        ('"a\\u0000"', "expected text without the character '\\0'"),
        ("Infinity", "expected a finite number, not inf"),
        ("NaN", "expected a finite number, not nan"),
        ("1e999", "expected a finite number, not inf"),
        (str(2**63), "expected an integer of at most 64 bits"),
        (str(-(2**63) - 1), "expected an integer of at most 64 bits"),
        ("1" + 400 * "0", "expected an integer of at most 64 bits"),
        ("[" * 70 + "]" * 70, "expected at most 64 levels of mappings and lists"),
    ],
)
def test_what_no_json_of_others_holds_is_refused_with_its_key(value: str, expected: str) -> None:
    requests = {
        "submit": f'{{"name": "a", "group": "g", "params": {{"x": [1, {value}]}}}}',
        "action": f'{{"name": "a", "action": {{"params": {{"x": {value}}}}}}}',
        "load": f'{{"cwd": "/", "environment": {{}}, "scaler": {{"grace": {value}}}}}',
    }
    for method, payload in requests.items():
        reason = refused(method, payload)
        assert reason.startswith(f"ensemble.{method}: ")
        assert reason.endswith(expected)
        if "levels" not in expected:
            assert re.match(
                r"ensemble\.\w+: (params\.x\[1\]|action\.params\.x|scaler\.grace)", reason
            )


@pytest.mark.parametrize("key", ['"\\ud800"', '"a\\u0000"'])
def test_odd_text_is_refused_in_keys_too(key: str) -> None:
    reason = refused("submit", f'{{"name": "a", "group": "g", "params": {{{key}: 1}}}}')
    assert reason.startswith("ensemble.submit: params: expected ")


@pytest.mark.parametrize("method", TOPICS)
def test_every_integer_has_an_upper_bound(method: str) -> None:
    payload = REQUIRED.get(method, {"name": "a"})
    for key, field in TOPICS[method].fields.items():
        if field.kind is int:
            most = field.maximum
            large = (method, key) in (("attach", "run"), ("output", "id"))
            page = (method, key) == ("jobs", "last")
            assert most == (2**63 - 1 if large else MOST_LAST if page else 2**31 - 1)
            assert parse(method, json.dumps({**payload, key: most}))[key] == most
            for value in (most + 1, 2**63, 10**400):
                reason = refused(method, {**payload, key: value})
                assert f"{key}: expected at most {most}, not " in reason
                assert len(reason) < 200


def test_names_have_a_longest_length_and_documents_do_not() -> None:
    assert "group: expected at most 4096 characters, not 5000" in refused(
        "cancel", {"name": "a", "group": "g" * 5000}
    )
    assert parse("load", json.dumps(load(text="x" * 5000)))["text"] == "x" * 5000


def context_refused(**given: Any) -> str:
    with pytest.raises(RequestError) as caught:
        check_context(load(**given))
    assert caught.value.errno == errno.EINVAL
    return str(caught.value)


def test_a_directory_and_an_environment_that_linux_takes_are_taken() -> None:
    check_context(load(cwd="/" * 4095, environment={"A": "x" * (128 * 1024 - 3)}))
    check_context(load(environment={f"A{n:02}": "x" * 65_000 for n in range(16)}))


def test_a_directory_is_a_path_that_linux_takes() -> None:
    assert "cwd: expected a path of less than 4096 bytes, not 4097" in context_refused(
        cwd="/" + "ä" * 2048
    )


def test_a_variable_is_one_that_linux_takes() -> None:
    reason = context_refused(environment={"A": "b", "LARGE": "x" * 128 * 1024})
    assert "environment: 'LARGE': expected a variable of less than 131072 bytes" in reason


def test_the_environment_has_a_largest_size() -> None:
    reason = context_refused(environment={f"A{n:02}": "x" * 65_600 for n in range(16)})
    assert "environment: expected at most 1048576 bytes, not " in reason
