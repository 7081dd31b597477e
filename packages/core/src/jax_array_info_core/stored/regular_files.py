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
        FileFormatError: If it is a device, a pipe or a socket.
        OSError: If it cannot be opened.
    """
    # Otherwise, opening a pipe waits for a writer.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise FileFormatError("a device or a pipe, not a regular file")


@contextlib.contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Begin the errors in a block with the name of a part of a file."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{printable(name)}: {error}") from error.__cause__


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file; 0 for a file in /proc."""
    return os.fstat(file.fileno()).st_size


def read_whole(path: Path, budget: Budget) -> bytes:
    """Return the content of a regular file; nothing of one without a size, such as those in /proc.

    Raises:
        FileFormatError: If it is not a regular file, or exceeds the budget.
        OSError: If it cannot be read.
    """
    with open_regular(path) as file:
        size = size_of(file)
        budget.spend("bytes", size)
        return file.read(size)
