"""The job of a member: a Flux instance, or a worker, that lasts until it is told to end.

Its tag, `attributes.user.ensemble-member`, identifies the ensemble and the member, so that a new
service finds the members of the previous one in the queue.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from flux.job import JobspecV1

from flux_ensemble.document.keys.overrides import merged
from flux_ensemble.document.members import MEMBER_KEY
from flux_ensemble.queues.nested.shape import END_TOPIC, MemberTag, Program, Size, job_name
from flux_ensemble.queues.nested.tails import LIMIT

#: The initial program of a member. It ends with its broker, so that it does not delay the job's
#: end.
SCRIPT = f"#!/bin/sh\nexec flux event sub --count=1 {END_TOPIC}\n"


#: The initial program of a member with a service of its own. The service is started again if it
#: dies, as long as the broker runs.
SERVED = """#!/bin/sh
trap 'kill $service 2>/dev/null; exit 1' HUP INT TERM
while :
do
	flux ensemble serve --attach %s &
	service=$!
	wait $service && exit
	flux getattr rank >/dev/null 2>&1 || exit
	sleep 1
done
"""


#: Variables beginning with FLUX_ that an instance needs from its environment.
_PATHS = (
    "FLUX_EXEC_PATH", "FLUX_EXEC_PATH_PREPEND", "FLUX_CONNECTOR_PATH", "FLUX_MODULE_PATH",
    "FLUX_PMI_LIBRARY_PATH", "FLUX_MODPROBE_PATH", "FLUX_MODPROBE_PATH_APPEND",
)  # fmt: skip


def member_jobspec(
    tag: MemberTag,
    size: Size,
    *,
    environment: Mapping[str, str],
    cwd: str,
    labels: tuple[str, ...] = (),
    drain: float = 0.0,
    prefix: str = "",
    program: Program = Program.INSTANCE,
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make the jobspec of a member.

    Args:
        tag: of the member.
        size: of the member.
        environment, cwd: of its brokers, and of nothing else: jobs have their own.
        labels: of its entry; kept with the tag, like `drain` and `program`, for a service that
            finds it again.
        drain: seconds before its walltime from which it is sent no more jobs.
        prefix: of the name of the job.
        program: of the job.
        attributes: merged over those of the job; the tag stays.

    Raises:
        ValueError: there cannot be such a job.
    """
    name = job_name(tag.name, tag.member, prefix)
    identity = json.dumps(tag.dump())
    resources: dict[str, Any] = {"num_nodes": size.nodes, "exclusive": size.cores is None}
    if program is Program.WORKER:
        jobspec = JobspecV1.from_command(
            ["flux", "ensemble", "serve", "--worker", identity],
            num_tasks=size.nodes or 1,
            cores_per_task=size.cores or 1,
            gpus_per_task=size.gpus or None,
            **resources,
        )
        jobspec.setattr("system.job.name", name)
        jobspec.setattr_shell_option("output.limit", LIMIT)
    else:
        jobspec = JobspecV1.from_batch_command(
            SERVED % shlex.quote(identity) if program.calls else SCRIPT,
            name,
            num_slots=size.nodes or 1,
            cores_per_slot=size.cores or 1,
            gpus_per_slot=size.gpus or None,
            **resources,
        )
    jobspec.duration = size.duration
    jobspec.cwd = cwd
    # Its broker is a child of the instance in which it runs, and of no other.
    jobspec.environment = {
        key: value for key, value in environment.items() if not key.startswith("FLUX_")
    } | {key: environment[key] for key in _PATHS if key in environment}
    jobspec.jobspec["attributes"] = merged(jobspec.jobspec["attributes"], attributes or {})
    kept = {"labels": list(labels), "drain": drain, "program": program.value}
    jobspec.setattr(f"user.{MEMBER_KEY}", {**tag.dump(), **kept})
    made: dict[str, Any] = jobspec.jobspec
    return made


def member_tag(jobspec: Any) -> MemberTag | None:
    """Return the tag in a jobspec; None if it is no member's, or the tag has another form.

    >>> member_tag({"attributes": {"user": {"ensemble-member": {
    ...     "name": "a", "run": 1, "member": "pool.2", "ordinal": 3, "epoch": 1, "labels": []}}}})
    MemberTag(name='a', run=1, member='pool.2', ordinal=3, epoch=1)
    """
    try:
        given = jobspec["attributes"]["user"][MEMBER_KEY]
        values = [given[key] for key in MemberTag.__slots__]
    except (LookupError, TypeError):
        return None
    if list(map(type, values)) != [str, int, str, int, int]:
        return None
    return MemberTag(*values)


def member_drain(jobspec: Mapping[str, Any]) -> float:
    """Return, from its jobspec, how many seconds before its walltime a member is drained."""
    drain = jobspec["attributes"]["user"][MEMBER_KEY].get("drain")
    return float(drain) if isinstance(drain, (int, float)) else 0.0


def member_program(jobspec: Mapping[str, Any]) -> Program:
    """Return, from its jobspec, the program of a member."""
    given = jobspec["attributes"]["user"][MEMBER_KEY].get("program")
    return Program(given) if given in {one.value for one in Program} else Program.INSTANCE
