"""The job of a member in Slurm: how it is asked for, and what Slurm says of it.

    sbatch --hold --comment 'flux-ensemble TAG' ──► id ──► written down ──► scontrol release
                                   squeue ──► a `SlurmJob` for each ◄── the instance adds its URI

Slurm has no fence: a submission that was cut off can appear later, and there are no events, only a
list. So a job is submitted held, with a tag that says whose it is, and released when its id is
written down: whatever was not, stays held, and is cancelled when it is seen.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import dataclass
from typing import Any

from flux_ensemble.queues.nested.shape import END_TOPIC, MemberTag, Program, Shape, job_name

#: What the comments of members' jobs begin with.
MARK = "flux-ensemble"

#: States of jobs that may still run something; COMPLETING is one.
_ALIVE = frozenset(
    (
        "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING",
        "STAGE_OUT", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    )
)  # fmt: skip

#: Reasons of Slurm for a job that waits because its user holds it.
_HELD = "JobHeldUser"

#: What ends a wait that does not end by itself, by Slurm's reason for it.
_REMEDIES = {
    "PartitionTimeLimit": "its partition does not give so much time: give a shorter 'duration'",
    "PartitionNodeLimit": "its partition does not give so many nodes: give fewer 'nodes'",
    "PartitionConfig": "its partition has no nodes like that: see 'nodes', 'cores' and 'options'",
    "PartitionDown": "its partition is down: wait, or give another one in 'options'",
    "PartitionInactive": "its partition is inactive: wait, or give another one in 'options'",
    "BadConstraints": "no node is like that: see 'cores', 'gpus' and 'options'",
    "AccountNotAllowed": "give another 'account' or 'partition' in 'options'",
    "InvalidAccount": "give another 'account' in 'options'",
    "QOSNotAllowed": "give another 'qos' or 'partition' in 'options'",
    "InvalidQOS": "give another 'qos' in 'options'",
    "JobHeldAdmin": "an administrator holds it",
}

#: The batch script of a member. The broker takes what Slurm has set out of the environment, so the
#: two values that are needed get other names.
_SCRIPT = """#!/bin/sh
export MEMBER_JOB="$SLURM_JOB_ID" MEMBER_CONF="${{SLURM_CONF-}}"
exec srun --mpi=pmi2 --cpu-bind=none --kill-on-bad-exit=1 \\
	-N {nodes} -n {nodes} -c "${{SLURM_CPUS_ON_NODE:-1}}" flux start sh -c {program}
"""

#: The initial program of its instance: tells the URI, and waits for the end.
_PROGRAM = """\
test -z "$MEMBER_CONF" || export SLURM_CONF="$MEMBER_CONF"
uri=$(flux getattr local-uri) &&
until scontrol update JobId="$MEMBER_JOB" Comment={comment}" ssh://$(hostname)${{uri#local://}}"
do
	sleep 1
done &&
exec flux event sub --count=1 {topic}
"""

#: The batch script of a worker, whose credentials are known to nobody but Slurm and its user. Older
#: Slurms do not tell a job when its time is up.
_WORKER = """#!/bin/sh
test -n "${{SLURM_JOB_END_TIME-}}" ||
	SLURM_JOB_END_TIME=$(date +%s -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)") 2>/dev/null
export SLURM_JOB_END_TIME
exec {python} -P -m flux_ensemble.service.worker <<'END'
{credentials}
END
"""

#: The columns of `squeue`: id, state, end of the time limit, reason, and the comment at the end,
#: which can have anything in it.
COLUMNS = "%i|%T|%e|%r|%k"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job, as `squeue` lists it.

    Args:
        job: its id.
        state: as Slurm calls it.
        ends: when its time is up, as Slurm writes it; "" where it does not know.
        reason: why it waits, or has ended.
        uri: of its instance, once that has told it.
    """

    job: str
    state: str
    ends: str
    reason: str
    uri: str | None

    @property
    def alive(self) -> bool:
        """True if something of it may still run, or will."""
        return self.state in _ALIVE

    @property
    def held(self) -> bool:
        """True if it waits for its release."""
        return self.state == "PENDING" and self.reason == _HELD

    @property
    def waits(self) -> bool:
        """True if it waits for resources."""
        return self.state == "PENDING" and not self.held

    @property
    def why(self) -> str:
        """The reason for its wait, and the remedy if Slurm alone does not end it.

        >>> SlurmJob("7", "PENDING", "N/A", "JobHeldAdmin", None).why
        'JobHeldAdmin (an administrator holds it)'
        >>> SlurmJob("7", "PENDING", "N/A", "Priority", None).why
        'Priority'
        """
        remedy = _REMEDIES.get(self.reason)
        return f"{self.reason} ({remedy})" if remedy else self.reason


def mark(tag: MemberTag, home: str) -> str:
    """Return the tag of a job, without what differs between services.

    >>> mark(MemberTag("a b", 1, "pool.2", 3, 7), "12.5")
    'flux-ensemble ["12.5","a b",1,3]'
    """
    identity = [home, tag.name, tag.run, tag.ordinal]
    return f"{MARK} {json.dumps(identity, separators=(',', ':'))}"


def describe(shape: Shape) -> dict[str, Any]:
    """Return the job of a member.

    Raises:
        ValueError: it is a worker, and there is no home that it could call.

    Returns:
        {"comment": its tag, "arguments": of sbatch, "script": for its standard input,
        "environment": of sbatch}.
    """
    tag, size = shape.tag, shape.size
    comment = mark(tag, shape.home)
    arguments = [
        "--parsable",
        "--hold",
        "--no-requeue",
        f"--comment={comment}",
        f"--job-name={job_name(tag.name, tag.member, shape.prefix)}",
        f"--chdir={shape.cwd}",
        f"--nodes={size.nodes or 1}",
        "--ntasks-per-node=1",
    ]
    if size.cores is None:
        arguments.append("--exclusive")
    else:
        arguments.append(f"--cpus-per-task={size.cores}")
    if size.gpus:
        arguments.append(f"--gpus-per-node={size.gpus}")
    if size.duration:
        minutes, seconds = divmod(math.ceil(size.duration), 60)
        arguments.append(f"--time={minutes}:{seconds:02}")
    for name, value in shape.options.items():
        if value is not False:
            arguments.append(f"--{name}" if value is True else f"--{name}={value}")
    if shape.program is Program.WORKER:
        if not shape.credentials:
            raise ValueError(
                "workers in Slurm call a home without Flux: run the document outside of a Flux "
                "instance ('flux-ensemble run')"
            )
        python = shlex.quote(sys.executable)
        script = _WORKER.format(python=python, credentials=shape.credentials)
    else:
        program = _PROGRAM.format(comment=shlex.quote(comment), topic=END_TOPIC)
        script = _SCRIPT.format(nodes=size.nodes or 1, program=shlex.quote(program))
    environment = {
        key: value for key, value in shape.environment.items() if not key.startswith("FLUX_")
    }
    return {
        "comment": comment,
        "arguments": arguments,
        "script": script,
        "environment": environment,
    }


def read(output: str) -> dict[str, dict[str, SlurmJob]]:
    """Read what `squeue` has answered.

    Args:
        output: lines in COLUMNS.

    Returns:
        For each tag (`mark`) its jobs by id.

    >>> line = '7|PENDING|N/A|Priority|flux-ensemble ["1.5","a",1,2]'
    >>> read(line)['flux-ensemble ["1.5","a",1,2]']["7"].waits
    True
    >>> told = '7|RUNNING|2026-01-01T10:00:00|None|flux-ensemble ["1.5","a",1,2] ssh://n1/run/x'
    >>> read(told)['flux-ensemble ["1.5","a",1,2]']["7"].uri
    'ssh://n1/run/x'
    >>> read("8|RUNNING|N/A|None|(null)")
    {}
    """
    jobs: dict[str, dict[str, SlurmJob]] = {}
    for line in output.splitlines():
        job, state, ends, reason, comment = (*line.split("|", 4), "", "", "", "")[:5]
        if not comment.startswith(f"{MARK} ["):
            continue
        tag, closed, told = comment.rpartition("]")
        if closed:
            uri = told.strip() or None
            jobs.setdefault(tag + closed, {})[job] = SlurmJob(job, state, ends, reason, uri)
    return jobs
