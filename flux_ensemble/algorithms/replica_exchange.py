"""The algorithm `replica-exchange` (parallel tempering).

Replicas at several temperatures run in rounds, and swap temperatures after each round.
"""

from __future__ import annotations

from typing import Any

from flux_ensemble.algorithms.algorithm import Algorithm, ArgumentError, Plain

#: The most replicas; the state of a custom function could not hold more.
_MOST = 500

#: Boltzmann's constant in kcal/mol per kelvin.
_BOLTZMANN = 0.0019872041


def _parameter(name: str, text: str) -> dict[str, Any]:
    return {
        "type": "string",
        "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$",
        "title": "the name of a parameter",
        "description": f"What the group calls {text}.",
        "default": name,
    }


#: The arguments for the names of the group's parameters.
_PARAMETERS = {
    "replica": _parameter("replica", "the number of the replica, from 0"),
    "temperature": _parameter("temperature", "the temperature of the replica in this round"),
    "round": _parameter("round", "the number of the round, from 0"),
}

_ARGUMENTS: dict[str, dict[str, Any]] = {
    "group": {
        "type": "string",
        "format": "group",
        "title": "the name of a job group",
        "description": "The job of a replica in a round. It is given the parameters replica, "
        "temperature and round, and publishes its energy at the end.",
        "examples": ["md"],
    },
    "temperatures": {
        "type": "array",
        "minItems": 2,
        "maxItems": _MOST,
        "items": {"type": "number", "exclusiveMinimum": 0, "title": "a number > 0"},
        "title": f"a list of 2 to {_MOST} temperatures",
        "description": "The temperature of each replica in the first round.",
        "examples": [[280, 300, 320, 340]],
    },
    "rounds": {
        "type": "integer",
        "minimum": 1,
        "title": "an integer >= 1",
        "description": "How many rounds there are.",
        "examples": [100],
    },
    "energy": {
        "type": "string",
        "minLength": 1,
        "title": "the key of a memo",
        "description": "The key of the memo with the potential energy at the end of the round.",
        "default": "energy",
    },
    "boltzmann": {
        "type": "number",
        "exclusiveMinimum": 0,
        "title": "a number > 0",
        "description": "Boltzmann's constant in the units of energy and temperature. The default "
        "is for kcal/mol and kelvin; 0.0083144626 is for kJ/mol, 8.617333e-5 for eV.",
        "default": _BOLTZMANN,
    },
    **_PARAMETERS,
}

_SOURCE = '''\
def {function}(event, state, **kwargs):
    """Swap temperatures between the replicas of {group!r}."""
    from flux_ensemble.algorithms.exchange import exchange

    return exchange(
        event,
        state,
        group={group!r},
        temperatures={temperatures!r},
        rounds={rounds!r},
        energy={energy!r},
        boltzmann={boltzmann!r},
        seed={seed!r},
        names={names!r},
    )
'''


def _expand(arguments: Plain, document: Plain) -> Plain:
    id, group = arguments["id"], arguments["group"]
    temperatures, rounds = arguments["temperatures"], arguments["rounds"]
    entries = [entry for entry in document.get("jobs", ()) if entry.get("name") == group]
    if len(entries) > 1 or entries[0].get("count", 1) != 1:
        raise ArgumentError("group", f"expected one entry {group!r} with 'count: 1'")
    if len(set(temperatures)) < len(temperatures):
        raise ArgumentError("temperatures", "expected different temperatures")
    names = {name: arguments.get(name, name) for name in _PARAMETERS}
    if len(set(names.values())) < len(names):
        raise ArgumentError("replica", "expected different names for the three parameters")
    function = f"{id.replace('-', '_').replace('.', '_')}_exchange"
    if not function.isidentifier():
        raise ArgumentError("id", f"expected an 'id' that begins with a letter, not {id!r}")
    source = _SOURCE.format(
        function=function,
        group=group,
        temperatures=temperatures,
        rounds=rounds,
        energy=arguments.get("energy", "energy"),
        boltzmann=arguments.get("boltzmann", _BOLTZMANN),
        seed=f"{document.get('seed', 0)}/{id}",
        names=names,
    )
    call = {"name": "custom", "label": function}
    return {
        "groups": {
            group: {
                "params": {
                    names["replica"]: list(range(len(temperatures))),
                    names["temperature"]: temperatures,
                    names["round"]: 0,
                },
                "sweep": "zip",
            }
        },
        "rules": [
            {
                "id": f"{id}-start",
                "trigger": "start",
                "action": {"name": "submit", "label": group},
            },
            {
                "id": f"{id}-energy",
                "trigger": "job-success",
                "group": group,
                "on-error": "fail",
                "action": {**call, "repetitions": "unlimited"},
            },
            {
                "id": f"{id}-exchange",
                "trigger": "idle",
                "group": group,
                "on-error": "fail",
                "action": {**call, "repetitions": rounds},
            },
        ],
        "custom": source,
    }


REPLICA_EXCHANGE = Algorithm(
    "Replicas at several temperatures run in rounds, after which neighbours swap temperatures with "
    "the probability of Metropolis.",
    _ARGUMENTS,
    ("group", "temperatures", "rounds"),
    _expand,
)
