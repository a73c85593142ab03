"""Jobs that are named on the command line: `ƒ2Hu4Rn`, or with its member `pool.3:ƒ2Hu4Rn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flux_ensemble.cli.common import USAGE, Failure
from flux_ensemble.cli.display.tables import members_of
from flux_ensemble.cli.session.target import LocalClient, Target, label_of
from flux_ensemble.job_ids import shown
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed

_Job = Mapping[str, Any]


def named_jobs(target: Target, name: str, texts: Iterable[str]) -> Iterator[_Job]:
    """Yield the jobs of an ensemble that are named.

    Args:
        target: the host that has them.
        name: the ensemble.
        texts: the jobs, each in a form of Flux (RFC 19), after the name of its member and a colon
            if the ensemble has members. Without a member a job is found if no other has its id.

    Raises:
        Failure: a job is missing or ambiguous, or a text is no name of a job.
    """
    for text in texts:
        member, _, id = text.rpartition(":")
        number = _number(target, id, text)
        found = [
            job
            for job in target.jobs(name, filter=f"id == {number}")
            if not member or job.get("member") == member
        ]
        if len(found) == 1:
            yield found[0]
        elif found:
            label = label_of(target)
            names = listed([shown(job["id"], job, label) for job in found])
            raise Failure(f"{len(found)} jobs have the id {id}: say which ({names})", USAGE)
        else:
            raise Failure(_unknown(target, name, member, text), USAGE)


def _number(target: Target, id: str, text: str) -> int:
    try:
        return _parser(target)(id)
    except ValueError:
        raise Failure(
            f"expected a job such as {'17' if isinstance(target, LocalClient) else 'ƒ2Hu4Rn'}, or "
            f"pool.3:ƒ2Hu4Rn where there are members, not {text!r}",
            USAGE,
        ) from None


def _parser(target: Target) -> Callable[[str], int]:
    if isinstance(target, LocalClient):
        return int
    from flux.job import JobID

    return lambda id: int(JobID(id))


def _unknown(target: Target, name: str, member: str, text: str) -> str:
    """Return why there is no job of the name."""
    nothing = f"ensemble {name!r} has no job {text} in its record"
    if not member:
        return nothing
    (status,) = target.status(name)["ensembles"]
    if "pools" not in status:
        return f"ensemble {name!r} has no members: name a job of it by its id alone"
    known = {one["name"] for one in members_of(status)}
    known.update(job["member"] for job in target.jobs(name))
    if member in known:
        return nothing
    names = listed(sorted(known))
    return f"no member of {name!r} is called {member!r} ({hint(member, known)}members: {names})"
