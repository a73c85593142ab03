"""Fields of the triggering job, as expressions name them: `job.params.t`, `job.returncode`.

Fields that flux-jobs(1) has, too, have the same names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from flux_ensemble.metrics.columns import Known
from flux_ensemble.metrics.job_row import IN_RULES, MEMO, PARAMS
from flux_ensemble.suggestions import hint, nearest
from flux_ensemble.texts import listed, shown

#: The first key of the names of fields.
JOB = "job"

#: The first key of the names that tell how the jobs went that an `idle` rule waited for, and the
#: names after it, with what each is.
IDLE = "idle"
IDLE_JOBS, IDLE_SUCCESS, IDLE_FAILED = "jobs", "success", "failed"
IDLE_FIELDS = {
    IDLE_JOBS: "how many jobs it waited for",
    IDLE_SUCCESS: "how many of them succeeded",
    IDLE_FAILED: "how many did not, however they ended",
}

#: Fields with keys that users choose.
_MAPPINGS = {PARAMS, MEMO}


class JobField(NamedTuple):
    """A field: `name`, and for `params` and `memo` the key.

    >>> str(JobField("params", "t")), str(JobField("exception.type"))
    ('job.params.t', 'job.exception.type')
    """

    name: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{JOB}.{self.name}" if self.key is None else f"{JOB}.{self.name}.{self.key}"


class IdleField(NamedTuple):
    """A number of jobs that an `idle` rule waited for, one of `IDLE_FIELDS`.

    >>> str(IdleField("failed"))
    'idle.failed'
    """

    name: str

    def __str__(self) -> str:
        return f"{IDLE}.{self.name}"


class JobScope(NamedTuple):
    """The fields of the triggering job that an expression can name.

    Args:
        trigger: the rule's trigger, for messages.
        names: the names of the fields.
        params: the parameters that the job can have.
        features: the features that the job can have.
        unknown: parameters of the jobs that an `idle` rule waits for, of which it knows no value.
    """

    trigger: str
    names: frozenset[str]
    params: frozenset[str]
    features: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def resolve(self, keys: list[str]) -> JobField:
        """Return the field with these keys, the first of which is "job".

        Raises:
            ValueError: there is no such field, or it has no value yet at the trigger.

        >>> scope = scope_of("job-start", Known.START, ["t"])
        >>> scope.resolve(["job", "params", "t"])
        JobField(name='params', key='t')
        >>> scope.resolve(["job", "returncode"])
        Traceback (most recent call last):
        ValueError: 'job.returncode' is not known yet at the trigger 'job-start'
        """
        _, *rest = keys
        name = ".".join(rest)
        if len(rest) == 2 and rest[0] in self.names & _MAPPINGS:
            if rest[0] == PARAMS and rest[1] not in self.params:
                params = sorted(self.params)
                if rest[1] in self.unknown:
                    raise ValueError(
                        f"of its jobs an 'idle' rule knows the parameters in 'by' "
                        f"({listed(params)}), and {shown(rest[1])} is not among them: add it to "
                        "'by'"
                    )
                raise ValueError(
                    f"no job has the parameter {shown(rest[1])} "
                    f"({hint(rest[1], params)}parameters: {listed(params)})"
                )
            return JobField(rest[0], rest[1])
        if name in self.names - _MAPPINGS:
            if self._lacks(name):
                raise ValueError(IN_RULES[name].empty)
            return JobField(name)
        whole = shown(".".join(keys))
        if name in IN_RULES.keys() - self.names - _MAPPINGS or (len(rest) == 2 and rest[0] == MEMO):
            raise ValueError(f"{whole} is not known yet at the trigger {self.trigger!r}")
        names = [name for name in self.names if not self._lacks(name)]
        known = sorted(f"{key}.NAME" if key in _MAPPINGS else key for key in names)
        raise ValueError(
            f"no field {whole} ({self._meant(rest)}fields of {JOB!r}: {listed(known)})"
        )

    def _meant(self, rest: list[str]) -> str:
        """Return the question about the field that was probably meant; "" if there is none."""
        if rest[-1] in self.params and (len(rest) == 1 or rest[0] in ("param", "parameters")):
            return f"did you mean '{JOB}.{PARAMS}.{rest[-1]}'? "
        field = nearest(".".join(rest), sorted(self.names - _MAPPINGS)) if rest else None
        return "" if field is None else f"did you mean '{JOB}.{field}'? "

    def _lacks(self, name: str) -> bool:
        """Return whether a field is empty, since no job has the feature that it needs."""
        needs = IN_RULES[name].needs
        return needs != "" and needs not in self.features


def scope_of(
    trigger: str, knows: Known, params: Collection[str], features: Collection[str] = ()
) -> JobScope:
    """Return the scope for the expressions of a rule that jobs trigger.

    Args:
        trigger: the rule's trigger.
        knows: what is known of a job at that.
        params: the parameters of the jobs that the rule selects.
        features: the features that these jobs can have; keys of their group, if more are there.

    >>> "returncode" in scope_of("job-fail", Known.END, []).names
    True
    """
    names = (name for name, column in IN_RULES.items() if column.known <= knows)
    return JobScope(trigger, frozenset(names), frozenset(params), frozenset(features))


def idle_scope(by: Collection[str], params: Collection[str] = ()) -> JobScope:
    """Return the scope for the expressions of an `idle` rule: the parameters in its `by`.

    Args:
        by: of the rule.
        params: all parameters of the jobs that it waits for.

    >>> str(idle_scope(["t"]).resolve(["job", "params", "t"]))
    'job.params.t'
    """
    known = frozenset(by)
    names = frozenset({PARAMS} if by else ())
    return JobScope(IDLE, names, known, unknown=frozenset(params) - known)
