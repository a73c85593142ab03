"""Directories that belong to the user alone, and files in them that nobody else put there.

The state of the local queue is written by any user who runs an ensemble, root included, and can be
in a place where others can write. So a directory is opened once, and names in it are looked up by
its descriptor: later changes of its path have no effect. A symbolic link, FIFO or device is not
accepted as a file of the local queue, nor a file that another user owns.

    with open_directory(root, make=True) as top:
        top.check_own()
        with top.enter("NAME", make=True) as directory:
            directory.replace("document", data)
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from flux_ensemble import files
from flux_ensemble.queues.local.root import StateError
from flux_ensemble.runtime.durability.lines import write_all

#: Flags for a directory in which names are looked up: it need not be readable.
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
}


class Directory:
    """An open directory.

    Args:
        fd: its descriptor, which is closed with it.
        path: its name in messages.
        ours: files in it have to belong to the user; otherwise to the owner of the directory.
    """

    def __init__(self, fd: int, path: Path, *, ours: bool) -> None:
        self.fd = fd
        self.path = path
        self._ours = ours
        # In another user's directory that user's files alone are read: links could misuse root.
        self._owner = os.geteuid() if ours else os.fstat(fd).st_uid

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; no names can be looked up any more."""
        os.close(self.fd)

    def check_own(self) -> None:
        """Check that the directory is the user's, and that nobody else can write in it.

        Raises:
            StateError: one of the two does not hold.
        """
        status = os.fstat(self.fd)
        if status.st_uid != os.geteuid():
            raise StateError(
                f"{self.path} belongs to user {status.st_uid} and not to you: name another state "
                "directory with --state-dir"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StateError(
                f"others can write in {self.path} (mode {stat.S_IMODE(status.st_mode):04o}): end "
                "that with 'chmod go-w', or name another state directory with --state-dir"
            )

    def check(self, name: str) -> None:
        """Check that a name belongs to a file of the local queue, or to nothing.

        Raises:
            StateError: the name belongs to something else.
        """
        with contextlib.suppress(FileNotFoundError):
            self._check(name, self._stat(name))

    def enter(self, name: str, *, make: bool = False) -> Directory:
        """Open the directory of a name in this one.

        Args:
            make: make it, for the user alone, if it does not exist.

        Raises:
            StateError: the name belongs to something else.
            OSError: the directory cannot be opened or made.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.fd)
        try:
            fd = os.open(name, _LOOK, dir_fd=self.fd)
        except NotADirectoryError:
            raise self._foreign(name, self._stat(name), "a directory") from None
        return Directory(fd, self.path / name, ours=self._ours)

    def names(self) -> list[str]:
        """Return the names in the directory, in no particular order."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open an existing file.

        Raises:
            StateError: it is no plain file, or its owner is another user.
            OSError: it does not exist, or cannot be opened.
        """
        # The type is checked before the file is opened: opening a device can have effects.
        opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            self._check(name, os.fstat(opened))
            return os.open(f"/proc/self/fd/{opened}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(opened)

    def open_or_make(self, name: str, flags: int) -> int:
        """Open a file; make it, for the user alone, if it does not exist.

        Raises:
            StateError, OSError: as for `open`.
        """
        while True:
            with contextlib.suppress(FileNotFoundError):
                return self.open(name, flags)
            with contextlib.suppress(FileExistsError):
                return self._make(name, flags)

    def create(self, name: str) -> int:
        """Make an empty file to append to, for the user alone; replace a file of that name.

        Raises:
            StateError: the name belongs to no file of the local queue.
            OSError: the file cannot be made.
        """
        self.remove(name)
        return self._make(name, os.O_WRONLY | os.O_APPEND)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file as a whole, or not at all.

        Raises:
            StateError: the name belongs to no file of the local queue.
            OSError: the file cannot be written.
        """
        new = f"{name}.new"
        fd = self.create(new)
        try:
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
            self.rename(new, name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=self.fd)
            raise

    def rename(self, old: str, new: str) -> None:
        """Rename a file; a file of the local queue with the new name is replaced.

        Raises:
            StateError: the new name belongs to no file of the local queue.
            OSError: the file cannot be renamed.
        """
        self.check(new)
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error.

        Raises:
            StateError: the name belongs to no file of the local queue.
            OSError: the file cannot be removed.
        """
        self.check(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def read(self, name: str, limit: int) -> bytes:
        """Read a whole file.

        Raises:
            StateError: as for `open`, or the file has more than `limit` bytes.
            OSError: as for `open`, or the file cannot be read.
        """
        with os.fdopen(self.open(name), "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise StateError(f"{self.path / name}: expected at most {limit} bytes")
        return data

    def _make(self, name: str, flags: int) -> int:
        flags |= os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self.fd)

    def _stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def _check(self, name: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._foreign(name, status, "a file")
        if status.st_uid != self._owner:
            whose = "you" if self._ours else f"user {self._owner}, as its directory does"
            raise StateError(
                f"{self.path / name} belongs to user {status.st_uid} and not to {whose}: remove "
                "it, or name another state directory with --state-dir"
            )

    def _foreign(self, name: str, status: os.stat_result, expected: str) -> StateError:
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        return StateError(
            f"{self.path / name} is {kind}, where {expected} of the local queue belongs: remove "
            "it, or name another state directory with --state-dir"
        )


def open_directory(path: Path, *, make: bool = False, ours: bool = True) -> Directory:
    """Open a directory by its path.

    Symbolic links on the way are followed if they belong to the user or to root: another
    user's links could lead anywhere.

    Args:
        path: the directory.
        make: make missing parts of the path, for the user alone.
        ours: files in it have to belong to the user; otherwise to the owner of their directory.

    Raises:
        StateError: a symbolic link of another user is on the way.
        OSError: the directory cannot be opened or made.
    """
    try:
        fd = files.open_directory(path, make=make)
    except files.ForeignFile as error:
        raise StateError(f"{error}: name the state directory itself with --state-dir") from None
    return Directory(fd, path, ours=ours)
