"""Messages of the compiler on a program: values that it replicates, and what does not fit the memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base import quantities
from ...base.quantities import bytes_apart, counted, format_bytes, known_sum
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ...geometry.layouts.spec import MeshAxes, Spec, effective_spec
from ...geometry.layouts.steps import spec_between
from .array import ArrayType
from .findings import Finding, FindingLeaf
from .origin import Origin

_ONE_DEVICE = re.compile(r"\{(?:maximal|single_device)\b")
"""Start of XLA's text of a sharding on one device."""
_ANY_HAS = 1 << 28
"""Bytes that any accelerator has many times."""
_IN_STEPS = "Reshard it in steps that move one mesh axis each: constrain it to a sharding in between first."
_AS_ARGUMENT = (
    "What runs on one device, as a callback, makes a value that no constraint shards: compute it before the "
    "call, and pass it as an argument with the sharding that is needed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rematerialization(ArrayType):
    """A value that XLA replicates and shards again: its warning "Involuntary full rematerialization".

    In a program, each device gathers the value, and uses only a part of its own.
    """

    before: Spec | None
    """Partition spec before; None if the sharding is not a spec of the mesh, or there is no mesh. In a
    program, None also if mesh axes are left over which nothing is gathered: they may shard the value, too."""

    after: Spec | None
    """Partition spec after; None like ``before``."""

    before_text: str = ""
    """Sharding before, as XLA prints it in its warning; empty for a value of a program."""

    after_text: str = ""
    """Sharding after, like ``before_text``."""

    axes: tuple[str, ...] | None = None
    """Mesh axes over which it is gathered; None if they are not known, as from a warning."""

    shape: tuple[quantities.Size, ...]
    """Shape of the shard of a device before. Empty, like ``dtype`` and ``op``, in logs of versions before
    0.4.31, which do not have it."""

    whole_shape: tuple[quantities.Size, ...] = ()
    """Shape of the value as each device holds it, with XLA's padding; empty if unknown."""

    op: str
    """Name of the operation, such as ``jit(step)/sharding_constraint`` or ``%copy.3``."""

    nbytes: quantities.Size | None
    """Bytes of the value, which each device holds as a whole; None if unknown."""

    sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends for it in one call of the program; from a warning, each time that it runs.
    None if unknown."""

    origin: Origin | None = None
    """Line of the operation."""

    count: quantities.Count = 1
    """Number of equal values or warnings."""

    def change(self, mesh: MeshAxes | None) -> str:
        """Return the shardings before and after, else the mesh axes over which it is gathered, if known."""
        sizes = {} if mesh is None else mesh.shape
        before, after = (
            text if spec is None else str(effective_spec(spec, sizes))
            for spec, text in ((self.before, self.before_text), (self.after, self.after_text))
        )
        over = f"gathered over {', '.join(self.axes)}" if self.axes else ""
        return f"from {before} to {after}" if before and after else over

    def steps(self, mesh: MeshAxes | None) -> str:
        """Return the spec to constrain the value to first, with what two steps send; empty without one."""
        if mesh is None or self.before is None or self.after is None or not self.whole_shape:
            return ""
        between = spec_between(self.before, self.after, self.whole_shape, mesh.shape)
        if between is None:
            return ""
        nbytes = packed_nbytes((between.elements,), bits_of_name(self.dtype))
        sent = "" if nbytes is None else f": the two steps send {format_bytes(nbytes)}"
        return f"first to {between.spec}{sent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBuffer(ArrayType):
    """A buffer of a program that does not fit, live at the peak of its memory."""

    nbytes: quantities.Size
    """Bytes."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    op: str | None = None
    """Name of the operation."""

    origin: Origin | None = None
    """Line of the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The compiler's refusal of a program that does not fit the memory of a device.

    In a log, also an allocation that failed while a program ran.
    """

    message: str
    """First line of the message."""

    required_nbytes: quantities.Size | None = None
    """Bytes that the program needs."""

    available_nbytes: quantities.Size | None = None
    """Bytes that a device has."""

    buffers: tuple[LargeBuffer, ...] = ()
    """Buffers that are live at the peak, the most bytes first: all that the compiler assigned in the memory
    of the device. Of a GPU topology, the largest temporary values; in a log, the rows of the compiler's
    table, in its order."""

    is_program_known: bool = False
    """Whether the program that does not fit is known, with its collectives and flops."""

    requested_nbytes: quantities.Size | None = None
    """Bytes of the allocation that failed; None for a program that was refused before it ran."""

    free_nbytes: quantities.Size | None = None
    """Bytes that were free on the device when the allocation failed, if the message has them."""

    count: quantities.Count = 1
    """Number of equal errors in a log."""

    @property
    def answer(self) -> str:
        """The bytes that are missing: ``does not fit: needs 36.0 GiB, has 15.8 GiB per device``."""
        needs, has = _apart(self.required_nbytes, self.available_nbytes)
        if self.requested_nbytes is None:
            return f"does not fit: needs {needs}, has {has} per device"
        requested, free = _apart(self.requested_nbytes, self.free_nbytes)
        words = f"allocation failed: {requested} requested"
        words += "" if self.free_nbytes is None else f", {free} free"
        words += "" if self.required_nbytes is None else f", the program needs {needs}"
        return f"{words} per device"


def _apart(nbytes: int | None, limit: int | None) -> tuple[str, str]:
    """Return two numbers of bytes with as many decimals as tell them apart; words where one is unknown."""
    if nbytes is not None and limit is not None:
        return bytes_apart(nbytes, limit)
    first, second = ("an unknown size" if size is None else format_bytes(size) for size in (nbytes, limit))
    return first, second


def full_replication(
    values: Sequence[Rematerialization], mesh: MeshAxes | None, *, is_log: bool = False
) -> Iterator[Finding]:
    """Yield the finding on values that XLA replicates to reshard them, if there are any.

    Args:
        values: The values.
        mesh: The mesh of their specs.
        is_log: Whether they are those of any functions, so that names of operations keep the function.
    """
    if not values:
        return
    leaves = tuple(
        FindingLeaf(
            path=(value.op if is_log else _operation(value.op)) or "unknown operation",
            shape=value.whole_shape or value.shape,
            dtype=value.dtype,
            nbytes=value.nbytes,
            change=", ".join(filter(None, (_part(value), value.change(mesh)))),
            remedy=value.steps(mesh),
            origin=value.origin,
            count=value.count,
        )
        for value in values
    )
    count = sum(value.count for value in values)
    largest = max((value.nbytes for value in values if value.nbytes is not None), default=None)
    # A callback runs on one device, whatever its value is constrained to.
    on_one = [bool(_ONE_DEVICE.match(value.before_text)) for value in values]
    fixes = ([_IN_STEPS] if not all(on_one) else []) + ([_AS_ARGUMENT] if any(on_one) else [])
    yield Finding(
        kind="full replication",
        problem=(
            f"{counted(count, 'value is', 'values are')} resharded by full replication (XLA: involuntary "
            "full rematerialization): each device holds the whole array for a while"
            f"{_largest(values, largest) if count > 1 else ''}"
            f"{_sent_for(values, 'if each runs once' if is_log else 'per call')}."
        ),
        remedy=" ".join(fixes),
        nbytes=largest,
        sent_nbytes=None if is_log else known_sum(_sent_for_each(values)),
        leaves=leaves,
    )


def _largest(values: Sequence[Rematerialization], nbytes: int | None) -> str:
    """Return the bytes of the largest of several values, as far as they are known."""
    least = "at least " if any(value.nbytes is None for value in values) else ""
    return f" (the largest takes {least}{format_bytes(nbytes)})" if nbytes else ""


def _part(value: Rematerialization) -> str:
    """Return whether a shape is that of the whole value or of a shard."""
    if not value.whole_shape:
        return "the shard" if value.shape else ""
    return f"the whole of shards {value.type}"


def _sent_for(values: Sequence[Rematerialization], when: str) -> str:
    """Return the bytes that a device sends for values, as far as they are known."""
    known = [nbytes for nbytes in _sent_for_each(values) if nbytes is not None]
    least = "" if len(known) == len(values) else "at least "
    return f", and sends {least}{format_bytes(sum(known))} {when}" if known else ""


def _sent_for_each(values: Sequence[Rematerialization]) -> list[int | None]:
    return [None if value.sent_nbytes is None else value.sent_nbytes * value.count for value in values]


def _operation(name: str) -> str:
    """Return an operation in the user's words: ``layer/dot_general (backward)`` of a name that XLA prints.

    The names of transformations are left out. It is empty for a name that XLA made up.
    """
    parts = [part for part in name.split("/") if part and "(" not in part and not part.startswith("%")]
    backward = " (backward)" if "transpose(" in name else ""
    return "/".join(parts) + backward if parts else ""


def unread_lines(lines: Sequence[str], one: str, several: str, what: str = "") -> Iterator[Finding]:
    """Yield the finding on lines that could not be read, if there are any.

    Args:
        lines: The lines.
        one: Sentence on a single line.
        several: Sentence on more than value.
        what: Text after their number.
    """
    if lines:
        consequence = one if len(lines) == 1 else several
        yield Finding(
            kind="unread lines",
            problem=f"{counted(len(lines), 'line', 'lines')}{what} could not be read. {consequence}",
            remedy="Update jax-array-info, or report the lines with your version of JAX.",
            leaves=tuple(FindingLeaf(path=line.strip(), shape=(), dtype="") for line in lines),
        )


def refusal(error: OutOfMemory | None) -> Iterator[Finding]:
    """Yield the finding on a program or an allocation that does not fit, with the largest buffers."""
    if error is None:
        return
    needed, available = error.required_nbytes, error.available_nbytes
    missing = None if needed is None or available is None else max(needed - available, 0)
    if error.requested_nbytes is not None and error.free_nbytes is not None:
        missing = max(error.requested_nbytes - error.free_nbytes, 0)
    times = "" if error.count == 1 else f" ({error.count} times)"
    yield Finding(
        kind="program memory",
        problem=f"{error.answer[0].upper()}{error.answer[1:]}{times}. {error.message}",
        remedy=_first_change(error),
        nbytes=missing,
        leaves=tuple(
            FindingLeaf(
                path=buffer.op or "unknown operation",
                shape=buffer.shape,
                dtype=buffer.dtype,
                nbytes=buffer.nbytes,
                origin=buffer.origin,
                count=count,
            )
            for buffer, count in Counter(sorted(error.buffers, key=lambda buffer: -buffer.nbytes)).items()
        ),
    )


def was_full(requested: int | None, required: int | None, free: int | None) -> bool:
    """Return whether an allocation failed for which any device has room: others have filled the memory.

    Args:
        requested: Bytes of the allocation; None for a program that was refused before it ran.
        required: Bytes that the program needs, if known.
        free: Bytes that were free, if known; with more than that, the memory is fragmented.
    """
    return (
        requested is not None
        and max(requested, required or 0) < _ANY_HAS
        and (free is None or free < requested)
    )


def _first_change(error: OutOfMemory) -> str:
    """Return what to change first, or how to find it."""
    if was_full(error.requested_nbytes, error.required_nbytes, error.free_nbytes):
        return (
            "Look at what was there before: jai-cli run prints the arrays that are live when an allocation "
            "fails, and nvidia-smi the other processes of a GPU."
        )
    if error.buffers:
        first = max(error.buffers, key=lambda buffer: buffer.nbytes)
        place = f" at {first.origin.place}" if first.origin else f" of {first.op}" if first.op else ""
        buffer = f"{first.type}{place}"
        return f"Shard or recompute {buffer} first, use smaller batches, or use more devices."
    if error.requested_nbytes is None:
        return "print_program(function, *arguments) shows what the program allocates."
    return "Free or shard arrays: jai-cli run prints those that are live when an allocation fails."
