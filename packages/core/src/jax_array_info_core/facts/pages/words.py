"""Phrases for meshes, index ranges, manual axes and the reasons for missing information."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...base.config import config, shown_callers
from ...base.quantities import format_bytes, format_number
from ...base.text import UNKNOWN
from ...geometry.layouts import MeshAxes
from ..reports import array as unknown_reasons
from .blocks import Sentence

if TYPE_CHECKING:
    from ..reports import ArrayReport, Change, Origin

NO_ALLOCATION_SITES = "Allocation sites are not available in this version of JAX."
SEARCH_INCOMPLETE = (
    "The search for referrers was incomplete, so there may be more. max_seconds=None removes its time limit."
)

_REASONS = {
    unknown_reasons.COMPILER_DECIDES: "XLA chooses it at compile time",
    unknown_reasons.REMOVED: "XLA removed the value",
    unknown_reasons.NOT_AVAILABLE: "not available in this version of JAX",
    unknown_reasons.TRANSPOSED: "the function is only transposed, so the value is never computed",
    unknown_reasons.IN_A_REDUCER: "inside a reducer, which sees single elements",
    unknown_reasons.IN_A_KERNEL: "inside a Pallas kernel, which sees one block",
    unknown_reasons.IN_A_JET: "inside jax.experimental.jet, which computes Taylor coefficients",
    unknown_reasons.SPARSE: "jax.experimental.sparse stores it as several arrays",
    "it is another process's": "the device belongs to another process",
    "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none": (
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps no statistics"
    ),
}
"""Printed text of the reasons that reports store."""


def no_referrer(holders: str) -> str:
    """Return that a search for referrers found none, by its result."""
    because = "search incomplete" if holders == "incomplete" else "held by JAX or C++"
    return f"no Python referrer found ({because})"


def garbage_words(count: int) -> str:
    """Return that only reference cycles keep a number of arrays alive."""
    them, cycles = ("it", "a reference cycle") if count == 1 else ("them", "reference cycles")
    return f"garbage in {cycles}: gc.collect() frees {them}"


def reason_words(reason: str) -> str:
    """Return the printed text of a reason that a report stores; unknown reasons stay as they are."""
    return _REASONS.get(reason, reason)


def origin_words(origin: Origin | None, absent: str = "") -> str:
    """Return file, line and function: ``train.py:14 loss``.

    ``config.callers`` adds the lines that called it, and ``config.show_frames`` those of packages inside it.
    """
    return absent if origin is None else origin.text(config.callers - 1)


def site_words(origin: Origin | None) -> str:
    """Return an allocation site with the line that called it: ``utils.py:3 make from train.py:12 train``."""
    return UNKNOWN if origin is None else origin.text(shown_callers())


def mesh_words(mesh: MeshAxes) -> str:
    """Return the axes of a mesh as ``data=4, model=2``."""
    return ", ".join(f"{name}={size}" for name, size in mesh.shape.items())


def index_words(index: Sequence[tuple[int, int]]) -> str:
    """Return the index range of a shard as ``[0:4, 8:16]``."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in index)}]"


def unknown_words(report: ArrayReport) -> str:
    """Return ``sharding unknown: …`` with the reason, for a traced value without a known sharding."""
    return f"sharding unknown: {reason_words(str(report.unknown_because))}"


def manual_words(axes: MeshAxes, invariant: Sequence[str]) -> str:
    """Return manual mesh axes as ``manual: 1 of 4 shards over ('x'), 2 replicas over ('y')``.

    Args:
        axes: The manual axes.
        invariant: Those over which the value is known not to vary.
    """
    copied = [name for name in axes.names if name in invariant and axes.shape[name] > 1]
    sharded = [name for name in axes.names if name not in copied]
    parts = []
    for before, nouns, names in (("1 of ", "shards", sharded), ("", "replicas", copied)):
        count = math.prod(axes.shape[name] for name in names)
        if count > 1 or (names and not copied):
            parts.append(f"{before}{count} {nouns} over ({','.join(map(repr, names))})")
    return f"manual: {', '.join(parts)}"


def undrawn_words(report: ArrayReport) -> str:
    """Return the line that replaces the picture of a traced value without a layout."""
    if report.manual_axes is not None:
        return manual_words(report.manual_axes, report.invariant_axes)
    if report.open_axes and report.sharding:
        return f"{report.sharding.spec}; chosen by XLA: {', '.join(map(repr, report.open_axes))}"
    if report.sharding is not None:
        return f"{report.sharding.type}: {report.sharding.text}"
    return unknown_words(report)


def change_words(change: Change) -> str:
    """Return bytes before and after: ``1.0 GiB before, 3.0 GiB after (2.0 GiB more)``."""
    old, new = (size_words(nbytes, "unknown") for nbytes in (change.before, change.after))
    difference = change.difference
    if difference == 0:
        return f"{old} before and after"
    return f"{old} before, {new} after{'' if difference is None else f' ({more_or_less(difference)})'}"


def more_or_less(nbytes: int) -> str:
    """Return a difference of bytes: ``2.0 GiB more``."""
    return f"{format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'}"


def rule_results(lines: Iterable[str]) -> Iterator[Sentence]:
    """Return the lines of ``rule_lines``, each with its look."""
    return (Sentence(line, "alarm" if line.startswith("failed") else "answer", hang=0) for line in lines)


def size_words(nbytes: int | None, absent: str = "") -> str:
    """Return a number of bytes, or another text if it is not known."""
    return absent if nbytes is None else format_bytes(nbytes)


def copies_words(
    unreduced: Sequence[str], partial_sums: int, replicas: int, replicated_over: Sequence[str] = ()
) -> str:
    """Return ``4 partial sums over model``, ``2 replicas over data`` or both; empty without copies."""
    words = [f"{format_number(partial_sums)} partial sums{_over(unreduced)}"] if partial_sums > 1 else []
    if replicas > 1:
        of_each = " of each" if words else ""
        words.append(f"{format_number(replicas)} replicas{of_each}{_over(replicated_over)}")
    return ", ".join(words)


def _over(unreduced: Sequence[str]) -> str:
    return f" over {', '.join(unreduced)}" if unreduced else ""
