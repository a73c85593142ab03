"""Reads `search:`, before the groups: the variables of a search are parameters of its group."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flux_ensemble.document.feature import Sources
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.forms import PARAMETER, matches
from flux_ensemble.document.keys.overrides import GIVEN
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.features.search.keys import (
    HYPERBAND,
    SAMPLERS,
    SEARCH_KEYS,
    SKIP,
    STOP_KEYS,
    THRESHOLD,
    WARM_START,
)
from flux_ensemble.features.search.model import (
    GENERATOR,
    GRID,
    LEAST_FOR_CMA,
    MAX_CHOICES,
    MAX_OBJECTIVES,
    MAX_STEPS,
    MAX_VARIABLES,
    ONCE,
    ONE_OBJECTIVE,
    RANGES_ONLY,
    UNCONDITIONAL,
    UNCONSTRAINED,
    Generator,
    Objective,
    Search,
    Stop,
    Value,
    Variable,
    space_of,
)
from flux_ensemble.features.search.outcomes import OutcomeConstraint
from flux_ensemble.features.search.paths import OF_BEST, Searched
from flux_ensemble.features.search.space import CircleError
from flux_ensemble.features.search.warm_start import read_warm_start
from flux_ensemble.metrics.expressions import compile_expression
from flux_ensemble.metrics.hints import remedy
from flux_ensemble.metrics.operations import same
from flux_ensemble.scalars import identity, number, packed, unpacked
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown
from flux_ensemble.words import counted

#: The argument of a generator that tells it of the variables and the objectives.
VOCS = "vocs"


def declared(entries: Any) -> dict[str, Searched]:
    """Return the parts of all searches that expressions can name, even of those with problems.

    >>> found = declared([{"id": "hpo", "group": "a", "variables": {"x": 3}}, {"id": 5}])
    >>> found["hpo"].group, found["hpo"].variables
    ('a', ('x',))
    """
    found: dict[str, Searched] = {}
    for entry in entries if isinstance(entries, list) else ():
        id = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(id, str):
            group, variables = entry.get("group"), entry.get("variables")
            names = [
                name
                for name in (variables if isinstance(variables, dict) else ())
                if isinstance(name, str)
            ]
            found[id] = Searched(
                id,
                group if isinstance(group, str) else "",
                tuple(names),
                len(_wanted(entry)) > 1,
                "stop" in entry,
                "subject-to" in entry,
            )
    return found


def _wanted(entry: Mapping[str, Any]) -> list[tuple[str, int | None, str]]:
    """The objectives of an entry: each with its key, and its place in a list there."""
    found: list[tuple[str, int | None, str]] = []
    for key in ("minimize", "maximize"):
        given = entry.get(key)
        if isinstance(given, str):
            found.append((key, None, given))
        elif isinstance(given, list):
            found += [(key, place, one) for place, one in enumerate(given) if isinstance(one, str)]
    return found


def read_searches(
    entries: Sequence[Any], groups: Collection[str], most: int, problems: Problems, sources: Sources
) -> dict[Search, Path]:
    """The searches without problems, and where the document has them.

    Args:
        entries: the valid part of the list, as `check_form` returns it.
        groups: the names of all job groups.
        most: `limits.jobs`.
        problems: collects the problems.
        sources: the files and jobs that it names.

    >>> entry = {"id": "hpo", "group": "a", "variables": {"x": {"low": 0, "high": "1e-3"}}}
    >>> entry |= {"minimize": "loss", "trials": 10}
    >>> sources = Sources(lambda file, at: None)
    >>> (search,) = read_searches([entry], ["a"], 100, Problems(), sources)
    >>> [(variable.name, variable.low, variable.high) for variable in search.variables]
    [('x', 0, 0.001)]
    """
    searches: dict[Search, Path] = {}
    ids: dict[str, int] = {}
    users: dict[str, str] = {}
    for index, entry in enumerate(entries):
        at: Path = ("search", index)
        if entry is None or not {"id", "group", "variables"} <= entry.keys():
            continue
        id, group = entry["id"], entry["group"]
        if id in ids:
            problems.add(
                (*at, "id"), f"the search {id!r} is that of search[{ids[id]}] too; give another"
            )
        ids.setdefault(id, index)
        if group not in groups:
            known = f"{hint(group, sorted(groups))}groups: {listed(sorted(groups))}"
            problems.add((*at, "group"), f"no job group named {group!r} ({known})")
        if group in users:
            problems.add(
                (*at, "group"), f"group {group!r} is that of search {users[group]!r}; give another"
            )
        users.setdefault(group, id)
        search = _search(entry, at, most, problems, sources)
        if not problems.blames(at):
            searches[search] = at
    return searches


def _search(
    entry: Mapping[str, Any], at: Path, most: int, problems: Problems, sources: Sources
) -> Search:
    objectives = _objectives(entry, at, problems)
    trials = entry.get("trials", 1)
    _check_jobs(entry, trials, most, at, problems)
    on_failure = entry.get("on-failure", SKIP)
    penalty = None
    if isinstance(on_failure, dict):
        here = (*at, "on-failure", "penalty")
        # One that is missing, or of another form, has its own problem.
        if not problems.blames((*at, "on-failure")):
            penalty = _penalty(on_failure["penalty"], objectives, here, problems)
        on_failure = SKIP
    stop = None
    if entry.get("stop") is not None:
        stop = _stop(entry["stop"], len(objectives), (*at, "stop"), problems)
    variables = list(variables_of(entry["variables"], (*at, "variables"), problems))
    for variable in variables:
        if variable.choices and entry.get("sampler") in RANGES_ONLY:
            problems.add(
                (*at, "variables", variable.name),
                f"expected a range, because the sampler {entry['sampler']!r} has no choices; "
                "'tpe' has both",
            )
        if variable.values is None and entry.get("sampler") == GRID:
            problems.add(
                (*at, "variables", variable.name),
                "expected a list of choices, 'integer: true' or a 'step', because the sampler "
                "'grid' tries every value; 'qmc' covers a range",
            )
    generator = _generator(entry, variables, objectives, at, problems)
    where = _listed(entry.get("where", ()))
    _check_space(variables, where, entry, at, problems)
    subject_to = _listed(entry.get("subject-to", ()))
    _check_outcomes(subject_to, variables, entry, at, problems)
    search = Search(
        variables=tuple(variables),
        where=where,
        subject_to=subject_to,
        objectives=objectives,
        sampler=entry.get("sampler", SAMPLERS[0]) if generator is None else GENERATOR,
        trials=trials,
        on_failure=on_failure,
        penalty=penalty,
        stop=stop,
        generator=generator,
        **read_keys(SEARCH_KEYS, entry, problems, at),
    )
    if problems.blames((*at, "variables")) or problems.blames((*at, "where")):
        return search
    if search.space.is_constrained and not search.has_point():
        problems.add((*at, "where"), f"no point was found that it allows: {' and '.join(where)}")
        return search
    search = replace(search, points=tuple(_points(entry.get("points", ()), search, at, problems)))
    if WARM_START in entry:
        search = _warm_started(entry[WARM_START], search, (*at, WARM_START), problems, sources)
    if search.size is None or search.sampler not in ONCE:
        return search
    # Each of the others is tried once, if nobody has told of it.
    rows = [row for row in map(search.row, search.points) if row is not None]
    told = [one.params for one in search.warm_start.trials]
    left = search.size - len({tuple(map(identity, row)) for row in (*rows, *told)})
    if left + len(search.points) <= 0:
        problems.add((*at, WARM_START), "it has each point of the space, so none is left to try")
        return search
    return replace(search, trials=min(search.trials, left + len(rows)))


def _warm_started(
    entry: Mapping[str, Any], search: Search, at: Path, problems: Problems, sources: Sources
) -> Search:
    """Return a search with the trials of others."""
    if not entry.keys() & {"from", "trials"} and not problems.blames(at):
        problems.add(at, "give 'from', a file with trials, or 'trials'")
    if problems.blames(at) or problems.blames(at[:-1]):
        return search
    names = [variable.name for variable in search.variables]
    both = next((one for one in search.objectives if one.key in names), None)
    if both is not None:
        problems.add(
            at, f"{both.key!r} is a variable and an objective: give one of them another name"
        )
        return search
    if search.sampler == "qmc" or (search.sampler == "random" and search.size is None):
        problems.add(
            at, f"the sampler {search.sampler!r} learns from no trial: leave it out, or take 'tpe'"
        )
        return search
    found = read_warm_start(entry, search, sources, at, problems)
    if search.sampler == "cma" and 0 < len(found.trials) < LEAST_FOR_CMA:
        problems.add(
            at,
            f"the sampler 'cma' begins from at least {LEAST_FOR_CMA} trials, and there "
            f"{'is' if len(found.trials) == 1 else 'are'} {len(found.trials)}; 'tpe' takes any",
        )
    return replace(search, warm_start=found)


def _check_jobs(
    entry: Mapping[str, Any], trials: int, most: int, at: Path, problems: Problems
) -> None:
    """Check that the trials have no more jobs than `most`, and what goes with several of each."""
    repeats = entry.get("repeats", 1)
    if trials > most:
        problems.add(
            (*at, "trials"), f"expected at most {most}, which is limits.jobs, not {trials}"
        )
    elif trials * repeats > most:
        problems.add(
            (*at, "repeats"),
            f"expected at most {most // trials}: {repeats} jobs of each of {trials} trials are "
            f"{trials * repeats}, and limits.jobs is {most}",
        )
    if repeats > 1 and "stop" in entry:
        problems.add(
            (*at, "stop"),
            f"a trial of {repeats} jobs ('repeats') cannot be stopped early, since each of them "
            "has its own steps; leave out one of the two",
        )
    if repeats == 1 and "aggregate" in entry and not problems.blames((*at, "repeats")):
        problems.add((*at, "aggregate"), "'aggregate' is for 'repeats', and a trial is one job")


def _others(samplers: Collection[str]) -> str:
    return listed(one for one in SAMPLERS if one not in samplers)


def _listed(given: Any) -> tuple[str, ...]:
    """Return a text, or the texts of a list that have a valid form."""
    texts = [given] if isinstance(given, str) else given
    return tuple(one for one in texts if one is not None)


def _check_space(
    variables: Sequence[Variable],
    where: Sequence[str],
    entry: Mapping[str, Any],
    at: Path,
    problems: Problems,
) -> None:
    """Check the conditions of variables, and the constraints."""
    by_name = {variable.name: variable for variable in variables}
    for variable in variables:
        if variable.when is None:
            continue
        here = (*at, "variables", variable.name, "when")
        _check_expression(variable.when, by_name, here, problems)
        suggests = entry.get("sampler", GENERATOR if "generator" in entry else "")
        if suggests in UNCONDITIONAL:
            what = "a generator" if suggests == GENERATOR else f"the sampler {suggests!r}"
            problems.add(
                here,
                f"expected no condition, because {what} has none (samplers that have: "
                f"{_others(UNCONDITIONAL)})",
            )
    for index, text in enumerate(where):
        single = isinstance(entry["where"], str)
        _check_expression(
            text, by_name, (*at, "where") if single else (*at, "where", index), problems
        )
    if problems.blames((*at, "variables")) or len(by_name) < len(entry["variables"]):
        return
    try:
        space_of(tuple(variables), ())
    except CircleError as error:
        problems.add(
            (*at, "variables", error.names[0], "when"),
            f"conditions go round in a circle: {' needs '.join(error.names)}",
        )


def _check_outcomes(
    texts: Sequence[str],
    variables: Sequence[Variable],
    entry: Mapping[str, Any],
    at: Path,
    problems: Problems,
) -> None:
    """Check the constraints on the outcomes of trials."""
    if not texts:
        return
    here = (*at, "subject-to")
    sampler = entry.get("sampler")
    if sampler in UNCONSTRAINED:
        problems.add(
            here,
            f"expected none, because the sampler {sampler!r} has no constraints on outcomes "
            f"(samplers that have: {_others(UNCONSTRAINED)})",
        )
    if isinstance(entry.get("on-failure"), dict):
        problems.add(
            (*at, "on-failure"),
            "expected no penalty with 'subject-to': the sampler would take a trial that failed "
            "for one that is feasible",
        )
    names = tuple(variable.name for variable in variables)
    for index, text in enumerate(texts):
        place = here if isinstance(entry["subject-to"], str) else (*here, index)
        if text in texts[:index]:
            problems.add(place, f"the constraint {shown(text)} is there twice")
        try:
            OutcomeConstraint(text, names).check({one.name: one.example for one in variables})
        except (SyntaxError, RecursionError, MemoryError):
            problems.add(
                place, f"expected a comparison such as 'mass <= 3', not {shown(text)}{remedy(text)}"
            )
        except ValueError as error:
            # A variable with a problem of its own is not there.
            if not problems.blames((*at, "variables")):
                problems.add(place, str(error))


def _check_expression(
    text: str, variables: Mapping[str, Variable], at: Path, problems: Problems
) -> None:
    """Check an expression of the variables."""

    def resolve(keys: list[str]) -> str:
        name = ".".join(keys)
        if name not in variables:
            raise ValueError(
                f"no variable {shown(name)} ({hint(name, list(variables))}variables: "
                f"{listed(variables)}; text is written in quotes)"
            )
        return name

    def fitted(name: str, value: Any) -> Any:
        choices = variables[name].choices
        if choices and not any(same(choice, value) for choice in choices):
            raise ValueError(
                f"{name} is never {shown(value)} (one of: {', '.join(map(shown, choices))})"
            )
        return value

    try:
        compile_expression(text, resolve, fitted)
    except (SyntaxError, RecursionError, MemoryError):
        problems.add(
            at, f"expected an expression such as \"opt == 'sgd'\", not {shown(text)}{remedy(text)}"
        )
    except ValueError as error:
        # A variable with a problem of its own is not there.
        if not problems.blames((*at[:2], "variables")):
            problems.add(at, str(error))


def _points(
    points: Sequence[Any], search: Search, at: Path, problems: Problems
) -> Iterator[dict[str, Any]]:
    """Yield the points that are tried first, those without problems."""
    if len(points) > search.trials:
        problems.add(
            (*at, "points"),
            f"expected at most {counted(search.trials, 'point')}, which is the search's 'trials', "
            f"not {len(points)}: they are among these",
        )
    for index, point in enumerate(points):
        if point is None:
            continue
        try:
            yield search.read({name: unpacked(value) for name, value in point.items()})
        except ValueError as error:
            problems.add((*at, "points", index), str(error))


def _stop(entry: Mapping[str, Any], objectives: int, at: Path, problems: Problems) -> Stop:
    """Read the early stopping of a search.

    Args:
        entry: a valid `stop:`.
        objectives: how many the search has.
        at: where the document has it.
        problems: collects the problems.

    >>> stop = _stop({"policy": "asha", "step": "epoch"}, 1, (), Problems())
    >>> stop.policy, stop.step, stop.begin, stop.eta
    ('asha', 'epoch', 1, 3)
    """
    policy = entry.get("policy", "asha")
    if "step" not in entry and not problems.blames((*at, "step")):
        problems.add(at, "give 'step', the key of the memo that says how far the job is")
    for key in STOP_KEYS:
        if key.name in entry and not key.takes(policy):
            problems.add(
                (*at, key.name),
                f"the policy {policy!r} has no {key.name!r}; "
                f"{' and '.join(map(repr, key.only))} {'has' if len(key.only) == 1 else 'have'}",
            )
    if policy == HYPERBAND and "to" not in entry:
        problems.add(at, "give 'to', the last step of a trial: the brackets follow from it")
    if policy == THRESHOLD and not {"lower", "upper"} & entry.keys():
        problems.add(at, "give 'lower', 'upper' or both, the bounds of the objective")
    if objectives > 1:
        problems.add(at, f"trials are stopped by one objective, and there are {objectives}")
    stop = Stop(**{"policy": policy, "step": "", **read_keys(STOP_KEYS, entry, problems, at)})
    if policy == HYPERBAND and "to" in entry and stop.last <= stop.begin:
        problems.add(
            (*at, "to"),
            f"expected a step after 'from', which is {stop.begin}, not {stop.last}",
        )
    lower, upper = stop.lower, stop.upper
    if lower is not None and upper is not None and lower >= upper:
        problems.add(at, f"expected 'lower' below 'upper', not {lower:g} and {upper:g}")
    return stop


def _generator(
    entry: Mapping[str, Any],
    variables: Sequence[Variable],
    objectives: Sequence[Objective],
    at: Path,
    problems: Problems,
) -> Generator | None:
    """Read the generator that replaces a sampler; None if there is none."""
    if "generator" not in entry:
        for key in ("arguments", "initial"):
            if key in entry and not problems.blames((*at, "generator")):
                problems.add((*at, key), f"{key!r} is for a 'generator', and there is none")
        return None
    if "sampler" in entry:
        problems.add((*at, "sampler"), "give 'sampler' or 'generator', not both")
    arguments = entry.get("arguments", {})
    if VOCS in arguments:
        problems.add(
            (*at, "arguments", VOCS),
            f"the search gives the generator its {VOCS!r}; leave it out here",
        )
    names = [variable.name for variable in variables]
    for objective in objectives:
        if objective.key in names:
            problems.add(
                (*at, objective.direction),
                f"{objective.key!r} is a variable too, and the results of a generator have both "
                "side by side; give one of them another name",
            )
    for variable in variables:
        # A set has only one of 1, 1.0 and true.
        if len(set(map(number, variable.choices))) < len(variable.choices):
            problems.add(
                (*at, "variables", variable.name),
                "expected choices that are different for a generator: 1, 1.0 and true are the same",
            )
    return Generator(entry["generator"], arguments, entry.get("initial", 1))


def _objectives(entry: Mapping[str, Any], at: Path, problems: Problems) -> tuple[Objective, ...]:
    wanted = _wanted(entry)
    if not wanted and not any(problems.blames((*at, key)) for key in ("minimize", "maximize")):
        problems.add(at, "give 'minimize' or 'maximize', the key of a memo of its jobs")
    if len(wanted) > MAX_OBJECTIVES:
        problems.add(at, f"expected at most {MAX_OBJECTIVES} objectives, not {len(wanted)}")
    if len(wanted) > 1 and entry.get("sampler") in ONE_OBJECTIVE:
        others = ", ".join(repr(one) for one in SAMPLERS if one not in ONE_OBJECTIVE)
        problems.add(
            (*at, "sampler"),
            f"expected a sampler of several objectives ({others}), because there are "
            f"{len(wanted)}, not {entry['sampler']!r}",
        )
    seen: set[str] = set()
    for key, place, name in wanted:
        if name in seen:
            here = (*at, key) if place is None else (*at, key, place)
            problems.add(here, f"the objective {name!r} is there twice")
        seen.add(name)
    return tuple(Objective(name, key == "maximize") for key, _, name in wanted)


def _penalty(
    value: Any, objectives: Sequence[Objective], at: Path, problems: Problems
) -> Value | None:
    """Read the value of a failed trial: a number, or one for each objective."""
    keys = ", ".join(objective.key for objective in objectives)
    if len(objectives) < 2:
        if isinstance(value, list):
            problems.add(at, f"expected a number, because there is one objective, not {value!r}")
            return None
        number: float | None = _number(value, at, problems)
        return number
    if not isinstance(value, list) or len(value) != len(objectives):
        problems.add(
            at, f"expected a list of {len(objectives)} numbers, of {keys}, not {shown(value)}"
        )
        return None
    numbers = [_number(one, (*at, index), problems) for index, one in enumerate(value)]
    return None if None in numbers else tuple(map(float, numbers))


def variables_of(section: Mapping[str, Any], at: Path, problems: Problems) -> Iterator[Variable]:
    """Yield the variables of a valid mapping, those without problems."""
    if len(section) > MAX_VARIABLES:
        problems.add(at, f"expected at most {MAX_VARIABLES} variables, not {len(section)}")
        return
    for name, value in section.items():
        here = (*at, name)
        if not matches(PARAMETER, name):
            problems.add(
                here,
                "expected a variable's name (letters, digits, '_' and '-', not a digit or '-' "
                f"first), not {shown(name)}",
            )
        elif name in OF_BEST:
            problems.add(
                here, f"a variable cannot be called {name!r}, since 'search.ID.best.{name}' is more"
            )
        elif isinstance(value, list):
            yield from _choices(name, value, here, problems)
        elif problems.blames(here):
            continue
        elif "choices" in value:
            yield from _among(name, value, here, problems)
        elif {"low", "high"} <= value.keys():
            yield from _range(name, value, here, problems)
        else:
            missing = next(key for key in ("low", "high") if key not in value)
            problems.add(here, f"the key {missing!r} is missing")


def _among(name: str, value: Mapping[str, Any], at: Path, problems: Problems) -> Iterator[Variable]:
    """Read choices with a condition."""
    for key in value:
        if key not in ("choices", "when"):
            problems.add((*at, key), f"{key!r} is for a range, and there are 'choices'")
    for variable in _choices(name, value["choices"], (*at, "choices"), problems):
        yield replace(variable, when=value.get("when"))


def _choices(name: str, values: list[Any], at: Path, problems: Problems) -> Iterator[Variable]:
    if len(values) > MAX_CHOICES:
        problems.add(at, f"expected at most {MAX_CHOICES} choices, not {len(values)}")
        return
    seen: set[tuple[type, Any]] = set()
    choices = list(map(unpacked, values))
    for index, value in enumerate(choices):
        if problems.blames((*at, index)):
            continue
        if isinstance(number(value), float) and not math.isfinite(number(value)):
            problems.add((*at, index), f"expected a finite number, not {shown(value)}")
        if identity(value) in seen:
            problems.add((*at, index), f"the choice {shown(value)} is there twice")
        seen.add(identity(value))
    if choices == [None]:
        problems.add(at, "expected a choice besides null")
    yield Variable(name, choices=tuple(choices))


def _range(name: str, value: Mapping[str, Any], at: Path, problems: Problems) -> Iterator[Variable]:
    integer, log = value.get("integer", False), value.get("log", False)
    low = _number(value["low"], (*at, "low"), problems, integer)
    high = _number(value["high"], (*at, "high"), problems, integer)
    if low is None or high is None:
        return
    if low >= high:
        problems.add(at, f"expected 'low' below 'high', not {low!r} and {high!r}")
    if not math.isfinite(high - low):
        problems.add(
            at, f"expected 'low' and 'high' nearer to each other, not {low!r} and {high!r}"
        )
    if log and low <= 0:
        problems.add((*at, "low"), f"expected a number > 0, because of 'log: true', not {low!r}")
    step = _step(value, low, high, at, problems) if "step" in value else None
    yield Variable(name, low, high, log, integer, step=step, when=value.get("when"))


def _step(value: Mapping[str, Any], low: float, high: float, at: Path, problems: Problems) -> Any:
    """Read the step of a range; None if there is a problem."""
    here = (*at, "step")
    step = _number(value["step"], here, problems, value.get("integer", False))
    if step is None:
        return None
    if value.get("log", False):
        problems.add(
            here, "expected no 'step' with 'log: true', since steps are equal; list the values"
        )
    elif not 0 < step <= high - low:
        problems.add(
            here,
            f"expected a number > 0 and at most {high - low:g}, which is 'high' less 'low', "
            f"not {step!r}",
        )
    elif (high - low) / step > MAX_STEPS:
        problems.add(here, f"expected at most {MAX_STEPS} steps; leave 'step' out")
    else:
        return step
    return None


def _number(value: Any, at: Path, problems: Problems, integer: bool = False) -> Any:
    """A finite number, which YAML may have read as text; None if there is a problem."""
    number: Any = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            problems.add(at, f"expected a number, not {shown(value)}")
            return None
    if not math.isfinite(number):
        problems.add(at, f"expected a finite number, not {shown(value)}")
        return None
    if integer and number != int(number):
        problems.add(at, f"expected an integer, because of 'integer: true', not {shown(value)}")
        return None
    return int(number) if integer else number


def with_variables(
    entries: Sequence[Any], searches: Collection[Search], every: Collection[Searched] = ()
) -> list[Any]:
    """The entries of `jobs:`, those of groups with a search with its variables as parameters.

    Args:
        entries: of `jobs:`.
        searches: those without problems.
        every: those with problems too, whose variables are parameters all the same: who reads of
            what is wrong with one need not read that its group has none.

    >>> search = Search("hpo", "a", (Variable("x", 0.5, 1.0),), ())
    >>> with_variables([{"name": "a", "command": "run {x}"}, {"name": "b"}], [search])
    [{'name': 'a', 'command': 'run {x}', 'params': {'x': 0.5}}, {'name': 'b'}]
    """
    params: dict[str, dict[str, Any]] = {
        one.group: {name: 1 for name in one.variables if matches(PARAMETER, name)} for one in every
    }
    for search in searches:
        # One that a point need not have is null for jobs without it, or what the group says.
        params[search.group] = {
            variable.name: packed(variable.example if variable.when is None else None)
            for variable in search.variables
        }
    return [
        {**entry, "params": {**params[entry["name"]], **entry.get("params", {})}}
        if entry is not None and entry.get("name") in params
        else entry
        for entry in entries
    ]


def check_groups(
    searches: Mapping[Search, Path], groups: Mapping[str, Group], problems: Problems
) -> None:
    """Check that a trial is one job of its group.

    >>> problems = Problems()
    >>> check_groups({Search("hpo", "a", (), ()): ("search", 0)}, {}, problems)
    >>> problems.sentences()
    ''
    """
    for search, at in searches.items():
        group = groups.get(search.group)
        if group is None:
            continue
        if any(GIVEN in (job_set.retries.overrides or {}) for job_set in group.sets):
            problems.add(
                (*at, "group"),
                f"the jobs of group {search.group!r} run again with other parameters ('params' in "
                "'with' of its 'retries'), and a trial has those that the sampler chose: leave "
                "'params' out",
            )
        point = {variable.name: packed(variable.example) for variable in search.variables}
        try:
            jobs = len(group.submission(None, point))
        except ValueError as error:
            problems.add((*at, "variables"), str(error))
            continue
        if jobs != 1:
            problems.add(
                (*at, "group"),
                f"expected a group of which a submission is one job, and one of {search.group!r} "
                f"is {jobs}: give it 'count: 1', and one value of each other parameter",
            )
