"""The keys at the top of a document, and with them all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flux_ensemble.algorithms.builtin import SHIPPED
from flux_ensemble.document.keys.forms import (
    BOOLEAN,
    DURATION,
    ENSEMBLE_NAME,
    ENSEMBLE_NAME_RULE,
    NAMED,
    Key,
    Properties,
    Schema,
    choice,
    integer,
    list_of,
    mapping,
    text,
    with_features,
)
from flux_ensemble.document.keys.jobs import JOB
from flux_ensemble.document.keys.members import MEMBER
from flux_ensemble.document.keys.metrics import METRIC
from flux_ensemble.document.keys.rules import RULE
from flux_ensemble.document.keys.simulation import SIMULATED

LOGGING_KEYS = (
    Key("debug", BOOLEAN, "Print every event of the jobs.", (True,), False),
    Key(
        "heartbeat",
        DURATION,
        "Time between heartbeats, at which rules on ages and times are evaluated; 0 is off. Where "
        "a rule grows or shrinks the default is 60 seconds.",
        ("30s",),
        0,
    ),
)

LIMIT_KEYS = (
    Key(
        "active-jobs",
        integer(1),
        "How many jobs of the ensemble are in the queue at once at most.",
        (100,),
        10_000,
        more="Further ones wait in the service, by urgency and then first in first out.",
    ),
    Key(
        "jobs",
        integer(1),
        "How many jobs the ensemble may submit in all; with more it fails.",
        (5000,),
        100_000,
    ),
    Key(
        "records",
        integer(1),
        "How many jobs the record of jobs has at most.",
        (10_000,),
        1_000_000,
        more="See [the record](document.md#the-record-of-jobs).",
    ),
    Key(
        "losses",
        integer(0),
        "How often one job that was lost while it ran runs again; then it has failed.",
        (10,),
        3,
        more="See [interrupted jobs](retries.md#interrupted-jobs).",
    ),
)

USE_KEYS = (
    Key(
        "algorithm",
        text(),
        "Its name. The other keys are its arguments: 'explain use.retry-with-more' lists them.",
        tuple(SHIPPED),
        required=True,
    ),
    Key(
        "id",
        NAMED,
        "The beginning of the names that it makes. The default is the algorithm's name.",
        ("longer",),
        unset="the algorithm's name",
    ),
)

#: The arguments of the algorithm are checked with its own schema.
USE = {
    **mapping("a mapping such as {algorithm: retry-with-more, group: GROUP}", USE_KEYS),
    "additionalProperties": True,
}

_KERNEL_KEYS = (
    Key(
        "name",
        text(ENSEMBLE_NAME_RULE, pattern=ENSEMBLE_NAME),
        "The ensemble's name: letters, digits, _ and -. A name on the command line overrides it. "
        "The default is the name of the file without its extension.",
        ("study",),
        read=None,
        unset="the file's stem",
    ),
    Key(
        "logging",
        mapping("a mapping with the keys debug and heartbeat", LOGGING_KEYS),
        "What is printed, and how often a heartbeat is.",
        ({"heartbeat": "30s"},),
        read=None,
        more="See [logging](keys.md#logging).",
    ),
    Key(
        "jobs",
        list_of("a list of job groups", JOB),
        "The job groups. Nothing runs by itself: a rule or a user submits a group. Entries of one "
        "name are submitted together.",
        ([{"name": "echo", "command": "echo hello", "count": 5}],),
        read=None,
        more="See [job groups](document.md#job-groups).",
    ),
    Key(
        "rules",
        list_of("a list of rules", RULE),
        "What is done when something happens.",
        ([{"trigger": "start", "action": {"name": "submit", "label": "echo"}}],),
        read=None,
        more="See [rules](document.md#rules).",
    ),
    Key(
        "members",
        {**list_of("a list of members", MEMBER), "minItems": 1},
        "Flux instances that the jobs are shared out over. Without it, jobs run on the enclosing "
        "instance.",
        ([{"name": "pool", "count": {"min": 2, "max": 8}, "nodes": 4, "duration": "4h"}],),
        read=None,
        more="See [members](members.md).",
    ),
    Key(
        "use",
        list_of("a list such as [{algorithm: retry-with-more, group: GROUP}]", USE),
        "Packaged algorithms: each makes groups and rules, which take its place when the document "
        "is loaded. 'validate --expanded' prints them.",
        ([{"algorithm": "retry-with-more", "group": "relax", "duration": 2}],),
        read=None,
        more="See [packaged algorithms](algorithms.md).",
    ),
    Key(
        "custom",
        {"type": "string", "description": "Python source text"},
        "Python source with functions for 'custom' actions.",
        ("def decide(event, **kwargs):\n    return Action(name='submit', label='echo')\n",),
        read=None,
        more="It has at most 256 KiB, see [custom functions](custom.md).",
    ),
    Key(
        "plugins",
        list_of(
            "a list of Python modules",
            text(
                "the name of a Python module",
                pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z",
            ),
        ),
        "Python modules with functions for 'custom' actions.",
        (["lab.steering"],),
        read=None,
    ),
    Key(
        "metrics",
        list_of("a list of statistics", METRIC),
        "Further statistics, best jobs, metrics that are kept by the values of parameters, and "
        "units.",
        (["skew", {"name": "p90", "statistic": "quantile", "q": 0.9}],),
        read=None,
        more="See [metrics](metrics.md).",
    ),
    Key(
        "rate-window",
        DURATION,
        "The time over which rates such as rate.GROUP are computed.",
        ("5m",),
        "60s",
        read=None,
        more="A [duration](document.md#durations) of at least 1 second, see "
        "[rates](metrics.md#rates-and-time).",
    ),
    Key(
        "limits",
        mapping("a mapping with the keys active-jobs, jobs, records and losses", LIMIT_KEYS),
        "Bounds of the ensemble.",
        ({"active-jobs": 100},),
        read=None,
        python="Limits",
        more="See [limits](keys.md#limits).",
    ),
    Key(
        "finish",
        choice("a way to finish", ("idle", "never")),
        "When the ensemble completes: 'idle' when nothing is active and no rule can fire, 'never' "
        "when somebody ends it.",
        ("never",),
        "idle",
    ),
    Key(
        "job-names",
        choice("a kind of job names", ("group", "full")),
        "What jobs are called in the queue: after the 'group', or 'full' after ensemble and group.",
        ("full",),
        "group",
        read=None,
        more="`flux jobs` shows `hello.echo` then.",
    ),
    Key(
        "durability",
        choice("a durability", ("fast", "strict")),
        "'strict': no job starts before Flux's record of it is on disk.",
        ("strict",),
        "fast",
        more="See [durability](document.md#durability).",
    ),
    Key(
        "share",
        {
            "type": "number",
            "description": "a number >= 0.001 and <= 1000",
            "minimum": 0.001,
            "maximum": 1000,
        },
        "The weight of its jobs where those of several ensembles of an instance compete for cores.",
        (2,),
        1,
        more="See [shares](reliability.md#shares-among-ensembles).",
    ),
    Key(
        "records",
        BOOLEAN,
        "Keep a record of each job that has ended.",
        (False,),
        True,
        more="See [the record of jobs](document.md#the-record-of-jobs).",
    ),
    Key(
        "seed",
        {"type": "integer", "description": "an integer"},
        "The seed of samples and simulations.",
        (7,),
        0,
        more="It is also that of a [search](searches.md).",
    ),
    Key(
        "simulate",
        {
            "type": "object",
            "description": "a mapping such as {GROUP: {duration: 30s}}",
            "additionalProperties": SIMULATED,
        },
        "How the jobs of each group behave in a simulation.",
        ({"train": {"duration": "45m"}},),
        read=None,
        python="Mapping[str, Mapping[str, Any]]",
        more="See [simulate](simulate.md#what-the-jobs-do).",
    ),
)

DOCUMENT_KEYS = with_features("DOCUMENT_KEYS", _KERNEL_KEYS)

DOCUMENT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "ensemble document of flux-ensemble",
    **mapping("a mapping such as {jobs: [...], rules: [...]}", DOCUMENT_KEYS),
}

#: Keys whose values have the keys of another one.
SAME = {"rules.actions": "rules.action"}

#: Parts of a form that are forms of the same value, and of values in it that have no key.
ALTERNATIVES = ("if", "then", "else")
INNER = (*ALTERNATIVES, "items", "additionalProperties")


def parts(form: Schema) -> Iterator[Schema]:
    """Yield a form, and those of the values in it that have no key of their own.

    >>> [part["type"] for part in parts({"type": "array", "items": {"type": "string"}})]
    ['array', 'string']
    """
    yield form
    for word in INNER:
        part = form.get(word)
        if isinstance(part, dict):
            yield from parts(part)


def below(path: str, name: str) -> str:
    """Return the path of a key in the value of another one.

    >>> below("jobs", "name"), below("rules.actions", "name")
    ('jobs.name', 'rules.action.name')
    """
    return f"{SAME.get(path, path)}.{name}" if path else name


def keys(form: Schema = DOCUMENT, path: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key with its path, such as `jobs.retries.times`, before those of its value.

    >>> dict(keys())["jobs.count"].default
    1
    """
    seen: set[str] = set()
    for properties in [part.get("properties") for part in parts(form)]:
        for name, key in properties.table.items() if isinstance(properties, Properties) else ():
            here = below(path, name)
            if name in seen:
                continue
            seen.add(name)
            yield here, key
            if here not in SAME:
                yield from keys(key.form, here)


#: All keys by path. Keys of `actions` are those of `action`.
KEYS: Mapping[str, Key] = dict(keys())

#: Paths with the names that keys had before -> the paths of today.
FORMER: Mapping[str, str] = {
    below(path.rpartition(".")[0], key.formerly): path for path, key in KEYS.items() if key.formerly
}
