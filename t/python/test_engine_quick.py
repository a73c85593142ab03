"""Frozen dataclasses that are made fast are what `dataclasses` would have made them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature
from typing import Any

import pytest

from flux_ensemble.engine.quick import quick


@quick
@dataclass(frozen=True, slots=True)
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


def test_instances_stay_frozen() -> None:
    thing = Thing("a")
    with pytest.raises(FrozenInstanceError):
        thing.name = "b"  # type: ignore[misc]
    assert replace(thing, name="b") == Thing("b")
    assert pickle.loads(pickle.dumps(thing)) == thing
