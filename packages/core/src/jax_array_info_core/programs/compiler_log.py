"""Warnings of the compiler and errors of its memory in a log."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..arrays.origins.origins import UserLines
from ..base.errors import LayoutError, NotationError
from ..base.grouping import by_key
from ..base.text import printable
from ..facts.reports.compiler_messages import LargeBuffer, OutOfMemory, Rematerialization
from ..facts.reports.logs import UnusableDonation
from ..facts.reports.origin import Origin
from ..geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ..geometry.layouts.spec import MeshAxes, Spec
from ..xla.hlo.messages import ArrayShape
from ..xla.hlo.oom_logs import ErrorReader, ListedBuffer, Refusal
from ..xla.hlo.warnings import DonationWarning, LogWarning, RematerializationWarning, WarningReader

if TYPE_CHECKING:
    from ..geometry.layouts.xla_sharding import XlaSharding

_MOST = 10_000
"""Number of different warnings of each kind that are listed, so that the memory is bounded."""
_MOST_ERRORS = 100
_MOST_UNREAD = 100
_LONGEST = 300
_ROUNDED = 256
"""Unit to which the allocator for GPUs rounds bytes up."""
_TRIED = "fake_parameter"
"""Beginning of the names of values on which XLA only tries a partitioning, to compare costs."""

_K = TypeVar("_K", RematerializationWarning, ArrayShape, Refusal, str)


class CompilerLog:
    """Numbers of equal warnings and errors, for a limited number of different ones."""

    def __init__(self) -> None:
        self._warnings = WarningReader()
        self._refusals = ErrorReader()
        self.readers = self._warnings, self._refusals
        """What reads them in the lines of logs, one log after the other."""
        self._rematerializations: Counter[RematerializationWarning] = Counter()
        self._buffers: Counter[ArrayShape] = Counter()
        self._errors: Counter[Refusal] = Counter()
        self._unread: Counter[str] = Counter()
        self._unlisted_count = 0

    def end_log(self) -> dict[int, Refusal]:
        """Count what was read in a log, and return its errors by the number of their first line."""
        self._add(self._warnings.end())
        refusals = self._refusals.end()
        for refusal in refusals.values():
            self._count(self._errors, refusal, _MOST_ERRORS)
        return refusals

    def rows(self, mesh: MeshAxes | None) -> tuple[dict[str, Any], dict[Refusal, int]]:
        """Return the fields of a ``LogReport`` on all logs, and the places of errors in ``out_of_memory``.

        Args:
            mesh: Mesh of the run, for specs.
        """
        sizes = mesh.shape if mesh else None
        lines = UserLines()
        rows = (
            replace(_rematerialization(warning, sizes, lines.origin(warning.frames)), count=count)
            for warning, count in self._rematerializations.items()
        )
        donations = [
            UnusableDonation(
                shape=buffer.dims,
                dtype=buffer.dtype,
                nbytes=None if buffer.nbytes < 0 else buffer.nbytes,
                count=count,
            )
            for buffer, count in self._buffers.items()
        ]
        errors, places = _logged_errors(self._errors, lines)
        unlisted = self._warnings.unlisted_count + self._refusals.unlisted_count
        fields = {
            "rematerializations": ranked(rows),
            "donations": tuple(sorted(donations, key=_rank)),
            "out_of_memory": errors,
            "unread": tuple(self._unread),
            "unlisted_count": self._unlisted_count + unlisted,
        }
        return fields, places

    def _add(self, warnings: Iterable[LogWarning]) -> None:
        """Count warnings."""
        for warning in warnings:
            if isinstance(warning, RematerializationWarning):
                if (warning.name or "").startswith(_TRIED):
                    continue
                # The numbers of instructions differ between programs.
                name = None if warning.op_name else warning.name
                self._count(self._rematerializations, warning._replace(name=name), _MOST)
            elif isinstance(warning, DonationWarning):
                for buffer in warning.buffers:
                    self._count(self._buffers, buffer, _MOST)
                if warning.unread:
                    self._count(self._unread, warning.unread, _MOST_UNREAD)
            else:
                self._count(self._unread, warning.text, _MOST_UNREAD)

    def _count(self, counts: Counter[_K], key: _K, most: int) -> None:
        if key in counts or len(counts) < most:
            counts[key] += 1
        else:
            self._unlisted_count += 1


def _rank(donation: UnusableDonation) -> tuple[bool, int, int]:
    """Return a key that sorts by bytes, the most first, and unknown ones last."""
    return donation.nbytes is None, -(donation.nbytes or 0), -donation.count


def listed_buffers(buffers: Iterable[ListedBuffer], lines: UserLines) -> tuple[LargeBuffer, ...]:
    """Return the rows of a table with the user's lines."""
    return tuple(
        LargeBuffer(
            nbytes=buffer.nbytes,
            shape=buffer.shape.dims,
            dtype=buffer.shape.dtype,
            op=buffer.op,
            origin=lines.origin(buffer.frames),
        )
        for buffer in buffers
    )


def _logged_errors(
    counts: dict[Refusal, int], lines: UserLines
) -> tuple[tuple[OutOfMemory, ...], dict[Refusal, int]]:
    """Return the rows of the errors in a log, in its order, and the place of the row of each.

    What precedes an error in the log is left out where the error follows. The error then has the free bytes
    of the allocator's warning, and the buffers of libtpu's report.

    Args:
        counts: Number of equal errors.
        lines: The search for the user's line.
    """
    firsts = [refusal for refusal in counts if refusal.is_warning]
    errors = [refusal for refusal in counts if not refusal.is_warning]
    pairs = [(first, error) for first in firsts for error in errors if _precedes(first, error)]
    after, before = dict(pairs), {error: first for first, error in pairs}
    listed = [refusal for refusal in counts if refusal not in after]
    places = {refusal: place for place, refusal in enumerate(listed)}
    rows = ((before.get(refusal, refusal), refusal) for refusal in listed)
    return tuple(
        OutOfMemory(
            message=printable(refusal.message[:_LONGEST]),
            required_nbytes=refusal.required_nbytes,
            available_nbytes=refusal.available_nbytes,
            requested_nbytes=refusal.requested_nbytes,
            free_nbytes=first.free_nbytes if refusal.free_nbytes is None else refusal.free_nbytes,
            buffers=listed_buffers(refusal.buffers or first.buffers, lines),
            count=counts[refusal],
        )
        for first, refusal in rows
    ), places | {first: places[error] for first, error in after.items()}


def _precedes(first: Refusal, error: Refusal) -> bool:
    """Return whether the line of a log is that before an error: of the same allocation, or program."""
    if first.requested_nbytes is not None:
        return _rounded(first) == _rounded(error)
    sizes = [
        (refusal.requested_nbytes, refusal.required_nbytes, refusal.available_nbytes)
        for refusal in (first, error)
    ]
    return sizes[0] == sizes[1] and error.module in ("", first.module)


def _rounded(refusal: Refusal) -> int | None:
    """Return the bytes that the allocator for GPUs was asked for."""
    nbytes = refusal.requested_nbytes
    return None if nbytes is None else -(-nbytes // _ROUNDED) * _ROUNDED


def _rematerialization(
    warning: RematerializationWarning, mesh: Mapping[str, int] | None, origin: Origin | None
) -> Rematerialization:
    """Return the row for a warning.

    Args:
        warning: XLA's warning.
        mesh: Size of each mesh axis by name; None without a mesh.
        origin: Line of the operation.
    """
    shape, whole = warning.shape, _whole(warning)
    nbytes = None if shape is None else packed_nbytes(whole, bits_of_name(shape.dtype))
    return Rematerialization(
        before=_spec(warning.before, mesh),
        after=_spec(warning.after, mesh),
        before_text=warning.before,
        after_text=warning.after,
        shape=() if shape is None else shape.dims,
        whole_shape=whole,
        dtype="" if shape is None else shape.dtype,
        op=warning.op_name or (f"%{warning.name}" if warning.name else ""),
        nbytes=nbytes if whole else None,
        sent_nbytes=nbytes - shape.nbytes if whole and nbytes is not None and shape is not None else None,
        origin=origin,
    )


def ranked(rows: Iterable[Rematerialization]) -> tuple[Rematerialization, ...]:
    """Return the rows, equal ones merged, the most bytes first.

    Versions of XLA write the same sharding differently: where both specs are known, they are compared.
    """

    def key(row: Rematerialization) -> Rematerialization:
        one = replace(row, count=1)
        are_known = row.before is not None and row.after is not None
        return replace(one, before_text="", after_text="") if are_known else one

    groups = by_key((key(row), row) for row in rows).values()
    merged = (replace(alike[0], count=sum(row.count for row in alike)) for alike in groups)
    return tuple(sorted(merged, key=lambda row: (row.nbytes is None, -(row.nbytes or 0), -row.count)))


@functools.lru_cache(maxsize=1024)
def _sharding(text: str) -> XlaSharding | None:
    """Return the sharding that a text describes; None if it is not one, such as that of a tuple."""
    from ..geometry.layouts.xla import parse_xla_sharding  # few logs have warnings

    try:
        return parse_xla_sharding(text)
    except NotationError:
        return None


def _spec(text: str, mesh: Mapping[str, int] | None) -> Spec | None:
    """Return the spec that is equivalent to a sharding on a mesh."""
    sharding = _sharding(text)
    if sharding is None or mesh is None:
        return None
    from ..geometry.layouts.xla import spec_of_xla

    try:
        return spec_of_xla(sharding, mesh)
    except LayoutError:
        return None


def _whole(warning: RematerializationWarning) -> tuple[int, ...]:
    """Return the shape of the value with all its shards, which have equal sizes after XLA's padding.

    It is empty if it is not known.
    """
    sharding = _sharding(warning.before)
    if warning.shape is None or sharding is None or sharding.kind == "unknown":
        return ()
    dims = warning.shape.dims
    counts = sharding.counts if sharding.kind == "tiled" else (1,) * len(dims)
    if len(counts) != len(dims):
        return ()
    return tuple(length * count for length, count in zip(dims, counts, strict=True))
