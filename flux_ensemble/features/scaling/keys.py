"""Keys, actions and triggers of scaling, in documents."""

from __future__ import annotations

from functools import partial

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    DURATION,
    FurtherAction,
    FurtherTrigger,
    Key,
    integer,
    mapping,
)
from flux_ensemble.document.keys.overrides import SOME, computed

ACTIONS = (
    FurtherAction(
        "grow",
        "Ask for `value` more [nodes](elastic.md#in-a-document) of the instance; with a "
        "`label`, start `value` [members](members.md) of that pool.",
        after="custom",
        resizes=True,
    ),
    FurtherAction(
        "shrink",
        "Ask for `value` fewer [nodes](elastic.md#in-a-document) of the instance; with a "
        "`label`, end `value` [members](members.md) of that pool.",
        after="grow",
        resizes=True,
    ),
)

ACTION_KEYS = (
    Key(
        "value",
        SOME,
        "How many nodes to grow or shrink by.",
        (4,),
        1,
        only=("grow", "shrink"),
        read=computed(SOME),
        expression=True,
        after="label",
    ),
)

TRIGGERS = (
    FurtherTrigger(
        "scale-done",
        "A [request](elastic.md#in-a-document) to grow or shrink was met.",
        after="idle",
    ),
    FurtherTrigger(
        "scale-denied",
        "A [request](elastic.md#in-a-document) to grow or shrink was denied.",
        after="scale-done",
    ),
)

SCALING_KEYS = (
    Key(
        "min-nodes",
        integer(1),
        "The least number of nodes that 'shrink' asks for.",
        (2,),
        1,
        formerly="min-size",
    ),
    Key(
        "max-nodes",
        integer(1),
        "The greatest number of nodes that 'grow' asks for.",
        (16,),
        formerly="max-size",
        more="The bounds of the instance's scaler hold in any case.",
    ),
    Key(
        "deadline",
        DURATION,
        "A request without an answer is denied after this time.",
        ("15m",),
        "10m",
        read=partial(parse_duration, limit=False),
        more="A [duration](document.md#durations).",
    ),
    Key("refusals", integer(1), "The number of refusals in a row that disables a rule.", (5,), 3),
)

DOCUMENT_KEYS = (
    Key(
        "scaling",
        mapping(
            "a mapping with the keys min-nodes, max-nodes, deadline and refusals", SCALING_KEYS
        ),
        "Bounds of growing and shrinking.",
        ({"min-nodes": 2, "max-nodes": 16},),
        read=None,
        more="See [growing and shrinking](elastic.md#in-a-document).",
        after="limits",
    ),
)
