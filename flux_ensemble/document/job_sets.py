"""Job groups in their checked form: the job sets of an entry of `jobs:`, and their submissions.

Everything here is immutable. Durations are seconds (float), and 0 means no limit, as in Flux
jobspecs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from flux_ensemble.document.keys.forms import no_scalar
from flux_ensemble.document.keys.overrides import GIVEN, SHAPE, merged
from flux_ensemble.document.problems import dotted
from flux_ensemble.document.retries import Retries
from flux_ensemble.document.sweep import Sweep
from flux_ensemble.document.texts import (
    ATTEMPT,
    ATTEMPTS,
    INDEX,
    NUMBER,
    NUMBERED,
    NUMBERS,
    Measured,
    check_sizes,
    filler,
    measure,
    numbered,
    sizes,
    texts_in,
)
from flux_ensemble.document.values import ItemsError, parse_values, texts_among
from flux_ensemble.document.variable import VariableCheck, resolve, variable_text
from flux_ensemble.scalars import number, unpacked
from flux_ensemble.texts import listed, shown

#: Key of `attributes.user` in a jobspec under which a job carries its tag.
TAG_KEY = "ensemble"


TAG_TAKEN = f"the user attribute {TAG_KEY!r} is where flux-ensemble marks its jobs"


#: The fields of which overrides replace parts.
_MERGED = ("environment", "attributes")

#: Most jobs in one submission of a group.
MAX_JOBS = 2**31 - 1

#: So many submissions with parameters of their own are kept, of at most so many jobs.
_KNOWN, _KNOWN_JOBS = 512, 8


@dataclass(frozen=True, slots=True)
class JobSet:
    """An entry of `jobs:`; entries of the same name form a group.

    `jobspec` is a canonical V1 jobspec (RFC 25) when the entry gave one, else None and
    the other fields describe the job. Text fields may hold `{param}` placeholders. `variable`
    has the fields that differ from job to job, as text with a placeholder; see `sized`. `features`
    has what features have read of the entry, by their names. `numbers` has the values of `{index}`
    and `{number}` of a job, where its texts name them, and `attempt` how often it was tried before.
    `params` has the values that `retries` gave to parameters, in place of those of the sweep.

    >>> md = JobSet("md", 0, ("run", "{t}"), output="md.out")
    >>> list(md.texts())[-1]
    ("a path in 'output'", 'md.out')
    """

    name: str
    index: int
    command: tuple[str, ...] = ()
    count: int = 1
    nodes: int = 1
    tasks: int = 1
    cores: int = 1
    gpus: int = 0
    duration: float = 0.0
    workdir: str | None = None
    inputs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None
    error: str | None = None
    queue: str | None = None
    bank: str | None = None
    urgency: int = 16
    exclusive: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    retries: Retries = field(default_factory=Retries)
    start: str = "in-time"
    jobspec: Mapping[str, Any] | None = None
    max_active: int | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    member: str | None = None
    on_lost: str | None = None
    avoid_nodes: bool = True
    sweep: Sweep = field(default_factory=Sweep)
    variable: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    attempt: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def filler(self, params: Mapping[str, Any]) -> Callable[[str], str]:
        """Return the function that fills in the placeholders of a job's texts.

        Args:
            params: the job's parameters.

        >>> JobSet("md", 0, numbers={"index": 7}).filler({"t": 300})("{t}-{index}-{attempt}")
        '300-7-0'
        """
        return filler({ATTEMPT: self.attempt, **self.numbers, **params})

    @property
    def numbered(self) -> bool:
        """True if a text has `{index}` or `{number}`, and no parameter is called so."""
        own = [braces for name, braces in NUMBERED.items() if name not in self.sweep.names]
        return any(braces in text for _, text in self.texts() for braces in own)

    @property
    def tells_attempts(self) -> bool:
        """True if a text has `{attempt}`, the number of earlier attempts of the job."""
        return ATTEMPT not in self.sweep.names and any(ATTEMPTS in text for _, text in self.texts())

    def sized(self, params: Mapping[str, Any]) -> JobSet:
        """The job set with the sizes that it has with these parameters.

        >>> JobSet("md", 0, variable={"tasks": "{n}"}).sized({"n": 8}).tasks
        8
        """
        if not self.variable:
            return self
        sizes = {"nodes": self.nodes, "tasks": self.tasks, **resolve(self.variable, params)}
        return replace(self, variable={}, **{**sizes, "tasks": max(sizes["tasks"], sizes["nodes"])})

    def overridden(self, overrides: Mapping[str, Any]) -> JobSet:
        """The job set with some of its fields replaced; environment and attributes are merged.

        Args:
            overrides: values that `overrides.OVERRIDES` has read.

        Raises:
            ValueError: it is from a jobspec, and they change its shape; or they have the tag.

        >>> md = JobSet("md", 0, ("run",)).overridden({"nodes": 4, "duration": 60.0})
        >>> md.nodes, md.tasks, md.duration
        (4, 4, 60.0)
        """
        for key in SHAPE if self.jobspec is not None else ():
            if key in overrides:
                raise ValueError(
                    f"{key!r} cannot be replaced in group {self.name!r}, whose jobspec says it"
                )
        if TAG_KEY in overrides.get("attributes", {}).get("user", {}):
            raise ValueError(TAG_TAKEN)
        variable = {key: text for key, text in self.variable.items() if key not in overrides}
        fields: dict[str, Any] = {
            key: merged(getattr(self, key), value) if key in _MERGED else value
            for key, value in overrides.items()
        }
        changed = replace(self, variable=variable, **fields)
        if "nodes" in overrides and "tasks" not in overrides and self.tasks == self.nodes:
            # One task for each node, as where neither is given.
            return replace(changed, tasks=changed.nodes)
        return replace(changed, tasks=max(changed.tasks, changed.nodes))

    def texts(self) -> Iterator[tuple[str, str]]:
        """The texts of each job and what they are, placeholders not filled in."""
        for word in self.command:
            yield "a word of a command", word
        for name, value in self.environment.items():
            yield "an environment variable", f"{name}={value}"
        paths = (("workdir", self.workdir), ("output", self.output), ("error", self.error))
        for what, path in paths:
            if path is not None:
                yield f"a path in {what!r}", path
        for path in self.inputs:
            yield "a path in 'inputs'", path
        for what, text in (("queue", self.queue), ("bank", self.bank)):
            if text is not None:
                yield f"a name in {what!r}", text
        for text in texts_in(self.attributes):
            yield "a text in 'attributes'", text


def replaced(given: Mapping[str, Any], sweep: Sweep) -> dict[str, Any]:
    """The values of parameters of a job that runs again, in place of those of a sweep.

    Args:
        given: the values as JSON. Parameters that the sweep does not declare are left out.
        sweep: of the job's set.

    Raises:
        ValueError: a value is no scalar, not finite, or text for a parameter that has numbers.

    >>> replaced({"dt": 0.05, "other": 1}, Sweep({"dt": (0.1, 0.2)}))
    {'dt': 0.05}
    >>> replaced({"dt": "small"}, Sweep({"dt": (0.1, 0.2)}))
    Traceback (most recent call last):
    ValueError: params.dt: expected a number, as the parameter has, not 'small'
    """
    values = {}
    for name in sweep.names:
        if name not in given:
            continue
        value = values[name] = unpacked(given[name])
        means = number(value)
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{GIVEN}.{name}: {no_scalar(value)}")
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"{GIVEN}.{name}: expected a finite number, not {value}")
        of_numbers = value in NUMBERED.values() or type(means) in (int, float)
        if not of_numbers and not texts_among((sweep.params or {})[name]):
            raise ValueError(
                f"{GIVEN}.{name}: expected a number, as the parameter has, not {shown(value)}"
            )
    return values


def check_declared(given: Collection[str], declared: Collection[str], group: str) -> None:
    """Check that a group has the parameters to which values are given.

    Raises:
        ValueError: it lacks one.

    >>> check_declared({"t": 300}, ["t"], "md")
    """
    for name in given:
        if name not in declared:
            raise ValueError(
                f"group {group!r} has no parameter {shown(name)} "
                f"(parameters: {listed(sorted(declared))})"
            )


@dataclass(frozen=True)
class Group:
    """The job sets of one name, submitted together, in document order."""

    name: str
    sets: tuple[JobSet, ...]

    @cached_property
    def params(self) -> KeysView[str]:
        """The parameters that any of its job sets declares, in document order."""
        return dict.fromkeys(name for jobset in self.sets for name in jobset.sweep.names).keys()

    @cached_property
    def longest(self) -> float:
        """The longest time limit of its jobs that are not to be started in any case; 0 for none."""
        return max((each.duration for each in self.sets if each.start != "always"), default=0.0)

    @cached_property
    def features(self) -> frozenset[str]:
        """The features that at least some of its jobs have."""
        return frozenset(name for each in self.sets for name in each.features)

    @cached_property
    def tells_attempts(self) -> bool:
        """True if a text has `{attempt}`, the number of earlier attempts of the job."""
        return any(each.tells_attempts for each in self.sets)

    def tells_numbers(
        self, params: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
    ) -> bool:
        """Return whether `{number}` stands in a text of its jobs, or in what replaces one.

        Args:
            params, overrides: as for `submission`.
        """
        return self._tells_numbers or any(
            NUMBERS in text for text in (*texts_in(params), *texts_in(overrides))
        )

    @cached_property
    def _tells_numbers(self) -> bool:
        return any(
            each.sweep.tells_numbers
            or (NUMBER not in each.sweep.names and any(NUMBERS in text for _, text in each.texts()))
            for each in self.sets
        )

    @cached_property
    def _texts(self) -> tuple[tuple[Measured, ...], ...]:
        """The texts of each job set: searches override parameters for each trial."""
        return tuple(measure(jobset.texts()) for jobset in self.sets)

    @cached_property
    def _whole(self) -> Submission:
        return Submission(tuple((jobset, jobset.sweep, jobset.count) for jobset in self.sets))

    @cached_property
    def _single(self) -> Submission:
        """The submission of one job for each combination."""
        return Submission(tuple((jobset, jobset.sweep, 1) for jobset in self.sets))

    @cached_property
    def _known(self) -> dict[tuple[int | None, int, int], tuple[Submission, Any, Any]]:
        """The latest small ones: the engine, the queue and the record ask for the same."""
        return {}

    def submission(
        self,
        count: int | None = None,
        params: Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Submission:
        """The jobs of one submission; the arguments override the document's.

        Args:
            count: jobs for each combination.
            params: parameter -> a list of values, `{"range": [...]}`, or one value.
            overrides: fields of the job sets, as for `JobSet.overridden`; `number` is how many jobs
                of the group there were before.

        Raises:
            ValueError: an unknown parameter, invalid values, values that do not fit together,
                too many jobs, texts that get too long, or a shape that a jobspec says.

        >>> md = JobSet("md", 0, ("run", "{t}"), sweep=Sweep({"t": (300, 310)}))
        >>> [params for _, params in Group("md", (md,)).submission(count=2)]
        [{'t': 300}, {'t': 300}, {'t': 310}, {'t': 310}]
        >>> len(Group("md", (md,)).submission(params={"t": {"range": [0, 100]}}))
        100
        """
        if params or overrides:
            key = count, id(params), id(overrides)
            known = self._known.get(key)
            if known is not None:
                return known[0]
            made = self._overridden(count, params or {}, overrides or {})
            if len(made) <= _KNOWN_JOBS:
                if len(self._known) == _KNOWN:
                    del self._known[next(iter(self._known))]
                # What has these identities is kept with it, so that nothing else gets them.
                self._known[key] = made, params, overrides
            return made
        return self._whole if count is None else self._single.times(count)

    def _overridden(
        self, count: int | None, params: Mapping[str, Any], overrides: Mapping[str, Any]
    ) -> Submission:
        given, before = overrides.get(GIVEN, {}), overrides.get(NUMBER, 0)
        overrides = {key: value for key, value in overrides.items() if key != NUMBER}
        check_declared((*params, *given), self.params, self.name)
        values: dict[str, Sequence[Any]] = {}
        for name in [name for name in self.params if name in params]:
            try:
                values[name] = parse_values(params[name])
            except ValueError as error:
                item = (name, *error.path) if isinstance(error, ItemsError) else (name,)
                raise ValueError(f"parameter {dotted(item)!r}: {error}") from None
        changed = sizes(values)
        parts = []
        check = VariableCheck()
        for original, texts in zip(self.sets, self._texts, strict=True):
            jobset = original.overridden(overrides) if overrides else original
            sweep = jobset.sweep.override(values)
            again: dict[str, Sequence[Any]] = {}
            if given:
                jobset = replace(jobset, params=replaced(given, sweep))
                again = {name: (value,) for name, value in jobset.params.items()}
            if again or sweep is not jobset.sweep:
                for key, text in jobset.variable.items():
                    name = variable_text(key, text, sweep.params or {})
                    if name in again or name in values:
                        check.check(key, text, name, again.get(name) or values[name])
            if overrides or sweep is not jobset.sweep:
                own = {name: changed.get(name, size) for name, size in jobset.sweep.sizes.items()}
                own |= sizes(again)
                check_sizes(measure(jobset.texts()) if overrides else texts, own)
            parts.append((jobset, sweep, jobset.count if count is None else count))
        return Submission(tuple(parts), before=before)


class Submission(Sequence[tuple[JobSet, dict[str, Any]]]):
    """The jobs of one submission of a group: a sequence that is computed on demand.

    Jobs are numbered from 0, by job set, then by combination of parameters. Item `i` is the
    job set, with the sizes of job `i`, and the parameter values of job `i`.

    Args:
        parts: each job set, its sweep, and how many jobs each combination has.
        ends: the number of the first job after each part; computed if it is not given.
        each: multiplies the number of jobs of every part.
        numbered: of each part, whether texts of its jobs have a job's numbers; computed if it is
            not given.
        before: the number of jobs of the group in earlier submissions.

    Raises:
        ValueError: there are too many jobs.

    >>> jobs = Submission(((JobSet("md", 0), Sweep({"t": (300, 310)}), 1),))
    >>> len(jobs), jobs[1][1], len(jobs.times(5))
    (2, {'t': 310}, 10)
    """

    def __init__(
        self,
        parts: tuple[tuple[JobSet, Sweep, int], ...],
        ends: Sequence[int] | None = None,
        each: int = 1,
        numbered: Sequence[bool] | None = None,
        before: int = 0,
    ) -> None:
        self._parts = parts
        self._before = before
        self._numbered = numbered or [jobset.numbered for jobset, _, _ in parts]
        self._ends = ends or list(accumulate(len(sweep) * count for _, sweep, count in parts))
        self._each = each
        self._length = (self._ends[-1] if self._ends else 0) * each
        if self._length > MAX_JOBS:
            raise ValueError(f"expected at most {MAX_JOBS} jobs, not {self._length}")

    def times(self, each: int) -> Submission:
        """The submission with `each` times as many jobs for each combination."""
        return Submission(self._parts, self._ends, each, self._numbered, self._before)

    @property
    def sizes(self) -> list[tuple[JobSet, int]]:
        """The job sets, each with its number of jobs."""
        return [(jobset, len(sweep) * count * self._each) for jobset, sweep, count in self._parts]

    def tally(self, names: Collection[str]) -> Iterator[tuple[dict[str, Any], int]]:
        """The values that some parameters have together, and how many jobs have them.

        Args:
            names: of parameters that each job set has.
        """
        begin = 0
        for (_, sweep, count), end in zip(self._parts, self._ends, strict=True):
            if names and not set(names).isdisjoint(sweep.numbered):
                for index in range(begin * self._each, end * self._each):
                    _, params = self[index]
                    yield {name: params[name] for name in names}, 1
            else:
                for values, combinations in sweep.tally(names):
                    yield values, combinations * count * self._each
            begin = end

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(f"the submission has no job {index}")
        job = index // self._each
        part = bisect_right(self._ends, job)
        jobset, sweep, count = self._parts[part]
        params = sweep[(job - (self._ends[part - 1] if part else 0)) // count]
        number = self._before + index
        for name in sweep.numbered:
            params[name] = numbered(params[name], index, number)
        if jobset.params:
            params.update((name, numbered(v, index, number)) for name, v in jobset.params.items())
        if self._numbered[part]:
            jobset = replace(jobset, numbers={INDEX: index, NUMBER: number})
        return jobset.sized(params), params
