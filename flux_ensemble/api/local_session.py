"""A run on the local queue in a thread of this program."""

from __future__ import annotations

import errno
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from flux_ensemble.api.threads import Stopped
from flux_ensemble.client import EnsembleError
from flux_ensemble.deploy.run_host import RunHost, checked
from flux_ensemble.engine.errors import RequestError
from flux_ensemble.queues.local import state_dir
from flux_ensemble.queues.local.continuation import Continuation, of_program
from flux_ensemble.queues.local.kinds import QueueName
from flux_ensemble.queues.local.loop import LocalLoop
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.queues.local.run import LocalRun, RunError
from flux_ensemble.queues.virtual.cluster import UnsatisfiableError, VirtualCluster

if TYPE_CHECKING:
    from flux_ensemble.document.model import Spec
    from flux_ensemble.eventlog import Stored

#: Seconds between two reports of progress.
_PROGRESS_SECONDS = 0.5

#: Seconds between two looks at whether the run has ended.
LOOK_SECONDS = 0.2

#: Seconds within which the process of custom functions has to end.
_REAP_SECONDS = 2.0


class HasEndedError(EnsembleError):
    """The run that is to go on has ended.

    Args:
        error: of the state directory.
    """

    def __init__(self, error: state_dir.HasEndedError) -> None:
        super().__init__(errno.EIO, in_python(str(error)))
        self.name = error.name


@dataclass(frozen=True)
class Rerun:
    """A request by which a run that has ended goes on.

    Attributes:
        op: "rerun", or a request of a feature.
        asked: its payload, without the name.
        cwd: the directory of the run.
        again: goes on if it is interrupted.
    """

    op: str
    asked: Mapping[str, Any]
    cwd: str
    again: Continuation


class LocalSession:
    """A run of an ensemble in a thread of its own.

    Args:
        spec: the ensemble.
        text: its document.
        cluster: resources of the local queue.
        root: the state directory.
        resume: as for `queues.local.state_dir.StateLog`.
        rerun: the run has ended, and goes on by this request.
        queue: as for that `StateLog`.

    Attributes:
        name: of the ensemble, once it has begun.
        resumed, of_asked: as in that `StateLog`, once it has begun.
        cluster: as the argument.
        answer: that of the request, once it has begun; without a job there is no run.
    """

    events = False

    def __init__(
        self,
        spec: Spec,
        text: str,
        cluster: VirtualCluster,
        root: Path,
        resume: bool | None,
        rerun: Rerun | None = None,
        queue: QueueName | None = None,
    ) -> None:
        self.name = spec.name
        self.cluster = cluster
        self.answer: dict[str, Any] = {}
        self.resumed = False
        self.of_asked = ""
        self._begun: Future[None] = Future()
        self._failure: EnsembleError | None = None
        #: Calls for the thread, and a pipe that signals them.
        self._calls: deque[Callable[[], None]] = deque()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        #: Held while the pipe is written to or closed.
        self._pipe = Lock()
        self._over = False
        self.notes: deque[str] = deque(maxlen=100)
        self._run: LocalRun
        # A daemon thread: when the program ends, its jobs end, because the guard is closed.
        self._thread = Thread(
            target=self._main,
            args=(spec, text, cluster, root, resume, rerun, queue),
            name=f"ensemble {spec.name}",
            daemon=True,
        )
        self._thread.start()

    def begun(self) -> None:
        """Wait until the run has begun.

        Raises:
            EnsembleError: it cannot begin.
        """
        self._begun.result()

    def wait(self, timeout: float | None, stopped: Event) -> None:
        """Wait until the run has ended.

        Args:
            timeout: seconds to wait at most; None is no limit.
            stopped: set when nobody waits any more.

        Raises:
            TimeoutError: it has not ended in time.
            EnsembleError: it could not continue, or did not begin.
            Stopped: nobody waits any more.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"ensemble {self.name!r} has not ended in time")
            if stopped.wait(LOOK_SECONDS):
                raise Stopped
        if self._failure is not None:
            raise self._failure

    def ask(self, op: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request to the ensemble, and return the response.

        Raises:
            EnsembleError: the request was refused, or the run is over.
        """
        try:
            payload = checked(op, self.name, args)
        except RequestError as error:
            raise EnsembleError(error.errno, str(error)) from None
        answered: Future[Mapping[str, Any]] = Future()

        def answer(result: Mapping[str, Any] | RequestError) -> None:
            if isinstance(result, RequestError):
                answered.set_exception(EnsembleError(result.errno, str(result)))
            else:
                answered.set_result(result)

        self._call(lambda: self._run.ask(op, payload, answer))
        while True:
            try:
                return answered.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                if not self._thread.is_alive() and not answered.done():
                    raise self._ended() from None

    def write(self) -> None:
        """Write the status of the run to its files now; it does so once a second by itself."""
        written: Future[None] = Future()

        def write() -> None:
            self._run.write()
            written.set_result(None)

        with suppress(EnsembleError):  # the run has ended, and written it
            self._call(write)
            while self._thread.is_alive() and not written.done():
                wait([written], timeout=LOOK_SECONDS)

    # -- a `queues.local.run.Listener` ------------------------------------------------

    def entry(self, entry: Stored) -> None:
        """Ignore the entry, which is in the files."""

    def note(self, text: str) -> None:
        """Keep the note."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """Keep the warning as a note."""
        self.notes.append(text)

    def progress(self, status: Mapping[str, Any]) -> None:
        """Ignore the progress, which is in the files."""

    # -- in the thread ----------------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        with self._pipe:
            if self._over:
                raise self._ended()
            self._calls.append(function)
            os.write(self._write, b"x")

    def _ended(self) -> EnsembleError:
        return EnsembleError(
            errno.EINVAL,
            f"the run of {self.name!r} has ended, and takes no more requests: run() or start() "
            "begins another one",
        )

    def _drain(self) -> None:
        os.read(self._read, 4096)
        while self._calls:
            self._calls.popleft()()

    def _main(
        self,
        spec: Spec,
        text: str,
        cluster: VirtualCluster,
        root: Path,
        resume: bool | None,
        rerun: Rerun | None,
        queue: QueueName | None,
    ) -> None:
        try:
            kept = None if rerun is None else rerun.cwd
            with RunHost(root, spec, text, resume=resume, queue=queue, kept=kept) as host:
                self.name = host.spec.name
                self.resumed, self.of_asked = host.log.resumed, host.log.of_asked
                host.stack.callback(_reap, host.loop)
                host.stack.callback(host.loop.reader(self._read, self._drain).cancel)
                self._run = run = host.make(cluster, self)
                if rerun is None:
                    host.begin(of_program(resume))
                else:
                    self.answer = host.reopen(rerun.op, rerun.asked, rerun.again)
                    if "reopened" not in self.answer:
                        self._begun.set_result(None)
                        return
                self._begun.set_result(None)
                run.drive(_PROGRESS_SECONDS)
                run.finish()
                run.check_kept()
        except RequestError as error:
            self._failed(EnsembleError(error.errno, str(error)))
        except (UnsatisfiableError, RunError, StateError) as error:
            if isinstance(error, state_dir.HasEndedError):
                self._failed(HasEndedError(error))
            else:
                number = errno.EINVAL if isinstance(error, UnsatisfiableError) else errno.EIO
                self._failed(EnsembleError(number, in_python(str(error))))
        except OSError as error:
            self._failed(EnsembleError(error.errno or errno.EIO, f"the local queue: {error}"))
        except BaseException as error:
            self._failed(EnsembleError(errno.EIO, f"the local queue: {error!r}"))
            raise
        finally:
            with self._pipe:
                self._over = True
                os.close(self._read)
                os.close(self._write)

    def _failed(self, error: EnsembleError) -> None:
        self._failure = error
        if not self._begun.done():
            self._begun.set_exception(error)


def _reap(loop: LocalLoop) -> None:
    """Wait a short time for the end of the process of custom functions, which a timer checks."""
    deadline = time.monotonic() + _REAP_SECONDS
    loop.run(lambda: not loop.timers or time.monotonic() > deadline)


#: Options of commands, and what `Ensemble` has for them.
_ARGUMENTS = {
    "--force": "force=True",
    "--no-resume": "resume=False",
    "--resume": "resume=True",
    "--state-dir": "state_dir",
    "with --name": "with name=, or follow that one with Ensemble.attach()",
}

#: Commands, and what `Ensemble` has for them.
_METHODS = (
    (re.compile(r"'run'"), "run()"),
    (re.compile(r"'rerun ([^' ]+)'"), r"Ensemble.attach('\1').rerun()"),
    (re.compile(r"'search ([^' ]+) --more N'"), r"Ensemble.attach('\1').search(more=N)"),
)

#: Quoted words, or an option. Other commands stay as they are.
_OPTIONS = re.compile(r"'[^']*'|(?:with )?--[a-z-]+")


def in_python(sentence: str) -> str:
    """Return a sentence about options of a command with the arguments of `Ensemble`.

    >>> in_python("jobs.csv exists: --force replaces it")
    'jobs.csv exists: force=True replaces it'
    >>> in_python("'run --resume a.yaml' goes on with it")
    "'run --resume a.yaml' goes on with it"
    >>> in_python("'rerun a' runs the rest of it")
    "Ensemble.attach('a').rerun() runs the rest of it"
    """
    for command, method in _METHODS:
        sentence = command.sub(method, sentence)

    def said(found: re.Match[str]) -> str:
        words = found[0]
        if words.startswith("'"):
            return words
        start = "with " if words not in _ARGUMENTS and words.startswith("with ") else ""
        option = words.removeprefix(start)
        return start + _ARGUMENTS.get(option, option)

    return _OPTIONS.sub(said, sentence)
