"""The responses to `list` and `status` (docs/rpc.md)."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flux_ensemble import __version__
from flux_ensemble.client.guests import listed_for_guests, status_for_guests
from flux_ensemble.engine.jobs import ActiveJob
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Numbers
from flux_ensemble.service.fleet import MemberFleet
from flux_ensemble.service.own_instance import OwnInstance
from flux_ensemble.service.recovery.recovery import Recovery
from flux_ensemble.service.registry import Ensembles
from flux_ensemble.service.status.cache import Cache
from flux_ensemble.service.status.conditions import Conditions
from flux_ensemble.service.status.perf import Perf
from flux_ensemble.service.status.waits import Cause, Waits
from flux_ensemble.service.tracker import Tracker

Payload = Mapping[str, Any]
Listed = list[Payload]


class Reports:
    """Composes the responses.

    Args:
        mode: of the service, "module", "process" (of a keeper) or "client".
        ensembles, tracker, recovery, own, instance, perf: the subjects of the responses.
        state: returns the state of the service.
    """

    def __init__(
        self,
        mode: str,
        ensembles: Ensembles,
        tracker: Tracker,
        recovery: Recovery,
        own: OwnInstance,
        instance: Cache,
        perf: Perf,
        state: Callable[[], str],
    ) -> None:
        self._mode = mode
        self._ensembles = ensembles
        self._tracker = tracker
        self._recovery = recovery
        self._own = own
        self._instance = instance
        self._waits = Waits(tracker)
        self._perf = perf
        self._state = state
        self._t_start = time.time()
        self._past = {"commands": 0, "firings": 0}

    def forget(self, ensemble: Ensemble) -> None:
        """Drop an ensemble; its commands and firings still count."""
        self._waits.forget(ensemble)
        for key in self._past:
            self._past[key] += getattr(ensemble, key)

    def list(self, owner: bool) -> Payload:
        """Return the response to `ensemble.list`; guests see less than the owner."""
        behind = self._recovery.behind
        listed: Listed = [
            {**summary, "reason": f"recovering: {behind[summary['name']]}"}
            if (summary := ensemble.summary())["name"] in behind
            else summary
            for ensemble in self._ensembles
        ]
        listed += [
            *(_line(name, "unreadable", why) for name, why in self._recovery.unreadable.items()),
            *(
                _line(name, "recovering", far)
                for name, far in self._recovery.coming.items()
                if name not in self._recovery.unreadable
            ),
        ]
        if not owner:
            listed = listed_for_guests(listed)
        return {"ensembles": listed}

    def status(
        self, name: str | None, owner: bool, done: Callable[[Payload | Exception], None]
    ) -> None:
        """Compose the response to `ensemble.status`.

        Args:
            name: the only ensemble in the response, or None for all.
            owner: the sender is the owner; guests see less.
            done: receives the response, or an exception that was raised while it was composed.

        Raises:
            RequestError: ENOENT.
        """
        chosen = list(self._ensembles) if name is None else [self._ensembles.get(name)]

        def answered(nodes: Numbers, queue: Numbers, conditions: Conditions | None) -> None:
            try:
                answer: Payload | Exception = self._answer(chosen, owner, nodes, queue, conditions)
            except Exception as error:
                answer = error
            done(answer)

        self._instance.get(answered)

    def waits(self, ensemble: Ensemble, done: Callable[[Listed], None]) -> None:
        """Call back with what the jobs of an ensemble wait for, as in `status`."""
        self._instance.get(
            lambda nodes, queue, conditions: done(self._waits.of(ensemble, conditions))
        )

    def job_waits(
        self, ensemble: Ensemble, done: Callable[[Callable[[ActiveJob], Cause | None]], None]
    ) -> None:
        """Call back with a function that returns what a job of the ensemble waits for."""
        self._instance.get(
            lambda nodes, queue, conditions: done(
                lambda job: self._waits.of_job(ensemble, job, conditions)
            )
        )

    def _answer(
        self,
        chosen: Iterable[Ensemble],
        owner: bool,
        nodes: Numbers,
        queue: Numbers,
        conditions: Conditions | None,
    ) -> Payload:
        listed: Listed = [
            _status(ensemble, self._waits.of(ensemble, conditions)) for ensemble in chosen
        ]
        answer: dict[str, Any] = {
            "nodes": nodes,
            "queue": queue,
            "service": self._service(),
            "instance": self._own.instance(),
            # The name before.
            "members": self._own.report(nodes, queue),
            "ensembles": listed,
        }
        return answer if owner else status_for_guests(answer)

    def _service(self) -> Payload:
        return {
            "version": __version__,
            "mode": self._mode,
            "pid": os.getpid(),
            "t_start": self._t_start,
            "python": platform.python_version(),
            "epoch": self._recovery.epoch,
            "state": self._state(),
            "unreadable": self._recovery.unreadable,
            "recovering": {**self._recovery.coming, **self._recovery.behind},
            "events": self._tracker.events,
            **{
                key: past + sum(getattr(ensemble, key) for ensemble in self._ensembles)
                for key, past in self._past.items()
            },
            "perf": self._perf.report(),
        }


def _line(name: str, state: str, reason: str) -> Payload:
    """Return the line of `list` about an ensemble that is stored, and is not restored."""
    counts = dict.fromkeys(("active", "waiting", "finished", "failed"), 0)
    return {
        "name": name, "state": state, "reason": reason, "t_start": None, "t_end": None, **counts
    }  # fmt: skip


def _status(ensemble: Ensemble, waits: Listed) -> Payload:
    """Return the status of an ensemble; for its members also their jobs and URIs.

    No end is predicted while jobs wait for something that nobody can predict.
    """
    status = ensemble.status()
    status["waits"] = waits
    if waits:
        status.pop("t_predicted", None)
    if isinstance(ensemble.fleet, MemberFleet):
        places = ensemble.fleet.places()
        for pool in status["pools"].values():
            for member in pool["members"]:
                member.update(places.get(member["name"], {"job": None, "uri": None}))
    return status
