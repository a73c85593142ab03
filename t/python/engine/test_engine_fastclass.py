"""Dataclasses that are made fast are what `dataclasses` would have made them, if not frozen."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import field, replace
from inspect import signature
from typing import Any

import pytest

from flux_ensemble.engine.fastclass import fastclass


@fastclass
class Thing:
    name: str
    context: Mapping[str, Any] = field(default_factory=dict)
    tag: tuple[int, ...] | None = None


def test_fields_are_given_by_position_by_name_or_by_default() -> None:
    assert Thing("a", {"b": 1}, (2,)) == Thing(tag=(2,), name="a", context={"b": 1})
    thing = Thing("a")
    assert (thing.name, thing.context, thing.tag) == ("a", {}, None)
    assert repr(thing) == "Thing(name='a', context={}, tag=None)"
    assert list(signature(Thing).parameters) == ["name", "context", "tag"]


def test_each_instance_gets_a_default_of_its_own_where_a_factory_makes_it() -> None:
    assert Thing("a").context is not Thing("a").context


def test_fields_that_are_missing_or_unknown_are_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Thing()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        Thing("a", size=1)  # type: ignore[call-arg]


def test_instances_are_compared_hashed_replaced_and_pickled_by_their_fields() -> None:
    thing = Thing("a", (), (1,))  # type: ignore[arg-type]
    assert thing == Thing("a", (), (1,)) != Thing("b", (), (1,))  # type: ignore[arg-type]
    assert hash(thing) == hash(Thing("a", (), (1,)))  # type: ignore[arg-type]
    assert replace(thing, name="b") == Thing("b", (), (1,))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(thing)) == thing


def test_instances_have_slots_and_nothing_else() -> None:
    with pytest.raises(AttributeError, match="size"):
        Thing("a").size = 1  # type: ignore[attr-defined]


def test_the_type_checker_takes_instances_for_frozen() -> None:
    def change(thing: Thing) -> None:
        thing.name = "b"  # type: ignore[misc]

    # Where the checker let that pass, it would log_error of the comment.
    change(Thing("a"))
