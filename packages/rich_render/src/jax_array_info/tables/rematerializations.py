"""Entries of values that XLA replicates and shards again."""

from __future__ import annotations

from collections.abc import Sequence

from jax_array_info_core import MeshAxes, Rematerialization, format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.layouts.spec import Spec
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports.rows import split_rows

from .pages import Page
from .program_words import counted_path, spec_words
from .words import origin_words


def write_rematerialized(
    page: Page, found: Sequence[Rematerialization], mesh: MeshAxes | None, max_rows: int | None
) -> None:
    """Add an entry for each value: bytes of the whole, type on a device, specs, line and operation."""
    shown, rest = split_rows(found, max_rows)
    sizes = ["?" if one.nbytes is None else format_bytes(one.nbytes) for one in shown]
    widest = max(map(len, sizes), default=0)
    for size, one in zip(sizes, shown, strict=True):
        page.write_entry(
            size.rjust(widest),
            "",
            # Logs of very old versions do not name the operation.
            counted_path(type_text(one.dtype, one.shape) if one.dtype else "?", one.count, page.marks),
            f"from {_words(one.before, one.before_text, mesh)} to {_words(one.after, one.after_text, mesh)}",
            origin_words(one.origin),
            one.op,
        )
    if rest:
        page.write_entry("", "", f"and {counted(len(rest), 'more value', 'more values')}")


def _words(spec: Spec | None, text: str, mesh: MeshAxes | None) -> str:
    return text if spec is None else spec_words(spec, mesh)
