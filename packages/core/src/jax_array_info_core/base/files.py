"""Descriptors that are checked before each use, and files that are complete or absent.

The program may close any descriptor, and open a file of its own under the same number. Anyone who can write
to a folder may put a pipe or a link into it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .errors import FileFormatError

fcntl: Any
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

Progress = Callable[[int, int], None]
"""Is called with the number of parts that were read, and the number of all parts."""

MODE = 0o666
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_PLACE = _DIRECTORY | getattr(os, "O_PATH", 0)
"""A folder that cannot be listed can still be written to."""
_READ = os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _CLOSE_ON_EXEC
_RANDOM_NBYTES = 8
_KEPT_FLAGS = getattr(os, "O_ACCMODE", 3) | os.O_APPEND
_PART = re.compile(r"\.jai-[0-9a-f]{16}\.part")


class LostError(OSError):
    """The program has closed a descriptor of ours."""

    def __init__(self) -> None:
        super().__init__(errno.EBADF, os.strerror(errno.EBADF))


class UnsuitableError(Exception):
    """A file that the recorder leaves alone. The text is the reason."""


class Descriptor:
    """A descriptor of ours, and the file that it was opened for."""

    def __init__(self, number: int) -> None:
        """Hold a descriptor that was just opened."""
        self._number, self._file, self._flags = number, _identity(os.fstat(number)), _flags(number)

    def is_at(self, status: os.stat_result) -> bool:
        """Return whether a status is that of the file."""
        return _identity(status) == self._file

    def status(self) -> os.stat_result:
        """Return the status of the file.

        Raises:
            LostError: If the number is that of another file by now, or of none.
        """
        try:
            status, flags = os.fstat(self._number), _flags(self._number)
        except OSError:
            raise LostError from None
        # The program may have opened the same file for reading.
        if not self.is_at(status) or flags != self._flags:
            raise LostError
        return status

    @property
    def number(self) -> int:
        """The descriptor, checked.

        Raises:
            LostError: If the number is that of another file by now, or of none.
        """
        self.status()
        return self._number

    def close(self) -> None:
        """Close the descriptor, if it is still ours."""
        with contextlib.suppress(OSError):
            os.close(self.number)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)


def _flags(number: int) -> int:
    """Return how a descriptor was opened: for reading or writing."""
    return fcntl.fcntl(number, fcntl.F_GETFL) & _KEPT_FLAGS if fcntl else 0


@contextlib.contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a folder for one operation, and yield its descriptor. Links are not followed.

    Raises:
        OSError: If it is missing or not a folder, or if a part of its path is a link by now.
    """
    if os.path.realpath(path) != str(path):
        raise NotADirectoryError(errno.ENOTDIR, "a part of its path is a link by now")
    held = Descriptor(os.open(path, _PLACE))
    try:
        yield held.number
    finally:
        held.close()


def names_in(folder: int) -> list[str]:
    """Return the names in a folder.

    Args:
        folder: Its descriptor.

    Raises:
        OSError: If it cannot be listed.
    """
    held = Descriptor(os.open(".", _DIRECTORY, dir_fd=folder))
    try:
        return os.listdir(held.number)
    finally:
        held.close()


def created(name: str, folder: int) -> Descriptor:
    """Create a file to append to.

    Args:
        name: Name of the file.
        folder: Descriptor of its folder.

    Raises:
        FileExistsError: If there is anything with this name.
        OSError: If it cannot be created.
    """
    return Descriptor(os.open(name, _CREATE, MODE, dir_fd=folder))


@contextlib.contextmanager
def opened_file(name: str | Path, folder: int | None = None) -> Iterator[Descriptor]:
    """Open a regular file for reading, without waiting and without following a link.

    Args:
        name: Name of the file.
        folder: Descriptor of its folder; None for a path.

    Raises:
        UnsuitableError: If it is not a regular file, or cannot be opened.
    """
    try:
        # A device may do something when it is opened.
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise UnsuitableError("a link" if stat.S_ISLNK(status.st_mode) else "not a regular file")
        held = Descriptor(os.open(name, _READ, dir_fd=folder))
    except OSError as error:
        raise UnsuitableError(error.strerror or str(error)) from error
    try:
        if not stat.S_ISREG(held.status().st_mode):
            raise UnsuitableError("not a regular file")
        yield held
    finally:
        held.close()


def _has_lock(file: Descriptor, operation: int) -> bool | None:
    """Lock a file, and return whether that is done; None where the file system has no locks."""
    if fcntl is not None:
        try:
            fcntl.flock(file.number, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            pass
    return None


def is_locked(file: Descriptor) -> bool | None:
    """Return whether another descriptor has a lock on a file; None where the file system has no locks."""
    has_lock = _has_lock(file, fcntl.LOCK_SH if fcntl else 0)
    return None if has_lock is None else not has_lock


def lock(file: Descriptor) -> bool:
    """Lock a file of ours while it is open. Return False without locks, and while another process looks."""
    return bool(_has_lock(file, fcntl.LOCK_EX if fcntl else 0))


def write_all(file: Descriptor, data: bytes) -> None:
    """Write some bytes.

    Raises:
        LostError: If the program has closed the descriptor.
        OSError: If they cannot be written.
    """
    while data:
        data = data[os.write(file.number, data) :]


def replace_file(
    folder: Path, name: str, data: bytes, is_alike: Callable[[os.stat_result], bool] | None = None
) -> None:
    """Write a file as a whole: to a temporary file, which is then renamed. It keeps its permissions.

    Args:
        folder: Path of its folder.
        name: Name of the file.
        data: Its new content.
        is_alike: Returns whether a status is still that of the file to replace; None for any, or none.

    Raises:
        OSError: If the file cannot be written.
        UnsuitableError: If there is another file with this name.
    """
    with opened_folder(folder) as place:
        part, file = _new_part(place)
        try:
            write_all(file, data)
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.number, os.stat(name, dir_fd=place).st_mode & 0o777)
            if is_alike is not None:
                _require_alike(name, place, is_alike)
            os.replace(part, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=place)
            raise
        finally:
            file.close()


def remove_file(folder: Path, name: str, is_alike: Callable[[os.stat_result], bool]) -> None:
    """Remove a file. Arguments and errors are those of ``replace_file``."""
    with opened_folder(folder) as place:
        _require_alike(name, place, is_alike)
        os.unlink(name, dir_fd=place)


def remove_abandoned(folder: int) -> None:
    """Remove the temporary files of killed processes, which are no longer locked.

    Args:
        folder: Descriptor of the folder.
    """
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = names_in(folder)
    for name in filter(_PART.fullmatch, names):
        # Without locks in the file system, it may belong to a running process.
        with contextlib.suppress(UnsuitableError, OSError), opened_file(name, folder) as file:
            if is_locked(file) is False and file.status().st_nlink == 1:
                os.unlink(name, dir_fd=folder)


def _new_part(folder: int) -> tuple[str, Descriptor]:
    """Return a new temporary file, locked while it is open so that other processes leave it alone."""
    while True:
        name = f".jai-{secrets.token_hex(_RANDOM_NBYTES)}.part"
        file = created(name, folder)
        lock(file)
        if file.status().st_nlink:
            return name, file
        file.close()  # another process removed it as abandoned before it was locked


def _require_alike(name: str, folder: int, is_alike: Callable[[os.stat_result], bool]) -> None:
    if not is_alike(os.stat(name, dir_fd=folder, follow_symlinks=False)):
        raise UnsuitableError("another file by now")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: to a temporary file in the same folder, which is then renamed.

    Symbolic links are followed. Files that are already open (such as ``/dev/stdout``), devices and pipes are
    written to directly.

    Raises:
        OSError: If the file cannot be written; ``filename`` is this path.
    """
    try:
        place = _written_as_it_is(path)
        if place is not None:
            with open(place, "wb", closefd=isinstance(place, Path)) as file:
                file.write(data)
            return
        target = Path(os.path.realpath(path))
        with opened_folder(target.parent) as folder:
            remove_abandoned(folder)
        replace_file(target.parent, target.name, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def require_place(path: Path) -> None:
    """Check in advance that ``write_whole`` can write to a path.

    Raises:
        OSError: If the path is a folder, or its folder is missing or not writable.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if path.is_dir():
        code = errno.EISDIR
    elif _written_as_it_is(path) is not None or os.access(folder, os.W_OK):
        return
    else:
        code = errno.EACCES if os.path.isdir(folder) else errno.ENOENT
    raise OSError(code, os.strerror(code), str(path))


def _written_as_it_is(path: Path) -> int | Path | None:
    """Return the descriptor, device or pipe behind a path, None for a file to replace.

    Renaming a new file onto one that is open, such as a log that a shell appends to, would lose its content.
    """
    if not os.path.exists(path):
        return None
    name = os.path.abspath(path)
    while True:
        folder, last = os.path.split(name)
        if os.path.realpath(folder) == os.path.realpath("/dev/fd") and last.isdecimal():
            return int(last)
        if not os.path.islink(name):
            return None if path.is_file() else path
        name = os.path.join(folder, os.readlink(name))


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        FileFormatError: If it is a device, a pipe or a socket, or has no size: in /proc, some wait too.
        OSError: If it cannot be opened.
    """
    # Otherwise, opening a pipe waits for a writer.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    if is_regular and size_of(file) > 0:
        return file
    file.close()
    raise FileFormatError(
        "an empty file: save it again"
        if is_regular
        else "a device or a pipe, not a regular file: copy it to one"
    )


class _LastRead(io.FileIO):
    """A file that keeps the result of its last read."""

    count: int | None = None
    """Bytes that were read: 0 at the end, None if there are none yet."""

    def readinto(self, buffer: Any) -> int | None:
        self.count = super().readinto(buffer)
        return self.count


def open_without_waiting(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> BinaryIO:
    """Open a file or a pipe for reading. A pipe is not waited for until a program writes to it.

    Raises:
        FileFormatError: If it is a pipe that no program writes to.
        OSError: If it cannot be opened.
    """
    raw = _LastRead(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    file = io.BufferedReader(raw)
    if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and not file.peek(1) and raw.count == 0:
        file.close()
        raise FileFormatError("a pipe that no program writes to: start that program first")
    os.set_blocking(file.fileno(), True)
    return file


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file."""
    return os.fstat(file.fileno()).st_size
