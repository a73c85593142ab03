"""Members of ensembles as a test has them: watched on its own, killed, stopped, and cancelled."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import flux
from flux.uri import JobURI
from scenario import TICK, parent
from witness import Job, Witness

#: What became of a job by which it can tell nothing more.
_OVER = ("clean", "invalidate")

#: Of a job that nobody holds.
_URGENCY = 16


class Member(Witness):
    """A member: its job in the enclosing instance, and a witness of its own jobs.

    Attributes:
        job: its job.
        name: such as "pool.0".
        pid: of its broker; 0 before that is known.
        lost: its broker was killed, so that nobody may know of the last that happened there.
        socket: of its broker.
        stays: it goes on when its ensemble is over.
    """

    stays = False

    def __init__(self, job: Job, uri: str) -> None:
        assert job.member is not None
        self.job = job
        self.name = str(job.member["member"])
        self.pid = 0
        self.lost = False
        self._held: set[int] = set()
        self.socket = Path(urlparse(uri).path)
        super().__init__(uri, starting=True)

    def connected(self, handle: Any) -> None:
        """Learn which process it is."""
        self.pid = self.pid or int(handle.attr_get("broker.pid"))

    @property
    def t_clean(self) -> float | None:
        """When nothing of it could run any more, as the enclosing instance says."""
        end = next((found for name in _OVER if (found := self.job.first(name))), None)
        return None if end is None else end[0]

    def running(self, ensemble: str) -> int:
        """How many jobs of an ensemble run on it, as far as is known."""
        return sum(job.first("start") is not None for job in self.started(ensemble))

    def waiting(self, ensemble: str) -> list[Job]:
        """The jobs of an ensemble that have no resources of it, as far as is known."""
        return [job for job in self.of(ensemble) if job.first("alloc") is None]

    def kill(self) -> None:
        """Kill its broker."""
        self.lost = True
        os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send its broker a signal."""
        os.kill(self.pid, number)

    def start_queue(self, start: bool) -> None:
        """Start its queue, or stop it: what it has been sent waits."""
        request = {"start": start, "all": True, "nocheckpoint": True, "reason": "a test"}
        self._handle.rpc("job-manager.queue-start", request).get()

    def held(self, ensemble: str) -> list[Job]:
        """Have the jobs of an ensemble that wait on it wait, whatever its queue does.

        Returns:
            Those that do. Others have got resources, though that may not be known yet.
        """
        handle = self._handle
        for job in self.waiting(ensemble):
            if job.id not in self._held:
                with contextlib.suppress(OSError):
                    handle.rpc("job-manager.urgency", {"id": job.id, "urgency": 0}).get()
                    self._held.add(job.id)
        return [job for job in self.waiting(ensemble) if job.id in self._held]

    def let_go(self, job: Job) -> None:
        """Have one of these wait no more."""
        self._handle.rpc("job-manager.urgency", {"id": job.id, "urgency": _URGENCY}).get()
        self._held.remove(job.id)

    @property
    def _handle(self) -> Any:
        """Another handle of it: that of the witness is used by its thread."""
        return flux.Flux(f"local://{self.socket}")

    @property
    def shell(self) -> int:
        """The process by which the enclosing instance learns of its end."""
        return parent(self.pid)


class Standing(Member):
    """An instance that was there before, and is a member by its URI: it is no job.

    Args:
        ensemble: of which it is a member.
        name: such as "other.0".
        uri: by which it is watched.
    """

    stays = True

    def __init__(self, ensemble: str, name: str, uri: str) -> None:
        job = Job(0)
        job.member = {"name": ensemble, "member": name}
        super().__init__(job, uri)


class Members:
    """The members that there are in an instance, and were.

    Args:
        enclosing: watches the instance.
    """

    def __init__(self, enclosing: Witness) -> None:
        self._enclosing = enclosing
        self._members: dict[int, Member] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(5 * TICK):
            for job in self._enclosing.members():
                memos = [memo for name, _, memo in job.events if name == "memo"]
                uri = next((memo["uri"] for memo in memos if "uri" in memo), None)
                if uri is not None and job.id not in self._members:
                    self._members[job.id] = Member(job, str(JobURI(uri).local))

    def add(self, member: Standing) -> None:
        """There is one that is no job."""
        self._members[-1 - len(self._members)] = member

    def of(self, ensemble: str) -> list[Member]:
        """All members of an ensemble that there have been."""
        return [
            one for one in list(self._members.values())
            if one.job.member is not None and one.job.member["name"] == ensemble
        ]  # fmt: skip

    def up(self, ensemble: str) -> list[Member]:
        """Those that were not harmed, and have not ended, with the most running jobs first."""
        found = [one for one in self.of(ensemble) if not one.lost and one.t_clean is None]
        return sorted(found, key=lambda one: -one.running(ensemble))

    def jobs(self, ensemble: str) -> list[tuple[Member, Job]]:
        """The jobs of an ensemble that its members accepted."""
        return [(member, job) for member in self.of(ensemble) for job in member.of(ensemble)]

    def close(self) -> None:
        """Watch no more."""
        self._end.set()
        self._thread.join(10)
        for member in self._members.values():
            member.close()
