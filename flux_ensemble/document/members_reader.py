"""Reads `members:`, and checks that the jobs of each group can run on some member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from flux_ensemble import provider_list
from flux_ensemble.document.behaviour import read_seconds
from flux_ensemble.document.distributions import Drawable
from flux_ensemble.document.job_sets import Group
from flux_ensemble.document.keys.members import (
    MAX_MEMBERS,
    MEMBER_KEYS,
    SERVICES,
    SITE_LIMIT_KEYS,
    STARTED,
    TASKS,
)
from flux_ensemble.document.keys.overrides import OVERRIDES
from flux_ensemble.document.keys.provider import PoolProvider, pool_providers
from flux_ensemble.document.keys.reading import read_keys
from flux_ensemble.document.members import (
    DRAIN_SECONDS,
    MANY_MEMBERS,
    MEMBER_KEY,
    TIME_MARGIN,
    Pool,
    SiteLimits,
)
from flux_ensemble.document.problems import Path, Problems
from flux_ensemble.metrics.names import MEMBER
from flux_ensemble.provider_list import PROVIDERS
from flux_ensemble.suggestions import hint
from flux_ensemble.texts import listed, shown

#: What URIs begin with that Flux resolves; sites can have plugins for others.
SCHEMES = ("local", "ssh", "jobid", "pid", "slurm", "lsf")

#: Returns the text of a file that the document names at a path; None with a problem.
TextOf = Callable[[str, Path], str | None]

#: Returns the names of the queues of an instance by its URI; None if they are not known.
QueuesOf = Callable[[str], Collection[str] | None]


def unknown_queues(uri: str) -> None:
    """Know the queues of no instance.

    >>> unknown_queues("local:///run/flux/local")
    """


#: The value of Flux's shell option `mpi` that asks for nothing.
NO_MPI = "none"


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


def no_text(name: str, at: Path) -> None:
    """Know the text of no file.

    >>> no_text("workers.yaml", ())
    """


def read_pools(
    entries: Sequence[Any], problems: Problems, text_of: TextOf = no_text
) -> tuple[Pool, ...]:
    """The pools without problems.

    Args:
        entries: the valid part of the list, as `check_form` returns it.
        problems: collects the problems.
        text_of: returns the text of a file that an entry names.

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
        pool = _pool(entry, at, problems, text_of)
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
    """Return the fault of an incomplete URI; None if it has none, or if Flux resolves it.

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


def _pool(entry: Mapping[str, Any], at: Path, problems: Problems, text_of: TextOf) -> Pool:
    if "uri" in entry:
        for key in MEMBER_KEYS:
            if key.name in entry and STARTED in key.only:
                problems.add(
                    (*at, key.name),
                    f"{key.name!r} is of members that are started, and one with 'uri' is there "
                    "already",
                )
    elif "silence" in entry:
        problems.add(
            (*at, "silence"),
            "'silence' is of members with a 'uri'; one that is started ends with its job, by "
            "'duration' or 'flux cancel'",
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
    name = fields.setdefault("provider", PROVIDERS[0])
    provider = pool_providers()[name]
    fields.setdefault("idle", provider.idle)
    if fields.get("runs") == TASKS:
        if fields.get("nodes", 1) != 1:
            problems.add(
                (*at, "nodes"),
                f"a member with 'runs: {TASKS}' is a worker on one node, not on "
                f"{fields['nodes']}; for more nodes give it a 'count'",
            )
        if entry.get("service") == SERVICES[0]:
            problems.add(
                (*at, "service"),
                f"a worker ('runs: {TASKS}') has a service of its own; leave out 'service'",
            )
    _check_provider(provider, entry, fields, at, problems)
    if provider.read_options is not None and "options" in entry:
        try:
            fields["options"] = provider.read_options(entry["options"])
        except ValueError as error:
            problems.add((*at, "options"), str(error))
    if isinstance(file := entry.get("template"), str) and not problems.blames((*at, "template")):
        text = text_of(file, (*at, "template"))
        if text is not None:
            read = provider_list.part(name, "template").read_template
            fields["template"] = read(file, text, problems, (*at, "template"))
    if fields.get("exclusive", True):
        for part in ("cores", "gpus"):
            if part in entry:
                problems.add(
                    (*at, part),
                    "a member has its nodes alone, with all that they have; for a part of them "
                    "write 'exclusive: false', too",
                )
    if MEMBER_KEY in entry.get("attributes", {}).get("user", {}):
        problems.add(
            (*at, "attributes", "user", MEMBER_KEY),
            f"the user attribute {MEMBER_KEY!r} is where flux-ensemble marks its members",
        )
    simulate = entry.get("simulate", {})
    return Pool(
        limits=_site_limits(entry, fields, low, at, problems),
        low=low,
        high=high,
        calls=fields.get("runs") == TASKS or _calls(entry.get("service", SERVICES[0]), high),
        wait=_drawable(simulate, "wait", at, problems),
        startup=_drawable(simulate, "startup", at, problems),
        loss=_drawable(simulate, "loss", at, problems),
        broken=float(simulate.get("broken", 0.0)),
        **fields,
    )


def _site_limits(
    entry: Mapping[str, Any], fields: Mapping[str, Any], low: int, at: Path, problems: Problems
) -> SiteLimits:
    """Return the `limits` of a pool that has `low` members at first."""
    at = (*at, "limits")
    limits = SiteLimits(**read_keys(SITE_LIMIT_KEYS, entry.get("limits", {}), problems, at))
    if "node-hours" in entry.get("limits", {}):
        duration, nodes = fields.get("duration", 0.0), fields.get("nodes", 1)
        least = low * nodes * duration / 3600
        if not duration:
            problems.add(
                (*at, "node-hours"),
                "without a 'duration' of the members nobody knows how much each may use; give that "
                "too",
            )
        elif least > limits.node_hours:
            problems.add(
                (*at, "node-hours"),
                f"expected at least {least:g}, which the first members ask for ({low} times "
                f"{nodes} nodes for {duration / 3600:g} hours), not {limits.node_hours:g}",
            )
    return limits


def _check_provider(
    provider: PoolProvider,
    entry: Mapping[str, Any],
    fields: Mapping[str, Any],
    at: Path,
    problems: Problems,
) -> None:
    """Check what depends on who starts the members."""
    for key, value in entry.items():
        sentence = provider.refusal(key, value)
        if sentence is not None:
            problems.add((*at, key), sentence)
    if provider.workers and fields.get("runs") != TASKS:
        problems.add((*at, "runs"), provider.workers)
    for key, sentence in provider.needs.items():
        if key not in entry:
            problems.add(at, sentence)


def _calls(service: str, high: int) -> bool:
    """Return True if members have their own services, given the most that there can be.

    >>> _calls("auto", 8), _calls("auto", 9), _calls("child", 1)
    (False, True, True)
    """
    return service == "child" or (service == "auto" and high > MANY_MEMBERS)


def _count(count: Any, at: Path, problems: Problems) -> tuple[int, int]:
    """Return the number of members at first, and the most that there can be."""
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


def check_placement(
    groups: Mapping[str, Group],
    pools: Collection[Pool],
    declared: Collection[str],
    entries: Sequence[Any],
    rules: Sequence[Any],
    problems: Problems,
    queues: QueuesOf = unknown_queues,
) -> None:
    """Check that the jobs of each group can run on some member, however they are submitted.

    Args:
        groups: the groups without problems.
        pools: the pools without problems.
        declared: the names of all pools, with problems or not.
        entries: the valid part of `jobs:`.
        rules: the valid part of `rules:`.
        problems: collects the problems.
        queues: see `loading.LoadOptions`.

    >>> problems = Problems()
    >>> check_placement({}, [], [], [], [], problems)
    >>> problems.sentences()
    ''
    """
    places: dict[str, Path] = {}
    for index, entry in enumerate(entries):
        if entry is not None and "name" in entry:
            places.setdefault(entry["name"], ("jobs", index))
    for name, group in groups.items():
        at = places[name]
        if not declared and any(
            job_set.retries.spread and not job_set.avoid_nodes for job_set in group.sets
        ):
            problems.add(
                (*at, "retries", "spread"),
                "without 'members' it avoids the nodes where the job failed, which "
                "'avoid-nodes: false' turns off; leave out one of them",
            )
        wanted = {job_set.member for job_set in group.sets}
        if len(wanted) > 1:
            problems.add(
                at, f"the entries of group {name!r} differ in 'member'; give each the same"
            )
            continue
        (member,) = wanted
        if member is not None and not declared:
            problems.add((*at, "member"), "the document has no 'members'")
        elif member is not None and not any(pool.has(member) for pool in pools):
            if member not in declared and len(pools) == len(declared):
                known = sorted({*declared, *(label for pool in pools for label in pool.labels)})
                problems.add(
                    (*at, "member"),
                    f"no member or label named {member!r} "
                    f"({hint(member, known)}members and labels: {listed(known)})",
                )
        elif declared and len(pools) == len(declared):
            fitting = [pool for pool in pools if member is None or pool.has(member)]
            sizes = _Sizes(fitting, problems, queues)
            sizes.check_group(group, at)
            for index, entry in enumerate(entries):
                if entry is not None and entry.get("name") == name:
                    sizes.check_retries(entry.get("retries"), ("jobs", index, "retries"))
            for entry, at in _submits(rules, name):
                sizes.check_values(entry, at)


def _submits(rules: Sequence[Any], group: str) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The actions that submit a group, as written, each with its place."""
    for index, rule in enumerate(rules):
        if rule is None:
            continue
        at: Path = ("rules", index)
        actions = [(rule.get("action"), (*at, "action"))]
        actions += [
            (action, (*at, "actions", number))
            for number, action in enumerate(rule.get("actions") or ())
        ]
        for action, place in actions:
            if action and action.get("name") == "submit" and action.get("label") == group:
                yield action, place


class _Sizes:
    """Checks nodes, time limits and MPI of jobs against the members that they may run on.

    Args:
        pools: these members.
        problems: collects the problems.
        queues: see `loading.LoadOptions`.
    """

    def __init__(self, pools: Collection[Pool], problems: Problems, queues: QueuesOf) -> None:
        self._problems = problems
        self._queues = queues
        self._there = [(pool.name, pool.uri) for pool in pools if pool.uri is not None]
        #: Nobody knows how large an instance is that is there already.
        self._known = all(pool.uri is None for pool in pools)
        self._most = max(pool.nodes for pool in pools)
        self._tasks = [pool.runs == TASKS for pool in pools]
        self._longest = max((pool.duration or float("inf")) for pool in pools)
        #: Those that are instances of their own, which have no named queues.
        self._queueless = [pool for pool in pools if pool.uri is None and pool.runs != TASKS]

    def check_group(self, group: Group, at: Path) -> None:
        """Check what the entries of a group say."""
        for job_set in group.sets:
            if "nodes" not in job_set.variable:
                self._check("nodes", job_set.nodes, (*at, "nodes"))
            if "duration" not in job_set.variable:
                self._check("duration", job_set.duration, (*at, "duration"))
            if job_set.queue is not None:
                self._check_queue(job_set.queue, (*at, "queue"))
            self._check_attributes(job_set.attributes, (*at, "attributes"))
            self._check_mpi(job_set.attributes, (*at, "attributes"))
            self._check_attributes((job_set.jobspec or {}).get("attributes"), (*at, "jobspec"))
            self._check_mpi((job_set.jobspec or {}).get("attributes"), (*at, "jobspec"))

    def check_retries(self, retries: Any, at: Path) -> None:
        """Check what jobs have when they run again."""
        other = retries.get("with") if isinstance(retries, Mapping) else None
        self.check_values(other or {}, (*at, "with"))

    def check_values(self, values: Mapping[str, Any], at: Path) -> None:
        """Check what is said in place of what the group says, as written."""
        for key in ("nodes", "duration"):
            if key in values:
                try:
                    self._check(key, OVERRIDES[key](values[key]), (*at, key))
                except ValueError:
                    # An expression, or a problem of its own.
                    continue
        if "queue" in values:
            self._check_queue(values["queue"], (*at, "queue"))
        self._check_attributes(values.get("attributes"), (*at, "attributes"))
        self._check_mpi(values.get("attributes"), (*at, "attributes"))

    def _check_attributes(self, attributes: Any, place: Path) -> None:
        system = attributes.get("system") if isinstance(attributes, Mapping) else None
        if isinstance(system, Mapping) and "queue" in system:
            self._check_queue(system["queue"], place)

    def _check_queue(self, queue: Any, place: Path) -> None:
        if self._queueless:
            names = listed([pool.name for pool in self._queueless])
            self._problems.add(
                place,
                f"the job is submitted to a member ({names}), an instance without named queues, "
                f"which would refuse it; leave out the queue, or write 'queue: {queue}' in the "
                "entry of 'members', which is submitted to a queue itself",
            )
        # A queue that a parameter names is known with the jobs.
        if type(queue) is str and "{" not in queue:
            for name, uri in self._there:
                known = self._queues(uri)
                if known is not None and queue not in known:
                    have = f"its queues: {listed(sorted(known))}" if known else "it has none"
                    near = hint(queue, sorted(known))
                    self._problems.add(
                        place,
                        f"the job may be submitted to member {name!r}, whose instance has no queue "
                        f"{queue!r} ({near}{have})",
                    )

    def _check_mpi(self, attributes: Any, place: Path) -> None:
        options: Any = attributes
        for key in ("system", "shell", "options"):
            options = options.get(key) if isinstance(options, Mapping) else None
        if (
            any(self._tasks)
            and isinstance(options, Mapping)
            and options.get("mpi", NO_MPI) != NO_MPI
        ):
            self._problems.add(
                place,
                "tasks of a worker are processes that know nothing of each other, and the shell "
                "option 'mpi' is for jobs of Flux: run these as such, or start MPI in 'command' "
                "(mpirun) and leave out the option",
            )

    def _check(self, key: str, value: float, place: Path) -> None:
        if key == "nodes" and self._known and value > self._most:
            why = "the nodes of the largest member that they may run on"
            if all(self._tasks):
                why = (
                    "because tasks run on the one node of their worker (jobs of Flux can have more)"
                )
            self._problems.add(place, f"expected at most {self._most}, {why}, not {value}")
        if key == "duration" and self._known and value * TIME_MARGIN > self._longest:
            self._problems.add(
                place,
                f"expected at most {self._longest / TIME_MARGIN:.0f} seconds, because a job is "
                f"placed only where {TIME_MARGIN:g} times its time limit is left, and a member "
                f"lasts {self._longest:g}, not {value:g}",
            )
