"""Action and Rule: what custom functions get and return."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

import flux_ensemble
from flux_ensemble.custom import Action, Rule

RULE = {
    "trigger": "start",
    "on-error": "fail",
    "action": {"name": "submit", "label": "echo", "count": 2},
}


def test_keys_can_be_read_as_attributes() -> None:
    action = Action({"name": "submit", "label": "echo"})
    assert (action.name, action.label, action["label"]) == ("submit", "echo", "echo")


def test_a_key_with_a_hyphen_is_read_with_an_underscore() -> None:
    assert Rule(RULE).on_error == "fail"


def test_the_action_of_a_rule_is_an_action() -> None:
    rule = Rule(RULE)
    assert isinstance(rule.action, Action)
    assert rule.action.count == 2


def test_making_a_rule_leaves_the_mapping_alone() -> None:
    Rule(RULE)
    assert not isinstance(RULE["action"], Action)


def test_a_key_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(
        AttributeError, match=r"the Action has no key 'label' \(keys: name, count\)"
    ):
        _ = Action(name="submit", count=1).label


def test_both_are_json_and_can_be_copied_and_pickled() -> None:
    rule = Rule(RULE)
    assert json.loads(json.dumps(rule)) == RULE
    for other in (copy.copy(rule), copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert other == rule
        assert isinstance(other.action, Action)


def test_both_show_what_they_are() -> None:
    assert repr(Rule(trigger="start", action={"name": "terminate"})) == (
        "Rule({'trigger': 'start', 'action': Action({'name': 'terminate'})})"
    )


def test_the_package_exports_them() -> None:
    assert flux_ensemble.Action is Action
    assert flux_ensemble.Rule is Rule
