"""Points suggested by a Gaussian process, which maximize an expected improvement.

The process is scikit-learn's, with a Matérn kernel that has a length for each coordinate (Snoek,
Larochelle and Adams, "Practical Bayesian Optimization of Machine Learning Algorithms", 2012), and
the criterion is the logarithm of the expected improvement (Ament et al., "Unexpected Improvements
to Expected Improvement", 2023). Pending trials count as if they had the values that the process
expects of them, so that no two are at one place (Ginsbourger, Le Riche and Carraro, "Kriging is
well-suited to parallelize optimization", 2010).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from flux_ensemble.features.search.unit_cube import Qmc, at, back

#: Number of trials that have to be complete; before that, points come from a Sobol sequence.
BEGIN = 10

#: With more complete trials than MANY, the process uses the best and the latest ones.
MANY, BEST, LATEST = 300, 100, 200

#: Number of candidates, and the number of the best of them that are improved by a local search.
CANDIDATES, MOVED = 1024, 3


class Gaussian:
    """A sampler with a Gaussian process; the methods are those of `samplers.Sampler`."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._variables = search["variables"]
        self._sign = -1.0 if search["maximize"][0] else 1.0
        self._qmc = Qmc(search)
        self._points: list[list[float]] = []
        #: The outcomes of trials, with the sign that makes less better.
        self._costs: dict[int, float | None] = {}
        #: The fitted kernel, until the next trial ends.
        self._kernel: Any = None

    def add(self, params: Sequence[Any], attributes: Any) -> None:
        """Add a point that was given."""
        self._points.append(self._back(params))

    def end(self, number: int, value: Any, step: float | None = None) -> None:
        """Note the end of a trial; the value of one that was stopped early is not used."""
        known = value is not None and step is None
        self._costs[number] = self._sign * value if known else None
        self._kernel = None

    def suggest(self, number: int, seed: int) -> tuple[list[Any], None]:
        """Suggest the point of the next trial."""
        complete = [number for number, cost in self._costs.items() if cost is not None]
        if len(complete) < BEGIN:
            params, _ = self._qmc.suggest(number, seed)
        else:
            from threadpoolctl import threadpool_limits

            # A fixed order of sums, and only one of the cores that the jobs may have, too.
            with threadpool_limits(1), warnings.catch_warnings():
                # scikit-learn warns of a length at its bound, and of an unfinished fit.
                warnings.simplefilter("ignore")
                params = self._best(self._seen(complete), seed)
        self.add(params, None)
        return params, None

    def _seen(self, complete: list[int]) -> list[int]:
        if len(complete) <= MANY:
            return complete
        best = sorted(complete, key=lambda number: (self._costs[number], number))
        return sorted({*best[:BEST], *complete[-LATEST:]})

    def _best(self, complete: list[int], seed: int) -> list[Any]:
        import numpy as np

        points = np.array([self._points[number] for number in complete])
        costs = np.array([self._costs[number] for number in complete])
        costs = (costs - costs.mean()) / (costs.std() or 1.0)
        process = self._fitted(points, costs)
        least = process.predict(points).min()
        under_way = [
            point for number, point in enumerate(self._points) if number not in self._costs
        ]
        if under_way:
            waiting = np.array(under_way)
            expected = process.predict(waiting)
            process.fit(np.vstack([points, waiting]), np.concatenate([costs, expected]))

        def worth(candidates: Any) -> Any:
            mean, deviation = process.predict(candidates, return_std=True)
            return _log_improvement(least - mean, np.maximum(deviation, 1e-9))

        rng = np.random.default_rng(seed)
        order = np.argsort(costs, kind="stable")
        rows = self._candidates(rng, points[order[:5]])
        seen = {tuple(point) for point in self._points}
        # If all candidates are taken, one of them is repeated.
        new = [row for row in rows if tuple(row) not in seen] or rows
        values = worth(np.array(new))
        best = np.argsort(-values, kind="stable")[:MOVED]
        choices = [(float(values[place]), new[place]) for place in best]
        choices += [self._moved(worth, row) for _, row in choices]
        choices = [choice for choice in choices if tuple(choice[1]) not in seen] or choices
        return self._params(max(choices, key=itemgetter(0))[1])

    def _fitted(self, points: Any, costs: Any) -> Any:
        """Return a fitted process; the kernel is kept, so the process can be fitted again."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        if self._kernel is None:
            kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(
                [0.5] * points.shape[1], (5e-2, 2e1), nu=2.5
            ) + WhiteKernel(1e-4, (1e-8, 1.0))
            self._kernel = GaussianProcessRegressor(kernel).fit(points, costs).kernel_
        return GaussianProcessRegressor(self._kernel, optimizer=None).fit(points, costs)

    def _candidates(self, rng: Any, best: Any) -> list[list[float]]:
        """Return points everywhere, and more of them near the best ones."""
        import numpy as np

        size = len(self._variables)
        uniforms = rng.random((CANDIDATES, size)).tolist()
        rows = [self._back(list(map(at, self._variables, row))) for row in uniforms]
        for scale in (0.1, 0.01):
            for row in best:
                noise = rng.normal(0.0, scale, (10, best.shape[1]))
                rows += [self._near(point) for point in np.clip(row + noise, 0.0, 1.0).tolist()]
        return rows

    def _moved(self, worth: Any, row: list[float]) -> tuple[float, list[float]]:
        """Improve a candidate by a local search; return its worth and the point."""
        import numpy as np
        from scipy.optimize import minimize

        found = minimize(
            lambda point: -float(worth(point[np.newaxis])[0]),
            np.array(row),
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(row),
            options={"maxiter": 20},
        )
        moved = self._near(found.x.tolist())
        return float(worth(np.array([moved]))[0]), moved

    def _near(self, row: Sequence[float]) -> list[float]:
        """Return the nearest coordinates that belong to a point."""
        return self._back(self._params(row))

    def _back(self, params: Sequence[Any]) -> list[float]:
        return [
            one
            for variable, value in zip(self._variables, params, strict=True)
            for one in back(variable, value)
        ]

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
        return params


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
