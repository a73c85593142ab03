"""The groups and rules that the algorithm `population` makes."""

from __future__ import annotations

from flux_ensemble.algorithms.algorithm import ArgumentError, Plain
from flux_ensemble.document.json_schema import jsonschema
from flux_ensemble.document.problems import Problems
from flux_ensemble.document.schema import explain
from flux_ensemble.features.search.keys import SEARCH_KEYS
from flux_ensemble.features.search.model import Variable
from flux_ensemble.features.search.population import FROM, MEMBER, ROUND, first
from flux_ensemble.features.search.reader import variables_of
from flux_ensemble.scalars import packed

#: The most values of all members together: the state of a custom function could not hold more.
_VALUES = 1000

_SOURCE = '''\
def {function}(event, state, **kwargs):
    """Members of {group!r} that did badly go on from those that did well."""
    from flux_ensemble.features.search.population import evolve

    return evolve(
        event,
        state,
        group={group!r},
        variables={variables!r},
        population={population!r},
        rounds={rounds!r},
        objective={objective!r},
        maximize={maximize!r},
        quantile={quantile!r},
        resample={resample!r},
        factors={factors!r},
        seed={seed!r},
    )
'''


def _read_variables(section: Plain) -> list[Variable]:
    """Read the variables of a population.

    Raises:
        ArgumentError: one of them is wrong.
    """
    problems, form = Problems(), next(key.form for key in SEARCH_KEYS if key.name == "variables")
    explain(jsonschema().Draft202012Validator(form), section, problems, ())
    variables = [] if problems.listed() else list(variables_of(section, (), problems))
    if problems.listed():
        raise ArgumentError("variables", problems.sentences())
    for variable in variables:
        if variable.name in (MEMBER, ROUND, FROM):
            raise ArgumentError(
                "variables",
                f"{variable.name}: the members have a parameter of this name; give it another",
            )
    return variables


def expand(arguments: Plain, document: Plain) -> Plain:
    """Make the rules of the rounds, and the function that decides what follows from each."""
    id, group, population = arguments["id"], arguments["group"], arguments["population"]
    entries = [entry for entry in document.get("jobs", ()) if entry.get("name") == group]
    if len(entries) > 1 or entries[0].get("count", 1) != 1:
        raise ArgumentError("group", f"expected one entry {group!r} with 'count: 1'")
    if ("minimize" in arguments) == ("maximize" in arguments):
        raise ArgumentError(
            "id", "give 'minimize' or 'maximize', the key of a memo of its jobs, and not both"
        )
    variables = _read_variables(arguments["variables"])
    if population * len(variables) > _VALUES:
        raise ArgumentError(
            "population",
            f"expected at most {_VALUES // len(variables)}: members and variables together have "
            f"at most {_VALUES} values",
        )
    function = f"{id.replace('-', '_').replace('.', '_')}_evolve"
    if not function.isidentifier():
        raise ArgumentError("id", f"expected an 'id' that begins with a letter, not {id!r}")
    maximize = "maximize" in arguments
    objective = arguments["maximize" if maximize else "minimize"]
    seed = f"{document.get('seed', 0)}/{id}"
    source = _SOURCE.format(
        function=function,
        group=group,
        variables=[variable.to_json() for variable in variables],
        population=population,
        rounds=arguments["rounds"],
        objective=objective,
        maximize=maximize,
        quantile=arguments.get("quantile", 0.25),
        resample=arguments.get("resample", 0.25),
        factors=arguments.get("factors", [0.8, 1.2]),
        seed=seed,
    )
    call = {"name": "custom", "label": function}
    values = first(variables, population, seed)
    return {
        "groups": {
            group: {
                "params": {
                    MEMBER: list(range(population)),
                    ROUND: 0,
                    FROM: "",
                    **{name: list(map(packed, drawn)) for name, drawn in values.items()},
                },
                "sweep": "zip",
                "workdir": f"{arguments.get('directory', id)}/{{{ROUND}}}-{{{MEMBER}}}",
            }
        },
        "metrics": [
            {
                "best": {
                    "name": id,
                    "of": f"{group}-{objective}",
                    "mode": "max" if maximize else "min",
                }
            }
        ],
        "rules": [
            {
                "id": f"{id}-start",
                "trigger": "start",
                "action": {"name": "submit", "label": group},
            },
            {
                "id": f"{id}-value",
                "trigger": "job-success",
                "group": group,
                "on-error": "fail",
                "action": {**call, "repetitions": "unlimited"},
            },
            {
                "id": f"{id}-evolve",
                "trigger": "idle",
                "group": group,
                "on-error": "fail",
                "action": {**call, "repetitions": arguments["rounds"]},
            },
        ],
        "custom": source,
    }
