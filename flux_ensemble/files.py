"""Files by paths that others may have had a hand in: opened if nobody else can have chosen them.

A path in `/tmp`, or in another user's directory, can lead anywhere: a symbolic link there leads
where its owner wants, and a file there has what its owner put into it. So every link on the way has
to belong to the user or to root, what is read has to be somebody's who is trusted, and what is
written to must not be a trap that somebody laid in a directory where everybody can make files.

    text = read(path, limit=4096)             # a token: the user's, or root's
    with create(path) as file: ...            # a record: made, or written anew
    with replacing(path) as beside: ...       # a report: as a whole or not at all

Each path is walked once, name by name, from an open directory to the next, so nobody can exchange
what has been looked at.
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

#: A directory to look up names in: it need not be readable.
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: How many symbolic links there are in a path at most, as in the kernel.
_MAX_LINKS = 40

#: The mode of a directory in which everybody can make files, and nobody can take those of others.
_EVERYBODYS = stat.S_ISVTX | stat.S_IWOTH


class ForeignFile(PermissionError):
    """A path leads through, or to, what another user has put there; `strerror` is the sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, sentence)

    def __str__(self) -> str:
        return str(self.strerror)


def trusted() -> frozenset[int]:
    """The users whose links and files are taken: the one of this process, and root."""
    return frozenset((0, os.geteuid()))


def open_directory(path: Path, *, make: bool = False) -> int:
    """Open a directory to look up names in.

    Args:
        path: the directory.
        make: make what is not there of it, for the user alone.

    Raises:
        ForeignFile: there is a symbolic link of another user on the way.
        OSError: it cannot be opened or made.
    """
    directory, _ = _walk(path, trusted(), make=make, last=False)
    return directory


def open_to_read(path: str | Path, owners: Collection[int] | None = None) -> int:
    """Open a regular file to read, without waiting for anybody.

    Args:
        path: the file.
        owners: the users whose file it may be; default: `trusted`.

    Raises:
        ForeignFile: it is another user's, or a link on the way is.
        OSError: it cannot be opened, or is no regular file.
    """
    owners = trusted() if owners is None else owners
    directory, name = _walk(Path(path), trusted() | set(owners), last=True)
    try:
        # What it is has to be known before it is opened: to open a device can have effects.
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
    """All of a file of the user's, or of root's, such as a key or a token.

    Args:
        path: the file.
        limit: the most bytes that it may have.
        private: nobody else may be able to read it.

    Raises:
        ForeignFile: others own it, or a link on the way; or others can read what is private.
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
    """Open a file to write from its beginning; it is made where there is none.

    Args:
        path: the file.
        mode: of a file that is made.
        new: there must be none yet.
        regular: refuse what is no regular file. Nobody who would read from a FIFO is waited for.

    Raises:
        ForeignFile: a link on the way is another user's; or the file is, in a directory where
            everybody can make files.
        FileExistsError: there is one, and it had to be `new`.
        OSError: it cannot be opened.
    """
    directory, name = _walk(Path(path), trusted(), last=True)
    try:
        flags = _flags(directory, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY)
        if new:
            flags |= os.O_EXCL
        if regular:
            flags |= os.O_NONBLOCK
        # A trap is not opened: to open a FIFO or a device can have effects.
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
def writing(path: str | Path, *, mode: int = 0o666, new: bool = False) -> Iterator[IO[str]]:
    """A file to write text to, in UTF-8; see `create`. A new one is not left in part."""
    made = create(path, mode=mode, new=new)
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
    """A path to write a file at that takes the place of another as a whole, or not at all.

    Args:
        path: the file to be replaced. A symbolic link in its place is replaced itself.
        mode: of the new file; default: as the process makes files.

    Raises:
        ForeignFile: a link on the way to its directory is another user's.
        OSError: there is no such directory, or nothing can be made in it.
    """
    directory = open_directory(path.parent)
    try:
        # By its descriptor: what becomes of the path meanwhile does not matter.
        parent = f"/proc/self/fd/{directory}"
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:100]}-", dir=parent) as made:
            beside = Path(made, path.name)
            yield beside
            if mode is not None:
                beside.chmod(mode)
            os.replace(beside, f"{parent}/{path.name}")
    finally:
        os.close(directory)


def check_own_directory(path: Path) -> None:
    """Refuse a directory that is not the user's, or in which others can make files.

    Raises:
        ForeignFile: it is such a one.
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
        # Nobody is to change the mode of what is everybody's, such as /tmp.
        everybodys = status.st_mode & _EVERYBODYS == _EVERYBODYS
        remedy = "name a directory of yours" if everybodys else f"'chmod go-w {path}' ends that"
        raise ForeignFile(
            f"others can write in {str(path)!r} (mode {stat.S_IMODE(status.st_mode):04o}): {remedy}"
        )


@contextlib.contextmanager
def private_socket(path: Path) -> Iterator[None]:
    """Within this, a UNIX socket that is made at a path can be connected to by the user alone.

    A socket there that nobody listens on any more is removed.

    Raises:
        FileExistsError: somebody listens there, or there is something else.
        ForeignFile: others can make files in its directory, so that they could take its place.
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
    """Refuse to write to what another user has put where everybody can."""
    there = os.fstat(directory).st_mode & _EVERYBODYS
    if there == _EVERYBODYS and status.st_uid not in trusted():
        raise ForeignFile(
            f"{str(path)!r} belongs to user {status.st_uid}, in a directory where everybody can "
            "make files: choose another name, or a directory of yours"
        )


def _walk(
    path: Path, followed: Collection[int], *, make: bool = False, last: bool
) -> tuple[int, str]:
    """The directory that a path ends in, open, and the last name; it is no link to be followed.

    Args:
        path: the path.
        followed: the users whose symbolic links are followed.
        make: make directories that are not there.
        last: leave the last name; else it is that of a directory too, and "" is given.
    """
    with _named(path):
        return _step(path, followed, make=make, last=last)


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Errors name the whole path, whatever name in it they are about."""
    try:
        yield
    except ForeignFile:
        raise
    except OSError as error:
        error.filename = str(path)
        raise


def _step(path: Path, followed: Collection[int], *, make: bool, last: bool) -> tuple[int, str]:
    """See `_walk`."""
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
        # "/", or a link to it: a directory, whatever it is taken for.
        return here, "." if last else ""
    except BaseException:
        os.close(here)
        raise


def _link(directory: int, name: str, path: Path, followed: Collection[int]) -> Path | None:
    """Where a symbolic link on the way to `path` leads; None if it is none, or nothing is there.

    Raises:
        ForeignFile: it is another user's.
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
    """Whether it has the open files of this process: `/dev/stdout` and `/dev/fd/63` lead there.

    What is there is no path, and open already.
    """
    try:
        own = os.stat("/proc/self/fd")
    except FileNotFoundError:
        return False
    return os.path.samestat(own, os.fstat(directory))


def _flags(directory: int, flags: int) -> int:
    """Flags to open the last name of a path with."""
    follow = 0 if _is_descriptors(directory) else os.O_NOFOLLOW
    return flags | follow | os.O_CLOEXEC
