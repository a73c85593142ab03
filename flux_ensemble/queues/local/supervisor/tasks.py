"""The start of one process of a job: its working directory, its files, its program."""

from __future__ import annotations

import errno
import os
import signal
import stat
from typing import Any

#: Most levels of directories that are made for an output file.
MAX_LEVELS = 32

#: Most commands whose files are remembered.
MAX_REMEMBERED = 1000

#: The file of each command and PATH: jobs are many, and commands few.
_remembered: dict[tuple[str, str], str] = {}


class UnkeptError(Exception):
    """The queue's file for a job's output cannot be opened; the text is the system's reason."""


class DirectoryError(Exception):
    """A job's working directory cannot be entered; the text says which and why."""


def enter(directory: str, make: bool) -> None:
    """Change to a job's working directory.

    Flux runs a job elsewhere whose directory is missing. Here it does not run: it would take the
    files of other such jobs for its own.

    Args:
        directory: an absolute path.
        make: make the directory if it is missing.

    Raises:
        DirectoryError: the directory cannot be entered.
    """
    try:
        if make and directory.count("/") <= MAX_LEVELS and not os.path.isdir(directory):
            os.makedirs(directory, exist_ok=True)
        os.chdir(directory)
    except (OSError, ValueError) as error:
        note = f"cannot change to the working directory {directory!r}: {reason_of(error)}"
        raise DirectoryError(note) from None


def open_output(order: dict[str, Any], directory: int, opened: list[int]) -> None:
    """Open and empty the output files of a job; one descriptor if both streams share a file.

    Relative paths are those below the current directory.

    Args:
        order: the order to start the job.
        directory: the directory for output for which the document names no file.
        opened: receives the descriptors.

    Raises:
        UnkeptError: the file in `directory` cannot be opened.
        OSError, ValueError: a file that the document names cannot be opened.
    """
    # A FIFO without a reader must not block the supervisor, and no terminal may become its own.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
    stdout, stderr = order["stdout"], order["stderr"]
    if stdout is None:
        name = f"{order['start']}.out"
        try:
            opened.append(os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=directory))
        except OSError as error:
            raise UnkeptError(reason_of(error)) from None
    else:
        opened.append(_open(stdout, flags))
    if stderr not in (None, stdout):
        opened.append(_open(stderr, flags))


def _open(path: str, flags: int) -> int:
    """Open an output file; make its directory.

    Raises:
        OSError, ValueError: the file cannot be opened.
    """
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        directory = os.path.dirname(path)
        if not directory or directory.count("/") > MAX_LEVELS:
            raise
        os.makedirs(directory, exist_ok=True)
    return os.open(path, flags, 0o666)


def start_task(
    group: int, command: list[str], environment: dict[str, str], stdin: int, output: list[int]
) -> int:
    """Start a process.

    Args:
        group: its process group; 0 for one of its own.
        command: the program and its arguments.
        environment: its environment.
        stdin: the descriptor of its standard input.
        output: the descriptors of standard output and standard error, or one for both.

    Returns:
        The process id.

    Raises:
        OSError, ValueError: the process cannot be started.
    """
    path = _find(command[0], environment.get("PATH", os.defpath))
    options: dict[str, Any] = {
        "file_actions": [
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, output[0], 1),
            (os.POSIX_SPAWN_DUP2, output[-1], 2),
        ],
        "setpgroup": group,
        "setsigmask": [],
        # Python ignores these two, and that would be inherited.
        "setsigdef": [signal.SIGPIPE, signal.SIGXFSZ],
    }
    try:
        return os.posix_spawn(path, command, environment, **options)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a "#!" line is run by the shell.
    return os.posix_spawn("/bin/sh", ["sh", path, *command[1:]], environment, **options)


def _find(command: str, path: str) -> str:
    """Find the file of a command, as execvp(3) does.

    As in a shell, a file that was found is remembered as long as it can be executed.

    Raises:
        FileNotFoundError: there is no such file on the path.
        PermissionError: there is such a file, and it cannot be executed.
    """
    if "/" in command:
        return command
    known = _remembered.get((command, path))
    if known is not None and os.access(known, os.X_OK):
        return known
    files = [f"{directory or '.'}/{command}" for directory in path.split(":")]
    for file in files:
        if os.access(file, os.X_OK) and stat.S_ISREG(os.stat(file).st_mode):
            _remember(command, path, file)
            return file
    if any(map(os.path.exists, files)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), command)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def _remember(command: str, path: str, file: str) -> None:
    # With relative directories in the path, the result depends on the working directory.
    if all(directory.startswith("/") for directory in path.split(":")):
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        _remembered[command, path] = file


def shell_status(status: int) -> int:
    """Return a wait status as Flux's job shell reports it: a signal is exit code 128 + signal."""
    return (128 + os.WTERMSIG(status)) << 8 if os.WIFSIGNALED(status) else status


def reason_of(error: Exception) -> str:
    """Return the reason of an error, in the system's words if there are any."""
    return getattr(error, "strerror", None) or str(error)
