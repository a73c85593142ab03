"""The keys of job groups, with those of `retries`, and the forms of jobspecs."""

from __future__ import annotations

from functools import partial

from flux_ensemble.document.duration import parse_duration
from flux_ensemble.document.keys.forms import (
    ATTRIBUTES,
    BOOLEAN,
    CHOICE,
    DURATION,
    ENVIRONMENT,
    NAMED,
    OBJECT,
    ON_LOST,
    SCALAR,
    URGENCY,
    Key,
    choice,
    foreign,
    integer,
    list_of,
    mapping,
    or_list,
    or_text,
    text,
    with_features,
)
from flux_ensemble.document.keys.overrides import ANY, OVERRIDE_KEYS, SOME

#: How the values of parameters are combined, the default first.
SWEEPS = ("product", "zip", "sample")

#: When jobs with a time limit are started: where the allocation lasts as long, or in any case.
STARTS = ("in-time", "always")

_PATH = "str | PathLike[str]"

#: What differs from the last attempt of a job.
WITH_KEYS = (
    *OVERRIDE_KEYS,
    Key(
        "params",
        {
            "type": "object",
            "description": "a mapping of parameters",
            "additionalProperties": CHOICE,
        },
        "Values of parameters, in place of those of the last attempt.",
        ({"dt": "{job.params.dt / 2}"},),
        read=None,
        expression=True,
    ),
)

RETRIES_KEYS = (
    Key("times", integer(0), "How often a job runs again at most.", (3,), required=True),
    Key(
        "on",
        or_list(text(), "an outcome or an expression, or a list of them"),
        "The outcomes (failed, timeout, canceled) after which a job runs again, or an "
        "expression that is true then.",
        (["timeout", "job.returncode == 17"],),
        "failed",
        read=None,
        more="An [outcome](metrics.md#outcomes), an [expression](expressions.md), or a list of "
        "these, of which one is enough.",
    ),
    Key(
        "after",
        DURATION,
        "How long to wait before each further attempt.",
        ("30s",),
        0,
        read=partial(parse_duration, limit=False),
        more="A [duration](document.md#durations).",
    ),
    Key(
        "factor",
        {"type": "number", "description": "a number >= 1", "minimum": 1},
        "The factor by which the wait grows each time.",
        (2,),
        1,
        read=float,
        more="The wait is at most a year.",
    ),
    Key(
        "with",
        mapping("a mapping such as {duration: 2h}", WITH_KEYS),
        "What differs from the last attempt.",
        ({"duration": "{job.duration * 2}"},),
        field="overrides",
        more="It has the keys of a [submit action](actions.md) that replace the group's, "
        "and `params`: see [other parameters](retries.md#other-parameters).",
    ),
    Key(
        "spread",
        choice("where it runs again", ("node",)),
        "'node': the job runs again on a member where it has not failed, if there is one; without "
        "members on a node where it has not, as it does unless 'avoid-nodes' is false.",
        ("node",),
        more="See [where a job runs](members.md#where-a-job-runs).",
    ),
)

_KERNEL_KEYS = (
    Key(
        "name",
        NAMED,
        "The group's name, for rules and commands.",
        ("simulate",),
        required=True,
        more="It has letters, digits, `_`, `-` and `.`.",
    ),
    Key(
        "command",
        {
            "type": ["string", "array"],
            "description": "a command: text, or a list of its words",
            "items": SCALAR,
        },
        "Text, split into words as a shell does, or a list of words. No shell runs it. {NAME} is "
        "the value of a parameter.",
        ("simulate --temperature {t}", ["sh", "-c", "a | b"]),
        read=None,
        in_jobspec=True,
        more='For pipes and variables write `[sh, -c, "..."]`.',
    ),
    Key(
        "jobspec",
        {
            "type": ["string", "object"],
            "description": "a jobspec: a mapping, or the path of a file with one",
        },
        "Instead of a command: a jobspec, or a file with one.",
        ("job.yaml",),
        read=None,
        python=f"{_PATH} | Mapping[str, Any]",
        more="See [jobspecs](jobspecs.md).",
    ),
    Key(
        "count",
        integer(1),
        "Jobs of one submission, for each combination of parameters.",
        (5,),
        1,
        read=None,
        more="See [sweeps](sweeps.md).",
    ),
    Key("nodes", SOME, "Nodes of a job.", (2, "{n}"), 1, parameter=True, in_jobspec=True),
    Key(
        "tasks",
        SOME,
        "Tasks of a job. The default is one for each node.",
        (8,),
        read=None,
        parameter=True,
        in_jobspec=True,
        unset="one a node",
        more="It is raised to `nodes` where there are fewer.",
    ),
    Key("cores", SOME, "Cores of a task.", (4,), 1, parameter=True, in_jobspec=True),
    Key("gpus", ANY, "GPUs of a task.", (1,), 0, parameter=True, in_jobspec=True),
    Key(
        "duration",
        DURATION,
        "Time limit of a job; 0 is none.",
        ("30m", 3600),
        0,
        read=parse_duration,
        parameter=True,
        more="A [duration](document.md#durations).",
    ),
    Key(
        "workdir",
        text(),
        "Working directory. The default is that of whoever loaded the document.",
        ("runs/{t}",),
        python=_PATH,
        unset="the user's",
        more="It is created; a relative path starts from the directory of whoever loaded the "
        "document.",
    ),
    Key(
        "inputs",
        list_of("a list of paths of files", text()),
        "Files that are linked into the working directory of a job before it runs.",
        (["in.lammps", "structures/{s}.cif"],),
        read=lambda paths: tuple(filter(None, paths)),
        python=f"Sequence[{_PATH}]",
        more="See [one directory for each job](howto/directories.md).",
    ),
    Key(
        "environment",
        ENVIRONMENT,
        "Variables to add to the environment of whoever loaded the document.",
        ({"OMP_NUM_THREADS": 4},),
        read=None,
        more="Numbers and booleans are taken as they are written.",
    ),
    Key(
        "output",
        text(),
        "File of standard output; its directory is made.",
        ("out/{{id}}.txt",),
        python=_PATH,
        more="It is relative to the working directory. Flux's templates, such as `out-{{id}}.txt`, "
        "pass through.",
    ),
    Key(
        "error",
        text(),
        "File of standard error. The default is that of 'output'.",
        ("err.txt",),
        python=_PATH,
        unset="that of `output`",
    ),
    Key("queue", text(), "Queue to submit to.", ("debug",)),
    Key("bank", text(), "Bank to submit to.", ("physics",)),
    Key("urgency", or_text(URGENCY), "Urgency of a job, from 0 to 31.", (20,), 16, parameter=True),
    Key(
        "exclusive",
        BOOLEAN,
        "Whether the nodes are the job's alone.",
        (True,),
        False,
        in_jobspec=True,
    ),
    Key(
        "attributes",
        ATTRIBUTES,
        "Attributes that are merged into the jobspec's (RFC 14).",
        ({"system": {"constraints": {"properties": ["gpu"]}}},),
        more="They are a mapping with `system` and `user`, and are merged key by key, over the "
        "other keys.",
    ),
    Key(
        "params",
        OBJECT,
        "Parameters and their values: there is a job for each combination. {NAME} in a command is "
        "replaced by the value.",
        (
            {"t": [280, 300, 320], "seed": {"range": [0, 4]}},
            {"length": {"file": "points.csv", "where": "length > 3", "limit": 100}},
        ),
        read=None,
        more="See [sweeps](sweeps.md).",
    ),
    Key(
        "sweep",
        choice("a kind of sweep", SWEEPS),
        "How the values are combined: all with all, side by side, or a sample of all.",
        ("zip",),
        "product",
        read=None,
        more="See [sweeps](sweeps.md).",
    ),
    Key(
        "samples",
        integer(1, 1_000_000),
        "How many combinations 'sweep: sample' draws.",
        (10,),
        read=None,
    ),
    Key(
        "retries",
        {
            **mapping(
                "an integer >= 0, or a mapping such as {times: 3, on: [failed, timeout]}",
                RETRIES_KEYS,
            ),
            "type": ["integer", "object"],
            "minimum": 0,
        },
        "How often a job that failed runs again, or a mapping that says more.",
        (3, {"times": 3, "on": ["failed", "timeout"], "after": "30s"}),
        0,
        read=None,
        more="See [retries](retries.md).",
    ),
    Key(
        "max-active",
        integer(1),
        "How many jobs of the group are in the queue at once at most.",
        (10,),
        more="Further jobs wait in the service. If several entries have it, the least counts.",
    ),
    Key(
        "start",
        choice("when its jobs are started", STARTS),
        "'in-time': only while the allocation lasts longer than 'duration'; 'always': in any case.",
        ("always",),
        STARTS[0],
        more="The jobs [wait](metrics.md#rates-and-time) while the allocation of the instance "
        "lasts for less "
        "than the group's longest `duration`.",
    ),
    Key(
        "member",
        text("the name or a label of members"),
        "Name or label of the members that its jobs run on.",
        ("gpu",),
        more="All entries of the group have the same, see [members](members.md).",
    ),
    Key(
        "on-lost",
        choice("what becomes of a job that is lost", ON_LOST),
        "What becomes of a job that may have run when its node, its member or the run was lost: "
        "resubmit has it run again, as if it had not run, fail counts it as failed, hold submits "
        "it again with urgency 0. The default is that of its member, else resubmit.",
        ("fail", "hold"),
        unset="that of the member, else `resubmit`",
        more="See [interrupted jobs](retries.md#interrupted-jobs).",
    ),
    Key(
        "avoid-nodes",
        BOOLEAN,
        "Whether a job that runs again avoids the nodes where it failed, if others can run it.",
        (False,),
        True,
        more="A copy also avoids the nodes of its original, see "
        "[there](retries.md#the-nodes-where-a-job-failed).",
    ),
)

JOB_KEYS = with_features("JOB_KEYS", _KERNEL_KEYS)

JOB = mapping("a job group such as {name: NAME, command: COMMAND}", JOB_KEYS)

#: Canonical jobspec V1 (RFC 25), as far as Flux itself insists on it.
JOBSPEC_V1 = foreign(
    "a jobspec (RFC 25)",
    {
        "version": {"description": "version 1", "enum": [1]},
        "resources": list_of("a list of resources", OBJECT),
        "tasks": {
            **list_of(
                "a list of one task",
                {
                    **foreign(
                        "a task with the keys command, slot and count",
                        {
                            "command": {
                                "type": "array",
                                "description": "a command as a list of words",
                                "items": {"type": "string", "description": "text"},
                                "minItems": 1,
                            },
                            "slot": text(),
                            "count": {
                                **foreign(
                                    "a mapping with one of per_slot and total",
                                    {"per_slot": integer(1), "total": integer(1)},
                                ),
                                "minProperties": 1,
                                "maxProperties": 1,
                            },
                        },
                        "command",
                        "slot",
                        "count",
                    ),
                    "additionalProperties": True,
                },
            ),
            "minItems": 1,
            "maxItems": 1,
        },
        "attributes": ATTRIBUTES,
    },
    "version",
    "resources",
    "tasks",
)


#: A resource of a jobspec, without what is in `with`.
RESOURCE_V1 = {
    **foreign(
        "a resource such as {type: node, count: 1, with: [...]}",
        {
            "type": text(),
            "count": integer(0),
            "with": list_of("a list of resources", OBJECT),
            "label": text(),
        },
        "type",
        "count",
    ),
    "additionalProperties": True,
}
