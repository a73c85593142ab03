"""The keys of the detectors of rules on `drift` and `anomaly`: of each kind, its arguments."""

from __future__ import annotations

from collections.abc import Sequence

from flux_ensemble.document.keys.forms import Key, Schema, choice, integer, mapping
from flux_ensemble.metrics.detector import BOTH, MAX_WINDOW, MODES, UP

#: A detector for each trigger, in words.
EXAMPLES = {"drift": "{adwin: {delta: 0.002}}", "anomaly": "{quantile: {q: 0.999, warm-up: 200}}"}


def _number(what: str, **bounds: float) -> Schema:
    return {"type": "number", "description": what, **bounds}


def _arguments(keys: Sequence[Key]) -> Schema:
    return mapping(f"a mapping with the keys {', '.join(key.name for key in keys)}", keys)


_MODE = choice("a mode", MODES)

_WINDOW = integer(1, MAX_WINDOW)

_ADWIN_KEYS = (
    Key(
        "delta",
        _number("a number > 0 and < 1", exclusiveMinimum=0, exclusiveMaximum=1),
        "The probability of a false alarm.",
        (0.01,),
        0.002,
        more="A smaller value detects less.",
    ),
    Key(
        "clock",
        _WINDOW,
        "The number of values between two looks for a drift.",
        (1,),
        32,
        more="1 looks at each value, and costs more.",
    ),
    Key("grace-period", _WINDOW, "The number of values before the first look.", (30,), 10),
    Key(
        "min-window-length",
        _WINDOW,
        "The least number of values in a part of the window that is compared.",
        (3,),
        5,
    ),
    Key("mode", _MODE, "Whether the mean rises, falls, or either.", ("up", "down"), BOTH),
)

_PAGE_HINKLEY_KEYS = (
    Key("min-instances", _WINDOW, "The number of values before the first look.", (10,), 30),
    Key(
        "delta",
        _number("a number >= 0", minimum=0),
        "The difference from the mean that is ignored; a quarter of the standard deviation, say.",
        (0.25,),
        0.005,
    ),
    Key(
        "threshold",
        _number("a number > 0", exclusiveMinimum=0),
        "The sum that is a drift, in units of the values.",
        (5,),
        50,
    ),
    Key(
        "alpha",
        _number("a number > 0 and <= 1", exclusiveMinimum=0, maximum=1),
        "The factor of the sum at each value.",
        (1,),
        0.9999,
        more="Below 1, old values are forgotten.",
    ),
    Key("mode", _MODE, "Whether the mean rises, falls, or either.", ("up", "down"), BOTH),
)

_QUANTILE_KEYS = (
    Key(
        "q",
        _number(
            "a number >= 0.5 and < 1 (for small values 'mode: down')",
            minimum=0.5,
            exclusiveMaximum=1,
        ),
        "The quantile.",
        (0.99,),
        0.999,
        more="It is from 0.5 to below 1: the share of values that are no anomalies.",
    ),
    Key("warm-up", _WINDOW, "The first values, which are never anomalies.", (1000,), 200),
    Key(
        "window",
        _WINDOW,
        "The number of latest values that the quantile is of. The default is 10 / (1 - q).",
        (1000,),
        unset="10 / (1 - `q`)",
        more="It is at least `warm-up`, and by default at most 100000.",
    ),
    Key(
        "mode",
        _MODE,
        "Whether values that are too large, too small, or both are anomalies.",
        ("down", "both"),
        UP,
        more="`up` is above the quantile, `down` below the quantile 1 - `q`.",
    ),
)

KINDS = (
    Key(
        "adwin",
        _arguments(_ADWIN_KEYS),
        "Of drift: a window of the latest values is cut where its parts have different means.",
        ({"delta": 0.002},),
    ),
    Key(
        "page-hinkley",
        _arguments(_PAGE_HINKLEY_KEYS),
        "Of drift: the sum of the differences of the values from their mean exceeds a "
        "threshold. It is in the unit of the values: choose delta and threshold by how much "
        "yours scatter.",
        ({"threshold": 5},),
    ),
    Key(
        "quantile",
        _arguments(_QUANTILE_KEYS),
        "Of anomalies: a value is beyond a quantile of those before it.",
        ({"q": 0.999, "warm-up": 200},),
    ),
)

DETECTOR = {
    **mapping(f"one detector, such as {EXAMPLES['drift']}", KINDS),
    "minProperties": 1,
    "maxProperties": 1,
}
