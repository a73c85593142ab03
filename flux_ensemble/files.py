"""Files by paths that others may control: opened only if no other user can have chosen them.

A path in `/tmp`, or in another user's directory, can lead anywhere: a symbolic link there leads
where its owner wants, and a file there has the contents that its owner wants. So every link on the
way has to belong to the user or to root, a file to be read has to belong to a trusted user, and a
file to be written must not be a trap in a directory where everybody can make files.

    text = read(path, limit=4096)             # a token: the user's, or root's
    with create(path) as file: ...            # a record: made, or written anew
    with replacing(path) as beside: ...       # a report: as a whole or not at all

Each path is walked once, name by name, from an open directory to the next, so that nobody can
exchange a part that has been checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

#: Flags of a directory in which names are looked up; it need not be readable.
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: Most symbolic links in a path, as in the kernel.
_MAX_LINKS = 40

#: The mode of a directory in which everybody can make files, and nobody can take those of others.
_EVERYBODYS = stat.S_ISVTX | stat.S_IWOTH

#: What a file may take the place of; a directory cannot be replaced, which has an error of its own.
_REPLACED = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)


class ForeignFile(PermissionError):
    """A path leads through, or to, another user's file; `strerror` is the sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, sentence)

    def __str__(self) -> str:
        return str(self.strerror)


def trusted() -> frozenset[int]:
    """Return the users whose links and files are accepted: that of this process, and root."""
    return frozenset((0, os.geteuid()))


def open_directory(path: Path, *, make: bool = False) -> int:
    """Open a directory to look up names in.

    Args:
        path: the directory.
        make: create missing directories on the way, for the user only.

    Raises:
        ForeignFile: there is a symbolic link of another user on the way.
        OSError: it cannot be opened or made.
    """
    directory, _ = _walk(path, trusted(), make=make, last=False)
    return directory


def open_to_read(path: str | Path, owners: Collection[int] | None = None) -> int:
    """Open a regular file to read, without blocking.

    Args:
        path: the file.
        owners: the users who may own it; default: `trusted`.

    Raises:
        ForeignFile: another user owns it, or a link on the way.
        OSError: it cannot be opened, or is no regular file.
    """
    owners = trusted() if owners is None else owners
    directory, name = _walk(Path(path), trusted() | set(owners), last=True)
    try:
        # Its kind has to be known before it is opened: opening a device can have effects.
        with _named(path):
            found = os.open(name, _flags(directory, os.O_PATH), dir_fd=directory)
    finally:
        os.close(directory)
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_uid not in owners:
            raise ForeignFile(f"{str(path)!r} belongs to user {status.st_uid}")
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)


def read(path: str | Path, *, limit: int, private: bool = False) -> bytes:
    """Return the contents of a file of the user or of root, such as a key or a token.

    Args:
        path: the file.
        limit: its largest size in bytes.
        private: nobody else may be able to read it.

    Raises:
        ForeignFile: others own it, or a link on the way; or others can read a private file.
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        if private and os.fstat(file.fileno()).st_mode & 0o077:
            raise ForeignFile(f"others can read {path}: end that with 'chmod 600 {path}'")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return data


def create(path: str | Path, *, mode: int = 0o666, new: bool = False, regular: bool = False) -> int:
    """Open a file to write from its beginning; create it if it is missing.

    Args:
        path: the file.
        mode: of a file that is created.
        new: the file must not exist yet.
        regular: refuse anything but a regular file, without waiting for a reader of a FIFO.

    Raises:
        ForeignFile: another user owns a link on the way; or the file, in a directory where
            everybody can make files.
        FileExistsError: the file exists, and had to be `new`.
        OSError: it cannot be opened.
    """
    directory, name = _walk(Path(path), trusted(), last=True)
    try:
        flags = _flags(directory, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY)
        if new:
            flags |= os.O_EXCL
        if regular:
            flags |= os.O_NONBLOCK
        # A trap is not opened: opening a FIFO or a device can have effects.
        with contextlib.suppress(FileNotFoundError):
            _check_trap(path, directory, os.stat(name, dir_fd=directory, follow_symlinks=False))
        try:
            with _named(path):
                fd = os.open(name, flags, mode, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.ENXIO and regular:  # a FIFO that nobody reads
                raise _irregular(path) from None
            raise
        try:
            status = os.fstat(fd)
            _check_trap(path, directory, status)
            if stat.S_ISREG(status.st_mode):
                os.ftruncate(fd, 0)
            elif regular:
                raise _irregular(path)
        except BaseException:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(directory)


@contextlib.contextmanager
def writing(path: str | Path, *, new: bool = False) -> Iterator[IO[str]]:
    """Open a file to write UTF-8 text to; see `create`. A new file is removed after an error."""
    made = create(path, new=new)
    try:
        with open(made, "w", encoding="utf-8") as file:
            yield file
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[Path]:
    """Yield a path to write to, whose file then replaces another as a whole, or not at all.

    Args:
        path: the file to be replaced. If it is a symbolic link, the link itself is replaced.
        mode: of the new file; default: that of new files of the process.

    Raises:
        ForeignFile: another user owns a link on the way to its directory.
        OSError: there is no such directory, no file can be made in it, or the path is that of a
            device or a FIFO, which no file can replace.
    """
    directory = open_directory(path.parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
            if stat.S_IFMT(status.st_mode) not in _REPLACED:
                raise _irregular(path)
        # By the descriptor: later changes of the path do not matter.
        parent = f"/proc/self/fd/{directory}"
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:100]}-", dir=parent) as made:
            beside = Path(made, path.name)
            yield beside
            if mode is not None:
                beside.chmod(mode)
            os.replace(beside, f"{parent}/{path.name}")
    finally:
        os.close(directory)


@contextlib.contextmanager
def in_memory(contents: bytes) -> Iterator[str]:
    """Yield the name of a file in memory: Python's OpenSSL reads keys from files only."""
    with open(os.memfd_create("memory", os.MFD_CLOEXEC), "wb") as file:
        file.write(contents)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def check_own_directory(path: Path) -> None:
    """Refuse a directory that is not the user's, or in which others can make files.

    Raises:
        ForeignFile: it is such a directory.
        OSError: it cannot be opened.
    """
    directory = open_directory(path)
    try:
        status = os.fstat(directory)
    finally:
        os.close(directory)
    if status.st_uid != os.geteuid():
        raise ForeignFile(f"{str(path)!r} belongs to user {status.st_uid} and not to you")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        # The remedy must not be to change the mode of a shared directory, such as /tmp.
        everybodys = status.st_mode & _EVERYBODYS == _EVERYBODYS
        remedy = "name a directory of yours" if everybodys else f"'chmod go-w {path}' ends that"
        raise ForeignFile(
            f"others can write in {str(path)!r} (mode {stat.S_IMODE(status.st_mode):04o}): {remedy}"
        )


@contextlib.contextmanager
def private_socket(path: Path) -> Iterator[None]:
    """Restrict a UNIX socket that is made at a path to connections of its user.

    A socket at the path that nobody listens on any more is removed.

    Raises:
        FileExistsError: somebody listens there, or the path is something else.
        ForeignFile: others can make files in its directory, so that they could replace the socket.
        OSError: there is no such directory.
    """
    check_own_directory(path.parent)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise FileExistsError(f"somebody listens on {path} already")
    elif os.path.lexists(path):
        raise FileExistsError(f"{path} is there already, and is no socket")
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _irregular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "expected a regular file", str(path))


def _check_trap(path: str | Path, directory: int, status: os.stat_result) -> None:
    """Refuse to write to another user's file in a directory where everybody can make files."""
    there = os.fstat(directory).st_mode & _EVERYBODYS
    if there == _EVERYBODYS and status.st_uid not in trusted():
        raise ForeignFile(
            f"{str(path)!r} belongs to user {status.st_uid}, in a directory where everybody can "
            "make files: choose another name, or a directory of yours"
        )


def _walk(
    path: Path, followed: Collection[int], *, make: bool = False, last: bool
) -> tuple[int, str]:
    """Open the directory that a path ends in; return it with the last name, which is no link.

    Args:
        path: the path.
        followed: the users whose symbolic links are followed.
        make: create missing directories.
        last: leave out the last name; else it is a directory, too, and "" is returned.
    """
    with _named(path):
        return _step(path, followed, make=make, last=last)


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Make errors name the whole path, instead of a name in it."""
    try:
        yield
    except ForeignFile:
        raise
    except OSError as error:
        error.filename = str(path)
        raise


def _step(path: Path, followed: Collection[int], *, make: bool, last: bool) -> tuple[int, str]:
    """Walk a path: see `_walk`."""
    names = [*reversed(path.absolute().parts[1:])]
    links = 0
    here = os.open("/", _LOOK)
    try:
        while names:
            name = names.pop()
            if last and not names:
                target = _link(here, name, path, followed)
                if target is None:
                    return here, name
            else:
                try:
                    there = os.open(name, _LOOK, dir_fd=here)
                except FileNotFoundError:
                    if not make:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=here)
                    names.append(name)
                    continue
                except NotADirectoryError:
                    target = _link(here, name, path, followed)
                    if target is None:
                        raise
                else:
                    os.close(here)
                    here = there
                    continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            if target.is_absolute():
                there = os.open("/", _LOOK)
                os.close(here)
                here = there
        # "/", or a link to it, which is a directory in any case.
        return here, "." if last else ""
    except BaseException:
        os.close(here)
        raise


def _link(directory: int, name: str, path: Path, followed: Collection[int]) -> Path | None:
    """Return the target of a symbolic link on the way to `path`; None if there is no link.

    Raises:
        ForeignFile: another user owns it.
    """
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode) or _is_descriptors(directory):
            return None
        target = Path(os.readlink("", dir_fd=fd))
    finally:
        os.close(fd)
    if status.st_uid not in followed:
        raise ForeignFile(
            f"{name!r} in {path} is a symbolic link of user {status.st_uid}, to {str(target)!r}"
        )
    return target


def _is_descriptors(directory: int) -> bool:
    """Return True if a directory has the open files of this process (see `/dev/stdout`).

    Entries of it, such as `/dev/fd/63`, are no paths, and are open already.
    """
    try:
        own = os.stat("/proc/self/fd")
    except FileNotFoundError:
        return False
    return os.path.samestat(own, os.fstat(directory))


def _flags(directory: int, flags: int) -> int:
    """Return the flags to open the last name of a path."""
    follow = 0 if _is_descriptors(directory) else os.O_NOFOLLOW
    return flags | follow | os.O_CLOEXEC
