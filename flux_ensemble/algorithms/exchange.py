"""What rules of `replica-exchange` call: who swaps temperatures with whom after a round."""

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
    """Neighbours in temperature swap theirs with the probability of Metropolis,
    min(1, exp((1/kTi - 1/kTj) (Ei - Ej))): Sugita and Okamoto, Chem. Phys. Lett. 314 (1999) 141.

    Args:
        temperatures: of each replica.
        energies: of each replica at the end of the round.
        boltzmann: the constant, in the units of the energies for each unit of temperature.
        number: of the round. In one round pairs begin with the coldest, in the next one with the
            second.
        seed: what is drawn with.

    Returns:
        The temperatures in the next round; how many pairs there were, and how many have swapped.

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
    """A number from 0 to 1 that depends on the seed alone, in every version of Python."""
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
    """Take the energy of a replica that is done with its round, or when all are, begin the next.

    Args:
        event: of a rule on `job-success`, or on `idle`.
        state: is kept from call to call.
        group: of the replicas.
        temperatures: of each replica in the first round.
        rounds: how many there are.
        energy: the key of the memo.
        boltzmann, seed: as for `swaps`.
        names: what the group calls its parameters replica, temperature and round.

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
        # What somebody has submitted by hand is of no round, or of another.
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
