"""LiveArrayReport and MemoryReport → tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jax_array_info_core import LiveArrayGroup, LiveArrayReport, MemoryReport, format_bytes
from jax_array_info_core.units import printable

from . import style

SMALL_ARRAY_NBYTES = 3 * 1024


def live_array_table(
    report: LiveArrayReport,
    *,
    hide_small_arrays: bool = False,
    max_rows: int | None = 100,
    encoding: str = "utf-8",
) -> Table:
    """Return the table of all live arrays, the largest first.

    Args:
        report: What is alive.
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: How many rows of arrays to show; what is left is one row more. None for all.
        encoding: Encoding of the console, which decides on the marks.
    """
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows is a number of rows, or None for all; got {max_rows}")
    arrays = [group for group in report.groups if group.shape]
    scalars = [group for group in report.groups if not group.shape]
    several_devices = report.visible_devices > 1
    labelled = any(group.label is not None for group in arrays)

    table = Table(title="allocated jax arrays")
    for name in ("size", "shape", "dtype"):
        table.add_column(name, overflow="fold")
    if several_devices:
        table.add_column("sharded", justify="center", overflow="fold")
    if labelled:
        table.add_column("label", overflow="fold")

    small = [group for group in arrays if hide_small_arrays and _is_small(group)]
    large = [group for group in arrays if not (hide_small_arrays and _is_small(group))]
    large = _folded(large)
    shown, rest = large[:max_rows], large[len(large[:max_rows]) :]
    for group in shown:
        cells = [format_bytes(group.local_nbytes), _shape_text(group, encoding), group.dtype]
        if several_devices:
            cells.append(_sharded_text(group, encoding))
        if labelled:
            cells.append(group.label or "")
        table.add_row(*(Text(printable(cell, encoding)) for cell in cells))
    if rest:
        many = sum(group.count for group in rest)
        table.add_row(format_bytes(_held(rest)), f"{many} more array{'s' if many > 1 else ''}")
    if small:
        table.add_row(format_bytes(_held(small)), "small arrays")
    if scalars:
        table.add_section()
        for dtype, group_of_dtype in _by_dtype(scalars).items():
            count = sum(group.count for group in group_of_dtype)
            number = f"{count}{style.marks(encoding).times}s"
            table.add_row(format_bytes(_held(group_of_dtype)), number, printable(dtype, encoding))
    table.add_section()
    table.add_row(format_bytes(max((nbytes for _, nbytes in report.device_nbytes), default=0)))
    return table


def _folded(groups: Sequence[LiveArrayGroup]) -> list[LiveArrayGroup]:
    """Return groups that look alike as one: empty arrays on 2 and on 8 devices do."""
    alike: dict[tuple[object, ...], LiveArrayGroup] = {}
    for group in groups:
        sharded = group.device_count > 1
        look = (
            group.local_nbytes,
            group.shape,
            group.dtype,
            group.label,
            sharded,
            group.nbytes,
            group.replicas,
        )
        if look in alike:
            first = alike[look]
            places = Counter(dict(first.device_counts)) + Counter(dict(group.device_counts))
            group = replace(
                first, count=first.count + group.count, device_counts=tuple(sorted(places.items()))
            )
        alike[look] = group
    return list(alike.values())


def _is_small(group: LiveArrayGroup) -> bool:
    return group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES


def _held(groups: Sequence[LiveArrayGroup]) -> int:
    """Return what the device that holds the most of some arrays holds of them."""
    nbytes: Counter[int] = Counter()
    for group in groups:
        for device, count in group.device_counts:
            nbytes[device] += group.shard_nbytes * count
    return max(nbytes.values(), default=0)


def _shape_text(group: LiveArrayGroup, encoding: str) -> str:
    times = style.marks(encoding).times
    return str(group.shape) if group.count == 1 else f"{group.shape} {times}{group.count}"


def _sharded_text(group: LiveArrayGroup, encoding: str) -> str:
    if group.device_count == 1:
        return "" if group.device_counts else "none here"
    copies = f", {group.replicas} copies" if group.replicas > 1 else ""
    here = "" if group.device_counts else ", none here"
    return f"{style.marks(encoding).check} ({format_bytes(group.nbytes)} total{copies}{here})"


def _by_dtype(scalars: Sequence[LiveArrayGroup]) -> dict[str, list[LiveArrayGroup]]:
    """Return the scalars of each dtype, those that take the most bytes first."""
    found: dict[str, list[LiveArrayGroup]] = {}
    for group in scalars:
        found.setdefault(group.dtype, []).append(group)
    return dict(sorted(found.items(), key=lambda entry: -_held(entry[1])))


def memory_table(report: MemoryReport, *, encoding: str = "utf-8") -> RenderableType:
    """Return the table of a device's memory statistics, or the line that says why there are none."""
    device = printable(report.device, encoding)
    if report.stats is None:
        reason = f": {report.missing_reason}" if report.missing_reason else ""
        return Text(f"no memory statistics for {device}{printable(reason, encoding)}", style.WARNING)
    title = Text(f"Memory Stats of {device}")
    if report.allocation_count is not None:
        title.append(f"\n{report.allocation_count} allocs")
    table = Table(title=title)
    table.add_column("name", overflow="fold")
    table.add_column("size", justify="right", overflow="fold")
    table.add_column("size (raw)", justify="right", overflow="fold")
    for name, value in report.stats:
        # Counts are no sizes.
        is_size = isinstance(value, int) and not name.startswith("num_")
        size = format_bytes(int(value)) if is_size else ""
        table.add_row(*(Text(printable(cell, encoding)) for cell in (name, size, str(value))))
    return table
