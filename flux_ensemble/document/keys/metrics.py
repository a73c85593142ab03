"""The keys of `metrics`: statistics, best jobs, metrics that are kept by value, and units."""

from __future__ import annotations

from flux_ensemble.document.keys.forms import (
    BOOLEAN,
    IDENTIFIER,
    NAMES_OF_PARAMETERS,
    Key,
    Properties,
    choice,
    mapping,
    text,
)
from flux_ensemble.metrics.best import MODES
from flux_ensemble.metrics.names import OF
from flux_ensemble.metrics.units import MAX_UNIT, checked

BEST_KEYS = (
    Key(
        "name",
        text(pattern=IDENTIFIER),
        "What expressions call it: best.NAME.",
        ("top",),
        required=True,
    ),
    Key(
        "of",
        text(),
        "A memo key, duration or pending of a group.",
        ("simulate-fom",),
        required=True,
        read=None,
    ),
    Key(
        "mode",
        choice("a mode", MODES),
        "Whether the greatest or the least value is best.",
        ("min",),
        MODES[0],
    ),
    Key(
        "live",
        BOOLEAN,
        "Include running jobs, with their latest value; one that fails is dropped again.",
        (True,),
        False,
    ),
)

_OF = (
    "Which jobs the statistic is of: by default the durations of those that succeeded, and "
    "what any job publishes; with 'by' the metric itself, such as simulate-fom, and with 'unit' a "
    "memo key, such as fom, or simulate-fom.",
    ("finished", "success"),
)

BY_VALUE_KEYS = (
    Key("of", text(), *_OF, required=True),
    Key(
        "by",
        {**NAMES_OF_PARAMETERS, "minItems": 1},
        "Keep the metric by the values of these parameters, too.",
        (["t"],),
    ),
)

UNIT_KEYS = (
    Key("of", text(), *_OF, required=True),
    Key(
        "unit",
        text(f"a unit (text of at most {MAX_UNIT} characters)", maxLength=MAX_UNIT),
        "The unit of a memo key, for tables and the report. With GROUP-KEY it is that of one "
        "group; without the group, of all.",
        ("eV", "kcal/mol"),
        read=checked,
    ),
)

#: An entry with `statistic` has the arguments of River's class besides.
STATISTIC_KEYS = (
    Key("name", text(), "A name of your own for the statistic.", ("p90",)),
    Key(
        "statistic",
        text(),
        "One of River's univariate statistics, by the name of its class. Other keys are its "
        "arguments.",
        ("quantile", "rolling_max", "ew_mean"),
    ),
    Key("of", choice("the jobs that it is of", OF), *_OF),
    Key(
        "best",
        mapping("a mapping such as {name: top, of: GROUP-KEY, mode: max}", BEST_KEYS),
        "Keep the best job so far, with its value, id and parameters: best.NAME.value.",
        ({"name": "top", "of": "simulate-fom", "mode": "max"},),
    ),
)

#: An entry of `metrics`.
METRIC = {
    "if": {"type": "object", "required": ["by"]},
    "then": mapping("a mapping such as {of: GROUP-KEY, by: [t]}", BY_VALUE_KEYS),
    "else": {
        "if": {"type": "object", "required": ["unit"]},
        "then": mapping("a mapping such as {of: KEY, unit: eV}", UNIT_KEYS),
        "else": {
            "type": ["string", "object"],
            "description": "a statistic: its name, or a mapping such as "
            "{name: p90, statistic: quantile, q: 0.9}, or {best: {name: top, of: md-fom}}, "
            "or {of: md-fom, by: [t]}, or {of: fom, unit: eV}",
            "properties": Properties(STATISTIC_KEYS),
        },
    },
}
