"""Rematerialization warnings as rows of reports."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..errors import LayoutError, NotationError
from ..hlo.warnings import RematerializationWarning
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import Spec
from ..layouts.xla import parse_xla_sharding, spec_of_xla
from ..layouts.xla_sharding import XlaSharding
from ..reports.origin import Origin
from ..reports.program import Rematerialization


def rematerialization(
    warning: RematerializationWarning, mesh: Mapping[str, int] | None, origin: Origin | None
) -> Rematerialization:
    """Return the row for a warning.

    Args:
        warning: XLA's warning.
        mesh: Size of each mesh axis by name; None without a mesh.
        origin: Line of the operation.
    """
    shape = warning.shape
    return Rematerialization(
        before=_spec(warning.before, mesh),
        after=_spec(warning.after, mesh),
        before_text=warning.before,
        after_text=warning.after,
        shape=() if shape is None else shape.dims,
        dtype="" if shape is None else shape.dtype,
        op=warning.op_name or (f"%{warning.name}" if warning.name else ""),
        nbytes=_whole_nbytes(warning),
        origin=origin,
    )


def ranked(rows: Iterable[Rematerialization]) -> tuple[Rematerialization, ...]:
    """Return the rows, equal ones merged, the most bytes first.

    Versions of XLA write the same sharding differently: where both specs are known, they are compared.
    """
    counts: dict[Rematerialization, int] = {}
    first: dict[Rematerialization, Rematerialization] = {}
    for row in rows:
        key = replace(row, count=1)
        if row.before is not None and row.after is not None:
            key = replace(key, before_text="", after_text="")
        first.setdefault(key, row)
        counts[key] = counts.get(key, 0) + row.count
    merged = (replace(first[key], count=count) for key, count in counts.items())
    return tuple(sorted(merged, key=lambda row: (row.nbytes is None, -(row.nbytes or 0), -row.count)))


@functools.lru_cache(maxsize=1024)
def _sharding(text: str) -> XlaSharding | None:
    """Return the sharding that a text describes; None if it is not one, such as that of a tuple."""
    try:
        return parse_xla_sharding(text)
    except NotationError:
        return None


def _spec(text: str, mesh: Mapping[str, int] | None) -> Spec | None:
    """Return the spec that is equivalent to a sharding on a mesh."""
    sharding = _sharding(text)
    if sharding is None or mesh is None:
        return None
    try:
        return spec_of_xla(sharding, mesh)
    except LayoutError:
        return None


def _whole_nbytes(warning: RematerializationWarning) -> int | None:
    """Return the bytes of the value with all its shards, which have equal sizes after XLA's padding."""
    sharding = _sharding(warning.before)
    if warning.shape is None or sharding is None or sharding.kind == "unknown":
        return None
    dims = warning.shape.dims
    counts = sharding.counts if sharding.kind == "tiled" else (1,) * len(dims)
    if len(counts) != len(dims):
        return None
    whole = [length * count for length, count in zip(dims, counts, strict=True)]
    return packed_nbytes(whole, bits_of_name(warning.shape.dtype))
