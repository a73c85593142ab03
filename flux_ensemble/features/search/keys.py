"""The keys of `search`, with those of early stopping."""

from __future__ import annotations

import math

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    BOOLEAN,
    CHOICE,
    DURATION,
    OBJECT,
    PARAMETER,
    PARAMETER_RULE,
    FurtherAction,
    FurtherTrigger,
    Key,
    choice,
    integer,
    list_of,
    mapping,
    or_list,
    text,
)
from flux_ensemble.texts import shown
from flux_ensemble.words import AGGREGATES

#: What suggests points, the default first.
SAMPLERS = ("tpe", "random", "qmc", "cma", "nsga2", "gp", "grid")

#: Most trials of one search.
MAX_TRIALS = 1_000_000

#: Most points of one ask.
MAX_BATCH = 1000

#: What is done about a trial that failed, besides a penalty.
SKIP, RETRY = "skip", "retry"

#: What the value of a trial with several jobs is of theirs by default, and most of these.
MEAN = "mean"
MAX_REPEATS = 1000

#: What decides whether a trial is stopped early.
POLICIES = ASHA, HYPERBAND, MEDIAN, PERCENTILE, PATIENCE, THRESHOLD = (
    "asha",
    "hyperband",
    "median",
    "percentile",
    "patience",
    "threshold",
)

#: Most steps of `patience`: so many values of each trial are kept.
MAX_PATIENCE = 1000

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

#: A choice of a variable, and a value of a point: a scalar, or null.
_VALUE = {
    **CHOICE,
    "type": ["string", "number", "boolean", "null", "object"],
    "description": "text, a number, true, false or null",
}

#: The first points of a search: a mapping for each.
_POINTS = {
    **list_of(
        "a list of points such as [{lr: 0.001, layers: 2}]",
        {
            "type": "object",
            "description": "a point such as {lr: 0.001, layers: 2}",
            "additionalProperties": _VALUE,
        },
    ),
    "minItems": 1,
}

_EXPRESSION = text("an expression of the variables, such as opt == 'sgd'")

_OUTCOME = text("a comparison such as mass <= 3")

_VARIABLE_KEYS = (
    Key("low", _NUMBER, "The least value.", (1e-5,)),
    Key("high", _NUMBER, "The greatest value.", (0.1,)),
    Key("log", BOOLEAN, "Whether to search by order of magnitude.", (True,), False),
    Key("integer", BOOLEAN, "Integers alone.", (True,), False),
    Key(
        "step", _NUMBER, "Only the least value, and those that are so many steps above it.", (0.1,)
    ),
    Key(
        "choices",
        {**list_of("a list of choices", _VALUE), "minItems": 1},
        "The choices, in place of a range.",
        (["sgd", "adam"],),
    ),
    Key(
        "when",
        _EXPRESSION,
        "The condition under which a point has a value of the variable.",
        ("opt == 'sgd'",),
    ),
)

_VARIABLE = {
    **mapping(
        "a mapping such as {low: 1e-5, high: 0.1, log: true}, or a list of choices",
        _VARIABLE_KEYS,
    ),
    "type": ["object", "array"],
    "items": _VALUE,
    "minItems": 1,
}

#: A class in a module.
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z"


def _finite(value: float | str) -> float:
    """Read a number, which YAML may have read as text.

    >>> _finite("1e-3")
    0.001
    """
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, not {shown(value)}")
    return number


def _positive(value: float | str) -> float:
    number = _finite(value)
    if number < 0:
        raise ValueError(f"expected a number >= 0, not {number:g}")
    return number


STOP_KEYS = (
    Key(
        "policy",
        choice("a policy", POLICIES),
        "asha keeps one trial in eta at each of a few steps, median those better than half of the "
        "others, percentile those better than most; patience stops a trial that does not become "
        "better any more.",
        POLICIES,
        required=True,
        more="`hyperband` is several `asha` that begin at different steps, and `threshold` stops "
        "a trial whose value is beyond bounds, or NaN. See "
        "[policies](trials.md#early-stopping).",
    ),
    Key(
        "step",
        text("the key of a memo"),
        "The key of the memo with the progress of the job.",
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
        "to",
        integer(2),
        "Of hyperband: the last step of a trial.",
        (81,),
        field="last",
        only=(HYPERBAND,),
        more="Brackets begin at `from`, at `eta` times that and so on, up to `to`; each trial "
        "belongs to one of them.",
    ),
    Key(
        "eta",
        integer(2),
        "Of asha and hyperband: one trial in so many goes on.",
        (4,),
        3,
        only=(ASHA, HYPERBAND),
        more="At `from`, and at each step that is `eta` times the one before, a trial goes on if "
        "it is one of the best 1/`eta` of those that have come so far.",
    ),
    Key(
        "trials",
        integer(1),
        "Of median and percentile: the number of complete trials before any is stopped.",
        (10,),
        5,
        only=(MEDIAN, PERCENTILE),
        more="A trial is stopped if its best value is worse than the median, or the percentile, "
        "of theirs at this step.",
    ),
    Key(
        "percentile",
        {
            "type": "number",
            "description": "a number >= 0 and <= 100",
            "minimum": 0,
            "maximum": 100,
        },
        "Of percentile: a trial goes on if it is among so many percent, the best ones.",
        (10,),
        25,
        only=(PERCENTILE,),
    ),
    Key(
        "patience",
        integer(0, MAX_PATIENCE),
        "Of patience: a trial is stopped if it has not become better in so many steps.",
        (10,),
        5,
        only=(PATIENCE,),
        more="None of its latest `patience` + 1 values is as good as its best one before.",
    ),
    Key(
        "min-delta",
        _NUMBER,
        "Of patience: the least difference that counts.",
        (0.001,),
        0,
        read=_positive,
        only=(PATIENCE,),
        more="A trial is stopped only if its latest values are worse than its best one by more "
        "than this.",
    ),
    Key(
        "lower",
        _NUMBER,
        "Of threshold: a trial with a value below it is stopped.",
        (0,),
        read=_finite,
        only=(THRESHOLD,),
    ),
    Key(
        "upper",
        _NUMBER,
        "Of threshold: a trial with a value above it is stopped.",
        (10,),
        read=_finite,
        only=(THRESHOLD,),
    ),
)

#: The key of a search with what it learns before its own trials.
WARM_START = "warm-start"

#: A trial of others: values of the variables, and of the objectives.
_TOLD = {
    **list_of(
        "a list of trials such as [{lr: 0.001, layers: 2, loss: 0.31}]",
        {
            "type": "object",
            "description": "a trial such as {lr: 0.001, layers: 2, loss: 0.31}",
            "additionalProperties": _VALUE,
        },
    ),
    "minItems": 1,
}

WARM_START_KEYS = (
    Key(
        "from",
        or_list(text("a file or an ensemble"), "a file or an ensemble, or a list of them"),
        "The files with the trials, .csv, .tsv, .json, .jsonl or .journal, or the names of "
        "ensembles.",
        ("old.csv", ["old-study", "study.journal"]),
        more="A file is an export of an ensemble, a sheet of yours, or a journal of Optuna, "
        "relative to the document. See [a warm start](spaces.md#a-warm-start).",
    ),
    Key(
        "study",
        text("the name of a study"),
        "The study, where a journal of Optuna has several.",
        ("mlp",),
    ),
    Key(
        "trials",
        _TOLD,
        "The trials themselves: of each the values of the variables and of the objectives.",
        ([{"lr": 0.001, "layers": 2, "loss": 0.31}],),
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
        more="See [job groups](document.md#job-groups). The variables become parameters of it.",
    ),
    Key(
        "variables",
        {
            "type": "object",
            "description": "a mapping such as {lr: {low: 1e-5, high: 0.1, log: true}}",
            "minProperties": 1,
            "additionalProperties": _VARIABLE,
        },
        "The variables by name, each a range or a list of choices. They become parameters.",
        ({"layers": {"low": 1, "high": 8, "integer": True}, "opt": ["sgd", "adam"]},),
        required=True,
        read=None,
        more="A range is `{low, high}`, with `log: true` if the order of magnitude matters, "
        "`integer: true` for integers, and `step: 0.1` for `low`, `low` + 0.1 and so on. A choice "
        "may be null, which is `null` in commands. A range with `when: opt == 'sgd'`, or "
        "`{choices: [true, false], when: ...}`, is a [variable under a condition]"
        "(spaces.md#variables-under-a-condition).",
    ),
    Key(
        "minimize",
        _OBJECTIVE,
        "The key of the memo to minimize; a list has several objectives.",
        ("loss", ["loss", "seconds"]),
        read=None,
        more="See [several objectives](searches.md#several-objectives).",
    ),
    Key(
        "maximize",
        _OBJECTIVE,
        "The key of the memo to maximize; a list has several objectives.",
        ("accuracy",),
        read=None,
    ),
    Key(
        "sampler",
        choice("a sampler", SAMPLERS),
        "The suggester, one of those that come with flux-ensemble.",
        ("random", "qmc", "cma", "nsga2", "gp", "grid"),
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
        more="See [generators](generators.md).",
    ),
    Key(
        "arguments",
        OBJECT,
        "The arguments of the generator's class.",
        ({"model": "model.json"},),
        {},
        read=None,
        more="It also gets `vocs`.",
    ),
    Key(
        "initial",
        integer(0, MAX_TRIALS),
        "The number of trials that are complete before the generator suggests points; the "
        "points before are those of the sampler qmc.",
        (0, 20),
        1,
        read=None,
        more="With 0 the generator suggests all of them.",
    ),
    Key(
        "trials",
        integer(1, MAX_TRIALS),
        "The number of trials.",
        (500,),
        required=True,
        read=None,
        more="There are at most `limits.jobs`. With `grid` and `random` a search whose variables "
        "are all choices, integers or steps has no more trials than there are points.",
    ),
    Key(
        "points",
        _POINTS,
        "Points that are tried first, each with values of variables.",
        ([{"lr": 0.001, "layers": 2}],),
        read=None,
        more="The suggester chooses the values that are missing, and learns from the results. They "
        "are among the `trials`. See "
        "[points of your own](spaces.md#points-of-your-own).",
    ),
    Key(
        WARM_START,
        mapping("a mapping such as {from: old.csv}", WARM_START_KEYS),
        "Trials that others have made, from which the suggester learns before its own.",
        ({"from": "old.csv"},),
        read=None,
        more="They are not among the `trials`, and none of them is the `best`. See "
        "[a warm start](spaces.md#a-warm-start).",
    ),
    Key(
        "where",
        or_list(_EXPRESSION, "an expression of the variables, or a list of them"),
        "Constraints on the points, expressions of the variables: others are not tried.",
        ("lr * batch <= 1", ["x + y <= 1", "x < y"]),
        read=None,
        more="See [constraints](spaces.md#constraints).",
    ),
    Key(
        "subject-to",
        or_list(_OUTCOME, "a comparison of what trials publish, or a list of them"),
        "Constraints on the outcomes of trials, comparisons of what they publish: a trial that "
        "violates one is infeasible, and never the best.",
        ("mass <= 3", ["1 <= mass <= 3", "seconds <= 60 * layers"]),
        read=None,
        more="See [constraints on outcomes](spaces.md#constraints-on-outcomes).",
    ),
    Key(
        "repeats",
        integer(1, MAX_REPEATS),
        "How many jobs a trial has, all with its parameters.",
        (5,),
        1,
        more="For results that differ from run to run. See [repeats](trials.md#repeats).",
    ),
    Key(
        "aggregate",
        choice("an aggregate", tuple(AGGREGATES)),
        "With repeats: the value of a trial, of those of its jobs that succeeded.",
        ("median", "max"),
        MEAN,
    ),
    Key(
        "parallel",
        integer(1, MAX_TRIALS),
        "How many trials are in the queue at once.",
        (64,),
        1,
    ),
    Key(
        "batch",
        integer(1, MAX_BATCH),
        "The number of points of one request. Without it, as many as there are free slots.",
        (16,),
        more="It is at most 1000; points without a free slot wait. Without `batch` some points "
        "are also kept in stock if requests take long; of `random` and `qmc` 64 or more, "
        "since these depend on no trial.",
    ),
    Key(
        "sequential",
        BOOLEAN,
        "Request points only when no trial is under way.",
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
                        "The value that is reported to the suggester; with several objectives a "
                        "list with "
                        "one for each.",
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
        more="`skip` reports no value to the suggester; `retry` runs it again with the same "
        "parameters, up to three times; `{penalty: NUMBER}` reports this value, or with "
        "several objectives a list with one for each.",
    ),
    Key(
        "failures",
        integer(1),
        "The number of failed trials in a row after which the search closes.",
        (5,),
        20,
    ),
    Key(
        "timeout",
        DURATION,
        "How long a request for points may take; 0 is no limit.",
        ("1h",),
        "5m",
        read=parse_duration,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "stop",
        mapping("a mapping such as {policy: asha, step: epoch, eta: 3}", STOP_KEYS),
        "Stop trials early, by the values that their jobs publish while they run.",
        ({"policy": "asha", "step": "epoch", "eta": 3},),
        read=None,
        more="See [early stopping](trials.md#early-stopping).",
    ),
)

SEARCH = mapping(
    "a search such as {id: hpo, group: trial, variables: {...}, minimize: loss, trials: 100}",
    SEARCH_KEYS,
)

DOCUMENT_KEYS = (
    Key(
        "search",
        list_of("a list of searches", SEARCH),
        "Searches: a suggester chooses the parameters of a group's jobs, and learns from the "
        "results.",
        (
            [
                {
                    "id": "hpo",
                    "group": "trial",
                    "variables": {"lr": {"low": 1e-5, "high": 0.1, "log": True}},
                    "minimize": "loss",
                    "trials": 100,
                }
            ],
        ),
        read=None,
        after="rules",
        more="See [searches](searches.md).",
    ),
)

#: Paths of values that are spelled as parameters are.
SPELLED = (
    ("search", None, "variables", None),
    ("search", None, "variables", None, "choices"),
    ("search", None, "points", None, None),
    ("search", None, WARM_START, "trials", None, None),
)

#: The trigger on the end of a search.
SEARCH_TRIGGER = "search-done"

TRIGGERS = (
    FurtherTrigger(
        SEARCH_TRIGGER,
        "A [search](searches.md) has no active trial and gets no more points.",
        after="member-lost",
        on="search",
    ),
)

ACTIONS = (
    FurtherAction(
        "search",
        "Start the [search](searches.md) `label`, or reopen one that was closed; with `count` it "
        "goes on with so many more trials.",
        after="reset",
        takes=("count",),
        on="search",
        submits=True,
    ),
    FurtherAction(
        "close",
        "Send no more trials of the [search](searches.md) `label`.",
        after="search",
        on="search",
    ),
    FurtherAction(
        "refresh",
        "Drop the points of the [search](searches.md) `label` that were not sent, and ask "
        "for others.",
        after="close",
        on="search",
    ),
)
