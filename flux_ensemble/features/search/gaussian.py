"""Points suggested by a Gaussian process, which maximize an expected improvement.

The process is scikit-learn's, with a Matérn kernel that has a length for each coordinate (Snoek,
Larochelle and Adams, "Practical Bayesian Optimization of Machine Learning Algorithms", 2012), and
the criterion is the logarithm of the expected improvement (Ament et al., "Unexpected Improvements
to Expected Improvement", 2023). Pending trials count as if they had the values that the process
expects of them, so that no two are at one place (Ginsbourger, Le Riche and Carraro, "Kriging is
well-suited to parallelize optimization", 2010). Values are brought close to a normal distribution
first (Cowen-Rivers et al., "HEBO: Pushing The Limits of Sample-Efficient Hyper-parameter
Optimisation", 2022).

With constraints on outcomes the improvement is weighted with the probability that a point is
feasible, which a second process has from the largest violations; while no trial is feasible, that
probability alone counts (Gardner et al., "Bayesian Optimization with Inequality Constraints",
2014). A variable that a point does not have, by its condition, has a coordinate in the middle.

What a point takes is bounded. The lengths are fitted anew only when there are a tenth more trials,
to those trials that there were then: so they follow from the number of trials, and a new process
has the same. Of many trials the process has those that say most about where the next point will be:
the best ones, those around the best (Eriksson et al., "Scalable Global Optimization via Local
Bayesian Optimization", 2019), the latest, and some of all the others.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from flux_ensemble.features.search.space import NoPointError, rows_of
from flux_ensemble.features.search.unit_cube import Qmc, at, back, with_fixed
from flux_ensemble.scalars import identity

#: Number of trials that have to be complete; before that, points come from a Sobol sequence.
BEGIN = 10

#: With more complete trials than MANY, the process has the best ones, those nearest to the best
#: one, the latest ones, and others evenly: MANY in all, or fewer.
MANY, BEST, NEAREST, LATEST = 300, 100, 100, 50

#: Number of candidates, and the number of the best of them that are improved by a local search.
CANDIDATES, MOVED = 1024, 3

#: The most skew of values that are used as they are.
SKEW = 1.0

#: What a process is of.
_COSTS, _BOUNDS = "costs", "bounds"

#: The coordinate of a range that a point has no value of.
_MIDDLE = 0.5

#: The step of differences in the local search.
_STEP = 1e-6


class Gaussian:
    """A sampler with a Gaussian process; the methods are those of `samplers.Sampler`."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._variables = search["variables"]
        self._sign = -1.0 if search["maximize"][0] else 1.0
        self._qmc = Qmc(search)
        self._rows = rows_of(search)
        #: Values that the point that is suggested is to have, by the place of the variable.
        self._fixed: Mapping[int, Any] = {}
        self._points: list[list[float]] = []
        self._known: set[tuple[float, ...]] = set()
        #: The outcomes of trials, with the sign that makes less better.
        self._costs: dict[int, float | None] = {}
        self._complete: list[int] = []
        #: By how much trials violate constraints on outcomes.
        self._constraints = len(search.get("subject_to", ()))
        self._violations: dict[int, Sequence[float]] = {}
        #: The fitted kernels of costs and of bounds, and to how many complete trials.
        self._kernels: dict[str, Any] = {}
        self._fitted_to = 0

    def add(self, params: Sequence[Any], attributes: Any) -> None:
        """Add a point that was given."""
        self._points.append(self._back(params))
        self._known.add(tuple(self._points[-1]))

    def end(
        self,
        number: int,
        value: Any,
        step: float | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Note the end of a trial; the value of one that was stopped early is not used."""
        self._violations[number] = violations or [0.0] * self._constraints
        known = value is not None and step is None
        self._costs[number] = self._sign * value if known else None
        if known:
            self._complete.append(number)

    def suggest(
        self, number: int, seed: int, fixed: Mapping[int, Any] = MappingProxyType({})
    ) -> tuple[list[Any], None]:
        """Suggest the point of the next trial."""
        self._fixed = fixed
        if len(self._complete) < BEGIN:
            params, _ = self._qmc.suggest(number, seed, fixed)
        else:
            from threadpoolctl import threadpool_limits

            # A fixed order of sums, and only one of the cores that the jobs may have, too.
            with threadpool_limits(1), warnings.catch_warnings():
                # scikit-learn warns of a length at its bound, and of an unfinished fit.
                warnings.simplefilter("ignore")
                params = self._best(seed)
        self.add(params, None)
        return params, None

    def _seen(self, count: int) -> tuple[Any, Any, Any]:
        """Return points, costs and bounds of the first complete trials, those that are used."""
        import numpy as np

        complete = np.array(self._complete[:count])
        points = np.array([self._points[number] for number in complete])
        costs = _normal(np.array([self._costs[number] for number in complete]))
        bounds = _bounds(np.array([self._violations[number] for number in complete]))
        if count <= MANY:
            return points, costs, bounds
        order = _order(costs, bounds)
        away = ((points - points[order[0]]) ** 2).sum(axis=1)
        kept = {
            *order[:BEST].tolist(),
            *np.argsort(away, kind="stable")[:NEAREST].tolist(),
            *range(count - LATEST, count),
        }
        others = [place for place in range(count) if place not in kept]
        room = MANY - len(kept)
        kept.update(others[place * len(others) // room] for place in range(room))
        places = sorted(kept)
        return points[places], costs[places], bounds[places]

    def _best(self, seed: int) -> list[Any]:
        import numpy as np
        from scipy.special import log_ndtr

        points, costs, bounds = self._seen(len(self._complete))
        process = self._process(_COSTS, points, costs)
        feasible = bounds <= 0
        least = process.predict(points)[feasible].min() if feasible.any() else None
        bound = self._process(_BOUNDS, points, bounds) if self._constraints else None
        under_way = [
            point for number, point in enumerate(self._points) if number not in self._costs
        ]
        if under_way:
            waiting = np.array(under_way)
            expected = process.predict(waiting)
            process.fit(np.vstack([points, waiting]), np.concatenate([costs, expected]))

        def latent(of: Any, candidates: Any) -> tuple[Any, Any]:
            mean, deviation = of.predict(candidates, return_std=True)
            # Of the mean, without the noise of a value.
            noise = of.kernel_.k2.noise_level
            return mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-18))

        def worth(candidates: Any) -> Any:
            values = np.zeros(len(candidates))
            if least is not None:
                mean, deviation = latent(process, candidates)
                values = _log_improvement(least - mean, deviation)
            if bound is not None:
                values = values + log_ndtr(-np.divide(*latent(bound, candidates)))
            return values

        rng = np.random.default_rng(seed)
        order = _order(costs, bounds)
        rows = self._candidates(rng, points[order[:5]])
        # If all candidates are taken, one of them is repeated.
        new = [row for row in rows if tuple(row) not in self._known] or rows
        values = worth(np.array(new))
        best = np.argsort(-values, kind="stable")[:MOVED]
        choices = [(float(values[place]), new[place]) for place in best]
        choices += [self._moved(worth, row) for _, row in choices]
        choices = [one for one in choices if self._rows.allows(self._params(one[1]))]
        choices = [one for one in choices if tuple(one[1]) not in self._known] or choices
        return self._params(max(choices, key=itemgetter(0))[1])

    def _process(self, what: str, points: Any, values: Any) -> Any:
        """Return a process with values of costs or bounds, whose kernel is fitted."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        count = _fitted_to(len(self._complete))
        if self._fitted_to != count:
            self._kernels.clear()
            self._fitted_to = count
        if what not in self._kernels:
            kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(
                [0.5] * points.shape[1], (5e-2, 2e1), nu=2.5
            ) + WhiteKernel(1e-4, (1e-8, 1.0))
            first, costs, bounds = self._seen(count)
            fitted = GaussianProcessRegressor(kernel, optimizer=_likeliest).fit(
                first, costs if what == _COSTS else bounds
            )
            self._kernels[what] = fitted.kernel_
        return GaussianProcessRegressor(self._kernels[what], optimizer=None).fit(points, values)

    def _candidates(self, rng: Any, best: Any) -> list[list[float]]:
        """Return points everywhere, and more of them near the best ones."""
        import numpy as np

        size = len(self._variables)
        uniforms = rng.random((CANDIDATES, size)).tolist()
        drawn = [list(map(at, self._variables, row)) for row in uniforms]
        rows = [self._back(self._settled(params)) for params in drawn]
        for scale in (0.1, 0.01):
            for row in best:
                noise = rng.normal(0.0, scale, (10, best.shape[1]))
                rows += [self._near(point) for point in np.clip(row + noise, 0.0, 1.0).tolist()]
        if not self._rows.space.is_constrained:
            return rows
        allowed = [row for row in rows if self._rows.allows(self._params(row))]
        if not allowed:
            raise NoPointError
        return allowed

    def _moved(self, worth: Any, row: list[float]) -> tuple[float, list[float]]:
        """Improve a candidate by a local search; return its worth and the point."""
        import numpy as np
        from scipy.optimize import minimize

        steps = np.vstack([np.zeros(len(row)), _STEP * np.eye(len(row))])

        def down(point: Any) -> tuple[float, Any]:
            # All differences at once, and none beyond the bounds.
            toward = np.where(point > 0.5, -1.0, 1.0)
            values = -worth(point + steps * toward)
            return float(values[0]), (values[1:] - values[0]) / (_STEP * toward)

        found = minimize(
            down,
            np.array(row),
            method="L-BFGS-B",
            jac=True,
            bounds=[(0.0, 1.0)] * len(row),
            options={"maxiter": 20},
        )
        rows = [self._near(found.x.tolist())]
        rows += self._beside(rows[0])
        values = worth(np.array(rows))
        new = [place for place, one in enumerate(rows) if tuple(one) not in self._known]
        place = max(new or range(len(rows)), key=lambda place: float(values[place]))
        return float(values[place]), rows[place]

    def _beside(self, row: list[float]) -> list[list[float]]:
        """Return the points that have another choice, or the integer before or after."""
        params = self._params(row)
        rows: list[list[float]] = []
        for place, variable in enumerate(self._variables):
            value, others = params[place], list[Any]()
            if "choices" in variable:
                others = [one for one in variable["choices"] if identity(one) != identity(value)]
            elif variable["integer"] and value is not None:
                bounds = variable["low"], variable["high"]
                others = [one for one in (value - 1, value + 1) if bounds[0] <= one <= bounds[1]]
            found = [self._back([*params[:place], one, *params[place + 1 :]]) for one in others]
            # With another choice the point may have other variables.
            rows += map(self._near, found) if self._rows.space.is_conditional else found
        return rows

    def _near(self, row: Sequence[float]) -> list[float]:
        """Return the nearest coordinates that belong to a point."""
        return self._back(self._params(row))

    def _back(self, params: Sequence[Any]) -> list[float]:
        return [
            one
            for variable, value in zip(self._variables, params, strict=True)
            for one in ([_MIDDLE] if value is None and "low" in variable else back(variable, value))
        ]

    def _settled(self, params: Sequence[Any]) -> list[Any]:
        """Return a point with the fixed values, and None for what it does not have."""
        return self._rows.settled(with_fixed(params, self._fixed))

    def _params(self, row: Sequence[float]) -> list[Any]:
        params, place = [], 0
        for variable in self._variables:
            if "choices" in variable:
                choices = variable["choices"]
                own = list(row)[place : place + len(choices)]
                params.append(choices[own.index(max(own))])
                place += len(choices)
            else:
                params.append(at(variable, min(row[place], 1.0)))
                place += 1
        return self._settled(params)


def _fitted_to(count: int) -> int:
    """Return to how many of so many complete trials the kernel is fitted.

    >>> [_fitted_to(count) for count in (10, 11, 29, 30, 105, 3000)]
    [10, 11, 28, 30, 103, 2765]
    """
    fitted = BEGIN
    while (more := fitted + max(1, fitted // 10)) <= count:
        fitted = more
    return fitted


def _likeliest(unlikely: Callable[..., Any], start: Any, bounds: Any) -> tuple[Any, float]:
    """Return the likeliest kernel and how unlikely it is, given the data and `_unexpected`.

    Args:
        unlikely: returns for a kernel the negative logarithm of its likelihood, and the gradient.
        start, bounds: of the kernel: the logarithms of its scale, its lengths and its noise.
    """
    from scipy.optimize import minimize

    def both(kernel: Any) -> tuple[float, Any]:
        value, gradient = unlikely(kernel)
        more, its_gradient = _unexpected(kernel)
        return value + more, gradient + its_gradient

    found = minimize(both, start, method="L-BFGS-B", jac=True, bounds=bounds)
    return found.x, float(found.fun)


def _unexpected(kernel: Any) -> tuple[float, Any]:
    """Return how little a kernel is expected before there are data, and the gradient.

    The scale has a Gamma(2, 1) distribution and the noise one of Gamma(1.1, 30). A squared length
    is expected near 1, and a short one less than a long one, since a variable may be of no effect.

    >>> value, gradient = _unexpected([0.0, 0.0, 0.0, 0.0])
    >>> float(round(value, 3)), gradient.round(3).tolist()
    (31.4, [0.0, 0.0, 0.0, 29.9])
    """
    import numpy as np

    scale, *lengths, noise = np.exp(kernel)
    squares = np.square(lengths)
    value = scale - kernel[0] + 0.1 * (squares + 1 / squares).sum() + 30 * noise - 0.1 * kernel[-1]
    slopes = 0.2 * (squares - 1 / squares)
    return float(value), np.array([scale - 1, *slopes, 30 * noise - 0.1])


def _normal(costs: Any) -> Any:
    """Return costs in the same order, with the mean 0 and the deviation 1, and little skew.

    Where a power transform (of Yeo and Johnson) leaves a skew, as with a few that diverged, only
    the ranks count.
    """
    import numpy as np
    from scipy.stats import norm, rankdata, skew
    from sklearn.preprocessing import power_transform

    with np.errstate(all="ignore"):
        deviation = costs.std()
        if not deviation:
            return np.zeros(len(costs))
        even = np.isfinite(deviation)
        if even:
            normal = power_transform((costs[:, np.newaxis] - costs.mean()) / deviation)[:, 0]
            # It may also have found no end.
            even = abs(skew(normal)) <= SKEW
    if not even:
        normal = norm.ppf((rankdata(costs) - 0.5) / len(costs))
    return (normal - normal.mean()) / (normal.std() or 1.0)


def _bounds(violations: Any) -> Any:
    """Return for each trial its largest violation, between -1 and 1.

    Each constraint has the unit that is its median distance. Few trials that are far beyond a bound
    do not hide how the others differ.
    """
    import numpy as np

    if not violations.size:
        return np.zeros(len(violations))
    units = np.median(np.abs(violations), axis=0)
    largest = (violations / np.where(units > 0, units, 1.0)).max(axis=1)
    return largest / (1 + np.abs(largest))


def _order(costs: Any, bounds: Any) -> Any:
    """Return the places of trials, the best one first: feasible ones, then the nearest."""
    import numpy as np

    return np.lexsort((costs, np.maximum(bounds, 0.0)))


def _log_improvement(by: Any, deviation: Any) -> Any:
    """Return the logarithm of the expected improvement, up to a constant.

    Args:
        by: how far the mean of each candidate is below the least known one.
        deviation: the standard deviation of each candidate.
    """
    import numpy as np
    from scipy.special import erfcx, ndtr

    z = by / deviation
    above = np.maximum(z, 0.0)
    large = np.log(above * ndtr(above) + np.exp(-(above**2) / 2) / math.sqrt(2 * math.pi))
    below = np.clip(z, -100.0, 0.0)
    small = np.log1p(below * math.sqrt(math.pi / 2) * erfcx(-below / math.sqrt(2)))
    # Far below, the sum above would be a difference of nearly equal numbers.
    small = np.where(z < -100.0, -2.0 * np.log(np.maximum(-z, 1.0)), small)
    small -= z**2 / 2 + math.log(2 * math.pi) / 2
    return np.log(deviation) + np.where(z > 0, large, small)
