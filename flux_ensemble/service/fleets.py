"""The members of all ensembles: jobs of the instance, and events from them.

    journal of the instance ──► Site ──MemberCallbacks──► the Fleet of the member's ensemble

A service that begins finds the members of its predecessor in the journal, by their tags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flux_ensemble.document.model import Spec
from flux_ensemble.queues.flux.queue import FluxQueue
from flux_ensemble.queues.nested.callbacks import Gone, MemberCallbacks
from flux_ensemble.queues.nested.listener import Facts
from flux_ensemble.queues.nested.service_handle import Channel, Followed
from flux_ensemble.queues.nested.shape import MemberTag
from flux_ensemble.queues.nested.site import Site
from flux_ensemble.queues.providers.flux.provider import FluxProvider
from flux_ensemble.queues.providers.site_providers import SiteProviders
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.service.fleet import MemberFleet


class Fleets:
    """The members of all ensembles.

    Args:
        queue: of the instance.
        owner: userid of the instance owner.
        epoch: returns the number of this service.
        keeps: returns True if members of a missing ensemble of that name are to be left alone.
        over: called when the last member is gone.
        log_error: writes a line to the service's log.
        reconnect: seconds after which a member that cannot be connected to is lost.
    """

    def __init__(
        self,
        queue: FluxQueue,
        *,
        owner: int,
        epoch: Callable[[], int],
        keeps: Callable[[str], bool],
        over: Callable[[], None],
        log_error: Callable[[str], None],
        reconnect: float,
    ) -> None:
        self._queue = queue
        self._owner = owner
        self._epoch = epoch
        self._keeps = keeps
        self._over = over
        self._log_error = log_error
        self._reconnect = reconnect
        self._site: Site | None = None
        self._flux = FluxProvider(queue, owner, log_error)
        self._providers = SiteProviders(queue.broker.loop, log_error, {"flux": self._flux})
        self._settled = False
        self._fleets: dict[tuple[str, int], MemberFleet] = {}

    @property
    def needed(self) -> bool:
        """An ensemble has members, or had some."""
        return bool(self._fleets)

    @property
    def busy(self) -> bool:
        """Members exist."""
        return self._site is not None and bool(list(self._site))

    def make(self, spec: Spec, load: Mapping[str, Any], warn: Callable[[str], None]) -> MemberFleet:
        """Make the fleet of an ensemble: see `MemberFleet`."""
        if self._site is None:
            self._site = self._found()
            self._site.settled = self._settled
        fleet = MemberFleet(
            self._site,
            self._providers,
            spec,
            load,
            owner=self._owner,
            epoch=self._epoch,
            cancel=self._flux.cancel,
            warn=warn,
        )
        self._fleets[spec.name, load["run"]] = fleet
        return fleet

    def _found(self) -> Site:
        site = Site(
            self._queue.broker.loop,
            self._queue.broker,
            told=MemberCallbacks(
                up=self._up,
                draining=lambda tag, why, ends: self._of(
                    tag, lambda fleet: fleet.draining(tag, why, ends)
                ),
                expires=lambda tag, t: self._of(tag, lambda fleet: fleet.expires(tag, t)),
                event=self._job_event,
                events=lambda tag, events: self._of(tag, lambda fleet: fleet.events(tag, events)),
                past=lambda tag, *args: self._of(tag, lambda fleet: fleet.past(tag, *args)),
                caught_up=lambda tag: self._of(tag, lambda fleet: fleet.caught_up(tag)),
                refused=self._refused,
                lost=lambda tag, why: self._of(tag, lambda fleet: fleet.lost(tag, why)),
                gone=self._gone,
            ),
            log_error=self._log_error,
            follows=self._follows,
            reconnect=self._reconnect,
        )
        self._flux.adopt = partial(site.adopt, self._flux)
        return site

    # -- the journal of the instance --------------------------------------------------

    def event(self, job: int, entry: Mapping[str, Any], jobspec: Mapping[str, Any] | None) -> None:
        """Take in an event of a job."""
        if self._site is not None:
            self._flux.event(job, entry, jobspec)

    def history(
        self, job: int, jobspec: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
    ) -> None:
        """Process a job that existed when the journal was opened, with its entries in order."""
        if self._site is not None:
            self._flux.past(job, jobspec, entries)

    def caught_up(self) -> None:
        """Note that `history` has received all jobs."""
        if self._site is not None:
            self._flux.caught_up(self._site.__contains__)

    def settle(self) -> None:
        """Note that everything earlier services sent has arrived."""
        self._settled = True
        if self._site is not None:
            self._site.settled = True
        for fleet in list(self._fleets.values()):
            fleet.settle()
            self.changed(fleet.ensemble)

    # -- ensembles ----------------------------------------------------------------------

    def changed(self, ensemble: Ensemble) -> None:
        """Follow other job events for an ensemble, or end its members if it is over."""
        fleet = self._fleets.get((ensemble.name, ensemble.run))
        if fleet is None:
            return
        if ensemble.live:
            fleet.changed()
        else:
            fleet.end_all()

    def dropped(self, ensemble: Ensemble) -> None:
        """End the members of an ensemble that is dropped."""
        fleet = self._fleets.pop((ensemble.name, ensemble.run), None)
        if fleet is not None:
            fleet.end_all()

    def close(self) -> None:
        """Release all members; they continue, and so do their jobs."""
        if self._site is not None:
            self._site.close()
        self._providers.close()

    # -- events of members --------------------------------------------------------------

    def _of(self, tag: MemberTag, tell: Callable[[MemberFleet], None]) -> None:
        """Call a function with the fleet that has the member, if there is one."""
        fleet = self._fleets.get((tag.name, tag.run))
        if fleet is not None:
            tell(fleet)

    def attached(self, tag: MemberTag, channel: Channel) -> bool | None:
        """Connect the service of a member that has called.

        Args:
            tag: of the member.
            channel: the channel to that service.

        Returns:
            False if the service is not expected now, None if there is no such member.
        """
        fleet = self._fleets.get((tag.name, tag.run))
        if self._site is None or tag not in self._site:
            return None
        if fleet is None:
            # The ensemble cannot be read, but may be readable when the service begins anew.
            return False if self._keeps(tag.name) else None
        return self._site.attached(tag, channel, fleet.load)

    def unfit(self, tag: MemberTag, reason: str) -> bool:
        """Refuse a service that does not fit its member; return False if there is no such member.

        See `MemberJob.unfit`.
        """
        if self._site is None or tag not in self._site:
            return False
        self._site[tag].unfit(reason)
        return True

    def _up(self, tag: MemberTag, instance: Followed, facts: Facts) -> None:
        fleet = self._fleets.get((tag.name, tag.run))
        if fleet is not None:
            fleet.up(tag, instance, facts)
        elif self._site is not None and not self._keeps(tag.name):
            self._log_error(f"member {tag.member} of {tag.name!r} is nobody's, and is ended")
            self._site.end(tag)

    def _job_event(
        self,
        tag: MemberTag,
        job: int,
        entry: Mapping[str, Any],
        jobspec: Mapping[str, Any] | None,
        interrupted: bool,
    ) -> None:
        fleet = self._fleets.get((tag.name, tag.run))
        if fleet is not None:
            fleet.event(tag, job, entry, jobspec, interrupted)

    def _refused(self, tag: MemberTag, reason: str) -> None:
        self._log_error(f"{tag.name}: there is no member {tag.member}: {reason}")

    def _gone(self, tag: MemberTag, gone: Gone) -> None:
        assert self._site is not None
        self._site.forget(tag)
        fleet = self._fleets.get((tag.name, tag.run))
        if fleet is not None:
            fleet.gone(tag, gone)
        if not self.busy:
            self._over()

    def _follows(self) -> tuple[frozenset[str], bool]:
        """Return the job events that are followed in each member, and whether places are."""
        names, places = frozenset[str](), False
        for fleet in self._fleets.values():
            if fleet.ensemble.live:
                theirs, where = fleet.follows
                names, places = names | theirs, places or where
        return names, places
