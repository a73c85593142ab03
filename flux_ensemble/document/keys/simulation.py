"""The keys of `simulate`: how the jobs of a group behave in a simulation, and distributions."""

from __future__ import annotations

from flux_ensemble.document.keys.forms import (
    DURATION,
    IDENTIFIER,
    NUMBER,
    POSITIVE,
    PROBABILITY,
    Key,
    Schema,
    integer,
    mapping,
    text,
)

#: Most values that a job publishes.
MAX_STEPS = 10_000

#: A memo of simulated jobs that is computed from their parameters.
COMPUTED_KEYS = (
    Key(
        "expression",
        text("an expression of parameters, such as '(x - 1) ** 2'"),
        "What the job publishes, computed from its parameters.",
        ("(x - 1) ** 2 + exp(-epoch / 9)",),
        required=True,
    ),
    Key(
        "step",
        text("the name of the step", pattern=IDENTIFIER),
        "The name that counts the steps in the expression.",
        ("epoch",),
    ),
    Key(
        "steps",
        integer(1, MAX_STEPS),
        "How many values the job publishes while it runs.",
        (27,),
    ),
)

PARAM = Key(
    "param",
    text("the name of a parameter"),
    "The job's value of this parameter of its sweep.",
    ("epochs",),
)

FROM_LOG = Key(
    "from-log", text("the path of a recording"), "As long as in this recording.", ("run.jsonl",)
)


def distribution(what: str, value: Schema, *more: Key) -> Schema:
    """Make the form of a distribution of values.

    Args:
        what: the values, in words.
        value: the form of one of them.
        more: further kinds of it.

    >>> distribution("a duration", DURATION)["maxProperties"]
    1
    """
    sigma = Key("sigma", POSITIVE, "The standard deviation.", (5,), required=True)
    mean = Key("mean", value, "The mean.", (60,), required=True)
    example = "{normal: {mean: 60, sigma: 5}}"
    kinds = (
        Key(
            "uniform",
            mapping(
                "a mapping such as {min: 1, max: 2}",
                [
                    Key("min", value, "The least value.", (10,), required=True),
                    Key("max", value, "The greatest value.", (20,), required=True),
                ],
            ),
            "Any value between two, each as likely.",
            ({"min": 10, "max": 20},),
        ),
        Key(
            "normal",
            mapping("a mapping such as {mean: 60, sigma: 5}", [mean, sigma]),
            "Around a mean. A negative duration is taken as 0.",
            ({"mean": 60, "sigma": 5},),
        ),
        Key(
            "lognormal",
            mapping(
                "a mapping such as {median: 60, sigma: 0.5}",
                [
                    Key("median", value, "The median.", (60,), required=True),
                    Key(
                        "sigma",
                        POSITIVE,
                        "The standard deviation of the logarithm.",
                        (0.5,),
                        required=True,
                    ),
                ],
            ),
            "Half of the values are below the median.",
            ({"median": 60, "sigma": 0.5},),
        ),
        Key(
            "exponential",
            mapping("a mapping such as {mean: 60}", [mean]),
            "Exponentially distributed.",
            ({"mean": 60},),
        ),
    )
    return {
        **mapping(f"{what}, a list of these, or a mapping such as {example}", (*kinds, *more)),
        "type": [*value["type"], "array", "object"],
        **({"minimum": value["minimum"]} if "minimum" in value else {}),
        "items": value,
        "minItems": 1,
        "minProperties": 1,
        "maxProperties": 1,
    }


SIMULATION_KEYS = (
    Key(
        "duration",
        distribution("a duration", DURATION, PARAM, FROM_LOG),
        "How long a job takes from its start.",
        ("30s", {"lognormal": {"median": "45m", "sigma": 0.4}}),
        1,
        read=None,
    ),
    Key(
        "failure-rate",
        PROBABILITY,
        "The probability that a job fails.",
        (0.05,),
        0,
        read=float,
    ),
    Key(
        "startup",
        distribution("a duration", DURATION, PARAM),
        "Time from the allocation of its nodes to its start.",
        ("2s",),
        0,
        read=None,
    ),
    Key(
        "memo",
        {
            "type": "object",
            "description": "a mapping such as {KEY: 5}",
            "additionalProperties": {
                "if": {"type": "object", "required": ["expression"]},
                "then": mapping(
                    "a mapping such as {expression: '(x - 1) ** 2 + 1 / n', step: n, steps: 10}",
                    COMPUTED_KEYS,
                ),
                # The expression is never there; but who writes another name of it reads this one.
                "else": distribution(
                    "a number", {**NUMBER, "type": ["number"]}, PARAM, COMPUTED_KEYS[0].optional()
                ),
            },
        },
        "What a job publishes before it finishes, a distribution for each key.",
        ({"fom": {"normal": {"mean": 0.9, "sigma": 0.02}}},),
        read=None,
    ),
)

#: How the jobs of a group behave in a simulation.
SIMULATED = mapping("a mapping such as {duration: 30s, failure-rate: 0.01}", SIMULATION_KEYS)
