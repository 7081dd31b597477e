"""XLA's refusals of programs that do not fit the memory of a device, and allocations that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..quantities import LARGEST
from .module import ArrayShape, Frame, Module, read_type

_SIZE = r"(\d{1,19}(?:\.\d{1,15})?[KMGTP]?)(?!\d)(?:i?B)?"
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTP", 1)}
_NEEDED_AND_AVAILABLE = tuple(
    re.compile(wording.replace("SIZE", _SIZE))
    for wording in (
        r"\(SIZE\) exceeds available HBM \(SIZE\)",  # libtpu since JAX 0.12
        r"Ran out of memory in memory space hbm\. Used SIZE of SIZE hbm",
        r"Requires SIZE, has SIZE available",
        r"Allocation \(size=SIZE\) would exceed memory \(size=SIZE\)",
        r"TPU TensorCore Hbm usage: SIZE,.{0,200} exceeding available bytes: SIZE",
    )
)
_REQUESTED = tuple(
    re.compile(wording.replace("SIZE", _SIZE))
    for wording in (
        r"ran out of memory trying to allocate .{0,40}\(rounded to SIZE\)",  # the allocator for GPUs
        r"Attempting to (?:allocate|reserve) SIZE[^\d].{0,60}That was not possible",
        r"Out of memory (?:while trying to allocate|allocating) SIZE",
        r"Failed to allocate request for .{0,40}\(SIZE\) on device",
        r"Could not allocate SIZE bytes in memory ",
    )
)
_FREE = re.compile(rf"There are {_SIZE} free|bytes allocatable, {_SIZE} bytes available")
_LIMIT = re.compile(r"\bLimit: +(\d{1,18})$", re.MULTILINE)
_IN_USE = re.compile(r"\bInUse: +(\d{1,18})$", re.MULTILINE)
_TOTAL = re.compile(rf"\btotal allocation: +{_SIZE}")
_CODE = re.compile(r"^(?:[A-Z_]+: )?(?:E\d{4}: \w+: )?(?:XLA:TPU compile permanent error\. )?")
_ROW = re.compile(rf"^ *\d+\. Size: {_SIZE} *\n((?: {{5,}}\S.*\n?)*)", re.MULTILINE)
_OP = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SOURCE = re.compile(r'source_file="((?:[^"\\]|\\.)*)" source_line=(\d{1,9})')
_SHAPE_LINE = re.compile(r"^ *Shape: (.*)$", re.MULTILINE)
_LABEL = re.compile(r"^ *XLA label: %?([\w.-]+) = ", re.MULTILINE)
_ONE_SHAPE = re.compile(r"\[shape = '([^']*)'")
_ALLOCATION = re.compile(r"allocation \d+: size (\d{1,18})(.*)")
_COLOR = re.compile(r", color (\d+)")
_VALUE = re.compile(
    r" *value: <\d+ ([^ {]+)(?:\{[\d,]*\})? @\d+> \(size=(\d{1,18}),offset=(\d{1,18})\): (.*)"
)

MOST_BUFFERS = 20
"""Number of the largest buffers in a refusal."""


class ListedBuffer(NamedTuple):
    """A buffer of a program that does not fit."""

    nbytes: int
    """Bytes, with padding."""

    shape: ArrayShape
    """Type of the largest value in it."""

    op: str | None = None
    """``op_name`` of the value's operation; of an argument, its path."""

    frames: tuple[Frame, ...] = ()
    """Source lines of the operation, innermost first."""


class Refusal(NamedTuple):
    """XLA's refusal of a program, or an allocation that failed."""

    message: str
    """First line of the message, without the error's code."""

    required_nbytes: int | None
    """Bytes that the program needs, as far as the message has them."""

    available_nbytes: int | None
    """Bytes that a device has."""

    buffers: tuple[ListedBuffer, ...]
    """The message's table of the largest buffers; empty if it has none."""

    requested_nbytes: int | None = None
    """Bytes of the allocation that failed; None for a program that was refused before it ran."""

    free_nbytes: int | None = None
    """Bytes that were free then."""

    is_warning: bool = False
    """Whether it is the warning of the allocator for GPUs, which rounds the bytes up. An error may follow."""


class Assignment(NamedTuple):
    """XLA's assignment of values to the default memory."""

    nbytes: int
    """Bytes of all buffers."""

    buffers: tuple[ListedBuffer, ...]
    """Largest buffers, which do not overlap, the most bytes first."""


def read_out_of_memory(text: str, module: Module | None = None) -> Refusal | None:
    """Return the refusal in an error message of the compiler; None if it is about something else.

    Messages about other memory than that of the device, such as a kernel's VMEM, are not refusals of the
    program.

    Args:
        text: The whole message.
        module: The program that was refused. It has the source lines that some messages lack.
    """
    found = next((match for one in _NEEDED_AND_AVAILABLE if (match := one.search(text))), None)
    if found is None:
        return None
    return Refusal(
        message=_message(text),
        required_nbytes=_nbytes(found[1]),
        available_nbytes=_nbytes(found[2]),
        buffers=tuple(_table(text, module))[:MOST_BUFFERS] or _single(text, found[1]),
    )


def read_failed_allocation(text: str) -> Refusal | None:
    """Return the allocation that failed while a program ran, or None if a message is about something else.

    Args:
        text: The whole message, with its tables as libtpu writes them.
    """
    found = next((match for one in _REQUESTED if (match := one.search(text))), None)
    if found is None:
        return None
    free, limit, in_use, total = (one.search(text) for one in (_FREE, _LIMIT, _IN_USE, _TOTAL))
    free_nbytes = _nbytes(free[1] or free[2]) if free else None
    if limit and in_use:
        free_nbytes = max(0, int(limit[1]) - int(in_use[1]))
    return Refusal(
        message=_message(text),
        required_nbytes=_nbytes(total[1]) if total else None,
        available_nbytes=None,
        buffers=tuple(_table(text, None))[:MOST_BUFFERS],
        requested_nbytes=_nbytes(found[1]),
        free_nbytes=free_nbytes,
        is_warning=found.re is _REQUESTED[0],
    )


def _message(text: str) -> str:
    """Return the first line of a message, without the error's code."""
    first = next(line for line in text.splitlines() if line.strip())
    return _CODE.sub("", first.strip())


def _nbytes(size: str) -> int:
    """Return the bytes of a size such as ``15.75G``."""
    unit = _UNITS.get(size[-1])
    is_whole = unit is None and size.isdecimal()
    return min(int(size) if is_whole else round(float(size.rstrip("KMGTP")) * (unit or 1)), LARGEST)


def _table(text: str, module: Module | None) -> Iterator[ListedBuffer]:
    """Yield the rows of a message's table that are arrays."""
    for row in _ROW.finditer(text):
        shape_line = _SHAPE_LINE.search(row[2])
        shape = _array(shape_line[1]) if shape_line else None
        if shape is None:
            continue
        op, source, label = _OP.search(row[2]), _SOURCE.search(row[2]), _LABEL.search(row[2])
        frames: tuple[Frame, ...] = (Frame(source[1], int(source[2]), ""),) if source else ()
        if module is not None and label and not frames:
            frames = _instruction_facts(module, label[1])[1]
        yield ListedBuffer(_nbytes(row[1]), shape, op[1] if op else None, frames)


def _single(text: str, size: str) -> tuple[ListedBuffer, ...]:
    """Return the array of a message about a single allocation."""
    found = _ONE_SHAPE.search(text)
    shape = _array(found[1]) if found else None
    return () if shape is None else (ListedBuffer(_nbytes(size), shape),)


def _array(text: str) -> ArrayShape | None:
    """Return the type of an array; None for tuples and other text."""
    found = read_type(text.strip())
    return found.shapes[0] if found is not None and len(found.shapes) == 1 else None


def _instruction_facts(module: Module, name: str) -> tuple[str | None, tuple[Frame, ...]]:
    """Return the operation and the source lines of an instruction."""
    for computation in module.computations.values():
        instruction = computation.by_name.get(name)
        if instruction is not None:
            return instruction.op_name, instruction.frames
    return None, ()


def read_assignment(text: str, module: Module) -> Assignment:
    """Return the buffers in the default memory, from the text that XLA dumps.

    Args:
        text: The text, with a line for each allocation and the values in it.
        module: The program.
    """
    total = 0
    found: list[ListedBuffer] = []
    values: list[tuple[int, int, str, ArrayShape]] = []
    is_counted = False
    for line in text.splitlines():
        allocation = _ALLOCATION.match(line)
        if allocation is not None:
            found.extend(_disjoint(values, module))
            values.clear()
            color = _COLOR.search(allocation[2])
            is_counted = "thread-local" not in allocation[2] and (color is None or color[1] == "0")
            total += int(allocation[1]) if is_counted else 0
        elif is_counted and (value := _VALUE.match(line)) is not None:
            shape = _array(value[4])
            if shape is not None:
                values.append((int(value[2]), int(value[3]), value[1], shape))
    found.extend(_disjoint(values, module))
    return Assignment(total, tuple(sorted(found, key=lambda one: -one.nbytes)[:MOST_BUFFERS]))


def _disjoint(values: list[tuple[int, int, str, ArrayShape]], module: Module) -> list[ListedBuffer]:
    """Return the largest values of an allocation that do not overlap."""
    taken: list[tuple[int, int]] = []
    buffers: list[ListedBuffer] = []
    for nbytes, offset, name, shape in sorted(values, key=lambda one: -one[0]):
        if len(buffers) == MOST_BUFFERS:
            break
        if nbytes and all(offset >= end or offset + nbytes <= start for start, end in taken):
            taken.append((offset, offset + nbytes))
            buffers.append(ListedBuffer(nbytes, shape, *_instruction_facts(module, name)))
    return buffers
