"""Compressed bytes of arrays in files, read from first to last."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from ..errors import FileFormatError
from ..text import printable
from .elements import Bytes, FileBytes
from .reading import open_regular

_SKIPPED = 2**20


class Readable(Protocol):
    """An open stream of bytes."""

    def read(self, count: int, /) -> bytes:
        """Return the next bytes; fewer at the end."""

    def close(self) -> None:
        """Close the stream."""


class StreamBytes:
    """Bytes that are decompressed from first to last, again if an earlier one is asked for."""

    cost = 2

    def __init__(self, open_stream: Callable[[], Readable], offset: int = 0) -> None:
        """Open a stream.

        Args:
            open_stream: Opens it at its beginning.
            offset: Place of the first byte.
        """
        self._open, self._offset, self._place = open_stream, offset, 0
        self._stream = open_stream()

    def read_at(self, start: int, count: int) -> bytes:
        """Return a range of the bytes."""
        start += self._offset
        if start < self._place:
            self._stream.close()
            self._stream, self._place = self._open(), 0
        while self._place < start and self._read(min(start - self._place, _SKIPPED)):
            pass
        return self._read(count) if self._place == start else b""

    def _read(self, count: int) -> bytes:
        try:
            data = self._stream.read(count)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise FileFormatError(f"not valid, or truncated: {printable(str(error))}") from error
        self._place += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def zip_bytes(path: Path, entry: zipfile.ZipInfo, offset: int) -> Bytes:
    """Return the bytes of an entry of a zip file.

    Args:
        path: The file.
        entry: The entry: stored or deflated.
        offset: Place of the first byte in its content.

    Raises:
        FileFormatError: If the file was changed since its directory was read.
        OSError: If it cannot be read.
    """
    if entry.compress_type != zipfile.ZIP_STORED:
        return StreamBytes(lambda: _entry_stream(path, entry), offset)
    with open_regular(path) as file:
        return FileBytes(path, _start_of(file, entry) + offset)


def _entry_stream(path: Path, entry: zipfile.ZipInfo) -> Readable:
    file = open_regular(path)
    try:
        file.seek(_start_of(file, entry))
        return zipfile.ZipExtFile(file, "r", entry, close_fileobj=True)
    except BaseException:
        file.close()
        raise


_LOCAL = struct.Struct("<4s22xHH")
"""Header before the content of an entry: its name and its extra field follow."""


def _start_of(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Return the place of an entry's content."""
    file.seek(entry.header_offset)
    data = file.read(_LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(b"PK\x03\x04"):
        raise FileFormatError(
            f"{printable(entry.filename)}: the file is truncated, or changed while it is read"
        )
    _, name, extra = _LOCAL.unpack(data)
    return entry.header_offset + _LOCAL.size + int(name) + int(extra)
