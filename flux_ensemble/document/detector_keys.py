"""What the keys of a detector mean: see `explanations`."""

from __future__ import annotations

from flux_ensemble.document.key import Key

#: By their paths below `rules.detector`.
DETECTOR_KEYS = {
    "": Key(
        "How a 'drift' or 'anomaly' rule looks at the values in 'name'.",
        ({"adwin": {"delta": 0.002}}, {"quantile": {"q": 0.999, "warm-up": 200}}),
    ),
    ".adwin": Key(
        "Of drift: a window of the latest values is cut where its parts have different means.",
        ({"delta": 0.002},),
    ),
    ".adwin.delta": Key("How likely a false alarm may be.", (0.01,), 0.002),
    ".adwin.clock": Key("It looks after so many values.", (1,), 32),
    ".adwin.grace-period": Key("It does not look before so many values.", (30,), 10),
    ".adwin.min-window-length": Key("Parts of fewer values are not compared.", (3,), 5),
    ".adwin.mode": Key("Whether the mean rises, falls, or either.", ("up", "down"), "both"),
    ".page-hinkley": Key(
        "Of drift: the sum of what values are away from their mean goes beyond a threshold. It is "
        "in the unit of the values: give delta and threshold for how much yours scatter.",
        ({"threshold": 5},),
    ),
    ".page-hinkley.min-instances": Key("It does not look before so many values.", (10,), 30),
    ".page-hinkley.delta": Key(
        "So much away from the mean is none; a quarter of the standard deviation, say.",
        (0.25,),
        0.005,
    ),
    ".page-hinkley.threshold": Key("The sum that is a drift, in units of the values.", (5,), 50),
    ".page-hinkley.alpha": Key("What the sum is multiplied by at each value.", (1,), 0.9999),
    ".page-hinkley.mode": Key("Whether the mean rises, falls, or either.", ("up", "down"), "both"),
    ".quantile": Key(
        "Of anomalies: a value is beyond a quantile of those before it.",
        ({"q": 0.999, "warm-up": 200},),
    ),
    ".quantile.q": Key("The quantile.", (0.99,), 0.999),
    ".quantile.warm-up": Key("The first values, which are never anomalies.", (1000,), 200),
    ".quantile.window": Key(
        "How many of the latest values it is of. The default is 10 / (1 - q).",
        (1000,),
    ),
    ".quantile.mode": Key("Whether too large, too small, or either.", ("down", "both"), "up"),
}
