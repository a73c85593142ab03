"""Has the process of warm_server.py run a command in its place: `python -IS warm_client.py ...`.

    command ARGUMENT ...    `flux-ensemble ARGUMENT ...`
    script FILE ARGUMENT ...    `flux python FILE ARGUMENT ...`
    python FILE ARGUMENT ...    `python FILE ARGUMENT ...`, of the virtual environment
    flux NAME ARGUMENT ...    `flux NAME ARGUMENT ...`, one of those that are written in Python

It passes on its files, its directory, its environment and the signals that it gets, and ends as the
command does. Where there is no such process, or it cannot take the place, the command is run in
the usual way; so are those that serve or that a terminal is given to. Only what is built into
Python is imported, as starting must cost nothing.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import posix
import sys

#: The commands of `flux-ensemble` that ask the service, or Flux, and end.
COMMANDS = frozenset((
    "action", "best", "cancel", "disable", "doctor", "enable", "failures", "jobs", "list", "load",
    "log", "memo", "metrics", "pause", "replay", "rerun", "resume", "rm", "run", "search",
    "simulate", "status", "submit", "supervise", "terminate", "unload", "validate", "wait", "watch",
    "why",
))  # fmt: skip

#: Signals that are passed on, and those of which it matters whether they are ignored.
PASSED = (
    _signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1,
    _signal.SIGALRM,
)  # fmt: skip

#: Modules of the broker that are forks, of those that are written in Python.
MODULES = frozenset(("sched-simple.py", "ensemble.py", "ensemble-keeper.py"))


def as_usual(kind, arguments):
    """Become the command."""
    bin_directory = os.path.dirname(sys.executable)
    if kind == "flux":
        here = os.environ.pop("FLUX_EXEC_PATH_PREPEND", None)
        path = os.environ.get("FLUX_EXEC_PATH", "").split(":")
        os.environ["FLUX_EXEC_PATH"] = ":".join(each for each in path if each != here)
        os.execvp("flux", ["flux", *arguments])
    if kind == "python":
        os.execv(sys.executable, [sys.executable, *arguments])
    if kind == "command":
        os.execv(f"{bin_directory}/flux-ensemble", ["flux-ensemble", *arguments])
    os.execvp("flux", ["flux", "python", *arguments])


def is_meant(kind, arguments):
    """Whether it is a command that the other process is for."""
    if any(os.isatty(fd) for fd in (0, 1, 2)):  # raises OSError for one that is closed
        return False
    if kind == "command":
        return arguments and arguments[0] in COMMANDS
    if kind == "flux" and arguments[0] == "modprobe":
        # What a site adds to the beginning of an instance looks for the Python beside the command.
        return "FLUX_MODPROBE_PATH_APPEND" not in os.environ or arguments[1:] == ["rc3"]
    if kind == "flux" and arguments[0] == "module-python-exec":
        return os.path.basename(arguments[1]) in MODULES
    return True


def files_of(kind, arguments):
    """The files that the command has: the standard ones, and a module its connection."""
    if kind == "flux" and arguments[0] == "module-python-exec":
        return 0, 1, 2, int(os.environ["FLUX_MODULE_URI"].removeprefix("fd://"))
    return 0, 1, 2


def script_of(name):
    """The file in which Flux has a command that is written in Python."""
    for directory in os.environ.get("FLUX_EXEC_PATH", "").split(":"):
        path = f"{directory}/flux-{name}.py"
        if os.path.exists(path):
            return path
    raise OSError


def main():
    kind, *arguments = sys.argv[1:]
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    child = 0
    early = []

    def passed_on(number, frame):
        if child:
            try:  # noqa: SIM105
                posix.kill(child, number)
            except OSError:
                pass
        else:
            early.append(number)

    try:
        if not is_meant(kind, arguments):
            raise OSError
        meant = kind, arguments
        if kind == "flux":
            meant = "script", [script_of(arguments[0]), *arguments[1:]]
        umask = os.umask(0)
        os.umask(umask)
        ignored = [number for number in PASSED if _signal.getsignal(number) == _signal.SIG_IGN]
        request = marshal.dumps(
            (*meant, os.getcwd(), dict(posix.environ), umask, list(map(int, ignored)))
        )
        server.connect(posix.environ[b"WARM_COMMANDS"])
        for number in PASSED:
            if number not in ignored:
                _signal.signal(number, passed_on)
        files = files_of(kind, arguments)
        sent = b"".join(fd.to_bytes(4, sys.byteorder) for fd in files)
        server.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, sent)])
        child = marshal.loads(server.recv(64))
        if not child:
            raise OSError
    except (OSError, KeyError):
        for number in PASSED:
            if _signal.getsignal(number) is passed_on:
                _signal.signal(number, _signal.SIG_DFL)
        as_usual(kind, arguments)
    # Its end is the end of the process that has it now.
    for fd in files[3:]:
        os.close(fd)
    while early:
        passed_on(early.pop(0), None)
    said = server.recv(64)
    status = marshal.loads(said) if said else _signal.SIGKILL
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != _signal.SIGKILL:
            _signal.signal(number, _signal.SIG_DFL)
        posix.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


main()
