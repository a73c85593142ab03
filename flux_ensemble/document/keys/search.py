"""The keys of `search`, with those of early stopping."""

from __future__ import annotations

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    BOOLEAN,
    CHOICE,
    DURATION,
    OBJECT,
    PARAMETER,
    PARAMETER_RULE,
    Key,
    choice,
    integer,
    mapping,
    text,
)

#: What suggests points, the default first.
SAMPLERS = ("tpe", "random", "qmc", "cma", "nsga2", "gp")

#: Most trials of one search.
MAX_TRIALS = 1_000_000

#: Most points of one ask.
MAX_BATCH = 1000

#: What is done about a trial that failed, besides a penalty.
SKIP, RETRY = "skip", "retry"

#: What decides whether a trial is stopped early.
POLICIES = ASHA, MEDIAN = ("asha", "median")

#: YAML reads 1e-5 as text.
_NUMBER = {"type": ["number", "string"], "description": "a number"}

_PENALTY = {
    "type": ["number", "string", "array"],
    "description": "a number, or a list of one for each objective",
    "items": _NUMBER,
    "minItems": 1,
}

_OBJECTIVE = {
    **text("the key of a memo, or a list of such keys"),
    "type": ["string", "array"],
    "items": text("the key of a memo"),
    "minItems": 1,
}

_RANGE_KEYS = (
    Key("low", _NUMBER, "The least value.", (1e-5,), required=True),
    Key("high", _NUMBER, "The greatest value.", (0.1,), required=True),
    Key("log", BOOLEAN, "The order of magnitude is what matters.", (True,), False),
    Key("integer", BOOLEAN, "Integers alone.", (True,), False),
)

_VARIABLE = {
    **mapping(
        "a mapping such as {low: 1e-5, high: 0.1, log: true}, or a list of choices", _RANGE_KEYS
    ),
    "type": ["object", "array"],
    "items": CHOICE,
    "minItems": 1,
}

#: A class in a module.
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z"

STOP_KEYS = (
    Key(
        "policy",
        choice("a policy", POLICIES),
        "asha keeps one trial in eta at each of a few steps; median those better than half.",
        POLICIES,
        required=True,
    ),
    Key(
        "step",
        text("the key of a memo"),
        "The key of the memo that says how far the job is.",
        ("epoch",),
        more="It is a number that grows.",
    ),
    Key(
        "from",
        integer(1),
        "The first step at which trials are compared.",
        (3,),
        1,
        field="begin",
    ),
    Key(
        "eta",
        integer(2),
        "Of asha: one trial in so many goes on.",
        (4,),
        3,
        only=(ASHA,),
        more="At `from`, and at each step that is `eta` times the one before, a trial goes on if "
        "it is one of the best 1/`eta` of those that have come so far.",
    ),
    Key(
        "trials",
        integer(1),
        "Of median: so many trials are complete before.",
        (10,),
        5,
        only=(MEDIAN,),
        more="Then one is stopped if the best that it has had is worse than the median of what "
        "they had at this step.",
    ),
)

SEARCH_KEYS = (
    Key(
        "id",
        text(PARAMETER_RULE, pattern=PARAMETER),
        "Its name, for rules and commands.",
        ("hpo",),
        required=True,
    ),
    Key(
        "group",
        text(),
        "The job group of its trials; a submission of it is one job.",
        ("trial",),
        required=True,
        more="See [job groups](document.md#job-groups). The variables are parameters of it, "
        "without being written there.",
    ),
    Key(
        "variables",
        {
            "type": "object",
            "description": "a mapping such as {lr: {low: 1e-5, high: 0.1, log: true}}",
            "minProperties": 1,
            "additionalProperties": _VARIABLE,
        },
        "What is searched, by name: a range, or a list of choices. They become parameters.",
        ({"layers": {"low": 1, "high": 8, "integer": True}, "opt": ["sgd", "adam"]},),
        required=True,
        read=None,
        more="A range is `{low, high}`, with `log: true` for numbers whose order of magnitude is "
        "what matters and `integer: true` for integers.",
    ),
    Key(
        "minimize",
        _OBJECTIVE,
        "The key of the memo that is to be small; a list of several is several objectives.",
        ("loss", ["loss", "seconds"]),
        read=None,
        more="See [several objectives](searches.md#several-objectives).",
    ),
    Key(
        "maximize",
        _OBJECTIVE,
        "The key of the memo that is to be large; a list of several is several objectives.",
        ("accuracy",),
        read=None,
    ),
    Key(
        "sampler",
        choice("a sampler", SAMPLERS),
        "The suggester: one of those that come with flux-ensemble.",
        ("random", "qmc", "cma", "nsga2", "gp"),
        SAMPLERS[0],
        read=None,
        more="See [samplers](searches.md#samplers).",
    ),
    Key(
        "generator",
        text("a class such as 'package.module:Class'", pattern=_CLASS),
        "The suggester, in place of a sampler: a class of yours, see gest-api.",
        ("learner:Learner",),
        read=None,
        more="See [generators](searches.md#generators-of-your-own).",
    ),
    Key(
        "arguments",
        OBJECT,
        "What the generator's class is called with.",
        ({"model": "model.json"},),
        {},
        read=None,
        more="`vocs` is given besides.",
    ),
    Key(
        "initial",
        integer(0, MAX_TRIALS),
        "So many trials are to be complete before the generator is asked; points before are those "
        "of the sampler qmc.",
        (0, 20),
        1,
        read=None,
        more="With 0 it is asked from the start.",
    ),
    Key(
        "trials",
        integer(1, MAX_TRIALS),
        "How many there are.",
        (500,),
        required=True,
        read=None,
        more="There are at most `limits.jobs`.",
    ),
    Key(
        "parallel",
        integer(1, MAX_TRIALS),
        "How many are in the queue at once.",
        (64,),
        1,
    ),
    Key(
        "batch",
        integer(1, MAX_BATCH),
        "So many points are asked for at once. Without it, as many as there are free slots.",
        (16,),
        more="There are at most 1000; those that find no free slot wait. Without it there are also "
        "some in stock where asks take long; of `random` and `qmc` 64 or more, as what they give "
        "depends on no trial.",
    ),
    Key(
        "sequential",
        BOOLEAN,
        "Points are asked for only when no trial is under way.",
        (True,),
        False,
    ),
    Key(
        "on-failure",
        {
            **mapping(
                "skip, retry, or {penalty: NUMBER}",
                [
                    Key(
                        "penalty",
                        _PENALTY,
                        "The value that the suggester is told of it; a list of one for each of "
                        "several objectives.",
                        (100, [100, 0]),
                        required=True,
                    )
                ],
            ),
            "type": ["object", "string"],
            "pattern": r"^(skip|retry)\Z",
        },
        "What becomes of a trial that fails.",
        ("retry", {"penalty": 100}),
        SKIP,
        read=None,
        python='Literal["skip", "retry"] | Mapping[str, Any]',
        more="`skip` tells the suggester that there is no value; `retry` runs it again with the "
        "same parameters, up to three times; `{penalty: NUMBER}` tells the suggester this value, "
        "and with several objectives a list of one for each.",
    ),
    Key(
        "failures", integer(1), "After so many failed trials in a row the search closes.", (5,), 20
    ),
    Key(
        "timeout",
        DURATION,
        "How long an ask may take; 0 is no limit.",
        ("1h",),
        "5m",
        read=parse_duration,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "stop",
        mapping("a mapping such as {policy: asha, step: epoch, eta: 3}", STOP_KEYS),
        "Trials are stopped early, by what their jobs publish while they run.",
        ({"policy": "asha", "step": "epoch", "eta": 3},),
        read=None,
        more="See [early stopping](searches.md#early-stopping).",
    ),
)

SEARCH = mapping(
    "a search such as {id: hpo, group: trial, variables: {...}, minimize: loss, trials: 100}",
    SEARCH_KEYS,
)
