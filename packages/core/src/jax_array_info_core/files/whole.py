"""Files that are complete or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from .descriptors import opened_folder, remove_abandoned, replace_file


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
