"""Starts members as JobSets, follows these and their pods, and deletes them.

    start ──► JobSet made, or there ──► Secret made, or there ──► written ──┐
    find ───────────────────────────────────────────────────────────────────┴► followed
    watches of the cluster ──changed──► look ──► began
                                         └─ gone, or ended ──► listed anew: nothing runs ──► over

A JobSet has a name that a cluster gives once, so a start that is repeated finds the first one. A
member is over when its JobSet is, and a fresh list shows no Job and no pod of it that is alive:
watches come one after the other, and a JobSet may be deleted before its pods.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from flux_ensemble.extras import install_command
from flux_ensemble.queues.flux.pipeline import Report
from flux_ensemble.queues.nested.life import UNNEEDED
from flux_ensemble.queues.nested.provider import (
    JobName,
    SiteWaitError,
    Started,
    UnavailableError,
    Written,
)
from flux_ensemble.queues.nested.shape import Shape
from flux_ensemble.queues.providers.jobset import job as jobs
from flux_ensemble.queues.providers.jobset.job import (
    RUN_LABEL,
    TAG,
    WORKER_LABEL,
    Object,
    alive,
    describe,
    job_set_name,
    mark,
    owned,
    owner_of,
    run_label,
)
from flux_ensemble.runtime.ports import Handle, Loop

#: Seconds between a change and the look at what it means: changes come in rows.
LOOK_SECONDS = 0.05

#: Seconds between two requests for what was refused for now, or is not over yet.
AGAIN_SECONDS = 1.0

#: Statuses by which an API server refuses an object for good, if it does not only have no room.
_REFUSED = frozenset((400, 403, 404, 405, 413, 422))
_NO_ROOM = "exceeded quota"

#: Status of an object whose name is taken, or that has changed.
_TAKEN = 409

_NO_JOB_SETS = (
    "the cluster has no JobSets: install their controller, which is that of kubernetes-sigs/jobset"
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A request that failed, and the reason.

    Args:
        text: one sentence.
        code: the HTTP status; None without an answer.
    """

    text: str
    code: int | None = None


#: Receives what was asked for, or why it is not to be had; called by the loop.
Answer = Callable[[Any], None]


class Cluster(Protocol):
    """A namespace of Kubernetes, or several.

    Attributes:
        namespace: where objects are that name none.
    """

    namespace: str

    def create(self, one: Object, done: Answer) -> None:
        """Create an object; the answer is that, or a `Trouble`."""
        ...

    def get(self, kind: str, namespace: str, name: str, done: Answer) -> None:
        """Read an object; the answer is that, None, or a `Trouble`."""
        ...

    def list_live(self, namespace: str, label: str, value: str, done: Answer) -> None:
        """List Jobs and pods, as they are from now on; the answer is a list, or a `Trouble`."""
        ...

    def delete(self, one: Object, done: Answer) -> None:
        """Delete a JobSet after all that it owns; the answer is None, or a `Trouble`."""
        ...

    def watch(
        self, namespace: str, label: str, value: str, queues: bool, changed: Callable[[], None]
    ) -> None:
        """Follow JobSets and pods, and with `queues` Workloads of Kueue, from now on."""
        ...

    def seen(self, kind: str) -> Sequence[Object] | None:
        """Return what is followed, as it was last; None if it is not known yet."""
        ...

    def close(self) -> None:
        """Follow nothing any more."""
        ...


@dataclass(slots=True)
class _Following:
    """A member, as the provider knows it.

    Attributes:
        member: is told.
        name: of its JobSet.
        tag: the annotation of its JobSet.
        namespace: of its JobSet; "" if nothing has told it yet.
        asked: its JobSet and its Secret, until they are there; None if an earlier home has made
            them.
        written: see `Provider.start`; None for such a one.
        jobset: as it was last; None until it is there.
        pods: as they were last.
        began: the member was told that it began.
        confirming: what runs is being listed.
        why: why its JobSet is over.
        unseen: an earlier home started it, and this one has not seen it alive.
        again: a request that is to be repeated.
    """

    member: Started
    name: str
    tag: str
    namespace: str
    asked: Mapping[str, Any] | None = None
    written: Written | None = None
    jobset: Object | None = None
    pods: list[Object] = field(default_factory=list)
    began: bool = False
    confirming: bool = False
    why: str | None = None
    unseen: bool = False
    again: Handle | None = None


class JobSetProvider:
    """A `queues.nested.provider.Provider` of one run.

    Args:
        loop: of the home.
        log_error: writes a line to the home's log.
        cluster: where the members are.
    """

    tells = False
    prints = "'kubectl logs' of its pod"

    def __init__(self, loop: Loop, log_error: Callable[[str], None], cluster: Cluster) -> None:
        self._loop = loop
        self._log_error = log_error
        self._cluster = cluster
        self._members: dict[str, _Following] = {}
        self._watched: set[str] = set()
        self._look_at: Handle | None = None
        self._trouble: str | None = None
        self._closed = False

    # -- requests ---------------------------------------------------------------------

    def describe(self, shape: Shape) -> Mapping[str, Any]:
        """Return the JobSet and the Secret of a member."""
        return describe(shape, self._cluster.namespace)

    def start(self, member: Started, job: Mapping[str, Any], written: Written) -> None:
        """Make the JobSet of a member, if there is none."""
        metadata = job["jobset"]["metadata"]
        tag = metadata["annotations"][TAG]
        following = _Following(member, metadata["name"], tag, metadata["namespace"], job, written)
        self._follow(following, metadata["labels"][RUN_LABEL])
        self._create(following)

    def find(self, member: Started, home: str, job: str | None) -> None:
        """Follow the JobSet of a member that is written down."""
        namespace, _, name = (job or "").rpartition("/")
        name = name or job_set_name(member.tag, home)
        namespace = namespace or self._cluster.namespace
        following = _Following(member, name, mark(member.tag, home), namespace, unseen=True)
        self._follow(following, run_label(member.tag, home))
        self._look_soon()

    def _follow(self, following: _Following, run: str) -> None:
        self._members[following.name] = following
        if following.namespace not in self._watched:
            self._watched.add(following.namespace)
            asked = following.asked
            labels = {} if asked is None else asked["jobset"]["metadata"]["labels"]
            # Of a member that an earlier home started it is not known whether a queue has it.
            queues = asked is None or jobs.QUEUE_LABEL in labels
            self._cluster.watch(following.namespace, RUN_LABEL, run, queues, self._look_soon)

    def end(self, job: JobName, reason: str, done: Report) -> None:
        """Delete a JobSet."""
        following = self._of(job)
        if following is None:
            done(None)
            return

        def deleted(answer: Any) -> None:
            gone = not isinstance(answer, Trouble) or answer.code in (404, _TAKEN)
            done(None if gone else OSError(errno.EAGAIN, answer.text))
            self._look_soon()

        metadata = {"namespace": following.namespace, "name": following.name}
        one = following.jobset or {"metadata": metadata}
        self._cluster.delete(one, deleted)

    def why(self, job: JobName) -> str | None:
        """Return why a member does not run yet, such as "waits in Kubernetes: Unschedulable"."""
        following = self._of(job)
        if following is None or following.jobset is None:
            return None
        workloads = self._cluster.seen("Workload") or ()
        return jobs.waits(following.jobset, following.pods, workloads)

    def forget(self, job: JobName) -> None:
        """Follow a JobSet no more."""
        following = self._of(job)
        if following is not None:
            self._drop(following)

    def _of(self, job: JobName) -> _Following | None:
        return self._members.get(str(job).rpartition("/")[2])

    def close(self) -> None:
        """Follow nothing any more."""
        self._closed = True
        for following in list(self._members.values()):
            self._drop(following)
        if self._look_at is not None:
            self._look_at.cancel()
        self._cluster.close()

    # -- making it ----------------------------------------------------------------------

    def _create(self, following: _Following) -> None:
        if following.member.unwanted:
            # An earlier home may have made it.
            there = partial(self._is_unwanted, following)
            self._cluster.get("JobSet", following.namespace, following.name, there)
            return
        assert following.asked is not None
        self._cluster.create(following.asked["jobset"], partial(self._created, following))

    def _created(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        if not isinstance(answer, Trouble):
            self._made(following, answer)
        elif answer.code == _TAKEN:
            # An earlier home has made it, or an attempt whose answer was lost.
            there = partial(self._is_there, following)
            self._cluster.get("JobSet", following.namespace, following.name, there)
        else:
            self._failed(following, answer, self._create)

    def _is_there(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        if isinstance(answer, Trouble):
            self._failed(following, answer, self._create)
        elif answer is None:
            self._create(following)
        elif not _tagged(answer, following.tag):
            text = f"the name {following.name} is that of a JobSet which is no member of this run"
            self._refuse(following, text)
        else:
            self._made(following, answer)

    def _is_unwanted(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        if isinstance(answer, Trouble):
            self._later(following, self._create)
        elif answer is None or not _tagged(answer, following.tag):
            self._drop(following)
            following.member.give_up(UNNEEDED)
        else:
            following.jobset = answer
            self._there(following)

    def _made(self, following: _Following, jobset: Object) -> None:
        following.jobset = jobset
        self._create_secret(following)

    def _create_secret(self, following: _Following) -> None:
        assert following.asked is not None
        assert following.jobset is not None
        secret = owned(following.asked["secret"], following.jobset)
        self._cluster.create(secret, partial(self._created_secret, following))

    def _created_secret(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        if not isinstance(answer, Trouble):
            self._there(following)
        elif answer.code == _TAKEN:
            known = partial(self._secret_is_there, following)
            self._cluster.get("Secret", following.namespace, following.name, known)
        else:
            self._failed(following, answer, self._create_secret)

    def _secret_is_there(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        assert following.jobset is not None
        if isinstance(answer, Trouble) or answer is None:
            self._later(following, self._create_secret)
        elif owner_of(answer) == following.jobset["metadata"]["uid"]:
            self._there(following)
        else:
            # It is deleted with the JobSet that had the name before.
            self._later(following, self._create_secret)

    def _there(self, following: _Following) -> None:
        """Go on with a member whose JobSet and Secret are there."""
        self._log_trouble(None)
        following.asked = None
        job = f"{following.namespace}/{following.name}"
        following.member.submitted(job)
        if following.written is not None and not self._is_over(following):
            following.written(job, self._look_soon)
        self._look_soon()

    def _failed(
        self, following: _Following, trouble: Trouble, again: Callable[[_Following], None]
    ) -> None:
        """Refuse a member, or ask again in a while."""
        if trouble.code in _REFUSED and _NO_ROOM not in trouble.text:
            missing = trouble.code == 404 and "namespaces" not in trouble.text
            self._refuse(following, _NO_JOB_SETS if missing else trouble.text)
            return
        following.member.waits(SiteWaitError(trouble.text))
        self._log_trouble(f"cannot start a member in Kubernetes: {trouble.text}")
        self._later(following, again)

    def _refuse(self, following: _Following, reason: str) -> None:
        self._drop(following)
        following.member.refused(f"Kubernetes refuses its JobSet: {reason}")

    def _later(self, following: _Following, again: Callable[[_Following], None]) -> None:
        if following.again is not None:
            following.again.cancel()
        following.again = self._loop.timer(AGAIN_SECONDS, partial(again, following))

    def _log_trouble(self, trouble: str | None) -> None:
        """Log a trouble once, and when it is over."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._log_error(trouble or "the API server of Kubernetes answers again")

    # -- following it -------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._look_at is None and not self._closed:
            self._look_at = self._loop.timer(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Tell members what has become of their JobSets."""
        self._look_at = None
        jobsets, pods = self._cluster.seen("JobSet"), self._cluster.seen("Pod")
        if jobsets is None or pods is None:
            return  # it is called again when they are known
        known = {one["metadata"]["name"]: one for one in jobsets}
        of: dict[str, list[Object]] = {}
        for pod in pods:
            of.setdefault(pod["metadata"]["labels"].get(WORKER_LABEL, ""), []).append(pod)
        for following in list(self._members.values()):
            if following.asked is None and not self._is_over(following):
                self._advance(following, known.get(following.name), of.get(following.name, []))

    def _advance(self, following: _Following, jobset: Object | None, pods: list[Object]) -> None:
        """Tell a member what the watches show of its JobSet."""
        member = following.member
        if jobset is not None and not _same(following.jobset, jobset):
            jobset = None  # another one has its name: this one was deleted
        if jobset is None:
            self._confirm(following, "its JobSet is not there any more")
            return
        following.jobset, following.pods = jobset, pods
        if member.job is None:
            member.submitted(f"{following.namespace}/{following.name}")
        why = jobs.ended(jobset, pods)
        if why is not None:
            self._confirm(following, why)
            return
        following.unseen = False
        if not following.began and jobs.runs(pods):
            following.began = True
            member.began()

    def _confirm(self, following: _Following, why: str) -> None:
        """Look whether nothing of a member runs any more."""
        if following.why is None:
            following.why = why
        if not following.confirming:
            following.confirming = True
            self._ask_what_runs(following)

    def _ask_what_runs(self, following: _Following) -> None:
        found = partial(self._found, following)
        self._cluster.get("JobSet", following.namespace, following.name, found)

    def _found(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        gone = answer is None or not (
            isinstance(answer, Trouble) or _same(following.jobset, answer)
        )
        if not gone and (isinstance(answer, Trouble) or jobs.ended(answer, ()) is None):
            # The watch was behind, or nobody knows.
            following.confirming = False
            following.why = None
            self._later(following, lambda one: self._look_soon())
            return
        if not gone and answer["metadata"].get("deletionTimestamp"):
            # What it owns goes first; that it is gone is a change.
            following.confirming = False
            return
        listed = partial(self._listed, following)
        self._cluster.list_live(following.namespace, WORKER_LABEL, following.name, listed)

    def _listed(self, following: _Following, answer: Any) -> None:
        if self._is_over(following):
            return
        following.confirming = False
        if isinstance(answer, Trouble) or any(map(alive, answer)):
            self._later(following, lambda one: self._look_soon())
            return
        self._over(following)

    def _over(self, following: _Following) -> None:
        self._drop(following)
        jobset = following.jobset
        if jobset is not None and jobs.condition(jobset, "Completed"):
            # There is nothing to be seen of it; what has failed is kept for a while.
            self._cluster.delete(jobset, lambda answer: None)
        # Its pool is filled again if it ended while no home was there.
        following.member.broke(following.why or "its JobSet has ended", following.unseen)
        following.member.over()

    def _drop(self, following: _Following) -> None:
        if self._members.get(following.name) is following:
            del self._members[following.name]
        if following.again is not None:
            following.again.cancel()

    def _is_over(self, following: _Following) -> bool:
        """Return True if a member is followed no more."""
        return self._members.get(following.name) is not following


def _same(known: Object | None, one: Object) -> bool:
    """Return False if an object is another one of the name."""
    return known is None or known["metadata"].get("uid") == one["metadata"].get("uid")


def _tagged(one: Object, tag: str) -> bool:
    """Return True if an object is that of a member."""
    return bool((one["metadata"].get("annotations") or {}).get(TAG) == tag)


def make(loop: Loop, log_error: Callable[[str], None], directory: Path | None) -> JobSetProvider:
    """Make the provider of a run, with the cluster of the user's configuration.

    Raises:
        UnavailableError: there is none, or a package is missing.
    """
    try:
        jobsets = import_module("flux_ensemble.k8s.jobsets")
    except ImportError as error:
        raise UnavailableError(
            f"members in Kubernetes need {error.name}: {install_command('k8s')}"
        ) from None
    return JobSetProvider(loop, log_error, jobsets.make_cluster(loop, log_error))
