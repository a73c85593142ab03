"""The home of an ensemble without Flux: its workers are jobs of a batch system, and call it.

    LocalRun ──commands──► MemberFleet ──► Site ──► its provider ──► a worker in each job
             ◄──events─────┘  ▲ └◄── Attachments ◄── Wire ◄──TLS── calls ◄──┘

What has to outlast the home is in the directory of the run: among the events which members there
are, with their jobs; and in the file `home` the port and the authority that signs certificates. So
a home that was killed goes on at the same port, and the workers call it again.

A worker gets a certificate for itself. It names the one member that it may act for, and only the
home of this run accepts it.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flux_ensemble.document.loading import load_text
from flux_ensemble.document.model import Spec
from flux_ensemble.engine.engine import Engine
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.extras import install_command
from flux_ensemble.queues.local.directory import Directory
from flux_ensemble.queues.local.recovery import Recovered
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.run import RunError
from flux_ensemble.queues.local.state_dir import TAILS
from flux_ensemble.queues.nested.callbacks import Gone, MemberCallbacks
from flux_ensemble.queues.nested.life import Phase
from flux_ensemble.queues.nested.provider import Provider, UnavailableError
from flux_ensemble.queues.nested.shape import MemberTag
from flux_ensemble.queues.nested.site import RECONNECT_SECONDS, Site
from flux_ensemble.queues.nested.tails import MOST_BYTES, tail_line
from flux_ensemble.queues.providers.site_providers import SiteProviders
from flux_ensemble.runtime.durability.lines import write_all
from flux_ensemble.runtime.ensemble import Ensemble
from flux_ensemble.runtime.ports import Handle, Loop
from flux_ensemble.service.attachments import Attachments, Way
from flux_ensemble.service.fleet import MemberFleet
from flux_ensemble.service.status.waits import members_wait
from flux_ensemble.service.wire import HOME_NAME, QUIET_SECONDS, Wire, tls_context

if TYPE_CHECKING:
    from flux_ensemble.certificates import Authority

#: The time before its making from which a certificate is valid: clocks that differ are said to, and
#: the reason is not TLS.
EARLIER = datetime.timedelta(days=1)

#: The file with what a home needs to go on.
HOME_FILE = "home"

#: Seconds after which a worker without a home ends.
PATIENCE_SECONDS = 600.0

#: Seconds without a message after which a connection counts as lost. A worker that has nothing to
#: report repeats its latest message each QUIET_SECONDS.
SILENCE_SECONDS = 3 * QUIET_SECONDS

#: Most calls that wait for the end of their handshake at once.
MOST_CALLS = 256

#: Seconds that members may take to end with their ensemble.
END_SECONDS = 60.0

#: Most bytes of the file.
_MOST_BYTES = 1 << 16


class HomeError(RunError):
    """An error: a home cannot be started here; the text is a sentence."""


# -- certificates ------------------------------------------------------------------------------


def worker_uri(run: int, ordinal: int) -> str:
    """Return the name of a worker in its certificate.

    >>> worker_uri(7, 2)
    'flux-ensemble://run/7/2'
    """
    return f"flux-ensemble://run/{run}/{ordinal}"


def _certificates() -> Any:
    try:
        from flux_ensemble import certificates
    except ImportError as error:
        raise HomeError(
            f"members that call need certificates, which need {error.name}: "
            f"{install_command('grpc')}"
        ) from None
    return certificates


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def addresses() -> list[str]:
    """Return the names and addresses by which this machine may be reached, the likeliest first."""
    found = [socket.gethostname(), socket.getfqdn()]
    # No packet is sent: this asks the kernel for the address of a way out.
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                found.append(probe.getsockname()[0])
        except OSError:
            continue
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Kept:
    """The data that has to outlast a home.

    Args:
        run: a number that distinguishes the run from others of its name.
        port: of the home.
        authority: signs the certificates.
    """

    run: int
    port: int
    authority: Authority

    def write(self, directory: Directory) -> None:
        """Write it into the directory of the run, for the user alone."""
        data = {name: value.decode() for name, value in self.authority.data().items()}
        text = json.dumps({"run": self.run, "port": self.port, "authority": data})
        directory.replace(HOME_FILE, text.encode())

    @classmethod
    def read(cls, directory: Directory) -> Kept:
        """Read it.

        Raises:
            HomeError: it cannot be used.
        """
        certificates = _certificates()
        path = directory.path / HOME_FILE
        try:
            value = json.loads(directory.read(HOME_FILE, _MOST_BYTES))
            data = {name: text.encode() for name, text in value["authority"].items()}
            authority = certificates.read_authority(data, _now())
            return cls(value["run"], value["port"], authority)
        except OSError as error:
            raise HomeError(f"cannot read {path}: {error.strerror}") from None
        except certificates.UnusableAuthority as error:
            raise HomeError(f"{path}: the authority of its members is unusable: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise HomeError(f"{path}: expected what the home of members needs to go on") from None

    def credentials(self, tag: MemberTag, patience: float) -> str:
        """Return what a worker needs to call, as JSON.

        Args:
            tag: of its member.
            patience: seconds after which a worker without a home ends.
        """
        certificates = _certificates()
        wanted = certificates.CertificateRequest(
            tag.member, uris=[worker_uri(self.run, tag.ordinal)]
        )
        issued = certificates.issue(self.authority, wanted, _now() - EARLIER)
        return json.dumps(
            {
                "addresses": addresses(),
                "port": self.port,
                "ca": issued[certificates.TRUSTED].decode(),
                "cert": issued[certificates.CERTIFICATE].decode(),
                "key": issued[certificates.KEY].decode(),
                "tag": tag.dump(),
                "patience": patience,
            }
        )

    def server_context(self) -> ssl.SSLContext:
        """Return what the home answers calls with."""
        certificates = _certificates()
        wanted = certificates.CertificateRequest("home", hosts=[HOME_NAME])
        issued = certificates.issue(self.authority, wanted, _now() - EARLIER)
        names = certificates.TRUSTED, certificates.CERTIFICATE, certificates.KEY
        return tls_context(ssl.PROTOCOL_TLS_SERVER, *(issued[name] for name in names))


def new_kept(name: str) -> tuple[Kept, socket.socket]:
    """Return what a new home keeps, and its socket.

    Args:
        name: of the ensemble.

    Raises:
        HomeError: there can be no home here.
    """
    authority = _certificates().new_authority(name, _now() - EARLIER)
    sock = _listen(0)
    return Kept(int(time.time() * 1e6), sock.getsockname()[1], authority), sock


def _reason(error: OSError) -> str:
    """Return the reason without the address, which `socket.create_server` adds to it."""
    return os.strerror(error.errno) if error.errno else str(error)


def _listen(port: int) -> socket.socket:
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=dual)
    except OSError as error:
        raise HomeError(
            f"cannot listen on port {port}, at which its members call: {_reason(error)}"
        ) from None


# -- calls -------------------------------------------------------------------------------------


class Call:
    """A call of a worker.

    Args:
        listener: that has taken it.
        sock: of it.
    """

    def __init__(self, listener: Listener, sock: ssl.SSLSocket, peer: str) -> None:
        self._listener = listener
        self._peer = peer
        self._names: list[str] = []
        self._way: Way | None = None
        self.shaken = False
        self.wire = Wire(
            listener.loop,
            sock,
            opened=self._opened,
            taken=self._taken,
            lost=self._lost,
            silence=SILENCE_SECONDS,
        )

    def _opened(self, names: list[str]) -> None:
        self.shaken = True
        self._names = names

    def _taken(self, message: Mapping[str, Any]) -> None:
        try:
            if "attach" in message and self._way is None:
                self._attach(message["attach"])
            elif "report" in message and self._way is not None:
                report = {**message["report"], "contact": self._way.contact}
                self.wire.put({"answer": self._listener.attachments.report(report)})
            elif "tail" in message and self._way is not None:
                task, text = message["tail"]
                self._listener.tail(self._ordinal, int(task), str(text))
        except RequestError as error:
            self.wire.put({"error": [error.errno, str(error)]})
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
            self._listener.log(f"a message of {self._peer} is not understood: {error!r}")
            self.wire.close()
            self._lost("")

    def _attach(self, payload: Mapping[str, Any]) -> None:
        if worker_uri(payload["run"], payload["ordinal"]) not in self._names:
            reason = f"the certificate is not that of member {payload['member']!r}"
            self._listener.log(f"a call of {self._peer} is refused: {reason}")
            raise RequestError(errno.EPERM, reason)
        self._ordinal: int = payload["ordinal"]
        self._way = self._listener.attachments.attach(
            payload, lambda answer: self.wire.put({"message": answer}), self._over
        )

    def _over(self) -> None:
        """Close the connection: the worker calls again if it is to."""
        self._way = None
        self.wire.put({"error": [errno.ESTALE, "the contact is over; call again"]})

    def _lost(self, reason: str) -> None:
        self._listener.calls.discard(self)
        way, self._way = self._way, None
        if way is not None:
            way.lost()
        elif reason and not self.shaken:
            self._listener.refused(self._peer, reason)


class Listener:
    """Takes the calls of workers.

    Args:
        loop: of the run.
        sock: that listens.
        context: of TLS.
        attachments: the connections to workers.
        log: receives lines for people.
        tail: receives the last output of a failed task: the number of its member, its id, and it.

    Attributes:
        calls: those that are open.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        context: ssl.SSLContext,
        attachments: Attachments,
        log: Callable[[str], None],
        tail: Callable[[int, int, str], None],
    ) -> None:
        self.loop = loop
        self.attachments = attachments
        self.log = log
        self.tail = tail
        self.calls: set[Call] = set()
        self._context = context
        self._socket = sock
        self._refused: set[str] = set()
        sock.setblocking(False)
        self._reader = loop.reader(sock.fileno(), self._called)

    def _called(self) -> None:
        try:
            plain, peer = self._socket.accept()
        except OSError:
            return  # it is gone again, or there are too many files
        if sum(not call.shaken for call in self.calls) >= MOST_CALLS:
            plain.close()
            return
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock = self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError:
            plain.close()  # it has hung up
            return
        self.calls.add(Call(self, sock, str(peer[0])))

    def refused(self, peer: str, reason: str) -> None:
        """Log once that nothing has come of the calls of a machine."""
        if peer not in self._refused and len(self._refused) < MOST_CALLS:
            self._refused.add(peer)
            self.log(f"a call of {peer} is refused: {reason}")

    def close(self) -> None:
        """Take no calls any more; workers go on, and call again."""
        self._reader.cancel()
        self._socket.close()
        for call in list(self.calls):
            call.wire.close()
        self.calls.clear()


# -- the home ----------------------------------------------------------------------------------


class Home:
    """The queue of a run whose jobs run on workers: see `queues.local.run_queue.RunQueue`.

    Args:
        spec: the ensemble.
        loop: of the run.
        directory: of the run.
        resumed: the run goes on.
        environment, cwd: of its jobs.
        text: its document.
        log: receives lines for people.
        reconnect: seconds after which a worker that does not call is lost.
        patience: seconds after which a worker without a home ends.
        providers: of the members, where they are not to be made.

    Attributes:
        member, fleet: of the ensemble.
        run: its number.

    Raises:
        HomeError: there can be no home here.
    """

    running = 0

    def __init__(
        self,
        spec: Spec,
        loop: Loop,
        directory: Directory,
        *,
        resumed: bool,
        environment: Mapping[str, str],
        cwd: str,
        text: str,
        log: Callable[[str], None],
        reconnect: float = RECONNECT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._log = log
        self._closed = False
        self._listener: Listener | None = None
        self._tails_left = MOST_BYTES
        if resumed:
            self._kept = Kept.read(directory)
            self._socket = _listen(self._kept.port)
        else:
            self._kept, self._socket = new_kept(spec.name)
            self._kept.write(directory)
        self.run = self._kept.run
        self._providers = SiteProviders(loop, log, dict(providers or {}), directory.path)
        try:
            for pool in spec.members:
                self._providers[pool.provider]
        except UnavailableError as error:
            raise HomeError(str(error)) from None
        self._site = Site(
            loop,
            None,
            told=self._told(),
            log_error=log,
            follows=lambda: self.fleet.follows,
            reconnect=reconnect,
        )
        files: dict[str, str] = {}
        load_text(text, name=spec.name, directory=spec.directory, files=files)
        load = {"text": text, "run": self.run, "environment": environment, "cwd": cwd}
        # Of its file only the directory is read, from which paths in the document lead.
        load |= {"name": spec.name, "files": files, "file": f"{spec.directory}/document"}
        self.member = self.fleet = MemberFleet(
            self._site,
            self._providers,
            spec,
            load,
            owner=os.getuid(),
            epoch=lambda: 0,
            cancel=lambda job, reason: None,
            warn=log,
            credentials=lambda tag: self._kept.credentials(tag, patience),
        )
        epoch = int(time.time())
        self._attachments = Attachments(self, loop, lambda: epoch)

    def _told(self) -> MemberCallbacks:
        return MemberCallbacks(
            up=lambda *args: self.fleet.up(*args),
            draining=lambda *args: self.fleet.draining(*args),
            expires=lambda *args: self.fleet.expires(*args),
            event=lambda *args: self.fleet.event(*args),
            events=lambda *args: self.fleet.events(*args),
            past=lambda *args: self.fleet.past(*args),
            caught_up=lambda *args: self.fleet.caught_up(*args),
            refused=lambda tag, why: self._log(f"member {tag.member} cannot be used: {why}"),
            lost=lambda *args: self.fleet.lost(*args),
            gone=self._gone,
        )

    def _gone(self, tag: MemberTag, gone: Gone) -> None:
        self._site.forget(tag)
        self.fleet.gone(tag, gone)

    # -- the service of members: see `attachments.AttachableMembers` -------------------------------

    def attached(self, tag: MemberTag, channel: Way) -> bool | None:
        """Connect the service of a member that has called."""
        # One that was given up is to end, also where its job cannot be cancelled now.
        if tag not in self._site or self._site[tag].phase is Phase.FENCING:
            return None
        return self._site.attached(tag, channel, self.fleet.load)

    def unfit(self, tag: MemberTag, reason: str) -> bool:
        """Note why the worker of a member is unsuitable."""
        if tag in self._site:
            self._site[tag].unfit(reason)
        return tag in self._site

    # -- the run -----------------------------------------------------------------------------------

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble whose home it is."""
        return self.fleet.ensemble

    def belongs(self, ensemble: Ensemble, durable: Callable[[Callable[[], None]], None]) -> None:
        """Set the ensemble, and what waits for commits of its log."""
        self.fleet.ensemble, self.fleet.durable = ensemble, durable

    def open(self) -> None:
        """Take calls from now on, and look for the members that an earlier home had."""
        self._site.settled = True
        if self.ensemble.engine.t_start is not None:
            self.fleet.settle()
        self._listener = Listener(
            self._loop,
            self._socket,
            self._kept.server_context(),
            self._attachments,
            self._log,
            self._keep_tail,
        )

    def changed(self) -> None:
        """Follow other job events, or end the members of an ensemble that is over."""
        if self.ensemble.live:
            self.fleet.changed()
        else:
            self.fleet.end_all()

    @property
    def busy(self) -> bool:
        """Members exist."""
        return any(True for _ in self._site)

    @property
    def active(self) -> int:
        """Number of jobs that have not ended."""
        return len(self.ensemble.engine.workload.jobs)

    def places(self) -> dict[str, dict[str, Any]]:
        """Return the places of the members: see `MemberFleet.places`."""
        return self.fleet.places()

    def output(self, name: str, job: int, done: Callable[[str | Exception | None], None]) -> None:
        """Read the end of what a job of a worker wrote: see `MemberFleet.output`."""
        self.fleet.output(name, job, done)

    def _keep_tail(self, ordinal: int, task: int, text: str) -> None:
        """Write the last output of a failed task into the directory of the run."""
        members = self.ensemble.engine.members
        line = tail_line(task, text)
        if members is None or ordinal not in members.known or len(line) > self._tails_left:
            return
        self._tails_left -= len(line)
        try:
            with self._directory.enter(TAILS, make=True) as directory:
                name = members.known[ordinal].name
                fd = directory.open_or_make(name, os.O_WRONLY | os.O_APPEND)
                try:
                    write_all(fd, line)
                finally:
                    os.close(fd)
        except (StateError, OSError) as error:
            self._tails_left = 0
            self._log(f"what failed tasks wrote is not kept: {error}")

    def waits(self) -> list[dict[str, Any]]:
        """Return why members wait, and jobs that fit on none: see `client.responses.Wait`."""
        return [asdict(wait) for wait in members_wait(self.ensemble)] if self.ensemble.live else []

    def adopt(self, recovered: Recovered, engine: Engine) -> None:
        """Do nothing: the jobs are on the members."""

    def halt(self) -> None:
        """Do nothing: the members go on until they are ended, or have no home for too long."""

    def stop(self) -> None:
        """Do nothing, as `halt`."""

    def abandon(self, reason: str) -> None:
        """End the members, without a wait for it."""
        self.fleet.end_all()

    def close(self) -> None:
        """Take no calls any more; members go on, and call again."""
        if self._closed:
            return
        self._closed = True
        if self._listener is None:
            self._socket.close()
        else:
            self._listener.close()
        self._site.close()
        self._providers.close()

    def late(self, then: Callable[[], None]) -> Handle:
        """Call back when members have had enough time to end with their ensemble."""
        return self._loop.timer(END_SECONDS, then)
