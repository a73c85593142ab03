"""The function behind the rules of `population`: after a round, members learn from better ones.

Population based training (Jaderberg et al., "Population Based Training of Neural Networks", 2017),
in rounds: members that are among the worst go on from the checkpoint of one of the best, with
parameters that differ a little from its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flux_ensemble.custom import Action
from flux_ensemble.features.search.model import Variable
from flux_ensemble.metrics.numbers import finite
from flux_ensemble.scalars import as_text, brief, identity, packed, unpacked

#: The parameters that members have besides the variables: the number of the member and of the
#: round, from 0, and the directory of the checkpoint that it goes on from, empty in round 0.
MEMBER, ROUND, FROM = "member", "round", "from"

#: Draws numbers from 0 to 1.
Draw = Callable[[], float]


def drawing(*words: Any) -> Draw:
    """Return what draws numbers that depend only on the words, in every version of Python."""
    return random.Random("/".join(map(str, words))).random


def drawn(variable: Variable, draw: Draw) -> Any:
    """Draw a value of a variable.

    >>> 0 <= drawn(Variable("lr", 0.0, 1.0), drawing(7)) <= 1
    True
    """
    share = draw()
    if variable.values is not None and not variable.log:
        return variable.values[int(share * len(variable.values))]
    low, high = variable.low, variable.high
    if variable.log:
        return _within(variable, math.exp(math.log(low) + share * math.log(high / low)))
    return _within(variable, low + share * (high - low))


def explored(
    variable: Variable, value: Any, draw: Draw, *, resample: float, factors: Sequence[float]
) -> Any:
    """Return a value near another one, or with the probability `resample` any.

    A number is multiplied by one of the factors, an integer or a step changes by one at least, and
    a choice becomes one beside it.

    >>> near = {"resample": 0, "factors": (0.8, 1.2)}
    >>> {explored(Variable("lr", 0.0, 1.0), 0.5, drawing(seed), **near) for seed in range(9)}
    {0.4, 0.6}
    """
    if draw() < resample:
        return drawn(variable, draw)
    up = draw() < 0.5
    values = variable.values
    if variable.choices:
        place = [identity(one) for one in variable.choices].index(identity(value))
        return variable.choices[_moved(place, up, len(variable.choices))]
    near = _within(variable, value * max(factors) if up else value * min(factors))
    if near == value and values is not None:
        return values[_moved(values.index(value), up, len(values))]
    return near


def _moved(place: int, up: bool, many: int) -> int:
    return min(max(place + (1 if up else -1), 0), many - 1)


def _within(variable: Variable, value: float) -> Any:
    """Return the value of a range that is nearest to a number."""
    value = min(max(value, variable.low), variable.high)
    if variable.steps is not None:
        return variable.steps.nearest(value)
    return round(value) if variable.integer else value


def first(variables: Sequence[Variable], population: int, seed: str) -> dict[str, list[Any]]:
    """Return the values of each variable in round 0, one for each member."""
    return {
        one.name: [
            drawn(one, drawing(seed, "first", number, one.name)) for number in range(population)
        ]
        for one in variables
    }


def followed(costs: Sequence[float | None], *, quantile: float, seed: str) -> list[int]:
    """Return for each member the one whose checkpoint it goes on from.

    Args:
        costs: of each member, less is better; None if it has failed.
        quantile: the share of members that are replaced, and that replace them.
        seed: of what is drawn.

    >>> followed([0.3, 0.1, 0.4, 0.2], quantile=0.25, seed="7")
    [0, 1, 1, 3]
    """
    members = range(len(costs))
    ended = sorted((cost, number) for number, cost in enumerate(costs) if cost is not None)
    many = min(math.ceil(quantile * len(costs)), len(costs) // 2)
    best = [number for _, number in ended[:many]]
    worst = {number for number in members if costs[number] is None}
    # The failed ones are the worst of all.
    for _, number in reversed(ended[many:]):
        if len(worst) >= many:
            break
        worst.add(number)
    parents = list(members)
    for number in sorted(worst):
        parents[number] = best[int(drawing(seed, number)() * len(best))]
    return parents


def evolve(
    event: Mapping[str, Any],
    state: dict[str, Any],
    *,
    group: str,
    variables: Sequence[Mapping[str, Any]],
    population: int,
    rounds: int,
    objective: str,
    maximize: bool,
    quantile: float,
    resample: float,
    factors: Sequence[float],
    seed: str,
) -> Action | None:
    """Store what a member came to in its round, or begin the next round after all.

    Args:
        event: the event of a rule on `job-success`, or on `idle`.
        state: the function's state, which is kept from call to call.
        group: the group of the members.
        variables: each as `Variable.to_json` returns it.
        population, rounds: the numbers of members and of rounds.
        objective, maximize: the key of the memo, and whether it is to be large.
        quantile: as for `followed`.
        resample, factors: as for `explored`.
        seed: of what is drawn.

    Returns:
        The action that submits the next round, or that fails the ensemble if no member has a value;
        None for an event of a job, and after the last round.
    """
    number, found = state.get("round", 0), state.get("found", {})
    read = [Variable(**{**one, "choices": _choices(one)}) for one in variables]
    params = event.get("params", {})
    if event["trigger"] != "idle":
        value = event["memo"].get(objective)
        value = finite(value) if type(value) in (int, float) else None
        # A job submitted by hand belongs to no round, or to another one.
        if value is not None and params.get(ROUND) == number:
            own = [packed(one.read(unpacked(params[one.name]))) for one in read]
            state["found"] = {**found, str(params[MEMBER]): [value, own]}
        return None
    if not found:
        return Action(
            name="terminate",
            state="failed",
            reason=f"no {objective!r} from any member in round {number}",
        )
    members = range(population)
    sign = -1 if maximize else 1
    values = [found[str(one)][0] if str(one) in found else None for one in members]
    costs = [None if value is None else sign * value for value in values]
    points = {int(one): list(map(unpacked, own)) for one, (_, own) in found.items()}
    parents = followed(costs, quantile=quantile, seed=f"{seed}/{number}")
    best = min(points, key=lambda one: (sign * found[str(one)][0], one))
    what = " ".join(
        f"{one.name}={brief(value) if isinstance(value, float) else as_text(value)}"
        for one, value in zip(read, points[best], strict=True)
    )
    said = f"round {number}: best {objective} {found[str(best)][0]:.6g} (member {best}: {what})"
    if number + 1 == rounds:
        print(said)
        state.update(round=number + 1, found={})
        return None
    copied = [f"{one} goes on from {parents[one]}" for one in members if parents[one] != one]
    print("; ".join([said, *copied]))
    state.update(round=number + 1, found={})
    after: dict[str, Any] = {
        one.name: [
            packed(
                points[parents[member]][place]
                if parents[member] == member
                else explored(
                    one,
                    points[parents[member]][place],
                    drawing(seed, number, member, one.name),
                    resample=resample,
                    factors=factors,
                )
            )
            for member in members
        ]
        for place, one in enumerate(read)
    }
    after |= {ROUND: number + 1, FROM: [checkpoint(number, parents[one]) for one in members]}
    return Action(name="submit", label=group, params=after)


def checkpoint(number: int, member: int) -> str:
    """Return the directory of a member's round, from that of another one.

    >>> checkpoint(3, 5)
    '../3-5'
    """
    return f"../{number}-{member}"


def _choices(variable: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(map(unpacked, variable.get("choices", ())))
