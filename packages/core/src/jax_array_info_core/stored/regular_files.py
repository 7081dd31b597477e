"""Regular files: devices and pipes, which may have no end or block, are refused."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import FileFormatError
from ..text import printable
from .budget import Budget


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
    raise FileFormatError("an empty file" if is_regular else "a device or a pipe, not a regular file")


@contextlib.contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Begin the errors in a block with the name of a part of a file."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{printable(name)}: {error}") from error.__cause__


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file."""
    return os.fstat(file.fileno()).st_size


def read_whole(path: Path, budget: Budget) -> bytes:
    """Return the content of a regular file.

    Raises:
        FileFormatError: If it is not a regular file, is empty, or exceeds the budget.
        OSError: If it cannot be read.
    """
    with open_regular(path) as file:
        size = size_of(file)
        budget.spend("bytes", size)
        return file.read(size)
