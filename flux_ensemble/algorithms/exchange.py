"""The function behind the rules of `replica-exchange`: replicas swap temperatures after a round."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from flux_ensemble.custom import Action


def swaps(
    temperatures: Sequence[float],
    energies: Sequence[float],
    *,
    boltzmann: float,
    number: int,
    seed: str,
) -> tuple[list[float], int, int]:
    """Swap the temperatures of neighbours with the probability of Metropolis.

    The probability is min(1, exp((1/kTi - 1/kTj) (Ei - Ej))): Sugita and Okamoto, Chem. Phys. Lett.
    314 (1999) 141.

    Args:
        temperatures: the temperature of each replica.
        energies: the energy of each replica at the end of the round.
        boltzmann: the constant, in units of energy per unit of temperature.
        number: the number of the round. In even rounds the pairs begin with the coldest replica, in
            odd rounds with the second coldest.
        seed: the seed of the random numbers.

    Returns:
        The temperatures in the next round, the number of pairs, and the number of swaps.

    >>> swaps([300, 310], [-5.0, -7.0], boltzmann=0.002, number=0, seed="7")
    ([310, 300], 1, 1)
    """
    ladder = sorted(range(len(temperatures)), key=lambda replica: temperatures[replica])
    after = list(temperatures)
    pairs = accepted = 0
    for step in range(number % 2, len(ladder) - 1, 2):
        cold, warm = ladder[step], ladder[step + 1]
        beta = 1 / (boltzmann * temperatures[cold]) - 1 / (boltzmann * temperatures[warm])
        exponent = beta * (energies[cold] - energies[warm])
        pairs += 1
        if exponent >= 0 or _uniform(f"{seed}/{number}/{step}") < math.exp(exponent):
            after[cold], after[warm] = after[warm], after[cold]
            accepted += 1
    return after, pairs, accepted


def _uniform(seed: str) -> float:
    """Return a number from 0 to 1 that depends only on the seed, in every version of Python."""
    return random.Random(seed).random()


def exchange(
    event: Mapping[str, Any],
    state: dict[str, Any],
    *,
    group: str,
    temperatures: Sequence[float],
    rounds: int,
    energy: str,
    boltzmann: float,
    seed: str,
    names: Mapping[str, str],
) -> Action | None:
    """Store the energy of a replica at the end of its round, or begin the next round after all.

    Args:
        event: the event of a rule on `job-success`, or on `idle`.
        state: the function's state, which is kept from call to call.
        group: the group of the replicas.
        temperatures: the temperature of each replica in the first round.
        rounds: the number of rounds.
        energy: the key of the memo with the energy.
        boltzmann, seed: as for `swaps`.
        names: the group's names of the parameters replica, temperature and round.

    Returns:
        The action that submits the next round, or that fails the ensemble if an energy is missing;
        None for an event of a job, and after the last round.

    >>> state = {"energies": {"0": -5.0, "1": -7.0}}
    >>> names = {name: name for name in ("replica", "temperature", "round")}
    >>> how = {"rounds": 3, "energy": "energy", "boltzmann": 0.002, "seed": "7", "names": names}
    >>> exchange({"trigger": "idle"}, state, group="md", temperatures=[300, 310], **how)["params"]
    round 0: 1 of 1 pairs have swapped: 310, 300
    {'temperature': [310, 300], 'round': 1}
    """
    number = state.get("round", 0)
    energies = state.get("energies", {})
    if event["trigger"] != "idle":
        value = event["memo"].get(energy)
        finite = isinstance(value, int | float) and math.isfinite(value)
        # A job submitted by hand belongs to no round, or to another one.
        if finite and event["params"].get(names["round"]) == number:
            state["energies"] = {**energies, str(event["params"][names["replica"]]): value}
        return None
    replicas = [str(replica) for replica in range(len(temperatures))]
    missing = [replica for replica in replicas if replica not in energies]
    if missing:
        return Action(
            name="terminate",
            state="failed",
            reason=f"no {energy!r} from replica {', '.join(missing)} in round {number}",
        )
    after, pairs, accepted = swaps(
        state.get("temperatures", temperatures),
        [energies[replica] for replica in replicas],
        boltzmann=boltzmann,
        number=number,
        seed=seed,
    )
    print(f"round {number}: {accepted} of {pairs} pairs have swapped: {', '.join(map(str, after))}")
    state.update(round=number + 1, temperatures=after, energies={})
    if number + 1 == rounds:
        return None
    params = {names["temperature"]: after, names["round"]: number + 1}
    return Action(name="submit", label=group, params=params)
