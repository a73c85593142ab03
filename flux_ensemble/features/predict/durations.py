"""A model of the durations of jobs, learned from their parameters.

    learn(values, seconds) ──► recursive least squares of log(seconds) ──► predict(values)

The logarithm of the duration is modelled as linear in the logarithms of the numbers among the
values, so a cost that grows as n, n² or √n is learned from a few jobs. Each other value has its own
factor. The method is Bayesian linear regression with a wide prior (Bishop, Pattern Recognition and
Machine Learning, 3.3), with the same results as River's `linear_model.BayesianLinearRegression`.
River's class takes a second of processor time to import, rounds as the BLAS of a machine does, and
has its state in private attributes. Here the same values give the same predictions, bit by bit, and
the state is JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

#: The number of jobs that must have succeeded before there are predictions.
FEWEST = 3

#: The most terms of a model. Further values have no factor.
MAX_TERMS = 32

#: The longest text of a value that is kept; longer text is replaced by a digest.
MAX_TEXT = 64

#: The prior variance of coefficients, in units of the variance of log(seconds) among equal jobs. It
#: is so wide that a few jobs outweigh it.
PRIOR = 100.0

#: Shorter durations count as this many seconds.
SHORTEST = 1e-3

#: Bound of predictions, as the logarithm of a factor: none is longer than the longest duration so
#: far times this factor, or shorter than the shortest divided by it.
FARTHEST = math.log(1e4)

#: The name of the constant term; no value has it.
_CONSTANT = ""


class Durations:
    """A model of the durations of one group's jobs.

    Attributes:
        count: the number of jobs that the model has learned from.
        version: the `count` when `rank` was last brought up to date; 0 before.

    >>> model = Durations()
    >>> for n in (1000, 2000, 4000):
    ...     model.learn({"n": n}, 2e-6 * n**2)
    >>> round(model.predict({"n": 8000}))
    124
    """

    def __init__(self) -> None:
        self.count = 0
        self.version = 0
        #: The logarithm of the first duration, which is the origin, and the range of all.
        self._first = self._low = self._high = 0.0
        #: Name of a term -> its number.
        self._terms: dict[str, int] = {}
        #: Name of a variable -> the logarithm of its first number, which is the origin.
        self._origins: dict[str, float] = {}
        self._weights: list[float] = []
        #: Covariance of the weights, its lower triangle.
        self._covariance: list[list[float]] = []
        #: The weights that `rank` uses.
        self._ranking: list[float] = []

    @property
    def known(self) -> bool:
        """True if there are predictions."""
        return self.count >= FEWEST

    def learn(self, values: Mapping[str, Any], seconds: float) -> None:
        """Learn from a job.

        Args:
            values: the values of its parameters.
            seconds: the duration of the job.
        """
        y = math.log(max(seconds, SHORTEST))
        if not self.count:
            self._first = self._low = self._high = y
        self._low, self._high = min(self._low, y), max(self._high, y)
        self.count += 1
        x = self._x(values, new=True)
        covariance, weights = self._covariance, self._weights
        spread = [0.0] * len(weights)
        for term, value in x:
            row = covariance[term]
            for other in range(term):
                spread[other] += value * row[other]
            for other in range(term, len(weights)):
                spread[other] += value * covariance[other][term]
        variance, error = 1.0, y - self._first
        for term, value in x:
            variance += spread[term] * value
            error -= weights[term] * value
        for term, of_term in enumerate(spread):
            if of_term:
                gain = of_term / variance
                weights[term] += gain * error
                covariance[term] = [
                    before - gain * other
                    for before, other in zip(covariance[term], spread, strict=False)
                ]
        if self.count >= max(FEWEST, 2 * self.version):
            self.version = self.count
            self._ranking = list(weights)

    def predict(self, values: Mapping[str, Any]) -> float | None:
        """Return the predicted seconds of a job; None before `FEWEST` jobs.

        Args:
            values: the values of its parameters.
        """
        return self._predicted(values, self._weights) if self.known else None

    def rank(self, values: Mapping[str, Any]) -> float | None:
        """Return the prediction of the model after the latest of 3, 6, 12, ... jobs.

        It rarely changes, so it can serve to sort jobs.
        """
        return self._predicted(values, self._ranking) if self.version else None

    def _predicted(self, values: Mapping[str, Any], weights: list[float]) -> float:
        y, known = self._first, len(weights)
        for term, value in self._x(values):
            if term < known:
                y += weights[term] * value
        return math.exp(max(self._low - FARTHEST, min(self._high + FARTHEST, y)))

    def _x(self, values: Mapping[str, Any], *, new: bool = False) -> list[tuple[int, float]]:
        """Return the terms of a job with their values; with `new`, unknown terms are added."""
        x = []
        if (constant := self._term(_CONSTANT, new)) is not None:
            x.append((constant, 1.0))
        for name, value in values.items():
            number = _logarithm(value)
            if number is None:
                name, number = f"{name}={_text(value)}", 1.0
            else:
                if value < 0:
                    name = f"-{name}"
                origin = self._origins.get(name)
                if origin is None:
                    if not new or len(self._weights) >= MAX_TERMS:
                        continue
                    origin = self._origins[name] = number
                number -= origin
            if (term := self._term(name, new)) is not None:
                x.append((term, number))
        return x

    def _term(self, name: str, new: bool) -> int | None:
        term = self._terms.get(name)
        if term is None and new and len(self._weights) < MAX_TERMS:
            term = self._terms[name] = len(self._weights)
            self._weights.append(0.0)
            self._covariance.append([0.0] * term + [PRIOR])
        return term

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return {
            "count": self.count,
            "version": self.version,
            "range": [self._first, self._low, self._high],
            "terms": list(self._terms),
            "origins": dict(self._origins),
            "weights": list(self._weights),
            "covariance": [list(row) for row in self._covariance],
            "ranking": list(self._ranking),
        }

    def load(self, value: Mapping[str, Any]) -> None:
        """Set the state from the result of `dump`."""
        self.count, self.version = value["count"], value["version"]
        self._first, self._low, self._high = value["range"]
        self._terms = {name: term for term, name in enumerate(value["terms"])}
        self._origins = dict(value["origins"])
        self._weights = list(value["weights"])
        self._covariance = [list(row) for row in value["covariance"]]
        self._ranking = list(value["ranking"])


def _logarithm(value: Any) -> float | None:
    """Return the logarithm of a number's size; None for 0, NaN, infinity and other values."""
    if type(value) not in (int, float) or not value or value != value:
        return None
    return None if value in (math.inf, -math.inf) else math.log(abs(value))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(text) <= MAX_TEXT:
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
