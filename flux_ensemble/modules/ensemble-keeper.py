"""The broker module `ensemble-keeper`: keeps the service running, as a process beside the broker.

    keeper ──starts, SIGTERM──► flux-ensemble serve ──registers──► the service `ensemble`
       └───── a socket: "ready", or why not; its end tells each of the other's death

Flux runs this file with its own Python, which may be too old for flux-ensemble: this is Python 3.6,
and needs the standard library and Flux's bindings alone. The service is its child, in the Python
that flux-ensemble is installed in. A death of the child harms nothing: it is started again, at once
and then with growing pauses, until it dies too often. The child never outlives the keeper.

Arguments (Flux splits them at white space, so the path is percent-encoded):

    python=FILE       the Python that flux-ensemble is installed in; by default the one of the
                      environment that this file lies in
    log-level=LEVEL   of the service: emerg, alert, crit, err, warning, notice, info or debug
    deaths=N          do not start it again after so many deaths (10)
    seconds=S         within so many seconds (300)
    silence=S         kill a service that has not answered for so long (300; 0 is never)
    pause=S           the longest pause before it is started again (15)
"""

import ctypes
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import syslog
import time
import traceback
import urllib.parse
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

#: By which commands ask for this module.
NAME = "ensemble-keeper"

#: What the service's Python must not take from Flux's, nor from the broker.
NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "FLUX_MODULE_URI")

#: Seconds in which the first child has to be ready, and any child ends after SIGTERM.
READY_SECONDS, END_SECONDS = 120.0, 30.0

#: Seconds that a child has to live for its death to count as no failure to start.
SHORT_LIFE = 10.0

#: Seconds between two looks whether the service answers, and after which one that does not is
#: killed. A service that is stopped for a while, or busy, answers sooner.
PING_SECONDS, SILENT_SECONDS = 10.0, 300.0

PR_SET_PDEATHSIG = 1

Logger = Callable[[int, str], None]


def mod_main(handle: Any, *args: str) -> None:
    """Entry point for Flux's module loader.

    Raises:
        ValueError: an argument that there is not.
        OSError: the service does not start; the log says why.
    """
    log = logger(handle)
    try:
        check_name(handle)
        options = parse(args)
        python = options.get("python") or find_python(os.path.realpath(__file__))
    except ValueError as error:
        # Flux keeps nothing but the errno of a failed load.
        log(syslog.LOG_ERR, str(error))
        raise
    restarts = Restarts(
        int(options.get("deaths", 10)),
        float(options.get("seconds", 300)),
        float(options.get("pause", 15)),
    )
    silence = Silence(float(options.get("silence", SILENT_SECONDS)))
    argv = command(python, options.get("log-level", "info"))
    keeper = Keeper(handle, log, argv, restarts, silence)
    # A module that was loaded by hand gets SIGTERM when the instance ends.
    stop = handle.signal_watcher_create(signal.SIGTERM, lambda *_: handle.reactor_stop())
    with stop:
        try:
            keeper.begin()
            if handle.reactor_run() < 0:
                raise OSError(errno.ECONNRESET, "the connection to the broker was lost")
        finally:
            keeper.end()


def check_name(handle: Any) -> None:
    """See that the module has the name by which commands ask for it.

    Raises:
        ValueError: it was loaded under another one.
    """
    found = handle.lib.flux_aux_get(handle.handle, b"flux::name")
    name = handle.ffi.string(handle.ffi.cast("char *", found)).decode()
    if name != NAME:
        raise ValueError("expected the name {!r}, not {!r}".format(NAME, name))


def parse(args: Sequence[str]) -> Dict[str, str]:
    """The module's arguments by name.

    Raises:
        ValueError: one that there is not, or that is no number.
    """
    numbers = ("deaths", "seconds", "pause", "silence")
    options = {}
    for arg in args:
        key, _, value = arg.partition("=")
        if not value or key not in ("python", "log-level", *numbers):
            raise ValueError(
                "unknown argument {!r} (arguments: python=FILE, log-level=LEVEL, deaths=N, "
                "seconds=S, silence=S, pause=S)".format(arg[:200])
            )
        if key in numbers and not re.match(r"[0-9]{1,9}$", value):
            raise ValueError("{}: expected a whole number, not {!r}".format(key, value[:200]))
        options[key] = urllib.parse.unquote(value)
    return options


def find_python(file: str) -> str:
    """The Python of the environment that holds a file, as PREFIX/lib/python3.N/site-packages/*/*.

    Raises:
        ValueError: there is none.
    """
    parts = file.split(os.sep)
    name = parts[-5] if len(parts) > 6 else ""
    own = os.sep.join([*parts[:-6], "bin", name])
    found = shutil.which(own) or shutil.which(name) if name.startswith("python3.") else None
    if found is None:
        raise ValueError(
            "cannot tell which Python flux-ensemble is installed in: load this module with "
            "'flux ensemble load --isolate', or pass python=FILE"
        )
    return found


def command(python: str, log_level: str) -> List[str]:
    """The service's command, up to the number of its end of the socket."""
    # -P: what lies in the working directory is not imported.
    main = [python, "-P", "-m", "flux_ensemble.cli.main"]
    return [*main, "serve", "--log-level", log_level, "--keeper"]


def environment(inherited: Mapping[str, str], uri: str) -> Dict[str, str]:
    """The service's environment, with the instance at `uri`."""
    kept = {name: value for name, value in inherited.items() if name not in NOT_INHERITED}
    kept["FLUX_URI"] = uri
    return kept


def ending(status: int) -> str:
    """Describe the end of a process, from its `Popen.returncode`."""
    if status >= 0:
        return "exited with status {}".format(status)
    try:
        return "was killed by {}".format(signal.Signals(-status).name)
    except ValueError:
        return "was killed by signal {}".format(-status)


def logger(handle: Any) -> Logger:
    """Return a function that writes to Flux's log: syslog level, text."""

    def log(level: int, text: str) -> None:
        for line in text.splitlines():
            # `flux_log` takes its text for a format of printf(3).
            line_of_c = handle.ffi.new("char[]", line.encode("utf-8", "backslashreplace"))
            handle.lib.flux_log(handle.handle, level, b"%s", line_of_c)

    return log


class Restarts:
    """The restarts of a child that dies: after pauses that grow, until it has died too often.

    Args:
        deaths: after so many...
        seconds: ...within so many seconds it is not started again.
        longest: the longest pause, in seconds.
    """

    def __init__(self, deaths: int, seconds: float, longest: float) -> None:
        self.deaths = deaths
        self.seconds = seconds
        self.longest = longest
        self._times = []  # type: List[float]
        self._short = 0

    def after(self, now: float, lived: float) -> Optional[float]:
        """Seconds until it is started again; None: not any more.

        Args:
            now: the time of the death, in seconds.
            lived: how long the child was there, in seconds.
        """
        self._times = [one for one in self._times if one > now - self.seconds] + [now]
        if len(self._times) >= self.deaths:
            return None
        self._short = self._short + 1 if lived < SHORT_LIFE else 0
        # At once, then 0.5, 1, 2, 4, ...
        return min(self.longest, 2.0 ** (self._short - 3)) if self._short > 1 else 0.0


class Silence:
    """Watches that a service answers in time when it is sent pings.

    Args:
        longest: seconds after which one that has not answered is silent.
    """

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self._asked = None  # type: Optional[float]
        self._looked = None  # type: Optional[float]

    def forget(self) -> None:
        """Forget the pings: another service has started."""
        self._asked = self._looked = None

    def ask(self, now: float) -> bool:
        """Return True if a ping is to be sent now: not while an answer is awaited."""
        if self._asked is not None:
            return False
        self._asked = now
        return True

    def answered(self) -> None:
        """Note that the service has answered."""
        self._asked = None

    def is_silent(self, now: float) -> bool:
        """Return True if the service has not answered for too long; to be called regularly.

        Time in which nobody looked does not count: this process was stopped then, too.
        """
        gap = 0.0 if self._looked is None else max(0.0, now - self._looked - 2 * PING_SECONDS)
        self._looked = now
        if self._asked is None:
            return False
        self._asked += gap
        return now - self._asked >= self.longest


class Keeper:
    """Starts the service, watches it, starts it again, and ends it.

    Args:
        handle: the module's handle.
        log: syslog level, text.
        argv: the service's command, without the number of its end of the socket.
        restarts: when it is started again.
        silence: when it is killed, since it does not answer.
    """

    def __init__(
        self, handle: Any, log: Logger, argv: List[str], restarts: Restarts, silence: Silence
    ) -> None:
        from flux.constants import FLUX_MSGTYPE_REQUEST

        self._handle = handle
        self._log = log
        self._argv = argv
        self._restarts = restarts
        self._silence = silence
        self._why = ""
        self._pinger = None  # type: Any
        self._environment = environment(os.environ, handle.attr_get("local-uri"))
        self._prctl = getattr(ctypes.CDLL(None), "prctl", None)
        self._child = None  # type: Optional[subprocess.Popen[bytes]]
        self._socket = None  # type: Optional[socket.socket]
        self._watcher = None  # type: Any
        self._timer = None  # type: Any
        self._began = 0.0
        self._state = "starting"
        self._said = b""
        self._count = 0
        self._last_exit = None  # type: Optional[str]
        self._answerer = handle.msg_watcher_create(
            self._guarded(self._stats), FLUX_MSGTYPE_REQUEST, NAME + ".stats-get"
        )
        self._answerer.start()

    def begin(self) -> None:
        """Start the service, and wait until it is ready.

        Raises:
            OSError: it does not start.
        """
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self._fail(getattr(error, "errno", None) or errno.EIO, str(error))
        assert self._socket is not None
        assert self._child is not None
        self._socket.settimeout(READY_SECONDS)
        try:
            self._said = self._socket.recv(4096)
        except socket.timeout:
            self._child.kill()
            self._fail(errno.ETIMEDOUT, "it is not ready after {:g} s".format(READY_SECONDS))
        if not self._said:
            status = ending(self._wait(END_SECONDS))
            self._fail(errno.ECHILD, "it {} (its standard error is the broker's)".format(status))
        number, _, text = self._said.decode("utf-8", "replace").partition(" ")
        if int(number) != 0:
            self._fail(int(number), text.strip())
        self._state = "running"
        self._watch()
        if self._silence.longest:
            every = min(PING_SECONDS, self._silence.longest / 4)
            self._pinger = self._handle.timer_watcher_create(
                every, self._guarded(self._ping), repeat=every
            )
            self._pinger.start()

    def _ping(self, *_: Any) -> None:
        """See whether the service answers, and kill one that does not."""
        now = time.monotonic()
        silent = self._silence.is_silent(now)
        if self._state != "running" or self._child is None:
            self._silence.forget()
        elif silent:
            self._why = "did not answer for {:g} s, and ".format(self._silence.longest)
            self._silence.forget()
            self._child.kill()
        elif self._silence.ask(now):
            # What it says does not matter.
            future = self._handle.rpc("ensemble.claim", {}, nodeid=0)
            future.then(lambda _, child: self._answered(child), self._child)

    def _answered(self, child: Any) -> None:
        if child is self._child:
            self._silence.answered()

    def _fail(self, number: int, why: str) -> None:
        self._log(syslog.LOG_ERR, "the ensemble service does not start: " + why)
        raise OSError(number, why)

    def end(self) -> None:
        """End the service, if it is there, and wait until it is gone."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            self._wait(END_SECONDS)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._child = subprocess.Popen(
                [*self._argv, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
                preexec_fn=self._in_child,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket, self._said, self._began = ours, b"", time.monotonic()
        self._state = "starting"

    def _in_child(self) -> None:
        """Before the service's command: signals as they were, and its death with ours.

        It has a process group of its own, which no Ctrl-C is for, but no session: where the kernel
        shares out cores by session (CONFIG_SCHED_AUTOGROUP), it would wait several times as long.
        """
        os.setpgid(0, 0)
        # Flux's reactor has blocked those that it watches.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if self._prctl is not None:
            self._prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))

    def _wait(self, seconds: float) -> int:
        """Wait for the child's end, and return its status; kill it after `seconds`."""
        assert self._child is not None
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def _watch(self) -> None:
        from flux.constants import FLUX_POLLIN

        assert self._socket is not None
        self._socket.setblocking(False)
        self._watcher = self._handle.fd_watcher_create(
            self._socket.fileno(), self._guarded(self._read), FLUX_POLLIN
        )
        self._watcher.start()

    def _guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        """`call` for a watcher: an exception that leaves one would end the whole instance."""

        def guarded(*args: Any) -> None:
            try:
                call(*args)
            except Exception:
                self._log(syslog.LOG_ERR, traceback.format_exc())

        return guarded

    def _read(self, *_: Any) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:  # ECONNRESET: it has died with something unread
            data = b""
        self._said += data
        if data:
            if self._said.startswith(b"0"):
                self._state = "running"
            return
        self._watcher.stop()
        self._watcher.destroy()
        self._socket.close()
        self._died(ending(self._wait(END_SECONDS)))

    def _died(self, how: str) -> None:
        """The child is gone, or could not be started."""
        now = time.monotonic()
        # "0 ready", and the reason where there is one.
        lines = self._said.decode("utf-8", "replace").splitlines()
        why = [line.partition(" ")[2] for line in lines if not line.startswith("0 ")]
        self._last_exit = ": ".join([self._why + how, *why[-1:]])
        self._why = ""
        self._silence.forget()
        pause = self._restarts.after(now, now - self._began)
        text = "the ensemble service {}".format(self._last_exit)
        if pause is None:
            self._state = "given up"
            self._log(
                syslog.LOG_CRIT,
                "{}: {} deaths within {:g} s, it is not started again ('flux ensemble "
                "supervise' begins anew)".format(
                    text, self._restarts.deaths, self._restarts.seconds
                ),
            )
            return
        self._state = "waiting"
        when = "in {:g} s".format(pause) if pause else "at once"
        self._log(syslog.LOG_ERR, "{}; it is started again {}".format(text, when))
        self._count += 1
        self._timer = self._handle.timer_watcher_create(pause, self._guarded(self._again))
        self._timer.start()

    def _again(self, *_: Any) -> None:
        self._timer.destroy()
        self._began = time.monotonic()
        self._said = b""
        try:
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            self._died("cannot be started ({})".format(error))
            return
        self._watch()

    def _stats(self, _handle: Any, _watcher: Any, message: Any, _args: Any) -> None:
        """`flux module stats`: the child's state and id, its age in seconds, and how it ended."""
        there = self._state in ("starting", "running") and self._child is not None
        self._handle.respond(
            message,
            {
                "state": self._state,
                "pid": self._child.pid if there and self._child is not None else None,
                "age": time.monotonic() - self._began if there else None,
                "restarts": self._count,
                "last_exit": self._last_exit,
            },
        )
