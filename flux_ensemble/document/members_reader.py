"""Reads `members:`; what jobs say of them is checked by `placement`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from flux_ensemble.document.behaviour import read_seconds
from flux_ensemble.document.distributions import Drawable
from flux_ensemble.document.keys.members import MAX_MEMBERS, MEMBER_KEYS, SERVICES, STARTED
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.members import DRAIN_SECONDS, MANY_MEMBERS, Pool
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.metrics.names import MEMBER
from flux_ensemble.texts import shown

#: What URIs begin with that Flux resolves; sites can have plugins for others.
SCHEMES = ("local", "ssh", "jobid", "pid", "slurm", "lsf")


def pool_names(entries: Any) -> list[str]:
    """The names of all pools of a document, with problems or not.

    >>> pool_names([{"name": "pool"}, {"name": 5}, 7])
    ['pool']
    """
    names = [
        entry.get("name")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    ]
    return [name for name in names if isinstance(name, str)]


def read_pools(entries: Sequence[Any], problems: Problems) -> tuple[Pool, ...]:
    """The pools without problems.

    Args:
        entries: the valid part of the list, as `check_form` returns it.
        problems: collects the problems.

    >>> entry = {"name": "pool", "count": {"min": 2, "max": 8}, "nodes": 4}
    >>> read_pools([entry], Problems())[0].high
    8
    """
    pools: list[Pool] = []
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry is None or "name" not in entry:
            continue
        at: Path = ("members", index)
        name = entry["name"]
        if name == MEMBER:
            problems.add(
                (*at, "name"),
                f"{MEMBER!r} is the enclosing instance, which is no member that is started; give "
                "another name",
            )
        if name in first:
            problems.add((*at, "name"), f"the name {name!r} is that of members[{first[name]}] too")
        first.setdefault(name, index)
        pool = _pool(entry, at, problems)
        if not problems.blames(at):
            pools.append(pool)
    _check_uris(entries, problems)
    if sum(pool.high for pool in pools) > MAX_MEMBERS:
        problems.add(("members",), f"expected at most {MAX_MEMBERS} members in all")
    return tuple(pools)


def _check_uris(entries: Sequence[Any], problems: Problems) -> None:
    """Check what URIs say by themselves; whether something is there Flux finds out."""
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        uri = None if entry is None else entry.get("uri")
        if uri is None:
            continue
        at: Path = ("members", index, "uri")
        message = incomplete(uri)
        if message is not None:
            problems.add(at, message)
        elif uri in first:
            problems.add(
                at,
                f"the instance is that of members[{first[uri]}] too, and can be one member; leave "
                "one of them out, and give the other the 'labels' of both",
            )
        first.setdefault(uri, index)


def incomplete(uri: str) -> str | None:
    """What a URI lacks; None if nothing, or if it is one that Flux has to resolve.

    >>> incomplete("ssh://host/run/flux/local"), incomplete("local:///run/flux/local")
    (None, None)
    >>> incomplete("local://run/flux/local")
    "expected local:///PATH, with three slashes, not 'local://run/flux/local'"
    """
    try:
        parts = urlsplit(uri)
        host, path = parts.hostname, parts.path
    except ValueError as error:
        return f"expected a URI, not {shown(uri)}: {error}"
    if parts.scheme == "local" and (parts.netloc or not path.startswith("/")):
        return f"expected local:///PATH, with three slashes, not {shown(uri)}"
    if parts.scheme == "ssh" and not (host and path.startswith("/")):
        return f"expected ssh://HOST/PATH, not {shown(uri)}"
    return None


def unresolved(pools: Iterable[Pool]) -> Iterator[tuple[Path, str]]:
    """URIs of which Flux alone cannot say what instance they mean, with the place of each.

    >>> [place for place, _ in unresolved([Pool("a", uri="http://x"), Pool("b", uri="f2Hu4Rn")])]
    [('members', 0, 'uri')]
    """
    for index, pool in enumerate(pools):
        scheme = urlsplit(pool.uri or "").scheme
        if scheme and scheme not in SCHEMES:
            yield (
                ("members", index, "uri"),
                f"Flux resolves no URI that begins with {shown(f'{scheme}:')}, unless a plugin of "
                "this site does: write local:///PATH, ssh://HOST/PATH, or the id of a job",
            )


def _pool(entry: Mapping[str, Any], at: Path, problems: Problems) -> Pool:
    if "uri" in entry:
        for key in MEMBER_KEYS:
            if key.name in entry and STARTED in key.only:
                problems.add(
                    (*at, key.name),
                    f"{key.name!r} is of members that are started, and one with 'uri' is there "
                    "already",
                )
    low, high = _count(entry.get("count", 1), (*at, "count"), problems)
    fields = read_keys(MEMBER_KEYS, entry, problems, at)
    duration = fields.get("duration", 0.0)
    least = min(DRAIN_SECONDS, duration / 2) if duration else DRAIN_SECONDS
    drain = fields.setdefault("drain", least)
    if "drain" in entry and not duration:
        problems.add((*at, "drain"), "'drain' is before the end of 'duration'; give that too")
    elif duration and drain >= duration:
        problems.add(
            (*at, "drain"),
            f"expected less than 'duration', which is {duration:g} seconds, not {drain:g}",
        )
    simulate = entry.get("simulate", {})
    return Pool(
        low=low,
        high=high,
        calls=_calls(entry.get("service", SERVICES[0]), high),
        startup=_drawable(simulate, "startup", at, problems),
        loss=_drawable(simulate, "loss", at, problems),
        broken=float(simulate.get("broken", 0.0)),
        **fields,
    )


def _calls(service: str, high: int) -> bool:
    """Whether the members have services of their own, where there may be so many of them.

    >>> _calls("auto", 8), _calls("auto", 9), _calls("child", 1)
    (False, True, True)
    """
    return service == "child" or (service == "auto" and high > MANY_MEMBERS)


def _count(count: Any, at: Path, problems: Problems) -> tuple[int, int]:
    """How many members there are at first, and at most."""
    if isinstance(count, int):
        return count, count
    low = count.get("min", 1)
    high = count.get("max", low)
    if low > high:
        problems.add((*at, "min"), f"expected at most 'max', which is {high}, not {low}")
    return low, high


def _drawable(
    section: Mapping[str, Any], key: str, at: Path, problems: Problems
) -> Drawable | None:
    if section.get(key) is None:
        return None
    return read_seconds(section[key], problems, (*at, "simulate", key))
