"""The life of a member, from its start until nothing of it can run any more.

    its provider ──► submitted, reached, broke, over ─────────────┐
    its own broker ──► attached, ending, connection lost ─────────┴──► phase ──► Heard

The outcome of its jobs is settled once, when its own job is over: until then they may run. That
is the kill-fence: if a member is given up, its job is cancelled first, and its end is waited
for. A member that is reached by a URI alone is no job, and cannot be fenced.

A member with a service of its own, which a worker is too, is not connected to: that service calls
(`attached`). The time limit for its call is that for a connection to another member. Only for the
others Flux is needed, so what connects to them is imported where that is done.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from flux_ensemble.queues.flux.delivery import PATIENCE
from flux_ensemble.queues.flux.delivery import Attempts as Tries
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.queues.flux.refusals import refusal
from flux_ensemble.queues.flux.steps import Resume, Steps, run
from flux_ensemble.queues.flux.submission import SubmissionWait
from flux_ensemble.queues.nested.attempts import Attempts
from flux_ensemble.queues.nested.callbacks import Gone, MemberCallbacks
from flux_ensemble.queues.nested.life import NEXT, UNNEEDED, Phase, silent
from flux_ensemble.queues.nested.listener import Heard
from flux_ensemble.queues.nested.provider import SITE, JobName, Provider, SiteWaitError
from flux_ensemble.queues.nested.refusals import RefusedError
from flux_ensemble.queues.nested.service_handle import AttachedInstance, Channel, Followed
from flux_ensemble.queues.nested.shape import END_TOPIC, MemberTag, Program
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.texts import bounded

if TYPE_CHECKING:
    from flux.core.handle import Flux

    from flux_ensemble.queues.flux.broker import Broker
    from flux_ensemble.queues.nested.instance import Instance
    from flux_ensemble.queues.nested.route import Route

#: Seconds until a connection is tried again: the first pause, and the longest.
RETRY_SECONDS = 0.1
RETRY_LIMIT = 5.0

#: Seconds that a member may take to end before it is cancelled, and between two requests to end.
END_SECONDS = 30.0
END_SPACING_SECONDS = 1.0

#: Errors of a socket of this machine that has no listener.
_NOBODY = frozenset((errno.ECONNREFUSED, errno.ENOENT))

#: Least seconds before its walltime at which a member's queue is stopped.
STOP_SECONDS = 5.0

#: Seconds before its end at which a member ends whose jobs would be killed at that end.
EARLY_SECONDS = 10.0

#: Most seconds between two questions whether it answers.
LISTEN_SECONDS = 30.0

#: Seconds between two requests for the expiration of its allocation.
LOOK_SECONDS = 30.0


class Timers:
    """A set of named timers.

    Args:
        loop: that runs them.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._set: dict[str, Handle] = {}

    def later(self, name: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after some seconds; this replaces the timer of that name, if there is one."""
        self.stop(name)
        self._set[name] = self._loop.timer(seconds, callback)

    def stop(self, name: str) -> None:
        """Cancel the timer of that name, if there is one."""
        timer = self._set.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop_all(self) -> None:
        """Cancel all timers."""
        for name in list(self._set):
            self.stop(name)


class Walltime:
    """A timer that drains a member some time before its allocation ends.

    Args:
        timers: of the member.
        drain: seconds before the end, STOP_SECONDS at least.
        drained: called at that time, with the reason.
        early: seconds before the end at which `over` is called; 0 for never.
        over: ends the member.
        told: receives the expiration of the allocation, even if that has not changed.
    """

    def __init__(
        self,
        timers: Timers,
        drain: float,
        drained: Callable[[str], None],
        early: float,
        over: Callable[[], None],
        told: Callable[[float | None], None],
    ) -> None:
        self._timers = timers
        self._drain = max(drain, STOP_SECONDS, early)
        self._drained = drained
        self._early = early
        self._over = over
        self._told = told

    def watch(self, instance: Followed) -> None:
        """Watch a member from now on, until the connection is closed."""
        run(self._watch(instance), over=lambda: instance.closed)

    def _watch(self, instance: Followed) -> Steps:
        while True:
            t_expires = instance.ends.t_expires
            self._told(t_expires)
            left = LOOK_SECONDS if t_expires is None else t_expires - self._drain - time.time()
            if left <= 0.0:
                # The jobs there go on until the end, which can still be changed.
                left += self._drain - self._early if self._early else LOOK_SECONDS - left
                self._drained("its walltime is about to end")
                if left <= 0.0:
                    self._over()
                    left = LOOK_SECONDS
            if instance.closed:
                return
            yield partial(self._pause, min(left, LOOK_SECONDS))
            with suppress(Exception):
                # A request that fails is repeated the next time.
                yield from instance.look()

    def _pause(self, seconds: float, resume: Resume) -> None:
        self._timers.later("walltime", seconds, partial(resume, None))


class MemberJob:
    """A member.

    Args:
        tag: of the member.
        loop: for timers.
        parent: the broker of the enclosing instance; None if all members call.
        provider: of its job; None if it is reached by a URI alone.
        told: the callbacks.
        drain: seconds before its walltime from which it is sent no more jobs.
        program: of its job.
        reconnect: seconds after which a member that cannot be reached is given up.
        silence: seconds after which one that is connected to and does not answer is; 0 for never.
        follows: returns the names of further job events to follow, and whether the places of
            jobs are needed.
        log_error: receives lines for the service's log.
        objection: takes an instance's IDENTITY; returns the reason why it cannot be this member,
            or None.

    Attributes:
        job: its id at its provider; None if it is not known yet, or if there is no job.
        program: as given.
        waiting: the reason why its job is not in the queue yet, if the queue takes none for now.
        uri: its URI; None until it is known.
        phase: its phase.
        draining: the reason why it is sent no more jobs, or None.
        instance: the connection; None while there is none.
        attempts: those sent to it.
    """

    def __init__(
        self,
        tag: MemberTag,
        loop: Loop,
        parent: Broker | None,
        provider: Provider | None,
        told: MemberCallbacks,
        *,
        drain: float,
        program: Program,
        reconnect: float,
        silence: float,
        follows: Callable[[], tuple[frozenset[str], bool]],
        log_error: Callable[[str], None],
        objection: Callable[[str], str | None],
    ) -> None:
        self.tag = tag
        self.job: JobName | None = None
        self.waiting: SubmissionWait | None = None
        self.uri: str | None = None
        self.phase = Phase.ASKED
        self.draining: str | None = None
        self.instance: Followed | None = None
        self.attempts = Attempts()
        self._loop = loop
        self._parent = parent
        self.provider = provider
        self._kills = provider is not None and not provider.tells
        self._told = told
        self.program = program
        self._reconnect = reconnect
        self._silence = silence
        self._follows = follows
        self._log_error = log_error
        self._route: Route | None = None
        self._timers = Timers(loop)
        self._walltime = Walltime(
            self._timers,
            drain,
            self.drain,
            EARLY_SECONDS if self._kills else 0.0,
            self._end_in_time,
            partial(told.expires, tag),
        )
        self._objection = objection
        self._t_lost: float | None = None
        self._pause = RETRY_SECONDS
        self._was_up = False
        self._silent = self._unheard
        self._asked = False
        self._orderly = False
        self._why = "its job has ended"
        self._ends = "its instance ends"
        self._closed = False
        self._outage = False

    @property
    def _unheard(self) -> str:
        return silent("the output of its job" if self.provider is None else self.provider.prints)

    # -- news from its provider ----------------------------------------------------------

    @property
    def asked_to_end(self) -> bool:
        """True if it is asked to end."""
        return self._asked

    @property
    def unwanted(self) -> bool:
        """True if it is asked to end before its job is in the queue."""
        return self._asked and self.phase is Phase.ASKED

    def waits(self, error: Exception) -> None:
        """Note that the queue does not take its job for now."""
        t = time.time() if self.waiting is None else self.waiting.t
        if isinstance(error, SiteWaitError):
            self.waiting = SubmissionWait(self.tag.member, SITE, str(error), "", t)
        elif self.waiting is None:
            self.waiting = SubmissionWait(
                self.tag.member, refusal(error).name, sentence(error), refusal(error).advice, t
            )

    def submitted(self, job: JobName) -> None:
        """Note that its job is in the queue."""
        self.waiting = None
        if self.phase is Phase.ASKED:
            self.job = job
            self._enter(Phase.QUEUED)
            if self._asked:
                self.give_up(UNNEEDED)

    def refused(self, reason: str) -> None:
        """Note that its job was refused for good."""
        if self.phase is Phase.ASKED:
            self._told.refused(self.tag, reason)
            self.give_up(reason)

    def reached(self, uri: str) -> None:
        """Note the URI that its instance has told."""
        if self.phase is Phase.QUEUED:
            self.connect(uri)

    def began(self) -> None:
        """Note that its job has begun: a worker calls, and tells no URI."""
        if self.program is Program.WORKER and self.phase is Phase.QUEUED:
            self._enter(Phase.CONNECTING)
            self._find_way()

    def broke(self, reason: str, outage: bool = False) -> None:
        """Note why its job ends.

        Args:
            reason: the reason.
            outage: the enclosing instance was restarted.
        """
        if self.phase not in (Phase.ENDING, Phase.FENCING):
            self._why = self._ends = bounded(reason)
            self._outage |= outage

    def over(self) -> None:
        """Note that its job is over: nothing of it can run any more."""
        if self.phase is not Phase.GONE:
            self._clean()

    def connect(self, uri: str) -> None:
        """Connect to the member at a URI."""
        self.uri = uri
        self._enter(Phase.CONNECTING)
        self._t_lost = time.monotonic()
        self._find_way()

    # -- the connection ----------------------------------------------------------------------

    def _find_way(self) -> None:
        if self.phase is not Phase.CONNECTING or self._closed:
            return
        if self.program.calls:
            self._timers.later("connect", self._reconnect, lambda: self.give_up(self._silent))
        else:
            from flux_ensemble.queues.nested.route import Route

            assert self.uri is not None
            if self._route is None:
                self._route = Route(self._loop)
            self._route.find(self.uri, self.job is not None, self._opened)

    @property
    def _direct(self) -> bool:
        """True if there is no proxy on the way: the end of the connection is the member's."""
        return self._route is None or self._route.direct

    def _opened(self, result: Flux | OSError) -> None:
        if self.phase is not Phase.CONNECTING or self._closed:
            return
        if isinstance(result, OSError):
            self._failed(result)
            return
        from flux_ensemble.queues.nested.instance import Instance

        parent, attempts = self._parent, self.attempts
        assert parent is not None
        self._begin(
            lambda heard: Instance(
                result, parent, heard, attempts, self._log_error, doubts=self._kills
            )
        )

    def attached(self, channel: Channel, load: Mapping[str, Any]) -> bool:
        """Accept the call of its own service, in place of any before.

        Args:
            channel: the connection to that service.
            load: what that service needs to know of the ensemble.

        Returns:
            False if no call is expected.
        """
        if self.program.calls and self.phase is Phase.UP and self.instance is not None:
            self._lost(self.instance)
        elif self.program.calls and self.phase is Phase.QUEUED:
            self._enter(Phase.CONNECTING)
        if not self.program.calls or self.phase is not Phase.CONNECTING or self._closed:
            return False
        self._timers.stop("connect")
        self._silent = self._unheard
        self._disconnect()
        self._begin(lambda heard: AttachedInstance(channel, load, heard, self._log_error))
        return True

    def unfit(self, reason: str) -> None:
        """Note that the service that called is unsuitable; another may call in time."""
        if self.program is Program.WORKER:
            # Another worker would be another member.
            self._why = reason
        if reason != self._silent:
            self._silent = reason
            self._log_error(f"{self.tag.name}: member {self.tag.member} is not up: {reason}")

    def _begin(self, make: Callable[[Heard], Followed]) -> None:
        """Begin to use the connection: catch up, and then follow."""
        instance: Followed
        heard = Heard(
            event=partial(self._told.event, self.tag),
            events=partial(self._told.events, self.tag),
            past=partial(self._told.past, self.tag),
            caught_up=partial(self._told.caught_up, self.tag),
            ending=lambda: self._ending(instance),
            lost=lambda: self._lost(instance),
            objection=self._objection,
        )
        instance = self.instance = make(heard)
        names, places = self._follows()
        attached = partial(self._attached, instance)
        version = "" if self._parent is None else self._parent.handle.attr_get("version")
        instance.attach(version, attached, names=names, places=places)

    def _attached(self, instance: Followed, error: Exception | None) -> None:
        if instance is not self.instance or self.phase is not Phase.CONNECTING:
            return
        if error is not None:
            self._disconnect()
            self._failed(error)
        else:
            assert instance.facts is not None
            self._t_lost = None
            self._pause = RETRY_SECONDS
            self._was_up = True
            self._enter(Phase.UP)
            if self.draining is not None:
                # It was drained while there was no connection.
                self._stop_queue(instance, self.draining)
            self._walltime.watch(instance)
            if self._silence and not isinstance(instance, AttachedInstance):
                run(self._listen(instance), over=lambda: instance.closed)
            self._told.up(self.tag, instance, instance.facts)

    def _listen(self, instance: Instance) -> Steps:
        """Give it up when it is silent for too long: its broker hangs, and its socket does not."""
        pause = min(self._silence / 4, LISTEN_SECONDS)
        while True:
            try:
                yield from instance.ping(self._silence - pause)
            except OSError as error:
                # Any other error is that of the connection, which is lost then.
                if error.errno == errno.ETIMEDOUT and instance is self.instance:
                    self.give_up(f"it has not answered for {self._silence:g} seconds")
                    return
            yield partial(self._pause_listening, pause)

    def _pause_listening(self, seconds: float, resume: Resume) -> None:
        self._timers.later("listen", seconds, partial(resume, None))

    def _failed(self, error: Exception) -> None:
        """Try to connect again for a while, unless that is useless."""
        if self.phase is not Phase.CONNECTING or self._closed:
            return
        if isinstance(error, RefusedError):
            self._told.refused(self.tag, str(error))
            return self.give_up(str(error))
        if self.program.calls:
            return self._find_way()  # its service ends, begins again, and calls
        assert self._t_lost is not None
        nobody = self._was_up and getattr(error, "errno", 0) in _NOBODY and self._direct
        if nobody or time.monotonic() - self._t_lost >= self._reconnect:
            self.give_up(sentence(error))
            return
        self._timers.later("connect", self._pause, self._find_way)
        self._pause = min(2 * self._pause, RETRY_LIMIT)

    def _lost(self, instance: Followed) -> None:
        if instance is not self.instance:
            return
        ending = instance.ends.begun
        dead = isinstance(instance, AttachedInstance) and instance.dead
        self._disconnect()
        if dead and self.phase in (Phase.UP, Phase.CONNECTING):
            self.give_up("its broker is gone")
        elif self.program.calls and self.phase is Phase.CONNECTING and not ending:
            self._find_way()
        elif self.phase is Phase.UP and not ending:
            self._enter(Phase.CONNECTING)
            self._t_lost = time.monotonic()
            self._find_way()
        elif self.phase is Phase.CONNECTING and not (ending or self._direct):
            # The end of a proxy is not that of the member.
            self._failed(OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        elif self.phase in (Phase.UP, Phase.CONNECTING):
            self.give_up(self._ends)

    def _disconnect(self) -> None:
        instance, self.instance = self.instance, None
        if instance is not None:
            instance.close()
        self._timers.stop("walltime")
        self._timers.stop("listen")

    # -- its end ---------------------------------------------------------------------------------

    def drain(self, reason: str, ends: bool = False) -> None:
        """Send it no more jobs: those that wait there do not start any more, and can be moved.

        Args:
            reason: the reason.
            ends: it has begun to end.
        """
        if self.draining is not None or self.phase in (Phase.FENCING, Phase.GONE):
            return
        self.draining = reason
        if self.instance is not None and self.phase is Phase.UP:
            self._stop_queue(self.instance, reason)
        self._told.draining(self.tag, reason, ends)

    def _stop_queue(self, instance: Followed, reason: str) -> None:
        # In an instance that this service did not start, the jobs of others would wait too.
        if self.job is not None:
            instance.stop_queue(reason, self._stopped)

    def _stopped(self, error: Exception | None) -> None:
        if error is not None and self.phase is Phase.UP:
            self._log_error(f"cannot stop the queue of a member: {sentence(error)}")

    def end(self) -> None:
        """End it; the jobs that run there are interrupted."""
        self._asked = True
        if self.phase is Phase.UP and self.job is not None:
            self._wind_down()
        elif self.phase not in (Phase.ASKED, Phase.ENDING):
            # A job that was sent a moment ago is cancelled when it is in the queue.
            self.give_up(UNNEEDED)

    def _end_in_time(self) -> None:
        """End it before what it runs in ends it: its jobs are interrupted, and none has failed."""
        if self.phase is Phase.UP:
            self._why = self._ends = "its walltime has ended"
            self._wind_down()

    def _wind_down(self) -> None:
        self._enter(Phase.ENDING)
        self._timers.later("end", END_SECONDS, lambda: self.give_up("it does not end"))
        self._ask_to_end()

    def _ask_to_end(self) -> None:
        # The initial program may not listen yet, so the event is published repeatedly.
        if self.phase is Phase.ENDING and self.instance is not None:
            self.instance.publish(END_TOPIC, lambda error: None)
            self._timers.later("ask", END_SPACING_SECONDS, self._ask_to_end)

    def _ending(self, instance: Followed) -> None:
        if instance is self.instance:
            self._orderly = True
            if self.phase is not Phase.ENDING:
                self.drain(self._ends, ends=True)

    def expires(self, t_expires: float | None) -> None:
        """Note that its walltime was changed."""
        if self.instance is not None and self.phase is Phase.UP:
            self.instance.ends.t_expires = t_expires
            self._walltime.watch(self.instance)

    def give_up(self, reason: str) -> None:
        """Fence it: cancel its job, and wait until that is clean."""
        if self.phase in (Phase.FENCING, Phase.GONE):
            return
        self._why = reason
        lost = self._is_lost
        # First, since the callbacks below may end the member.
        self._enter(Phase.FENCING)
        if lost:
            self._told.lost(self.tag, reason)
        if self.job is None:
            # It is no job of this service, or its job was never in the queue.
            self._conclude(fenced=self.uri is None)
            return
        if not self._asked:
            self._log_error(f"{self.tag.name}: member {self.tag.member} is cancelled: {reason}")
        self._fence(self.job)

    @property
    def _is_lost(self) -> bool:
        """True if it ends without being asked to, and did not announce its end.

        After such an announcement its reports are complete.
        """
        return not (self._asked or self._orderly or self.phase is Phase.FENCING)

    def _fence(self, job: JobName) -> None:
        if self.phase is Phase.FENCING and not self._closed:
            provider = self.provider
            assert provider is not None
            Tries(
                lambda report: provider.end(job, self._why, report),
                self._loop.timer,
                PATIENCE,
                partial(self._canceled, job),
            )

    def _canceled(self, job: JobName, error: Exception | None) -> None:
        if error is not None and self.phase is Phase.FENCING:
            self._log_error(f"cannot cancel a member: {sentence(error)}; trying again")
            self._timers.later("fence", RETRY_LIMIT, lambda: self._fence(job))

    def _clean(self) -> None:
        """Conclude when its job is over: all that it has sent until then is handled first."""
        instance = self.instance
        self._timers.stop_all()
        if instance is None:
            self._conclude(fenced=True)
        else:
            instance.finish(lambda: self._conclude(fenced=True))

    def _conclude(self, *, fenced: bool) -> None:
        if self.phase is Phase.GONE:
            return
        if self._is_lost:
            self._told.lost(self.tag, self._why)
        self._disconnect()
        self._enter(Phase.GONE)
        self.close()
        self._told.gone(
            self.tag, Gone(self._why, self._asked, fenced, self.attempts.lost(), self._outage)
        )

    def close(self) -> None:
        """Stop following the member; it goes on."""
        self._closed = True
        self._disconnect()
        if self._route is not None:
            self._route.close()
        self._timers.stop_all()

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT[self.phase], (self.phase, phase)
        self.phase = phase
