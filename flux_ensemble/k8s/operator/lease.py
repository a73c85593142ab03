"""The Lease by which one of several operators works: the one that holds it.

The holder renews the Lease. The others take it over when it has not changed for its whole duration,
by their own clocks, so that clocks need not agree. A holder that cannot renew the Lease in time has
lost it, and must stop before another operator can have it: `lost` is called, and the process ends.
The same happens if it finds another holder. No response ends the attempts, whether it is a page of
HTML, cut off, or empty.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable

from flux_ensemble.k8s.operator.cluster import ClusterFailure, KubernetesCluster, Resource

log = logging.getLogger(__name__)

#: In seconds: the duration of a Lease, the time within which it has to be renewed, and the time
#: between two attempts.
LEASE_SECONDS = 15.0
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0

_KIND = "coordination.k8s.io/v1", "Lease"


class Lease:
    """A Lease that this operator holds, or waits for.

    Args:
        cluster: of the Lease.
        namespace, name: of the Lease.
        holder: a unique name of this operator.
        seconds: duration of the Lease.
    """

    def __init__(
        self,
        cluster: KubernetesCluster,
        namespace: str,
        name: str,
        holder: str,
        *,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._place = namespace, name
        self._holder = holder
        self._seconds = seconds
        self._seen: tuple[object, float] = (None, 0.0)
        self._known: Resource | None = None
        self._taken = False
        self._t_renewed = 0.0
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def wait(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Wait until this operator holds the Lease.

        Args:
            stop: gives up when it returns True.

        Returns:
            True if the operator holds the Lease.
        """
        while not stop() and not self._stopped.is_set():
            if self._try():
                return True
            self._stopped.wait(self._scaled(RETRY_SECONDS))
        return False

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew the Lease from now on, in a thread; `lost` is called if that does not succeed.

        Another thread watches the clock, since a response that never ends blocks the first one.
        """
        calls = threading.Lock()

        def lose(why: str) -> None:
            # One call is enough, and need not return.
            if calls.acquire(blocking=False) and not self._stopped.is_set():
                self._stopped.set()
                log.error("the lease is lost: %s", why)
                lost()

        def renew() -> None:
            while not self._stopped.wait(self._scaled(RETRY_SECONDS)):
                if not self._try() and self._taken:
                    lose("another operator has it")
                    return

        def guard() -> None:
            limit = self._scaled(RENEW_SECONDS)
            while not self._stopped.wait(max(0.0, self._t_renewed + limit - time.monotonic())):
                if time.monotonic() - self._t_renewed >= limit:
                    lose(f"it was not renewed for {limit:g} s")
                    return

        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((renew, "lease"), (guard, "lease-guard"))
        ]
        for thread in self._threads:
            thread.start()

    def release(self) -> None:
        """Stop renewing the Lease, and release it so that others can have it at once."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(self._seconds)
        try:
            lease = self._cluster.get(*_KIND, *self._place)
            if lease is not None and lease["spec"].get("holderIdentity") == self._holder:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                self._cluster.replace(lease)
        except Exception as exc:
            log.warning("the lease was not given back: %s", exc)

    def _scaled(self, seconds: float) -> float:
        """Scale a duration for a Lease of LEASE_SECONDS to the duration of this one."""
        return self._seconds * seconds / LEASE_SECONDS

    def _try(self) -> bool:
        """Take or renew the Lease if nobody else holds it, whatever the response.

        Return success.
        """
        began = time.monotonic()
        known, self._known = self._known, None
        try:
            lease = known or self._cluster.get(*_KIND, *self._place)
            self._taken = lease is not None and self._is_of_another(lease)
            if self._taken:
                return False
            manifest = self._manifest(lease)
            write = self._cluster.create if lease is None else self._cluster.replace
            written = write(manifest)
            if written["spec"]["holderIdentity"] != self._holder:
                raise ValueError(f"the answer is not the Lease that was written: {written!r}")
        except ClusterFailure as failure:
            if failure.code != 409:
                log.warning("the lease cannot be had: %s", failure)
            return False
        except Exception:
            log.exception("the lease cannot be had")
            return False
        self._known, self._t_renewed = written, began
        return True

    def _is_of_another(self, lease: Resource) -> bool:
        holder = lease["spec"].get("holderIdentity")
        return bool(holder) and holder != self._holder and not self._is_stale(lease)

    def _is_stale(self, lease: Resource) -> bool:
        """Return True if the holder has not renewed the Lease for its whole duration."""
        version, now = lease["metadata"]["resourceVersion"], time.monotonic()
        if self._seen[0] != version:
            self._seen = version, now
        lasts = float(lease["spec"].get("leaseDurationSeconds") or LEASE_SECONDS)
        return now - self._seen[1] > lasts

    def _manifest(self, lease: Resource | None) -> Resource:
        namespace, name = self._place
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(lease["spec"]) if lease is not None else {}
        if spec.get("holderIdentity") != self._holder:
            taken = spec.get("leaseTransitions", -1) + 1
            spec |= {"acquireTime": now, "leaseTransitions": taken}
        spec |= {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "renewTime": now,
        }
        metadata = {"name": name, "namespace": namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return {"apiVersion": _KIND[0], "kind": _KIND[1], "metadata": metadata, "spec": spec}
