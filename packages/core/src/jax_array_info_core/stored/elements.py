"""Elements of arrays in files, read piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import IO, Any, Protocol

import numpy as np

from ..errors import FileFormatError

Box = tuple[slice, ...]
"""Indices of a part of an array: start and stop along each axis."""

Order = tuple[int, Iterator[Box]]
"""Boxes that cover an array, in the order in which they are best read, and the cost of another order: 0 for
none, 1 if chunks have to be read again, 2 if a file has to be read again from its beginning."""

MOST = 2**22
"""Maximum number of elements that are read at once: 64 MiB of complex numbers in double precision."""


class TooLargeError(FileFormatError):
    """Elements that cannot be read without much memory."""


class Elements(Protocol):
    """The elements of an open array."""

    dtype: np.dtype[Any]

    def order(self) -> Order:
        """Return the boxes to read."""

    def read(self, box: Box) -> np.ndarray[Any, Any]:
        """Return the elements in a box of at most ``MOST`` elements, in the byte order of this machine.

        Raises:
            TooLargeError: If they need much memory.
            FileFormatError: If the file has fewer elements, or is not valid.
            OSError: If it cannot be read.
        """

    def close(self) -> None:
        """Close the file."""


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all elements."""
    return tuple(slice(0, length) for length in shape)


def lengths_of(box: Box) -> tuple[int, ...]:
    """Return the shape of a box."""
    return tuple(part.stop - part.start for part in box)


def runs(shape: Sequence[int], box: Box) -> Iterator[Box]:
    """Yield boxes of at most ``MOST`` elements that cover a box, each contiguous in a row-major array.

    A box that is contiguous itself, and small enough, is the only one.

    >>> list(runs((2, 3), (slice(0, 2), slice(1, 2))))
    [(slice(0, 2, None), slice(0, 3, None))]
    """
    if not shape:
        yield ()
        return
    row, (start, stop) = math.prod(shape[1:]), (box[0].start, box[0].stop)
    if row <= MOST:
        step = max(MOST // max(row, 1), 1)
        for first in range(start, stop, step):
            yield (slice(first, min(first + step, stop)), *whole(shape[1:]))
        return
    for first in range(start, stop):
        for rest in runs(shape[1:], box[1:]):
            yield (slice(first, first + 1), *rest)


def blocks(shape: Sequence[int], chunk: Sequence[int]) -> Iterator[Box]:
    """Yield boxes of at most ``MOST`` elements that cover an array, chunk by chunk.

    Small chunks that follow each other are read together.
    """
    block = list(chunk)
    for axis in reversed(range(len(shape))):
        fitting = max(MOST // math.prod(block), 1)
        block[axis] = min(block[axis] * fitting, max(shape[axis], 1))
    for outer in _grid(shape, block):
        starts = [part.start for part in outer]
        for run in runs(lengths_of(outer), whole(lengths_of(outer))):
            yield tuple(
                slice(start + part.start, start + part.stop) for start, part in zip(starts, run, strict=True)
            )


def _grid(shape: Sequence[int], block: Sequence[int]) -> Iterator[Box]:
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], block[0]):
        for rest in _grid(shape[1:], block[1:]):
            yield (slice(start, min(start + block[0], shape[0])), *rest)


class FileBytes:
    """Bytes from a place in a file on. They are read, not mapped: a truncated file would end the process."""

    def __init__(self, file: IO[bytes], offset: int, cost: int = 0) -> None:
        """Read from an open file.

        Args:
            file: The file.
            offset: Place of the first byte.
            cost: Cost of reading the bytes in another order.
        """
        self._file, self._offset, self.cost = file, offset, cost

    def read_at(self, start: int, count: int) -> bytes:
        """Return a range of the bytes."""
        place = self._offset + start
        if place < self._file.tell():
            self._file.seek(0)  # a stored entry of a zip file is read up to any other earlier place
        self._file.seek(place)
        return self._file.read(count)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class RowMajor:
    """Elements that follow each other in a file, in row-major or, as in Fortran, in column-major order."""

    def __init__(
        self,
        data: FileBytes,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        bits: int,
        is_fortran: bool = False,
    ) -> None:
        """Read from bytes.

        Args:
            data: The bytes.
            shape: Shape of the array.
            dtype: The dtype, with its byte order.
            bits: Bits of an element in the file; packed, if they are not whole bytes.
            is_fortran: Whether the first axis is contiguous.
        """
        self.dtype, self._data, self._bits, self._is_fortran = dtype, data, bits, is_fortran
        self._shape = shape[::-1] if is_fortran else shape

    def order(self) -> Order:
        """Return contiguous boxes."""
        boxes = runs(self._shape, whole(self._shape))
        return self._data.cost, (box[::-1] for box in boxes) if self._is_fortran else boxes

    def read(self, box: Box) -> np.ndarray[Any, Any]:
        """Return the elements in a box."""
        return self._box(box[::-1]).T if self._is_fortran else self._box(box)

    def _box(self, box: Box) -> np.ndarray[Any, Any]:
        lengths = lengths_of(box)
        found = None
        for run in runs(self._shape, box):
            part = self._run(run)
            if run == box:
                return part
            if found is None:
                found = np.empty(lengths, part.dtype)
            starts = [max(one.start, other.start) for one, other in zip(run, box, strict=True)]
            stops = [min(one.stop, other.stop) for one, other in zip(run, box, strict=True)]
            place, inner = (
                tuple(
                    slice(start - one.start, stop - one.start)
                    for start, stop, one in zip(starts, stops, frame, strict=True)
                )
                for frame in (box, run)
            )
            found[place] = part[inner]
        return np.empty(lengths, self.dtype) if found is None else found

    def _run(self, run: Box) -> np.ndarray[Any, Any]:
        lengths = lengths_of(run)
        start = 0
        for part, length in zip(run, self._shape, strict=True):
            start = start * length + part.start
        count = math.prod(lengths)
        first, last = start * self._bits // 8, -(-(start + count) * self._bits // 8)
        data = np.frombuffer(self._data.read_at(first, last - first), np.uint8)
        if len(data) < last - first:
            raise FileFormatError(f"ends at byte {first + len(data):,} of an array: it is truncated")
        if self._bits % 8:
            bits = np.unpackbits(data, bitorder="little")[start * self._bits - 8 * first :]
            elements = bits[: count * self._bits].reshape(count, self._bits)
            data = np.packbits(elements, axis=1, bitorder="little").reshape(-1)
        found = data.view(self.dtype).reshape(lengths)
        return found.astype(self.dtype.newbyteorder("="), copy=False)

    def close(self) -> None:
        """Close the file."""
        self._data.close()
