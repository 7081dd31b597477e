"""Atomic writes: a file is replaced completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import BinaryIO

_RANDOM_NBYTES = 8


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
        _remove_abandoned(target.parent)
        part = _new_part(target.parent)
        unfinished = Path(part.name)
        try:
            with part:
                part.write(data)
                part.flush()
                if target.exists():
                    unfinished.chmod(target.stat().st_mode & 0o777)
                unfinished.replace(target)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _new_part(folder: Path) -> BinaryIO:
    """Return a new temporary file, locked while it is open so that other processes leave it alone."""
    while True:
        file = open(folder / f".jai-{secrets.token_hex(_RANDOM_NBYTES)}.part", "xb")  # noqa: SIM115
        # Without locks in the file system, other processes cannot lock it either and leave it alone.
        with contextlib.suppress(ImportError, OSError):
            _lock(file)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it as abandoned before it was locked


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of killed processes, which are no longer locked."""
    for path in folder.glob(f".jai-{'[0-9a-f]' * 2 * _RANDOM_NBYTES}.part"):
        # It may be renamed by now, or belong to another user.
        with contextlib.suppress(ImportError, OSError), open(path, "r+b") as file:
            _lock(file, wait=False)
            path.unlink()


def _lock(file: BinaryIO, *, wait: bool = True) -> None:
    """Lock a file until it is closed; if another process has locked it, wait or raise BlockingIOError."""
    import fcntl

    fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


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
