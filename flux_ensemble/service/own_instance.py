"""The Flux instance of the service: its nodes and its allocation, which ensembles are told of.

    [ensemble], or a load request ──► a scaler ────────────────┐
    queues.elastic.watcher, if the size is fixed, as needed ───┴──► MemberChanged ──► Ensemble

To engines it is the member MEMBER.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flux_ensemble.engine.errors import RequestError
from flux_ensemble.engine.events import AllocationChanged, AllocationEnding, MemberChanged
from flux_ensemble.metrics.names import MEMBER
from flux_ensemble.queues.elastic.factory import make_scaler
from flux_ensemble.queues.elastic.ranks import Ranks, nodes
from flux_ensemble.queues.elastic.settings import ScalerSettings, old_settings, read_scaler
from flux_ensemble.queues.elastic.watcher import RESPONSE_SECONDS, Resources
from flux_ensemble.queues.flux.broker import Broker
from flux_ensemble.queues.flux.errors import sentence
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Handle, Numbers, Scaler
from flux_ensemble.service.allocation import Allocation


class InstanceNodes:
    """The nodes of the Flux instance, and its scaler if it has one.

    Args:
        broker: of the instance.
        changed: called with each report.
        log_error: writes a line to the service's log.

    Attributes:
        latest: its latest report, None before the first.
        scaler: changes its size; None if the size is fixed.
    """

    def __init__(
        self,
        broker: Broker,
        changed: Callable[[MemberChanged], None],
        log_error: Callable[[str], None],
    ) -> None:
        self.latest: MemberChanged | None = None
        self.scaler: Scaler | None = None
        self._broker = broker
        self._changed = changed
        self._log_error = log_error
        self._failure: str | None = None
        self._resources: Resources | None = None
        self._settings: ScalerSettings | None = None
        self._adopted = False

    @property
    def elastic(self) -> bool:
        """The number of nodes can change."""
        return self.scaler is not None

    def configure(self, table: Mapping[str, Any]) -> None:
        """Use the scaler that the site has configured, if there is one.

        Args:
            table: [ensemble].

        Raises:
            ValueError, OSError: the scaler cannot be made.
        """
        settings = read_scaler(table)
        for warning in old_settings(table):
            self._log_error(f"[ensemble] {warning}")
        if settings is not None:
            self._use(settings)

    def _use(self, settings: ScalerSettings) -> None:
        scaler = make_scaler(self._broker, settings)
        if self.scaler is not None:
            self.scaler.close()
        self.rest()
        # The bounds in a report of the previous scaler are not valid any more.
        self.latest = None
        self.scaler, self._settings = scaler, settings

        def looked(size: int, up: int, free: int) -> None:
            self._says(size, up, free, scaler.low, scaler.high)

        scaler.watch(looked)

    def adopt(self, table: Mapping[str, Any], used: bool) -> None:
        """Use the scaler that a load request brings.

        Args:
            table: keys of [ensemble].
            used: ensembles run that may use the current scaler.

        Raises:
            RequestError: EINVAL, or EEXIST if there is another scaler.
        """
        try:
            settings = read_scaler({"scaler": None, **table})
            if settings is None or settings == self._settings:
                return
            if self._settings is not None and (used or not self._adopted):
                whose = "an ensemble that runs uses" if self._adopted else "the site configured"
                raise RequestError(
                    errno.EEXIST,
                    f"scaler: this instance has another one, {self._settings.kind!r}, and {whose} "
                    "it: load the document without a scaler of its own",
                )
            self._use(settings)
        except (ValueError, OSError) as error:
            raise RequestError(errno.EINVAL, f"ensemble.load: {error}") from None
        self._adopted = True

    def scale(self, to: int) -> dict[str, int]:
        """Begin to change the size.

        Args:
            to: number of nodes, which is limited to the scaler's bounds.

        Returns:
            {"before": the current size, "size": the future size}.

        Raises:
            RequestError: EINVAL if the size is fixed, EAGAIN if it is not known yet.
        """
        scaler, latest = self.scaler, self.latest
        if scaler is None:
            raise RequestError(
                errno.EINVAL,
                "the instance has a fixed size: no scaler is configured in [ensemble]",
            )
        if latest is None:
            raise RequestError(errno.EAGAIN, "the size of the instance is not known yet")
        size = min(max(to, scaler.low), scaler.high)

        def scaled(result: int | Exception) -> None:
            self._failure = sentence(result) if isinstance(result, Exception) else None
            if self._failure is not None:
                self._log_error(f"cannot change the size to {nodes(size)}: {self._failure}")

        scaler.scale(size, scaled)
        return {"before": latest.size, "size": size}

    def watch(self) -> None:
        """Watch the number of nodes, if no scaler does."""
        if not self.elastic and self._resources is None:
            self._resources = Resources(self._broker, self._counted)

    def rest(self) -> None:
        """Stop watching the number of nodes, if no scaler does."""
        if self._resources is not None:
            self._resources.close()
            self._resources = self.latest = None

    def close(self) -> None:
        """Stop, and give up the changes under way."""
        self.rest()
        if self.scaler is not None:
            self.scaler.close()

    def report(self) -> dict[str, Any]:
        """Return what `ensemble.status` has of the nodes, as JSON."""
        scaler = self.scaler
        return {
            "size": None if self.latest is None else self.latest.size,
            "scaler": None if scaler is None else scaler.report(),
            "failure": self._failure,
        }

    def _counted(self, ranks: Ranks) -> None:
        size = len(ranks.in_use)
        self._says(size, len(ranks.up), len(ranks.free), size, size)

    def _says(self, size: int, up: int, free: int, low: int, high: int) -> None:
        self.latest = MemberChanged(time.time(), MEMBER, size, up, free, low, high)
        self._changed(self.latest)


class OwnInstance:
    """The Flux instance of the service, as its ensembles see it.

    Args:
        broker: of the Flux instance.
        ensembles: receive the reports.
        ready: returns True once the ensembles are up to date with their jobs.
        guard: seconds before the allocation expires from which no job is started any more.
        log_error: writes a line to the service's log.
    """

    def __init__(
        self,
        broker: Broker,
        ensembles: Iterable[Ensemble],
        ready: Callable[[], bool],
        guard: float,
        log_error: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._ensembles = ensembles
        self._ready = ready
        self._waiting: dict[Ensemble, tuple[Callable[[], None], Handle]] = {}
        self._nodes = InstanceNodes(broker, self._tell, log_error)
        self._allocation = Allocation(
            broker, guard, self._tell_expiration, self._tell_ending, log_error
        )

    @property
    def elastic(self) -> bool:
        """The number of nodes can change."""
        return self._nodes.elastic

    @property
    def scaler(self) -> Scaler | None:
        """The scaler that changes the number of nodes; None if that is fixed."""
        return self._nodes.scaler

    def configure(self, table: Mapping[str, Any]) -> None:
        """Apply the configuration of the site.

        Raises:
            ValueError, OSError: the scaler cannot be made.
        """
        self._nodes.configure(table)

    def adopt(self, table: Mapping[str, Any]) -> None:
        """Use the scaler that a load request brings.

        Raises:
            RequestError: see `InstanceNodes.adopt`.
        """
        self._nodes.adopt(table, used=any(ensemble.live for ensemble in self._ensembles))

    def scale(self, to: int) -> dict[str, int]:
        """Begin to change the number of nodes: see `InstanceNodes.scale`."""
        return self._nodes.scale(to)

    def begin(self, ensemble: Ensemble, then: Callable[[], None]) -> None:
        """Tell an ensemble of the nodes and the allocation, and then call back.

        After some seconds the ensemble starts without what is not known yet.

        Args:
            ensemble: that is about to start.
            then: called when all is known; not called if the service has stopped being
                ready, in which case the call has to be repeated.
        """
        if ensemble in self._waiting:
            return
        self.changed(ensemble)
        late = self._broker.loop.timer(RESPONSE_SECONDS, lambda: self._go_on(ensemble))
        self._waiting[ensemble] = then, late
        if self._known(ensemble):
            self._go_on(ensemble)

    def changed(self, ensemble: Ensemble) -> None:
        """Adapt to changed needs of an ensemble."""
        if self._wants_nodes(ensemble):
            self._nodes.watch()
            if self._nodes.latest is not None and self._ready():
                ensemble.member_changed(self._nodes.latest)
        elif not any(map(self._wants_nodes, self._ensembles)):
            self._nodes.rest()
        if any(ensemble.live for ensemble in self._ensembles):
            self._allocation.watch()
            if self._allocation.known and self._ready():
                self._say_expiration(ensemble)
        else:
            self._allocation.rest()

    def begin_again(self) -> None:
        """Watch the allocation that ensembles are in after they have been restored."""
        if any(ensemble.live for ensemble in self._ensembles):
            self._allocation.watch()

    def instance(self) -> dict[str, Any]:
        """Return what `ensemble.status` has of the Flux instance, as JSON."""
        nodes = self._nodes.report()
        return {
            "nodes": nodes["size"],
            "t_expires": self._allocation.t_expires,
            "scaler": nodes["scaler"],
            "failure": nodes["failure"],
            "requests": self._requests(),
        }

    def _requests(self) -> list[dict[str, Any]]:
        """Return the outstanding requests of ensembles to change the nodes."""
        return [
            {"ensemble": ensemble.name, **request}
            for ensemble in self._ensembles
            if (request := ensemble.engine.nodes.report().get(MEMBER, {}).get("request"))
            is not None
        ]

    def report(self, nodes: Numbers, queue: Numbers) -> dict[str, dict[str, Any]]:
        """Return the instance as a member, as `ensemble.status` had it before it had `instance`.

        Args:
            nodes, queue: numbers of the Flux instance.
        """
        return {
            MEMBER: {
                **self._nodes.report(),
                "t_expires": self._allocation.t_expires,
                "nodes": nodes,
                "queue": queue,
                "requests": self._requests(),
            }
        }

    def close(self, *, start_queue: bool) -> None:
        """Stop; ensembles receive no more reports.

        Args:
            start_queue: as for `Allocation.rest`.
        """
        for _, late in self._waiting.values():
            late.cancel()
        self._waiting.clear()
        self._allocation.rest(start_queue=start_queue)
        self._nodes.close()

    def _wants_nodes(self, ensemble: Ensemble) -> bool:
        """Return True if the nodes of the instance matter to an ensemble."""
        return ensemble.live and (self.elastic or bool(ensemble.engine.wants_nodes))

    def _known(self, ensemble: Ensemble) -> bool:
        """Return True if all that matters to an ensemble is known."""
        if _wants_expiration(ensemble) and not self._allocation.known:
            return False
        return self._nodes.latest is not None or not self._wants_nodes(ensemble)

    def _tell(self, event: MemberChanged) -> None:
        if not self._ready():
            return
        for ensemble in self._ensembles:
            if ensemble.live:
                ensemble.member_changed(event)
        self._go_on_where_known()

    def _tell_expiration(self) -> None:
        if not self._ready():
            return
        for ensemble in self._ensembles:
            self._say_expiration(ensemble)
        self._go_on_where_known()

    def _tell_ending(self, t_expires: float) -> None:
        if not self._ready():
            return
        for ensemble in self._ensembles:
            if ensemble.live and ensemble.engine.t_walltime is None:
                ensemble.post([AllocationEnding(time.time(), t_expires)])

    def _say_expiration(self, ensemble: Ensemble) -> None:
        t_expires = self._allocation.t_expires
        engine = ensemble.engine
        if not _wants_expiration(ensemble) or engine.stats.t_expires == t_expires:
            return
        if engine.t_walltime is None or self._allocation.outlasts(engine.t_walltime):
            ensemble.post([AllocationChanged(time.time(), t_expires)])

    def _go_on_where_known(self) -> None:
        for ensemble in list(self._waiting):
            if self._known(ensemble):
                self._go_on(ensemble)

    def _go_on(self, ensemble: Ensemble) -> None:
        then, late = self._waiting.pop(ensemble)
        late.cancel()
        if self._ready():
            then()


def _wants_expiration(ensemble: Ensemble) -> bool:
    """Return True if the end of the allocation matters to an ensemble."""
    return ensemble.live and ensemble.engine.wants_of_member[1]
