"""What the keys of a detector mean: text, examples and default, as `explanations.Key` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: By their paths below `rules.detector`.
DETECTOR_KEYS: Mapping[str, tuple[Any, ...]] = {
    "": (
        "How a 'drift' or 'anomaly' rule looks at the values in 'name'.",
        ({"adwin": {"delta": 0.002}}, {"quantile": {"q": 0.999, "warm-up": 200}}),
    ),
    ".adwin": (
        "Of drift: a window of the latest values is cut where its parts have different means.",
        ({"delta": 0.002},),
    ),
    ".adwin.delta": ("How likely a false alarm may be.", (0.01,), 0.002),
    ".adwin.clock": ("It looks after so many values.", (1,), 32),
    ".adwin.grace-period": ("It does not look before so many values.", (30,), 10),
    ".adwin.min-window-length": ("Parts of fewer values are not compared.", (3,), 5),
    ".adwin.mode": ("Whether the mean rises, falls, or either.", ("up", "down"), "both"),
    ".page-hinkley": (
        "Of drift: the sum of what values are away from their mean goes beyond a threshold.",
        ({"threshold": 5},),
    ),
    ".page-hinkley.min-instances": ("It does not look before so many values.", (10,), 30),
    ".page-hinkley.delta": ("So much away from the mean is none.", (0.1,), 0.005),
    ".page-hinkley.threshold": ("The sum that is a drift, in units of the values.", (5,), 50),
    ".page-hinkley.alpha": ("What the sum is multiplied by at each value.", (1,), 0.9999),
    ".page-hinkley.mode": ("Whether the mean rises, falls, or either.", ("up", "down"), "both"),
    ".quantile": (
        "Of anomalies: a value is beyond a quantile of those before it.",
        ({"q": 0.999, "warm-up": 200},),
    ),
    ".quantile.q": ("The quantile.", (0.99,), 0.999),
    ".quantile.warm-up": ("The first values, which are never anomalies.", (1000,), 200),
    ".quantile.window": (
        "How many of the latest values it is of. The default is 10 / (1 - q).",
        (1000,),
    ),
    ".quantile.mode": ("Whether too large, too small, or either.", ("down", "both"), "up"),
}
