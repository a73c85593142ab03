"""Statistics of a document: arguments of any kind are refused with a sentence, or they work."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from play import Play, document, on_start
from river import stats

from flux_ensemble.document.loading import DocumentError, load_mapping
from flux_ensemble.document.model import Spec
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.paths import MetricPath
from flux_ensemble.metrics.statistic_trial import check_statistic
from flux_ensemble.metrics.stream import MAX_DIFFERENT, StatisticError
from flux_ensemble.metrics.streams import Metrics

CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(stats, inspect.isclass)
    if issubclass(cls, stats.base.Univariate) and cls is not stats.Link
}

ODD = [
    -(10**18), -(10**9), -7, -1, 0, 1, 2, 3, 100_000, 100_001, 10**6, 10**9, 10**18, 2**63 - 1,
    -1e300, -0.5, 0.0, 1e-300, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0, 1e9, 1e300,
    True, False, None, "", "x", "0.5", [], [1], {}, {"q": 1},
]  # fmt: skip
#: Where there is more than one argument.
SOME = [-1, 0, 1, 3, 0.25, 0.75, 1.0, 1.5, 1e300, True, None, "x", 10**9]


def load(*metrics: Any) -> Spec:
    return load_mapping(document(metrics=list(metrics)))


def sentence_about(statistic: dict[str, Any]) -> str | None:
    """The sentence by which a document with this statistic is refused, if it is."""
    try:
        load({"name": "it", **statistic})
    except DocumentError as error:
        sentence = str(error)
    else:
        return None
    assert sentence.startswith("document: metrics[0]")
    assert len(sentence) < 700
    return sentence.removeprefix("document: ")


def values() -> Iterator[float]:
    """Such as jobs give, and such as they should not."""
    yield from (0.5, 3, 0.25, 1e-9, 17.5)
    yield from (0, 0, 0, -1.0, 1e308, -1e308, 1e308, 5e-324, 2**62, -(2**62), 1e16, 1e16 + 2)
    yield from (number * 0.1 for number in range(40))


@pytest.mark.parametrize("kind", CLASSES)
def test_whatever_its_arguments_a_statistic_is_refused_or_works(kind: str) -> None:
    names = list(inspect.signature(CLASSES[kind]).parameters)
    trials: list[dict[str, Any]] = [{name: value} for name in names for value in ODD]
    odd = SOME if len(names) > 1 else ODD
    trials += [dict(zip(names, each, strict=True)) for each in product(odd, repeat=len(names))]
    works = [one for one in trials if sentence_about({"statistic": kind, **one}) is None]
    assert works
    for arguments in works:
        spec = load({"name": "it", "statistic": kind, **arguments})
        metrics = Metrics(["a"], spec.statistics)
        for value in values():
            metrics.observe("a", "x", value)
            metrics.lookup(MetricPath("it", "a", "x"))
            metrics.at(lambda group, gauge: (1.0,)).lookup(MetricPath("it", "a", "pending"))
        json.dumps(metrics.snapshot(lambda group, gauge: (1.0,)), allow_nan=False)


@given(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())))
def test_whatever_the_values_every_statistic_has_a_finite_value_or_none(given: list[Any]) -> None:
    needed = {"lag": 2, "window_size": 3, "prior": 1, "prior_weight": 2, "q": 0.3}
    statistics = [
        Statistic(
            name,
            name,
            {
                key: needed[key]
                for key, one in inspect.signature(cls).parameters.items()
                if one.default is one.empty
            },
        )
        for name, cls in CLASSES.items()
    ]
    play = Play(document(rules=[on_start(count=1)]))
    play.engine.stats = Metrics(["a", "b"], statistics)
    play.begin(1)
    for value in given:
        play.event(1, "memo", x=value)
        json.dumps(play.engine.metrics(play.t), allow_nan=False)


@pytest.mark.parametrize(
    ("statistic", "sentence"),
    [
        ({"statistic": "iqr", "q_inf": -1},
         "metrics[0].q_inf: expected a number >= 0 and <= 1, not -1"),
        ({"statistic": "rolling_iqr", "window_size": 3, "q_inf": 1, "q_sup": 1.5},
         "metrics[0].q_sup: expected a number >= 0 and <= 1, not 1.5"),
        ({"statistic": "quantile", "q": True},
         "metrics[0].q: expected a number >= 0 and <= 1, not true"),
        ({"statistic": "shift", "fill_value": "x"},
         "metrics[0].fill_value: expected a number or a boolean, not 'x'"),
        ({"statistic": "bayesian_mean", "prior": "x" * 10**6, "prior_weight": 10**6},
         "metrics[0].prior: expected a number or a boolean, not 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxx..."),
        ({"statistic": "mean", "on": [1, 2]},
         "metrics[0].on: expected a number or a boolean, not a list with 2 items"),
        ({"statistic": "mean", "of": [1, 2]},
         "metrics[0].of: expected the jobs that it is of, not a list with 2 items"),
        ({"statistic": "mean", "of": "failed"},
         "metrics[0].of: expected the jobs that it is of, not 'failed' "
         "(one of: success, finished)"),
        ({"statistic": "rolling_mode", "window_size": 100_001},
         "metrics[0].window_size: expected an integer >= 1 and <= 100000, not 100001"),
        ({"statistic": "rolling_max", "window_size": True},
         "metrics[0].window_size: expected an integer >= 1 and <= 100000, not true"),
        ({"statistic": "auto_corr", "lag": 0},
         "metrics[0].lag: expected an integer >= 1 and <= 100000, not 0"),
        ({"statistic": "shift", "amount": -1},
         "metrics[0].amount: expected an integer >= 0 and <= 100000, not -1"),
        ({"statistic": "mode", "k": -1},
         "metrics[0].k: expected an integer >= 1 and <= 100000, not -1"),
        ({"statistic": "var", "ddof": -(10**6) - 1},
         "metrics[0].ddof: expected an integer >= -1000000 and <= 1000000, not -1000001"),
    ],
)  # fmt: skip
def test_an_argument_that_no_statistic_can_have_is_refused(
    statistic: dict[str, Any], sentence: str
) -> None:
    assert sentence_about(statistic) == sentence


@pytest.mark.parametrize(
    ("statistic", "parts"),
    [
        ({"statistic": "bayesian_mean", "prior": 1, "prior_weight": -7},
         ["BayesianMean(prior: ", "refused {'prior': 1, 'prior_weight': -7}: float division"]),
        ({"statistic": "entropy", "eps": -1}, ["Entropy(", "refused {'eps': -1}: math domain"]),
        ({"statistic": "iqr", "q_inf": 0.5, "q_sup": 0.5}, ["q_inf must be strictly less than"]),
        ({"statistic": "kurtosis", "bias": 3}, ["Kurtosis(bias", "refused {'bias': 3}: "]),
        ({"statistic": "mean", "x" * 10**6: 3}, ["Mean() refused {'xxxxxxx"]),
        ({"statistic": "m" * 10**6}, ["River has no univariate statistic 'mmmmm"]),
    ],
)  # fmt: skip
def test_what_a_statistic_does_not_work_with_is_refused_briefly(
    statistic: dict[str, Any], parts: list[str]
) -> None:
    sentence = sentence_about(statistic)
    assert sentence is not None
    assert all(part in sentence for part in parts)


def test_a_panic_in_trying_a_statistic_is_a_refusal() -> None:
    with pytest.raises(ValueError, match=r"IQR\(.*\) refused {'q_inf': -1}: called `Option::unw"):
        check_statistic("iqr", {"q_inf": -1})


def test_a_statistic_whose_value_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="its value would be 'x', which is no number"):
        check_statistic("shift", {"amount": 3, "fill_value": "x"})


def test_a_document_has_so_many_statistics() -> None:
    many: list[Any] = [{"name": f"s{number}", "statistic": "skew"} for number in range(100)]
    assert len(load(*many).statistics) == 107
    with pytest.raises(DocumentError) as caught:
        load(*many, {"name": "last", "statistic": "skew"}, {"name": "p", "statistic": "nothing"})
    assert str(caught.value) == "document: metrics: expected at most 100 statistics, not 102"


def test_a_statistic_keeps_only_so_many_different_values() -> None:
    metrics = Metrics(["a"], [Statistic("entropy", "Entropy"), Statistic("mode", "Mode")])
    path = MetricPath("entropy", "a", "x")
    for number in range(MAX_DIFFERENT):
        metrics.observe("a", "x", number)
        metrics.observe("a", "x", 0)
    entropy = metrics.lookup(path)
    assert entropy is not None
    metrics.observe("a", "x", -1)
    assert metrics.lookup(path) is None
    metrics.observe("a", "x", 0)
    assert metrics.lookup(path) is None
    assert metrics.lookup(MetricPath("mode", "a", "x")) == 0


def test_a_statistic_that_panics_all_the_same_is_named() -> None:
    bad = Statistic("bad", "RollingIQR", {"window_size": 3, "q_inf": 1.0, "q_sup": 1.5})
    metrics = Metrics(["a"], [Statistic("mean", "Mean"), bad])
    for _ in range(3):
        metrics.observe("a", "x", 1.0)
    with pytest.raises(StatisticError, match="statistic 'bad' has no value after 3 values: Out of"):
        metrics.lookup(MetricPath("bad", "a", "x"))


def test_a_statistic_that_does_not_take_a_value_is_named() -> None:
    bad = Statistic("bad", "Entropy", {"eps": -1.0})
    metrics = Metrics(["a"], [Statistic("mean", "Mean"), bad])
    with pytest.raises(StatisticError, match=r"statistic 'bad' cannot take in 1\.5: math domain"):
        metrics.observe("a", "x", 1.5)


def test_units_are_of_a_key_or_of_one_group_and_change_nothing_else() -> None:
    found = load({"of": "fom", "unit": "eV"}, {"of": "a-fom", "unit": "kcal/mol"})
    assert found.units == {"fom": "eV", "a-fom": "kcal/mol"}
    assert found.statistics == load().statistics


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ([{"unit": "eV"}], "metrics[0]: the key 'of' is missing"),
        (
            [{"of": "fom", "unit": "eV"}, {"of": "fom", "unit": "J"}],
            "metrics[1].of: 'fom' has the unit 'eV' already",
        ),
        *(
            (
                [{"of": "fom", "unit": unit}],
                f"metrics[0].unit: expected a unit (text of at most 32 characters), not {shown}",
            )
            for unit, shown in ((3, "3"), (None, "null"), ("", "''"), ("m" * 33, repr("m" * 33)))
        ),
        *(
            (
                [{"of": "fom", "unit": unit}],
                "metrics[0].unit: expected a unit (1 to 32 printable characters, no blank at its "
                f"ends), not {unit!r}",
            )
            for unit in (" eV", "e\nV", "\x1b[31m", "\u202eVe")
        ),
        (
            [{"of": "duration", "unit": "h"}],
            "metrics[0].of: 'duration' is in seconds; expected the key of a memo",
        ),
        (
            [{"of": "fom[t=1]", "unit": "eV"}],
            "metrics[0].of: 'fom[t=1]' has the unit of 'fom'; write that",
        ),
        (
            [{"of": "fom", "unit": "eV", "name": "a"}],
            "metrics[0].name: unknown key 'name' (keys: of, unit)",
        ),
    ],
)
def test_units_that_are_none_are_refused(entries: list[Any], sentence: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(*entries)
    assert str(caught.value) == f"document: {sentence}"
